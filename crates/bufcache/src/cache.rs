//! The cache: which shard, and what to ask the device for.

use std::hash::BuildHasher;
use std::io::{self, IoSliceMut};
use std::sync::Arc;

use dentree_blockdev::{BlockDevice, check_range};
use foldhash::fast::RandomState;

use crate::claim::{Buffer, Claim};
use crate::error::ReadError;
use crate::pending::Pending;
use crate::shard::{Changed, Found, Place, SLOT_OVERHEAD, Shard, Stamp};
use crate::stats::Stats;
use crate::sync::{Mutex, MutexGuard, lock};

/// Cached blocks of a device, see the [crate's page](crate).
pub struct BufCache {
    device: Arc<dyn BlockDevice>,
    block_size: usize,
    /// Blocks that the budget has room for.
    capacity: usize,
    hasher: RandomState,
    /// A power of two.
    shards: Box<[Mutex<Shard>]>,
}

/// Fewer blocks than this in a shard, and chance would fill one while others have room.
const MIN_SHARD_BLOCKS: usize = 64;
const MAX_SHARDS: usize = 64;

impl BufCache {
    /// A cache of `device` in blocks of `block_size` bytes, that keeps no more than `budget_bytes`, its own tables
    /// included, but for pinned blocks. A budget smaller than a block keeps none.
    pub fn new(device: Arc<dyn BlockDevice>, block_size: usize, budget_bytes: usize) -> Self {
        let capacity = budget_bytes / block_size.saturating_add(SLOT_OVERHEAD);
        let shards = (capacity / MIN_SHARD_BLOCKS + 1).next_power_of_two() / 2;
        let shards = shards.clamp(1, MAX_SHARDS);
        let hasher = RandomState::default();
        let make = |_| Mutex::new(Shard::new(capacity / shards, hasher.clone()));
        BufCache { device, block_size, capacity, shards: (0..shards).map(make).collect(), hasher }
    }

