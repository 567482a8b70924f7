//! The cache: which shard, and what to ask the device for.

use std::io::{self, IoSliceMut};
use std::sync::Arc;

use dentree_blockdev::{BlockDevice, check_range};
use dentree_sync::MutexGuard;

use crate::blocks::Blocks;
use crate::buffer::Buffer;
use crate::claim::Claim;
use crate::error::ReadError;
use crate::pending::Pending;
use crate::recent::{BhLruSize, Known, Watch};
use crate::shard::{Changed, Found, Place, Shard, Stamp};
use crate::stats::Stats;

/// Cached blocks of a device, see the [crate's page](crate).
pub struct BufCache {
    device: Arc<dyn BlockDevice>,
    blocks: Arc<Blocks>,
}

impl BufCache {
    /// A cache of `device` in blocks of `block_size` bytes, that keeps no more than `budget_bytes`, its own tables
    /// included, but for pinned blocks. A budget smaller than a block keeps none.
    pub fn new(device: Arc<dyn BlockDevice>, block_size: usize, budget_bytes: usize) -> Self {
        BufCache::with_bh_lru(device, block_size, budget_bytes, BhLruSize::default())
    }

    /// The same, with so many blocks that each thread may have copies of ([`get_often`](BufCache::get_often)); a sixteenth of the cache at most.
    pub fn with_bh_lru(
        device: Arc<dyn BlockDevice>,
        block_size: usize,
        budget_bytes: usize,
        bh_lru_size: BhLruSize,
    ) -> Self {
        BufCache { device, blocks: Arc::new(Blocks::new(block_size, budget_bytes, bh_lru_size)) }
    }

