//! Prints what a hit costs: `cargo run --release -p dentree-bufcache --example hit_cost`.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use dentree_blockdev::MemoryDevice;
use dentree_bufcache::BufCache;

const BLOCKS: u64 = 1024;
const ROUNDS: u32 = 2_000_000;

fn main() -> std::io::Result<()> {
    let image = MemoryDevice::new(BLOCKS as usize * 4096);
    let cache = BufCache::new(Arc::new(image), 4096, 64 << 20);
    for block in 0..BLOCKS {
        cache.get(block)?;
    }
    for threads in [1, 2] {
        let mut best = f64::MAX;
        for _ in 0..5 {
            let start = Instant::now();
            std::thread::scope(|scope| {
                for thread in 0..threads {
                    let cache = &cache;
                    scope.spawn(move || walk(cache, thread));
                }
            });
            best = best.min(start.elapsed().as_secs_f64() * 1e9 / f64::from(ROUNDS));
        }
        println!("{threads} threads: {best:.1} ns for a hit and its drop, in each, best of 5");
    }
    Ok(())
}

/// Hits blocks in an order that no prefetcher knows.
fn walk(cache: &BufCache, thread: u64) {
    let mut at = thread;
    for _ in 0..ROUNDS {
        at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let _ = black_box(cache.get(at >> 54));
    }
}
