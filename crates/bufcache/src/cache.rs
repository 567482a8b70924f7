//! The cache: finds shards and reads from the device.

use std::io::{self, IoSliceMut};
use std::sync::Arc;

use dentree_blockdev::{BlockDevice, check_range};
use dentree_sync::MutexGuard;

use crate::bh_lru::{BhLruSize, Invalidation, Lookup};
use crate::blocks::Blocks;
use crate::buffer::Buffer;
use crate::buffer_lock::BufferLock;
use crate::error::ReadError;
use crate::pending::Pending;
use crate::shard::{Changed, Found, PinId, Residency, Shard};
use crate::stats::Stats;

/// Cached blocks of a device; see the [crate].
pub struct BufCache {
    device: Arc<dyn BlockDevice>,
    blocks: Arc<Blocks>,
}

impl BufCache {
    /// A cache of `device` in blocks of `block_size` bytes. It takes at most `budget_bytes`, tables
    /// included, pinned blocks excluded. With a budget below one block it caches none.
    pub fn new(device: Arc<dyn BlockDevice>, block_size: usize, budget_bytes: usize) -> Self {
        BufCache::with_bh_lru(device, block_size, budget_bytes, BhLruSize::default())
    }

    /// The same with a number of per-thread copies ([`get_often`](BufCache::get_often)), at most a
    /// sixteenth of the cache.
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

    /// The bytes of a block, from memory or from the device.
    ///
    /// # Errors
    /// The device's error, as a [`ReadError`] that names the block;
    /// [`io::ErrorKind::UnexpectedEof`] for a block that is not wholly on the device.
    #[inline]
    pub fn get(&self, block: u64) -> io::Result<Buffer> {
        Ok(self.find(block, false)?.0)
    }

    /// A block from its shard or the device; with `to_copy` also the invalidation flag of a marked
    /// version.
    #[inline]
    fn find(&self, block: u64, to_copy: bool) -> io::Result<(Buffer, Option<Arc<Invalidation>>)> {
        loop {
            match self.blocks.find_or_lock(block, to_copy) {
                Found::Ready(buffer, _, invalidation) => return Ok((buffer, invalidation)),
                Found::Reading(pending, _) => {
                    if let Some(buffer) = pending.wait()? {
                        return Ok((buffer, None));
                    }
                }
                Found::Missing(locked) => {
                    return Ok((self.read_one(BufferLock::new(&self.blocks, block, locked))?, None));
                }
            }
        }
    }

    /// As [`get`](BufCache::get), for a block that many threads read and few change. From its
    /// second request on, a thread reads its own copy of the newest version, and writes nothing
    /// that other threads read. Only [marked](BufCache::set_mark) versions are copied, with their
    /// mark.
    ///
    /// # Errors
    /// Those of [`get`](BufCache::get).
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use dentree_blockdev::MemoryDevice;
    /// # use dentree_bufcache::{BufCache, PinId};
    /// let cache = BufCache::new(Arc::new(MemoryDevice::new(4096)), 1024, 1 << 20);
    /// cache.set_mark(2, &cache.get(2)?, 7);
    /// for _ in 0..9 {
    ///     assert_eq!((cache.get_often(2)?[0], cache.get_often(2)?.mark()), (0, 7));
    /// }
    /// assert!(cache.stats().recent_hits > 12);
    /// cache.update(2, PinId(1), |bytes| bytes[0] = 1)?;
    /// assert_eq!(cache.get_often(2)?[0], 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[inline]
    pub fn get_often(&self, block: u64) -> io::Result<Buffer> {
        match self.blocks.bh_lru.get(block) {
            Lookup::Copy(copy) => Ok(copy),
            Lookup::Frequent => match self.find(block, true)? {
                (version, Some(invalidation)) => Ok(self.blocks.bh_lru.copy(block, &version, invalidation)),
                (version, None) => Ok(version),
            },
            Lookup::Absent => self.get(block),
        }
    }

    /// The bytes of `count` blocks from `first` on. Missing neighbours are read in one request.
    ///
    /// # Errors
    /// Those of [`get`](BufCache::get), for the first block that fails; the others are cached. A
    /// run that is not wholly on the device fails before any read.
    pub fn get_run(&self, first: u64, count: usize) -> io::Result<Vec<Buffer>> {
        self.check_run(first, count)?;
        let mut locks: Vec<BufferLock> = Vec::new();
        let found: Vec<RunBlock> = (first..)
            .take(count)
            .map(|block| match self.blocks.find_or_lock(block, false) {
                Found::Ready(buffer, _, _) => RunBlock::Ready(buffer),
                Found::Reading(pending, _) => RunBlock::Reading(block, pending),
                Found::Missing(locked) => {
                    locks.push(BufferLock::new(&self.blocks, block, locked));
                    RunBlock::Locked
                }
            })
            .collect();
        let mut ours = self.read_locked(locks).into_iter();
        // This thread's reads have ended, so it may wait for others.
        found
            .into_iter()
            .map(|slot| match slot {
                RunBlock::Ready(buffer) => Ok(buffer),
                RunBlock::Reading(block, pending) => pending.wait()?.map_or_else(|| self.get(block), Ok),
                RunBlock::Locked => match ours.next() {
                    Some(outcome) => Ok(outcome?),
                    None => Err(io::ErrorKind::UnexpectedEof.into()),
                },
            })
            .collect()
    }

