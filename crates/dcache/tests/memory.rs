//! The budget (G5), what is evicted first, and that held entries stay (G6).

use dentree_dcache::*;
use std::sync::Arc;

const BUDGET: usize = 256 << 10;

fn name(i: usize) -> Vec<u8> {
    // One name in eight is long.
    format!("{i}-{}", "x".repeat(if i.is_multiple_of(8) { 100 } else { 4 })).into_bytes()
}

fn is_cached<H: Handle>(cache: &Dcache<H>, path: &[u8]) -> bool {
    matches!(cache.find(&cache.root(), path, WalkOptions::default(), |_| true), Walk::Found(_))
}

#[test]
fn the_budget_is_never_passed_and_the_parts_add_up() {
    let cache = Dcache::builder().memory(BUDGET).build(Child::directory(0_u64));
    let root = cache.root();
    for i in 0..20_000 {
        let dir = cache.create(&root, &name(i % 700), Child::directory(i as u64));
        cache.create(&dir, &name(i), Child::other(i as u64));
        drop(dir);
        let memory = cache.stats().memory;
        assert!(memory.used <= BUDGET, "{memory:?}");
        assert_eq!(memory.used, memory.records + memory.dentries + memory.long_names + memory.index);
    }
    let stats = cache.stats();
    assert!(stats.evicted > 15_000);
    assert!(stats.memory.used > BUDGET / 2, "{:?}", stats.memory);
    assert_eq!(stats.held, 0);
}

/// Regression: many names in one bucket made the index grow by more than was reserved, and the
/// count of bytes overflowed.
#[test]
fn unlucky_hashes_are_accounted_for() {
    for seed in [4393_u64, 5166] {
        let seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 13;
        let cache = Dcache::builder().seed(seed).build(Child::directory(2_u64));
        let dir = cache.create(&cache.root(), b"many", Child::directory(3));
        for i in 0..4000 {
            cache.create(&dir, format!("n{i}").as_bytes(), Child::other(10 + i));
        }
        let memory = cache.stats().memory;
        assert!(memory.used < 4100 * 160, "{memory:?}");
    }
}

#[test]
fn a_large_cache_with_few_entries_weighs_what_they_do() {
    let cache = Dcache::builder().memory(64 << 20).build(Child::directory(0_u64));
    for i in 0..5000 {
        cache.create(&cache.root(), format!("name{i}").as_bytes(), Child::other(i));
    }
    let Stats { entries, memory, .. } = cache.stats();
    assert!(memory.used / entries as usize <= 160, "{entries}: {memory:?}");
}

#[test]
fn what_is_held_is_kept_and_passes_the_budget_until_it_is_let_go() {
    let cache = Dcache::builder().memory(BUDGET).build(Child::directory(0_u64));
    let root = cache.root();
    let held: Vec<_> = (0..5000).map(|i| cache.create(&root, &name(i), Child::other(i as u64))).collect();
    assert!(cache.stats().memory.used > BUDGET);
    assert_eq!(cache.stats().held, 5000);
    for (i, dentry) in held.iter().enumerate() {
        assert_eq!(*dentry.handle(), i as u64);
        assert!(is_cached(&cache, &name(i)));
    }
    drop(held);
    assert!(cache.stats().memory.used <= BUDGET, "{:?}", cache.stats().memory);
}

#[test]
fn a_flood_of_negatives_displaces_only_negatives() {
    let cache = Dcache::builder().memory(BUDGET).negatives(100).build(Child::directory(0_u64));
    let root = cache.root();
    for i in 0..500 {
        cache.create(&root, &name(i), Child::other(i as u64));
    }
    for i in 1000..20_000 {
        cache.unlink(&root, &name(i));
        assert!(cache.stats().negatives <= 101);
        assert!(cache.stats().memory.used <= BUDGET);
    }
    assert!((0..500).all(|i| is_cached(&cache, &name(i))));
}

