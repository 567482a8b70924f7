//! Prints the cost of a hit by the number of copies per thread and of blocks in use: `cargo bench
//! -p dentree-bufcache --bench hit_cost`. With `SIZE SET CHANGES` it makes one thread's hits once
//! and prints nothing, to count instructions under valgrind.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use dentree_blockdev::MemoryDevice;
use dentree_bufcache::{BhLruSize, BufCache, PinId};

const BLOCKS: u64 = 16 << 10;
const HITS: u32 = 200_000;
const REPEATS: usize = 31;
const SIZES: [usize; 5] = [0, 8, 16, 32, 64];

/// One hit in so many is followed by a change of the block; 0 for none.
#[derive(Clone, Copy)]
struct Load {
    set: u64,
    changes: u32,
    threads: u64,
}

fn main() -> std::io::Result<()> {
    let arguments: Vec<u64> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    if let [size, set, changes] = arguments[..] {
        let cache = cache(size as usize)?;
        walk(&cache, 0, Load { set, changes: changes as u32, threads: 1 });
        return Ok(());
    }
    let caches = SIZES.map(cache).into_iter().collect::<std::io::Result<Vec<_>>>()?;
    println!("ns for a hit and its drop, in each thread: median [quartiles] of {REPEATS}, sizes in turn");
    println!("threads  set    changes  {}", SIZES.map(|size| format!("{size:>18}")).concat());
    for threads in [1, 2] {
        for (set, changes) in [(4, 0), (7, 0), (14, 0), (28, 0), (1000, 0), (BLOCKS, 0), (7, 4), (14, 4)] {
            measure(&caches, Load { set, changes, threads });
        }
    }
    Ok(())
}

fn cache(size: usize) -> std::io::Result<BufCache> {
    let size = BhLruSize::new(size).unwrap_or(BhLruSize::OFF);
    let image = Arc::new(MemoryDevice::new(BLOCKS as usize * 1024));
    let cache = BufCache::with_bh_lru(image, 1024, 64 << 20, size);
    for block in 0..BLOCKS {
        cache.set_mark(block, &cache.get(block)?, 1);
    }
    Ok(cache)
}

fn measure(caches: &[BufCache], load: Load) {
    let mut times = vec![Vec::new(); caches.len()];
    for _ in 0..REPEATS {
        for (cache, times) in caches.iter().zip(&mut times) {
            let start = Instant::now();
            std::thread::scope(|scope| {
                (0..load.threads).for_each(|thread| drop(scope.spawn(move || walk(cache, thread, load))));
            });
            times.push(start.elapsed().as_secs_f64() * 1e9 / f64::from(HITS));
        }
    }
    let columns = times.iter_mut().map(|times| {
        times.sort_by(f64::total_cmp);
        let [low, median, high] = [1, 2, 3].map(|quarter| times[quarter * times.len() / 4]);
        format!("{:>18}", format!("{median:.1} [{low:.1} {high:.1}]"))
    });
    println!(
        "{:>7}  {:<5}  {:<7}  {}",
        load.threads,
        load.set,
        if load.changes == 0 { "none".to_owned() } else { format!("1 in {}", load.changes) },
        columns.collect::<String>()
    );
}

/// Hits a set of blocks in an order that no prefetcher predicts; the threads share some of them.
fn walk(cache: &BufCache, thread: u64, load: Load) {
    let mut at = thread;
    for hit in 0..HITS {
        at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let block = (at >> 40) % load.set;
        // Half of a set is shared, half the thread's.
        let block = if block.is_multiple_of(2) { block } else { (block + thread * load.set) % BLOCKS };
        let _ = black_box(cache.get_often(block));
        if load.changes != 0 && hit % load.changes == 0 {
            let _ = cache.update(block, PinId(1), |bytes| bytes[0] = bytes[0].wrapping_add(1));
        }
    }
}