    /// Number of blocks that fit the budget.
    pub fn capacity(&self) -> usize {
        self.blocks.capacity
    }

    /// Makes the next version of a block with `change`, pinned with `pin`, which replaces an
    /// earlier pin. Holders of a [`Buffer`] keep their version.
    ///
    /// `change` may run under a lock of the cache: it must be short and must not use the cache.
    ///
    /// # Errors
    /// Those of [`get`](BufCache::get), without a call of `change`.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use dentree_blockdev::MemoryDevice;
    /// use dentree_bufcache::{BufCache, PinId};
    ///
    /// let cache = BufCache::new(Arc::new(MemoryDevice::new(4096)), 1024, 1 << 20);
    /// let old = cache.get(2)?;
    /// cache.update(2, PinId(7), |bytes| bytes[0] = 1)?;
    /// assert_eq!((old[0], cache.get(2)?[0]), (0, 1));
    /// // After the block was written to the device.
    /// cache.unpin(2, PinId(7));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[inline]
    pub fn update<R>(
        &self,
        block: u64,
        pin: PinId,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> io::Result<Changed<R>> {
        let hash = self.blocks.hash(block);
        let locked = loop {
            let mut shard = self.blocks.shard_for(hash).lock();
            let pending = match shard.place(block, hash) {
                Residency::Ready(slot) => match shard.next_version(slot, pin) {
                    Some((bytes, is_first)) => return Ok(Changed { value: change(bytes), is_first }),
                    // Unreachable: the slot is ready.
                    None => continue,
                },
                Residency::Missing => break shard.lock_missing(block, hash),
                Residency::Reading(pending) => pending,
            };
            drop(shard);
            pending.wait()?;
        };
        let mut lock = BufferLock::new(&self.blocks, block, locked);
        if let Err(source) = self.read_into(&mut lock) {
            return Err(lock.fail(source).into());
        }
        // The bytes have no other holder yet.
        let value = change(lock.bytes());
        lock.succeed(Some(pin));
        Ok(Changed { value, is_first: true })
    }

    /// Makes a version of a block from zeros, without a read of the device, and pins it.
    ///
    /// # Errors
    /// If the block is not wholly on the device, without a call of `change`.
    pub fn create<R>(
        &self,
        block: u64,
        pin: PinId,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> io::Result<Changed<R>> {
        self.check_run(block, 1)?;
        let mut buffer = Buffer::zeros(self.blocks.block_size);
        let value = change(buffer.bytes_mut());
        let hash = self.blocks.hash(block);
        let is_first = self.lock_unread(block, hash).replace(block, hash, buffer, pin);
        Ok(Changed { value, is_first })
    }

    /// The bytes of a block that is pinned with `pin`.
    pub fn pinned(&self, block: u64, pin: PinId) -> Option<Buffer> {
        let hash = self.blocks.hash(block);
        self.blocks.shard_for(hash).lock().pinned(block, hash, pin)
    }

    /// Unpins a block whose version with `pin` has been written. No effect if a later change pins
    /// it.
    pub fn unpin(&self, block: u64, pin: PinId) {
        let hash = self.blocks.hash(block);
        self.blocks.shard_for(hash).lock().unpin(block, hash, pin);
    }

    /// Sets a mark on a version of a block, for example that it was verified. Versions [made from
    /// it](BufCache::update) inherit the mark; a block that is read or created has none. No effect
    /// if the cache has another version.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use dentree_blockdev::MemoryDevice;
    /// # use dentree_bufcache::{BufCache, PinId};
    /// let cache = BufCache::new(Arc::new(MemoryDevice::new(4096)), 1024, 1 << 20);
    /// let block = cache.get(2)?;
    /// cache.set_mark(2, &block, 7);
    /// assert_eq!((block.mark(), cache.get(2)?.mark()), (0, 7));
    /// cache.update(2, PinId(1), |bytes| bytes[0] = 1)?;
    /// assert_eq!(cache.get(2)?.mark(), 7);
    /// cache.create(2, PinId(1), |_| ())?;
    /// assert_eq!(cache.get(2)?.mark(), 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_mark(&self, block: u64, version: &Buffer, mark: u64) {
        let hash = self.blocks.hash(block);
        self.blocks.shard_for(hash).lock().set_mark(block, hash, version, mark);
    }

    /// Whether the cache has this version of a block. `false` also for a
    /// [copy](BufCache::get_often) that the thread has dropped.
    ///
    /// Cheaper than [`get`](BufCache::get): it does not write the version's reference count.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use dentree_blockdev::MemoryDevice;
    /// # use dentree_bufcache::{BufCache, PinId};
    /// let cache = BufCache::new(Arc::new(MemoryDevice::new(4096)), 1024, 1 << 20);
    /// let block = cache.get(2)?;
    /// assert!(cache.is_newest(2, &block));
    /// cache.update(2, PinId(1), |bytes| bytes[0] = 1)?;
    /// assert!(!cache.is_newest(2, &block) && !cache.is_newest(3, &block));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn is_newest(&self, block: u64, version: &Buffer) -> bool {
        if let Some(is_newest) = self.blocks.bh_lru.is_newest(block, version) {
            return is_newest;
        }
        let hash = self.blocks.hash(block);
        self.blocks.shard_for(hash).lock().is_newest(block, hash, version)
    }

