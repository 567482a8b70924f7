//! Allocation of blocks and inodes.
//!
//! # Data
//! On disk: bitmaps and descriptors. In memory ([`Space`]): reservations, blocks freed by
//! uncommitted transactions, preallocations, and a bound of each group's free runs.
//!
//! # Who protects what
//! | state | protected by |
//! |---|---|
//! | bitmaps, descriptor, unused end of the inode table | the group's lock |
//! | counters | atomics; no other memory depends on them |
//! | `uncommitted`: added under the group's lock, removed by the committer | its mutex (leaf) |
//! | `preallocated` | its mutex (leaf) |
//!
//! # Guarantees
//! - *Reservations hold.* Allocating [reserved](Space::reserve) blocks succeeds, at worst after a
//!   commit.
//! - *No early reuse.* A freed block is allocated again only after its transaction's commit.
//! - *System blocks are safe.* They are never allocated or freed, whatever a bitmap or file says.

mod blocks;
mod free;
mod goal;
mod groups;
mod inodes;
mod orlov;
mod prealloc;
mod system;

use crate::{Error, Ext4, Place, Result};
pub(crate) use blocks::ALLOC_CREDITS;
use dentree_ext4_format::{
    BlockNumber, GroupDesc, GroupNumber, InodeNumber, Problem, Superblock, clear_bits, set_bits,
};
use dentree_jbd2::Tid;
use dentree_sync::{Mutex, MutexGuard};
pub(crate) use groups::{GroupState, Groups, InodeTables};
pub(crate) use inodes::INODE_CREDITS;
use prealloc::Preallocations;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
pub(crate) use system::{SystemBlocks, copies_in, is_in_meta_group};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReservationClass {
    /// Leaves what is reserved for root and for metadata.
    User,
    /// Leaves what is reserved for metadata.
    Root,
    /// Metadata of reserved blocks, and renewed reservations.
    Guaranteed,
}

impl ReservationClass {
    pub(crate) fn of_owner(uid: u32) -> ReservationClass {
        if uid == 0 { ReservationClass::Root } else { ReservationClass::User }
    }
}

pub(crate) struct Space {
    /// Free and not reserved.
    available: AtomicU64,
    /// Free by the descriptors.
    free: AtomicU64,
    /// Included in `free` and `available`.
    uncommitted: AtomicU64,
    reserved_for_root: u64,
    reserved_for_metadata: u64,
    /// No block from here on is allocated, and no inode of a group from here on.
    end: AtomicU64,
    groups: Box<[GroupSpace]>,
    preallocs: Preallocations,
    system: SystemBlocks,
}

#[derive(Default)]
struct GroupSpace {
    /// [its mutex]
    uncommitted: Mutex<UncommittedFrees>,
    /// [its mutex]
    preallocated: Mutex<BlockSet>,
    /// The last search found no run of this length; 0: unknown.
    no_run_of: AtomicU32,
}

impl GroupSpace {
    fn uncommitted(&self) -> MutexGuard<'_, UncommittedFrees> {
        self.uncommitted.lock()
    }

    fn preallocated(&self) -> MutexGuard<'_, BlockSet> {
        self.preallocated.lock()
    }

    fn may_have_run(&self, len: u32) -> bool {
        let no_run_of = self.no_run_of.load(Relaxed);
        no_run_of == 0 || len < no_run_of
    }

    fn with_unavailable(&self, bitmap: &[u8]) -> Option<Vec<u8>> {
        let mut seen = self.uncommitted().bits.cover(bitmap);
        if let Some(both) = self.preallocated().cover(seen.as_deref().unwrap_or(bitmap)) {
            seen = Some(both);
        }
        seen
    }
}

#[derive(Default)]
struct UncommittedFrees {
    bits: BlockSet,
    /// The same by transaction: the running one and the committing ones.
    of: Vec<(Tid, Vec<Range<usize>>)>,
}

impl UncommittedFrees {
    /// Whether these are the transaction's first in the group.
    fn add(&mut self, tid: Tid, bits: &Range<usize>) -> bool {
        self.bits.add(bits);
        if let Some((_, all)) = self.of.iter_mut().find(|(of, _)| *of == tid) {
            all.push(bits.clone());
            return false;
        }
        self.of.push((tid, vec![bits.clone()]));
        true
    }

    fn remove(&mut self, tid: Tid) -> usize {
        let Some(at) = self.of.iter().position(|(of, _)| *of == tid) else { return 0 };
        let (_, all) = self.of.swap_remove(at);
        all.iter().for_each(|bits| self.bits.remove(bits));
        all.iter().map(ExactSizeIterator::len).sum()
    }
}

/// Blocks free in the bitmap that must not be allocated. None is added twice: a block is freed
/// while allocated, and preallocated while in no set.
#[derive(Default)]
struct BlockSet {
    bits: Vec<u8>,
    count: usize,
}

