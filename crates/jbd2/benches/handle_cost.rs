//! The cost of a handle that changes one block: `cargo bench -p dentree-jbd2 --bench handle_cost --
//! [ROUNDS]`.

use std::sync::Arc;
use std::time::Instant;

use dentree_blockdev::MemoryDevice;
use dentree_bufcache::BufCache;
use dentree_jbd2::{Journal, JournalOptions};

const BLOCKS: u64 = 1024;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rounds = std::env::args().skip(1).find(|word| word != "--bench");
    let rounds: u64 = rounds.map_or(Ok(1_000_000), |rounds| rounds.parse())?;
    let device = MemoryDevice::new(BLOCKS as usize * 4096);
    let cache = Arc::new(BufCache::new(Arc::new(device), 4096, 64 << 20));
    let journal = Journal::without_log(cache, JournalOptions::default())?;
    for threads in [1, 2, 4] {
        let start = Instant::now();
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let journal = &journal;
                scope.spawn(move || change(journal, thread, rounds));
            }
        });
        let nanos = start.elapsed().as_secs_f64() * 1e9 / rounds as f64;
        println!("{threads} threads: {nanos:.0} ns for start, a change and stop, in each");
    }
    journal.close()?;
    Ok(())
}

/// Each thread has blocks of its own.
fn change(journal: &Journal, thread: u64, rounds: u64) {
    for round in 0..rounds {
        let Ok(mut handle) = journal.start(1) else { return };
        let _ = handle.update(thread * 128 + round % 128, |bytes| bytes[0] = bytes[0].wrapping_add(1));
    }
}