    /// The device under the cache.
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.device
    }

    /// The size of a block in bytes.
    pub fn block_size(&self) -> usize {
        self.block_size
    }

    /// The bytes of a block, from memory or else from the device.
    ///
    /// # Errors
    /// What the device says, as a [`ReadError`] that names the block. A block that is not wholly on the device fails with
    /// [`io::ErrorKind::UnexpectedEof`].
    #[inline]
    pub fn get(&self, block: u64) -> io::Result<Buffer> {
        match self.find_or_claim(block) {
            Found::Ready(buffer) => Ok(buffer),
            Found::Reading(pending) => Ok(pending.wait()?),
            Found::Missing(vacancy) => Ok(self.read_one(Claim::new(self, block, vacancy))?),
        }
    }

    /// The bytes of `count` blocks from `first` on. Neighbours that are not in memory are read in one request.
    ///
    /// # Errors
    /// Those of [`get`](BufCache::get), for the first block that fails; the others are kept. A run that is not wholly
    /// on the device is refused before anything is allocated or read.
    pub fn get_run(&self, first: u64, count: usize) -> io::Result<Vec<Buffer>> {
        self.check_run(first, count)?;
        let mut claims: Vec<Claim<'_>> = Vec::new();
        let found: Vec<Slot> = (first..)
            .take(count)
            .map(|block| match self.find_or_claim(block) {
                Found::Ready(buffer) => Slot::Ready(buffer),
                Found::Reading(pending) => Slot::Reading(pending),
                Found::Missing(vacancy) => {
                    claims.push(Claim::new(self, block, vacancy));
                    Slot::Claimed
                }
            })
            .collect();
        let mut ours = self.read_claims(claims).into_iter();
        // Our own reads have ended: now it is safe to wait for others.
        found
            .into_iter()
            .map(|slot| match slot {
                Slot::Ready(buffer) => Ok(buffer),
                Slot::Reading(pending) => Ok(pending.wait()?),
                Slot::Claimed => match ours.next() {
                    Some(outcome) => Ok(outcome?),
                    None => Err(io::ErrorKind::UnexpectedEof.into()),
                },
            })
            .collect()
    }

    /// Blocks that the budget has room for.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Makes the next version of a block: `change` is shown the bytes, and those who hold a [`Buffer`] of the block keep
    /// what they have. The block is pinned by `stamp`, in the place of who pinned it before.
    ///
    /// `change` may run under a lock of the cache: it must be short, and must not use the cache.
    ///
    /// # Errors
    /// Those of [`get`](BufCache::get); `change` was then not called.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use dentree_blockdev::MemoryDevice;
    /// use dentree_bufcache::{BufCache, Stamp};
    ///
    /// let cache = BufCache::new(Arc::new(MemoryDevice::new(4096)), 1024, 1 << 20);
    /// let old = cache.get(2)?;
    /// cache.update(2, Stamp(7), |bytes| bytes[0] = 1)?;
    /// assert_eq!((old[0], cache.get(2)?[0]), (0, 1));
    /// // Once its home is written.
    /// cache.unpin(2, Stamp(7));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[inline]
    pub fn update<R>(
        &self,
        block: u64,
        stamp: Stamp,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> io::Result<Changed<R>> {
        let hash = self.hasher.hash_one(block);
        let vacancy = loop {
            let mut shard = lock(self.shard_for(hash));
            let pending = match shard.place(block, hash) {
                Place::Ready(slot) => match shard.next_version(slot, stamp) {
                    Some((bytes, is_first)) => return Ok(Changed { value: change(bytes), is_first }),
                    // It is ready: this does not happen.
                    None => continue,
                },
                Place::Missing => break shard.claim(block, hash),
                Place::Reading(pending) => pending,
            };
            drop(shard);
            pending.wait()?;
        };
        let mut claim = Claim::new(self, block, vacancy);
        if let Err(source) = self.read_into(&mut claim) {
            return Err(claim.fail(source).into());
        }
        // Nobody else has the bytes yet.
        let value = change(claim.bytes());
        claim.succeed(Some(stamp));
        Ok(Changed { value, is_first: true })
    }

    /// Makes a version of a block that begins as zeros, whatever the block was before, and pins it. The device is
    /// not read.
    ///
    /// # Errors
    /// A block that is not wholly on the device; `change` was then not called.
    pub fn create<R>(
        &self,
        block: u64,
        stamp: Stamp,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> io::Result<Changed<R>> {
        self.check_run(block, 1)?;
        let mut buffer = Buffer::zeros(self.block_size);
        let value = change(buffer.bytes_mut());
        let hash = self.hasher.hash_one(block);
        let is_first = self.lock_unread(block, hash).replace(block, hash, buffer, stamp);
        Ok(Changed { value, is_first })
    }

    /// The bytes of a block that `stamp` changed last and that is still pinned by it.
    pub fn pinned(&self, block: u64, stamp: Stamp) -> Option<Buffer> {
        let hash = self.hasher.hash_one(block);
        lock(self.shard_for(hash)).pinned(block, hash, stamp)
    }

    /// Says that the version that `stamp` made is home. Does nothing where a later change pins the block.
    pub fn unpin(&self, block: u64, stamp: Stamp) {
        let hash = self.hasher.hash_one(block);
        lock(self.shard_for(hash)).unpin(block, hash, stamp);
    }

    /// Drops blocks, pinned ones too: they were freed, and their content is nobody's. Those who hold a [`Buffer`] keep it.
    pub fn discard(&self, first: u64, count: u64) {
        for block in (first..).take(usize::try_from(count).unwrap_or(usize::MAX)) {
            let hash = self.hasher.hash_one(block);
            let mut shard = self.lock_unread(block, hash);
            if let Place::Ready(slot) = shard.place(block, hash) {
                shard.discard(slot);
            }
        }
    }

    /// The shard of a block that no thread is reading.
    fn lock_unread(&self, block: u64, hash: u64) -> MutexGuard<'_, Shard> {
        loop {
            let shard = lock(self.shard_for(hash));
            let Place::Reading(pending) = shard.place(block, hash) else { return shard };
            drop(shard);
            // A read that failed is over, too.
            let _ = pending.wait();
        }
    }

    /// What the cache has done and holds. Looks at every slot: not for hot paths.
    pub fn stats(&self) -> Stats {
        let mut sum = Stats::default();
        for shard in &self.shards {
            sum += lock(shard).stats(self.block_size);
        }
        sum
    }

    #[inline]
    fn find_or_claim(&self, block: u64) -> Found {
        let hash = self.hasher.hash_one(block);
        lock(self.shard_for(hash)).find_or_claim(block, hash)
    }

    /// The table inside takes the lowest bits and the seven highest of the hash.
    #[inline]
    fn shard_for(&self, hash: u64) -> &Mutex<Shard> {
        &self.shards[(hash >> 40) as usize & (self.shards.len() - 1)]
    }

    pub(crate) fn shard_of(&self, block: u64) -> MutexGuard<'_, Shard> {
        lock(self.shard_for(self.hasher.hash_one(block)))
    }

    /// Reads claimed blocks, each group of neighbours in one request.
    fn read_claims(&self, claims: Vec<Claim<'_>>) -> Vec<Result<Buffer, ReadError>> {
        let mut outcomes = Vec::with_capacity(claims.len());
        let mut claims = claims.into_iter().peekable();
        while let Some(claim) = claims.next() {
            let mut run = vec![claim];
            while let Some(next) = claims.next_if(|next| next.block == run[0].block + run.len() as u64) {
                run.push(next);
            }
            self.read_run(run, &mut outcomes);
        }
        outcomes
    }

    fn read_run(&self, mut run: Vec<Claim<'_>>, outcomes: &mut Vec<Result<Buffer, ReadError>>) {
        if run.len() > 1 {
            let first = run[0].block;
            let mut bufs: Vec<IoSliceMut<'_>> =
                run.iter_mut().map(|claim| IoSliceMut::new(claim.bytes())).collect();
            self.shard_of(first).count_device_read();
            let read = self.offset(first).and_then(|offset| self.device.read_vectored_at(offset, &mut bufs));
            if read.is_ok() {
                outcomes.extend(run.into_iter().map(|claim| Ok(claim.succeed(None))));
                return;
            }
        }
        // One bad block must not fail its neighbours, for which others may wait.
        outcomes.extend(run.into_iter().map(|claim| self.read_one(claim)));
    }

    #[cold]
    fn read_one(&self, mut claim: Claim<'_>) -> Result<Buffer, ReadError> {
        match self.read_into(&mut claim) {
            Ok(()) => Ok(claim.succeed(None)),
            Err(source) => Err(claim.fail(source)),
        }
    }

    fn read_into(&self, claim: &mut Claim<'_>) -> io::Result<()> {
        self.shard_of(claim.block).count_device_read();
        self.offset(claim.block).and_then(|offset| self.device.read_at(offset, claim.bytes()))
    }

    fn check_run(&self, first: u64, count: usize) -> io::Result<()> {
        let offset = self.offset(first)?;
        let len = (count as u64).saturating_mul(self.block_size as u64);
        check_range(offset, len, self.device.size())
    }

    /// Where a block begins on the device.
    fn offset(&self, block: u64) -> io::Result<u64> {
        let outside = || io::Error::new(io::ErrorKind::UnexpectedEof, "it lies past any device's end");
        block.checked_mul(self.block_size as u64).ok_or_else(outside)
    }
}

/// How a block of a run was found.
enum Slot {
    Ready(Buffer),
    Reading(Arc<Pending>),
    Claimed,
}