    /// The device under the cache.
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.device
    }

    pub(crate) fn blocks(&self) -> &Arc<Blocks> {
        &self.blocks
    }

    /// The size of a block in bytes.
    pub fn block_size(&self) -> usize {
        self.blocks.block_size
    }

    /// The bytes of a block, from memory or else from the device.
    ///
    /// # Errors
    /// What the device says, as a [`ReadError`] that names the block. A block that is not wholly on the device fails with
    /// [`io::ErrorKind::UnexpectedEof`].
    #[inline]
    pub fn get(&self, block: u64) -> io::Result<Buffer> {
        Ok(self.find(block, false)?.0)
    }

    /// A block from its shard or from the device; with `to_copy` also the watch on a version that is marked and was there.
    #[inline]
    fn find(&self, block: u64, to_copy: bool) -> io::Result<(Buffer, Option<Arc<Watch>>)> {
        loop {
            match self.blocks.find_or_claim(block, to_copy) {
                Found::Ready(buffer, _, watch) => return Ok((buffer, watch)),
                Found::Reading(pending, _) => {
                    if let Some(buffer) = pending.wait()? {
                        return Ok((buffer, None));
                    }
                }
                Found::Missing(vacancy) => {
                    return Ok((self.read_one(Claim::new(&self.blocks, block, vacancy))?, None));
                }
            }
        }
    }

    /// The bytes of a block as [`get`](BufCache::get) gives them, for one that all threads use and few change. A thread that asks for it again
    /// gets a copy of its own, as long as that is the newest version: then nothing is written that another thread reads. Only what was
    /// [marked](BufCache::set_mark) is copied: the copy has the mark.
    ///
    /// # Errors
    /// Those of [`get`](BufCache::get).
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use dentree_blockdev::MemoryDevice;
    /// # use dentree_bufcache::{BufCache, Stamp};
    /// let cache = BufCache::new(Arc::new(MemoryDevice::new(4096)), 1024, 1 << 20);
    /// cache.set_mark(2, &cache.get(2)?, 7);
    /// for _ in 0..9 {
    ///     assert_eq!((cache.get_often(2)?[0], cache.get_often(2)?.mark()), (0, 7));
    /// }
    /// assert!(cache.stats().recent_hits > 12);
    /// cache.update(2, Stamp(1), |bytes| bytes[0] = 1)?;
    /// assert_eq!(cache.get_often(2)?[0], 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[inline]
    pub fn get_often(&self, block: u64) -> io::Result<Buffer> {
        match self.blocks.recent.look(block) {
            Known::Copy(copy) => Ok(copy),
            Known::Often => match self.find(block, true)? {
                (version, Some(watch)) => Ok(self.blocks.recent.copy(block, &version, watch)),
                (version, None) => Ok(version),
            },
            Known::Nothing => self.get(block),
        }
    }

    /// The bytes of `count` blocks from `first` on. Neighbours that are not in memory are read in one request.
    ///
    /// # Errors
    /// Those of [`get`](BufCache::get), for the first block that fails; the others are kept. A run that is not wholly
    /// on the device is refused before anything is allocated or read.
    pub fn get_run(&self, first: u64, count: usize) -> io::Result<Vec<Buffer>> {
        self.check_run(first, count)?;
        let mut claims: Vec<Claim> = Vec::new();
        let found: Vec<Slot> = (first..)
            .take(count)
            .map(|block| match self.blocks.find_or_claim(block, false) {
                Found::Ready(buffer, _, _) => Slot::Ready(buffer),
                Found::Reading(pending, _) => Slot::Reading(block, pending),
                Found::Missing(vacancy) => {
                    claims.push(Claim::new(&self.blocks, block, vacancy));
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
                Slot::Reading(block, pending) => pending.wait()?.map_or_else(|| self.get(block), Ok),
                Slot::Claimed => match ours.next() {
                    Some(outcome) => Ok(outcome?),
                    None => Err(io::ErrorKind::UnexpectedEof.into()),
                },
            })
            .collect()
    }

    /// Blocks that the budget has room for.
    pub fn capacity(&self) -> usize {
        self.blocks.capacity
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
        let hash = self.blocks.hash(block);
        let vacancy = loop {
            let mut shard = self.blocks.shard_for(hash).lock();
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
        let mut claim = Claim::new(&self.blocks, block, vacancy);
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
        let mut buffer = Buffer::zeros(self.blocks.block_size);
        let value = change(buffer.bytes_mut());
        let hash = self.blocks.hash(block);
        let is_first = self.lock_unread(block, hash).replace(block, hash, buffer, stamp);
        Ok(Changed { value, is_first })
    }

    /// The bytes of a block that `stamp` changed last and that is still pinned by it.
    pub fn pinned(&self, block: u64, stamp: Stamp) -> Option<Buffer> {
        let hash = self.blocks.hash(block);
        self.blocks.shard_for(hash).lock().pinned(block, hash, stamp)
    }

    /// Says that the version that `stamp` made is home. Does nothing where a later change pins the block.
    pub fn unpin(&self, block: u64, stamp: Stamp) {
        let hash = self.blocks.hash(block);
        self.blocks.shard_for(hash).lock().unpin(block, hash, stamp);
    }

    /// Notes something on a version of a block, for those who get it later: that it was verified, say. The note passes to the versions that
    /// are [made of it](BufCache::update), and is gone when the block is read or created anew. Where the cache has another version by now
    /// nothing is noted.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use dentree_blockdev::MemoryDevice;
    /// # use dentree_bufcache::{BufCache, Stamp};
    /// let cache = BufCache::new(Arc::new(MemoryDevice::new(4096)), 1024, 1 << 20);
    /// let block = cache.get(2)?;
    /// cache.set_mark(2, &block, 7);
    /// assert_eq!((block.mark(), cache.get(2)?.mark()), (0, 7));
    /// cache.update(2, Stamp(1), |bytes| bytes[0] = 1)?;
    /// assert_eq!(cache.get(2)?.mark(), 7);
    /// cache.create(2, Stamp(1), |_| ())?;
    /// assert_eq!(cache.get(2)?.mark(), 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_mark(&self, block: u64, version: &Buffer, mark: u64) {
        let hash = self.blocks.hash(block);
        self.blocks.shard_for(hash).lock().set_mark(block, hash, version, mark);
    }

    /// Whether the cache has this version of a block, and no newer one. `false` also where it has none any more, and where
    /// the version is a copy that this thread [has let go](BufCache::get_often).
    ///
    /// Cheaper than to get the block and compare: the count of the version's users, which all who use the block write, stays as it is.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use dentree_blockdev::MemoryDevice;
    /// # use dentree_bufcache::{BufCache, Stamp};
    /// let cache = BufCache::new(Arc::new(MemoryDevice::new(4096)), 1024, 1 << 20);
    /// let block = cache.get(2)?;
    /// assert!(cache.is_newest(2, &block));
    /// cache.update(2, Stamp(1), |bytes| bytes[0] = 1)?;
    /// assert!(!cache.is_newest(2, &block) && !cache.is_newest(3, &block));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn is_newest(&self, block: u64, version: &Buffer) -> bool {
        if let Some(is_newest) = self.blocks.recent.is_newest(block, version) {
            return is_newest;
        }
        let hash = self.blocks.hash(block);
        self.blocks.shard_for(hash).lock().is_newest(block, hash, version)
    }

    /// Drops blocks, pinned ones too: they were freed, and their content is nobody's. Those who hold a [`Buffer`] keep it.
    pub fn discard(&self, first: u64, count: u64) {
        for block in (first..).take(usize::try_from(count).unwrap_or(usize::MAX)) {
            let hash = self.blocks.hash(block);
            let mut shard = self.lock_unread(block, hash);
            if let Place::Ready(slot) = shard.place(block, hash) {
                shard.discard(slot);
            }
        }
    }

    /// The shard of a block that no thread is reading.
    fn lock_unread(&self, block: u64, hash: u64) -> MutexGuard<'_, Shard> {
        loop {
            let shard = self.blocks.shard_for(hash).lock();
            let Place::Reading(pending) = shard.place(block, hash) else { return shard };
            drop(shard);
            // A read that failed is over, too.
            let _ = pending.wait();
        }
    }

    /// What the cache has done and holds. Looks at every slot: not for hot paths.
    pub fn stats(&self) -> Stats {
        self.blocks.stats()
    }

    /// Reads claimed blocks, each group of neighbours in one request.
    fn read_claims(&self, claims: Vec<Claim>) -> Vec<Result<Buffer, ReadError>> {
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

    fn read_run(&self, mut run: Vec<Claim>, outcomes: &mut Vec<Result<Buffer, ReadError>>) {
        if run.len() > 1 {
            let first = run[0].block;
            let mut bufs: Vec<IoSliceMut<'_>> =
                run.iter_mut().map(|claim| IoSliceMut::new(claim.bytes())).collect();
            self.blocks.shard_of(first).count_device_read();
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
    pub(crate) fn read_one(&self, mut claim: Claim) -> Result<Buffer, ReadError> {
        match self.read_into(&mut claim) {
            Ok(()) => Ok(claim.succeed(None)),
            Err(source) => Err(claim.fail(source)),
        }
    }

    fn read_into(&self, claim: &mut Claim) -> io::Result<()> {
        self.blocks.shard_of(claim.block).count_device_read();
        self.offset(claim.block).and_then(|offset| self.device.read_at(offset, claim.bytes()))
    }

    fn check_run(&self, first: u64, count: usize) -> io::Result<()> {
        let offset = self.offset(first)?;
        let len = (count as u64).saturating_mul(self.block_size() as u64);
        check_range(offset, len, self.device.size())
    }

    /// Where a block begins on the device.
    pub(crate) fn offset(&self, block: u64) -> io::Result<u64> {
        let outside = || io::Error::new(io::ErrorKind::UnexpectedEof, "it lies past any device's end");
        block.checked_mul(self.block_size() as u64).ok_or_else(outside)
    }
}

/// How a block of a run was found.
enum Slot {
    Ready(Buffer),
    Reading(u64, Arc<Pending>),
    Claimed,
}