impl BlockSet {
    fn add(&mut self, bits: &Range<usize>) {
        let len = bits.end.div_ceil(8).max(self.bits.len());
        self.bits.resize(len, 0);
        set_bits(&mut self.bits, bits.start, bits.end);
        self.count += bits.len();
    }

    fn remove(&mut self, bits: &Range<usize>) {
        clear_bits(&mut self.bits, bits.start, bits.end);
        self.count -= bits.len();
        if self.count == 0 {
            self.bits = Vec::new();
        }
    }

    fn cover(&self, bitmap: &[u8]) -> Option<Vec<u8>> {
        if self.count == 0 {
            return None;
        }
        let mut seen = bitmap.to_vec();
        seen.iter_mut().zip(&self.bits).for_each(|(byte, bits)| *byte |= bits);
        Some(seen)
    }
}

impl Space {
    pub(crate) fn new(fs: &Ext4, descs: &[GroupDesc], journal: &[(u64, u64)]) -> Result<Arc<Space>> {
        let free = descs.iter().map(|desc| u64::from(desc.free_blocks)).sum();
        Ok(Arc::new(Space {
            available: AtomicU64::new(free),
            free: AtomicU64::new(free),
            uncommitted: AtomicU64::new(0),
            reserved_for_root: fs.sb.reserved_blocks_count,
            reserved_for_metadata: fs.reserved_for_metadata(),
            end: AtomicU64::new(fs.sb.blocks_count),
            groups: descs.iter().map(|_| GroupSpace::default()).collect(),
            preallocs: Preallocations::default(),
            system: SystemBlocks::new(fs, descs, journal)?,
        }))
    }

    /// The caller allocates the blocks or [releases](Space::release) them.
    pub(crate) fn reserve(&self, count: u64, class: ReservationClass) -> Result<()> {
        let floor = match class {
            ReservationClass::User => self.reserved_for_root.saturating_add(self.reserved_for_metadata),
            ReservationClass::Root => self.reserved_for_metadata,
            ReservationClass::Guaranteed => 0,
        };
        let left = |available: u64| available.checked_sub(count).filter(|&left| left >= floor || count == 0);
        self.available.fetch_update(Relaxed, Relaxed, left).map(drop).map_err(|_| Error::NoSpace)
    }

    pub(crate) fn release(&self, count: u64) {
        self.available.fetch_add(count, Relaxed);
    }

    pub(crate) fn available(&self) -> u64 {
        self.available.load(Relaxed)
    }

    /// Ends allocations before block `end`. Reservations may then fail to find a block.
    pub(crate) fn set_end(&self, end: u64) {
        self.end.store(end, Relaxed);
    }

    pub(crate) fn end(&self) -> u64 {
        self.end.load(Relaxed)
    }

    pub(crate) fn free(&self) -> u64 {
        self.free.load(Relaxed)
    }

    pub(crate) fn has_uncommitted_frees(&self) -> bool {
        self.uncommitted.load(Relaxed) > 0
    }

    fn group(&self, group: GroupNumber) -> &GroupSpace {
        &self.groups[usize::try_from(group.0).unwrap_or(usize::MAX)]
    }
}

impl Ext4 {
    /// Commits on [`Error::NoSpace`] if that makes blocks available, and retries. The caller has no
    /// open handle.
    pub(crate) fn retry_after_commit<R>(&self, mut attempt: impl FnMut() -> Result<R>) -> Result<R> {
        let writer = self.writer()?;
        match attempt() {
            Err(Error::NoSpace) if writer.space.has_uncommitted_frees() => {
                writer.journal.force_commit()?;
                attempt()
            }
            outcome => outcome,
        }
    }

    /// Keeps content of a damaged map from overwriting system blocks.
    pub(crate) fn check_content_place(&self, place: Place, first: BlockNumber, count: u64) -> Result<()> {
        let taken = self.writer()?.space.system.within(first, count).next();
        let because = "holds file system metadata";
        taken.map_or(Ok(()), |taken| {
            Err(place.corrupt(Problem::Value { field: "block", value: taken.start, because }))
        })
    }

    pub(crate) fn goal_of(&self, ino: InodeNumber) -> BlockNumber {
        self.sb.group_start(GroupNumber((ino.0 - 1) / self.sb.inodes_per_group))
    }
}

fn bit_of(sb: &Superblock, block: BlockNumber) -> (GroupNumber, usize) {
    let within = block.0.saturating_sub(u64::from(sb.first_data_block));
    let per_group = u64::from(sb.blocks_per_group);
    let group = u32::try_from(within / per_group).unwrap_or(u32::MAX).min(sb.groups - 1);
    (GroupNumber(group), usize::try_from(within % per_group).unwrap_or(usize::MAX))
}
