//! Reading ahead: blocks that may be wanted soon come in without anybody waiting.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::buffer::Buffer;
use crate::cache::BufCache;
use crate::claim::Claim;
use crate::feedback::AheadOutcome;
use crate::shard::{Found, Origin, Soon};

/// Runs of neighbouring blocks.
pub type Runs = Vec<Range<u64>>;

/// What is new about a block that was asked for: when to think of what comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// It was not in memory.
    Miss,
    /// It had been read ahead, and nobody had asked for it before.
    Use,
}

/// Bytes that one request reads ahead at most: what comes first of it is not to wait for much more.
const REQUEST_BYTES: usize = 128 << 10;

/// So many blocks in a row that there is no room for, whose shards are others, say that there is none at all.
const MOST_REFUSED: usize = 16;

impl BufCache {
    /// The bytes of a block as [`get`](BufCache::get) gives them. Where it was missing or is first used, `plan` is asked whether to read
    /// ahead; and what it answers, what.
    ///
    /// The block that is wanted goes to the device before what is read ahead. `plan` must not use the cache; what it answers
    /// may, because this thread then has no read that others could wait for.
    ///
    /// # Errors
    /// Those of [`get`](BufCache::get). What cannot be read ahead is no error: who asks for it is told.
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
        let (found, ahead) = match self.blocks().find_or_claim(block, false) {
            Found::Ready(buffer, Origin::Used, _) => return Ok(buffer),
            Found::Ready(buffer, Origin::ReadAhead, _) => (Ok(buffer), plan(First::Use)),
            Found::Reading(pending, Origin::Used) => (Err(pending), None),
            Found::Reading(pending, Origin::ReadAhead) => (Err(pending), plan(First::Use)),
            Found::Missing(vacancy) => {
                let pending = Arc::clone(&vacancy.pending);
                let claim = Claim::new(self.blocks(), block, vacancy);
                let ahead = plan(First::Miss);
                if ahead.is_none() {
                    return Ok(self.read_one(claim)?);
                }
                self.submit(vec![claim]);
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

    /// What came of reading ahead so far. Takes no lock.
    pub fn ahead_outcome(&self) -> AheadOutcome {
        self.blocks().feedback.outcome()
    }

    /// Begins to read blocks, neighbours in one request, and waits for none. Those that are in memory, that are not on the device, or
    /// that there is no room for, are left out; where there is none for some in a row, all that come after are.
    pub fn read_ahead(&self, runs: Runs) {
        let most = (REQUEST_BYTES / self.block_size()).max(1);
        let end = self.device().size() / self.block_size() as u64;
        let mut refused = 0;
        for run in runs {
            let mut claims = Vec::new();
            for block in run.start..run.end.min(end) {
                match self.blocks().claim_ahead(block) {
                    Soon::Claimed(vacancy) => {
                        refused = 0;
                        claims.push(Claim::new(self.blocks(), block, vacancy));
                    }
                    Soon::Here => self.submit(std::mem::take(&mut claims)),
                    Soon::Refused => {
                        refused += 1;
                        self.submit(std::mem::take(&mut claims));
                    }
                }
                if refused == MOST_REFUSED {
                    return;
                }
                if claims.len() == most {
                    self.submit(std::mem::take(&mut claims));
                }
            }
            self.submit(claims);
        }
    }

    /// Reads neighbours in one request that is not waited for.
    fn submit(&self, mut claims: Vec<Claim>) {
        let Some(first) = claims.first().map(|claim| claim.block) else { return };
        self.blocks().shard_of(first).count_device_read();
        let Ok(offset) = self.offset(first) else { return };
        let block_size = self.block_size();
        let bytes = vec![0; claims.len() * block_size];
        let done = move |read: io::Result<Vec<u8>>| match (read, claims.pop()) {
            (Ok(bytes), last) => {
                for (mut claim, bytes) in claims.into_iter().chain(last).zip(bytes.chunks_exact(block_size)) {
                    claim.fill(bytes);
                    claim.succeed(None);
                }
            }
            (Err(source), Some(only)) if claims.is_empty() => drop(only.fail(source)),
            // One bad block must not fail its neighbours: who waits for one of them looks again.
            (Err(_), _) => {}
        };
        Arc::clone(self.device()).submit(offset, bytes, Box::new(done));
    }
}