#[test]
fn a_scan_does_not_wash_out_what_is_used() {
    let cache = Dcache::builder().memory(BUDGET).build(Child::directory(0_u64));
    let root = cache.root();
    let work = cache.create(&root, b"work", Child::directory(1));
    for i in 0..300 {
        cache.create(&work, &name(i), Child::other(i as u64));
    }
    let scanned = cache.create(&root, b"scanned", Child::directory(2));
    let mut completion = cache.begin_complete(&scanned);
    for i in 0..50_000 {
        completion.enter(&name(i), Child::other(i as u64));
        if i % 500 == 0 {
            for i in 0..300 {
                is_cached(&cache, &[b"work/", &name(i)[..]].concat());
            }
        }
    }
    assert!(!completion.finish(), "most of it was evicted on the way");
    assert!((0..300).all(|i| is_cached(&cache, &[b"work/", &name(i)[..]].concat())));
}

#[test]
fn pruning_takes_leaves_first_and_shrinking_reaches_its_goal() {
    let cache = Dcache::builder().memory(BUDGET).build(Child::directory(0_u64));
    let root = cache.root();
    let mut dir = cache.create(&root, b"d", Child::directory(1));
    for i in 0..50 {
        dir = cache.create(&dir, b"d", Child::directory(i));
    }
    let id = dir.id();
    assert_eq!(cache.prune(1000), 0, "all of the chain is above a held entry");
    drop(dir);
    cache.prune(1000);
    assert_eq!(cache.get(id), None);
    for i in 0..500 {
        cache.create(&root, &name(i), Child::other(i as u64));
    }
    let goal = cache.stats().memory.used / 2;
    cache.shrink_to(goal);
    assert!(cache.stats().memory.used <= goal);
}

#[test]
fn shrinking_a_cache_that_is_far_below_its_budget_keeps_what_fits() {
    let cache = Dcache::builder().build(Child::directory(0_u64));
    let root = cache.root();
    for i in 0..5000 {
        cache.create(&root, &name(i), Child::other(i as u64));
    }
    let used = cache.stats().memory.used;
    cache.shrink_to(used / 4 * 3);
    let kept = cache.stats().entries;
    assert!((2500..5000).contains(&kept), "{kept} of 5000 names are left");
}

#[test]
fn every_handle_is_dropped_exactly_once() {
    let handle = Arc::new(());
    let cache = Dcache::builder().memory(BUDGET).build(Child::directory(handle.clone()));
    let root = cache.root();
    let dir = cache.create(&root, b"dir", Child::directory(handle.clone()));
    for i in 0..5000 {
        cache.create(&dir, &name(i), Child::other(handle.clone()));
        if i % 3 == 0 {
            cache.unlink(&dir, &name(i));
        }
        if i % 7 == 0 {
            cache.rename(&dir, &name(i), &root, &name(i + 1));
        }
    }
    let held = cache.create(&dir, b"held", Child::other(handle.clone()));
    cache.unlink(&dir, b"held");
    assert!(Arc::strong_count(&handle) > 500);
    drop((held, dir, root));
    drop(cache);
    assert_eq!(Arc::strong_count(&handle), 1);
}

#[test]
fn the_budget_can_be_changed_while_the_cache_is_in_use() {
    let cache = Dcache::builder().memory(BUDGET).build(Child::directory(0_u64));
    let root = cache.root();
    let fill = || (0..20_000).for_each(|i| drop(cache.create(&root, &name(i), Child::other(i as u64))));
    fill();
    let first = cache.stats().entries;
    cache.set_memory(4 * BUDGET);
    fill();
    let Stats { entries, memory, .. } = cache.stats();
    assert!(entries > 3 * first && memory.used <= 4 * BUDGET, "{first} {entries} {memory:?}");
    cache.set_memory(BUDGET / 2);
    assert!(cache.stats().memory.used <= BUDGET / 2, "{:?}", cache.stats().memory);
    fill();
    assert!(cache.stats().memory.used <= BUDGET / 2, "{:?}", cache.stats().memory);
}

#[test]
fn an_owned_reference_keeps_its_entry_and_its_cache() {
    let cache = Arc::new(Dcache::builder().memory(BUDGET).build(Child::directory(0_u64)));
    let held = OwnedDentry::new(&cache, &cache.create(&cache.root(), b"file", Child::other(7)));
    let id = held.entry().id();
    assert_eq!(cache.stats().held, 1);
    (0..5000).for_each(|i| drop(cache.create(&cache.root(), &name(i), Child::other(i as u64))));
    assert!(cache.get(id).is_some_and(|kept| *kept.handle() == 7));
    drop(cache);
    let again = held.clone();
    drop(held);
    assert_eq!((*again.entry().handle(), again.entry().path()), (7, Some(b"file".to_vec())));
}
