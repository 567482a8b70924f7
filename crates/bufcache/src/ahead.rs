//! Reading ahead.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::buffer::Buffer;
use crate::buffer_lock::BufferLock;
use crate::cache::BufCache;
use crate::feedback::AheadOutcome;
use crate::shard::{AheadSlot, Found, Origin};

/// Runs of neighbouring blocks.
pub type Runs = Vec<Range<u64>>;

/// Why a request may start reading ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// The block was not in memory.
    Miss,
    /// The block had been read ahead, and this is its first use.
    Use,
}

/// Most bytes of a request, as its first block waits for all of it.
const REQUEST_BYTES: usize = 128 << 10;

/// Blocks in a row without room, each in another shard, after which reading ahead gives up.
const MOST_WITHOUT_ROOM: usize = 16;

impl BufCache {
    /// As [`get`](BufCache::get); on a miss or a first use `plan` decides whether to read ahead,
    /// and the closure that it returns decides what.
    ///
    /// The requested block goes to the device first. `plan` must not use the cache. Its closure
    /// may, as no other thread can then wait for a read of this one.
    ///
    /// # Errors
    /// Those of [`get`](BufCache::get); not a failure to read ahead.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use dentree_blockdev::MemoryDevice;
    /// use dentree_bufcache::BufCache;
    ///
    /// let cache = BufCache::new(Arc::new(MemoryDevice::new(1 << 16)), 1024, 1 << 20);
    /// cache.get_ahead(5, |_| Some(|| vec![6..8, 20..21]))?;
    /// cache.get(7)?;
    /// let stats = cache.stats();
    /// assert_eq!((stats.misses, stats.ahead_read, stats.ahead_used), (1, 3, 1));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn get_ahead<F: FnOnce() -> Runs>(
        &self,
        block: u64,
        plan: impl FnOnce(First) -> Option<F>,
    ) -> io::Result<Buffer> {
        let (found, ahead) = match self.blocks().find_or_lock(block, false) {
            Found::Ready(buffer, Origin::Used, _) => return Ok(buffer),
            Found::Ready(buffer, Origin::ReadAhead, _) => (Ok(buffer), plan(First::Use)),
            Found::Reading(pending, Origin::Used) => (Err(pending), None),
            Found::Reading(pending, Origin::ReadAhead) => (Err(pending), plan(First::Use)),
            Found::Missing(locked) => {
                let pending = Arc::clone(&locked.pending);
                let lock = BufferLock::new(self.blocks(), block, locked);
                let ahead = plan(First::Miss);
                if ahead.is_none() {
                    return Ok(self.read_one(lock)?);
                }
                self.submit(vec![lock]);
                (Err(pending), ahead)
            }
        };
        if let Some(runs) = ahead {
            self.read_ahead(runs());
        }
        match found {
            Ok(buffer) => Ok(buffer),
            Err(pending) => pending.wait()?.map_or_else(|| self.get(block), Ok),
        }
    }

    /// The outcome of reading ahead so far. Takes no lock.
    pub fn ahead_outcome(&self) -> AheadOutcome {
        self.blocks().feedback.outcome()
    }

    /// Starts to read blocks, neighbours in one request, and does not wait. Skips blocks that are
    /// in memory, not on the device, or without room; gives up after some in a row without room.
    pub fn read_ahead(&self, runs: Runs) {
        let most = (REQUEST_BYTES / self.block_size()).max(1);
        let end = self.device().size() / self.block_size() as u64;
        let mut without_room = 0;
        for run in runs {
            let mut locks = Vec::new();
            for block in run.start..run.end.min(end) {
                match self.blocks().lock_ahead(block) {
                    AheadSlot::Locked(locked) => {
                        without_room = 0;
                        locks.push(BufferLock::new(self.blocks(), block, locked));
                    }
                    AheadSlot::Present => self.submit(std::mem::take(&mut locks)),
                    AheadSlot::NoRoom => {
                        without_room += 1;
                        self.submit(std::mem::take(&mut locks));
                    }
                }
                if without_room == MOST_WITHOUT_ROOM {
                    return;
                }
                if locks.len() == most {
                    self.submit(std::mem::take(&mut locks));
                }
            }
            self.submit(locks);
        }
    }

    /// Submits one request for neighbours.
    fn submit(&self, mut locks: Vec<BufferLock>) {
        let Some(first) = locks.first().map(|lock| lock.block) else { return };
        self.blocks().shard_of(first).count_device_read();
        let Ok(offset) = self.offset(first) else { return };
        let block_size = self.block_size();
        let bytes = vec![0; locks.len() * block_size];
        let done = move |read: io::Result<Vec<u8>>| match (read, locks.pop()) {
            (Ok(bytes), last) => {
                for (mut lock, bytes) in locks.into_iter().chain(last).zip(bytes.chunks_exact(block_size)) {
                    lock.fill(bytes);
                    lock.succeed(None);
                }
            }
            (Err(source), Some(only)) if locks.is_empty() => drop(only.fail(source)),
            // One bad block must not fail its neighbours: their waiters look again.
            (Err(_), _) => {}
        };
        Arc::clone(self.device()).submit(offset, bytes, Box::new(done));
    }
}