    /// Drops freed blocks, also pinned ones. Holders of a [`Buffer`] keep it.
    pub fn discard(&self, first: u64, count: u64) {
        for block in (first..).take(usize::try_from(count).unwrap_or(usize::MAX)) {
            let hash = self.blocks.hash(block);
            let mut shard = self.lock_unread(block, hash);
            if let Residency::Ready(slot) = shard.place(block, hash) {
                shard.discard(slot);
            }
        }
    }

    /// The shard of a block that is not being read; waits for a read in progress.
    fn lock_unread(&self, block: u64, hash: u64) -> MutexGuard<'_, Shard> {
        loop {
            let shard = self.blocks.shard_for(hash).lock();
            let Residency::Reading(pending) = shard.place(block, hash) else { return shard };
            drop(shard);
            // A failed read has ended, too.
            let _ = pending.wait();
        }
    }

    /// Evicts until about `percent` of the blocks in memory are left, those first that were used
    /// least; held and pinned blocks and those being read stay. Returns the number evicted. The
    /// budget does not change.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use dentree_blockdev::MemoryDevice;
    /// # use dentree_bufcache::BufCache;
    /// let cache = BufCache::new(Arc::new(MemoryDevice::new(8192)), 1024, 1 << 20);
    /// let held = cache.get(0)?;
    /// (1..8).try_for_each(|block| cache.get(block).map(drop))?;
    /// assert!((4..8).contains(&cache.shrink(50)));
    /// cache.shrink(0);
    /// assert_eq!(cache.stats().resident_bytes, 1024);
    /// # drop(held);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn shrink(&self, percent: u8) -> usize {
        self.blocks.shrink(percent.min(100).into())
    }

    /// Statistics. Reads every slot: not for hot paths.
    pub fn stats(&self) -> Stats {
        self.blocks.stats()
    }

    /// Reads locked blocks, neighbours in one request.
    fn read_locked(&self, locks: Vec<BufferLock>) -> Vec<Result<Buffer, ReadError>> {
        let mut outcomes = Vec::with_capacity(locks.len());
        let mut locks = locks.into_iter().peekable();
        while let Some(lock) = locks.next() {
            let mut run = vec![lock];
            while let Some(next) = locks.next_if(|next| next.block == run[0].block + run.len() as u64) {
                run.push(next);
            }
            self.read_run(run, &mut outcomes);
        }
        outcomes
    }

    fn read_run(&self, mut run: Vec<BufferLock>, outcomes: &mut Vec<Result<Buffer, ReadError>>) {
        if run.len() > 1 {
            let first = run[0].block;
            let mut bufs: Vec<IoSliceMut<'_>> =
                run.iter_mut().map(|lock| IoSliceMut::new(lock.bytes())).collect();
            self.blocks.shard_of(first).count_device_read();
            let read = self.offset(first).and_then(|offset| self.device.read_vectored_at(offset, &mut bufs));
            if read.is_ok() {
                outcomes.extend(run.into_iter().map(|lock| Ok(lock.succeed(None))));
                return;
            }
        }
        // One bad block must not fail its neighbours.
        outcomes.extend(run.into_iter().map(|lock| self.read_one(lock)));
    }

    #[cold]
    pub(crate) fn read_one(&self, mut lock: BufferLock) -> Result<Buffer, ReadError> {
        match self.read_into(&mut lock) {
            Ok(()) => Ok(lock.succeed(None)),
            Err(source) => Err(lock.fail(source)),
        }
    }

    fn read_into(&self, lock: &mut BufferLock) -> io::Result<()> {
        self.blocks.shard_of(lock.block).count_device_read();
        self.offset(lock.block).and_then(|offset| self.device.read_at(offset, lock.bytes()))
    }

    fn check_run(&self, first: u64, count: usize) -> io::Result<()> {
        let offset = self.offset(first)?;
        let len = (count as u64).saturating_mul(self.block_size() as u64);
        check_range(offset, len, self.device.size())
    }

    pub(crate) fn offset(&self, block: u64) -> io::Result<u64> {
        let outside = || io::Error::new(io::ErrorKind::UnexpectedEof, "it lies past any device's end");
        block.checked_mul(self.block_size() as u64).ok_or_else(outside)
    }
}

enum RunBlock {
    Ready(Buffer),
    Reading(u64, Arc<Pending>),
    Locked,
}
