//! Which blocks are free: taking them, and giving them back.
//!
//! # Data
//! The truth is a bitmap and a descriptor for each group, changed under the group's lock through a handle. [`Space`] keeps beside them
//! what is true of this session only: how many blocks may still be promised, which blocks were freed by a transaction
//! that is not yet committed, which are left to directories that grow (`prealloc.rs`), and how long a group's free runs can be at most.
//!
//! # Who protects what
//! Counters are atomics of their own: no other memory depends on them. A group's *pending* frees are added under the group's lock and
//! taken away by the committer, under their own mutex, inside which nothing is taken. Its *marks* are the same of rooms.
//!
//! # Guarantees
//! - *A promise is kept.* Blocks are promised ([`Space::promise`]) before data is accepted; what was promised is not promised to anybody
//!   else, so taking it finds a block, maybe after a commit that sets freed ones free.
//! - *Freed blocks wait.* A block that was freed is taken again only after the commit of the transaction that freed it.
//! - *Metadata stays.* Nobody takes or frees blocks that bitmaps, inode tables or descriptors lie in, whatever a bitmap or a file says.
//!
//! # Inodes
//! | file | what |
//! |---|---|
//! | `orlov` | in which groups to look: directories spread, files beside their directory |
//! | `goal` | where several threads make files: how far from their directory each takes its inodes |
//! | `inodes` | taking an inode of a group and giving it back: bitmap, descriptor, table |
//!
//! Bitmap, descriptor and the never used end of an inode table: the group's lock.

mod bitmaps;
mod blocks;
mod free;
mod goal;
mod groups;
mod inodes;
mod orlov;
mod prealloc;
mod system;
mod trim;

use crate::{Error, Ext4, Place, Result};
pub(crate) use blocks::TAKE_CREDITS;
use dentree_ext4_format::{
    BlockNumber, GroupDesc, GroupNumber, InodeNumber, Problem, Superblock, clear_bits, set_bits,
};
use dentree_jbd2::Tid;
pub(crate) use groups::{GroupState, Groups, InodeTables};
pub(crate) use inodes::INODE_CREDITS;
use prealloc::Rooms;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use system::SystemBlocks;

/// Who may have the last blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Claim {
    /// A user: leaves what is reserved for root, and what metadata of promised blocks may need.
    User,
    /// Root: leaves what metadata may need.
    Root,
    /// Work that was promised must not fail: may have all.
    Promised,
}

impl Claim {
    /// Whose claim is made for an inode of this owner.
    pub(crate) fn of_owner(uid: u32) -> Claim {
        if uid == 0 { Claim::Root } else { Claim::User }
    }
}

/// What this session knows of the free blocks.
pub(crate) struct Space {
    /// Blocks that are free and promised to nobody.
    available: AtomicU64,
    /// Free blocks, as the descriptors say.
    free: AtomicU64,
    /// Blocks freed by transactions that are not committed; counted as free and available.
    waiting: AtomicU64,
    reserved_for_root: u64,
    kept_back: u64,
    groups: Box<[GroupSpace]>,
    rooms: Rooms,
    system: SystemBlocks,
}

#[derive(Default)]
struct GroupSpace {
    /// Blocks freed by transactions that are not committed. [its mutex]
    pending: Mutex<Pending>,
    /// Blocks of rooms. [its mutex]
    marks: Mutex<Bits>,
    /// No free run is as long as this, as of the last search that failed; 0 is unknown.
    none_of: AtomicU32,
}

impl GroupSpace {
    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn marks(&self) -> MutexGuard<'_, Bits> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a free run of this length is worth a search.
    fn may_have(&self, len: u32) -> bool {
        let none_of = self.none_of.load(Relaxed);
        none_of == 0 || len < none_of
    }

    /// The group's bitmap with all that must not be taken, where there is any such.
    fn taken_in(&self, bitmap: &[u8]) -> Option<Vec<u8>> {
        let mut seen = self.pending().bits.cover(bitmap);
        if let Some(both) = self.marks().cover(seen.as_deref().unwrap_or(bitmap)) {
            seen = Some(both);
        }
        seen
    }
}

/// Blocks of a group that wait for the commit of who freed them.
#[derive(Default)]
struct Pending {
    bits: Bits,
    /// The same, by transaction: one running, and those that are being committed.
    of: Vec<(Tid, Vec<Range<usize>>)>,
}

impl Pending {
    /// Adds what a transaction frees; answers whether it is the first that it frees in this group.
    fn add(&mut self, tid: Tid, bits: &Range<usize>) -> bool {
        self.bits.add(bits);
        if let Some((_, all)) = self.of.iter_mut().find(|(of, _)| *of == tid) {
            all.push(bits.clone());
            return false;
        }
        self.of.push((tid, vec![bits.clone()]));
        true
    }

