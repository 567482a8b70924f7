//! Memory of empty caches. A test of its own, as it measures the process.

use dentree_dcache::*;

/// Address space and resident memory of this process in bytes, if the system tells.
fn process() -> Option<(usize, usize)> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let mut pages = text.split(' ').map(|pages| pages.parse::<usize>());
    let (Some(Ok(all)), Some(Ok(resident))) = (pages.next(), pages.next()) else { return None };
    Some((all * 4096, resident * 4096))
}

#[test]
fn a_thousand_empty_caches_of_the_default_size_weigh_little() {
    let Some(before) = process() else {
        return println!("skipped: /proc/self/statm cannot be read");
    };
    let caches: Vec<Dcache<u64>> = (0..1000).map(|_| Dcache::builder().build(Child::directory(1))).collect();
    for cache in &caches {
        drop(cache.create(&cache.root(), b"one", Child::other(2)));
        assert!(matches!(
            cache.find(&cache.root(), b"one", WalkOptions::default(), |_| true),
            Walk::Found(_)
        ));
    }
    let after = process().expect("told before");
    let (space, resident) = (after.0 - before.0, after.1.saturating_sub(before.1));
    let told = caches[0].stats().memory.used;
    println!("{} MiB of address space, {} KiB resident, {told} bytes told each", space >> 20, resident >> 10);
    assert!(space <= 8 << 30 && resident <= 64 << 20, "{space} {resident}");
    assert!(told * 1000 * 4 >= resident, "{told} bytes are told of {} each", resident / 1000);
}