    /// Takes out what a transaction has freed; answers how many blocks.
    fn remove(&mut self, tid: Tid) -> usize {
        let Some(at) = self.of.iter().position(|(of, _)| *of == tid) else { return 0 };
        let (_, all) = self.of.swap_remove(at);
        all.iter().for_each(|bits| self.bits.remove(bits));
        all.iter().map(ExactSizeIterator::len).sum()
    }
}

/// Blocks of a group that are free in its bitmap and must not be taken. None is added twice: not freed, since none is taken before; not marked, since
/// the search for a room leaves marks alone.
#[derive(Default)]
struct Bits {
    /// A bitmap as the group's, as far as it was needed.
    bits: Vec<u8>,
    count: usize,
}

impl Bits {
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

    /// The group's bitmap with these blocks taken, where there are any.
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
    /// The state of a file system with these groups, whose journal has these runs of blocks.
    pub(crate) fn new(fs: &Ext4, descs: &[GroupDesc], journal: &[(u64, u64)]) -> Result<Arc<Space>> {
        let free = descs.iter().map(|desc| u64::from(desc.free_blocks)).sum();
        Ok(Arc::new(Space {
            available: AtomicU64::new(free),
            free: AtomicU64::new(free),
            waiting: AtomicU64::new(0),
            reserved_for_root: fs.sb.reserved_blocks_count,
            kept_back: fs.kept_for_metadata(),
            groups: descs.iter().map(|_| GroupSpace::default()).collect(),
            rooms: Rooms::default(),
            system: SystemBlocks::new(fs, descs, journal)?,
        }))
    }

    /// Promises so many blocks to the caller, who takes them or [releases](Space::release) them.
    ///
    /// # Errors
    /// [`Error::NoSpace`].
    pub(crate) fn promise(&self, count: u64, claim: Claim) -> Result<()> {
        let floor = match claim {
            Claim::User => self.reserved_for_root.saturating_add(self.kept_back),
            Claim::Root => self.kept_back,
            Claim::Promised => 0,
        };
        let left = |available: u64| available.checked_sub(count).filter(|&left| left >= floor || count == 0);
        self.available.fetch_update(Relaxed, Relaxed, left).map(drop).map_err(|_| Error::NoSpace)
    }

    /// Gives up a promise of so many blocks.
    pub(crate) fn release(&self, count: u64) {
        self.available.fetch_add(count, Relaxed);
    }

    /// Free blocks that are promised to nobody.
    pub(crate) fn available(&self) -> u64 {
        self.available.load(Relaxed)
    }

    /// Free blocks, as the descriptors say.
    pub(crate) fn free(&self) -> u64 {
        self.free.load(Relaxed)
    }

    /// Whether a commit would set blocks free.
    pub(crate) fn has_waiting(&self) -> bool {
        self.waiting.load(Relaxed) > 0
    }

    fn group(&self, group: GroupNumber) -> &GroupSpace {
        &self.groups[usize::try_from(group.0).unwrap_or(usize::MAX)]
    }
}

impl Ext4 {
    /// Does something that may need blocks which wait for a commit: where it finds no space, once more after that. No handle may be open.
    pub(crate) fn with_space<R>(&self, mut attempt: impl FnMut() -> Result<R>) -> Result<R> {
        let writer = self.writer()?;
        match attempt() {
            Err(Error::NoSpace) if writer.space.has_waiting() => {
                writer.journal.force_commit()?;
                attempt()
            }
            outcome => outcome,
        }
    }

    /// Refuses to write content to where a damaged block map leads: over metadata of fixed place.
    pub(crate) fn check_content_place(&self, place: Place, first: BlockNumber, count: u64) -> Result<()> {
        let taken = self.writer()?.space.system.within(first, count).next();
        let because = "holds metadata of the file system";
        taken.map_or(Ok(()), |taken| {
            Err(place.corrupt(Problem::Value { field: "block", value: taken.start, because }))
        })
    }

    /// Where the first block of an inode had best lie.
    pub(crate) fn goal_of(&self, ino: InodeNumber) -> BlockNumber {
        self.sb.group_start(GroupNumber((ino.0 - 1) / self.sb.inodes_per_group))
    }
}

/// The group that a block lies in, and its bit there; `block` has been checked.
fn bit_of(sb: &Superblock, block: BlockNumber) -> (GroupNumber, usize) {
    let within = block.0.saturating_sub(u64::from(sb.first_data_block));
    let per_group = u64::from(sb.blocks_per_group);
    let group = u32::try_from(within / per_group).unwrap_or(u32::MAX).min(sb.groups - 1);
    (GroupNumber(group), usize::try_from(within % per_group).unwrap_or(usize::MAX))
}
