//! What an [`Ext4`] that may be changed has beside one that is read: the journal, the groups' state, the clock.
//!
//! An operation starts a [`Handle`], changes snapshots, groups and blocks through it, and stops it. Lock order and what a
//! crash may show: `docs/internals/writing.md`.

use crate::alloc::Space;
use crate::alloc::{Groups, Kept};
use crate::dir::{DirectoryLocks, LastEntries};
use crate::file::Unstored;
use crate::inode::Orphans;
use crate::inode::Snapshot;
use crate::xattr::Shared;
use crate::{Error, Ext4, Node, Place, Result, Structure};
use dentree_ext4_format::{
    BlockNumber, GroupDesc, GroupNumber, InodeNumber, InodeTime, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE,
};
use dentree_jbd2::{Handle, Journal};
use dentree_lockmeter::MutexGuard;
use rustix::time::{ClockId, clock_gettime};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

/// The state of a file system that may be changed.
pub(crate) struct Writer {
    pub(crate) journal: Journal,
    pub(crate) clock: Clock,
    /// Inodes have room for times past 2038 and for nanoseconds.
    has_extra_times: bool,
    pub(crate) orphans: Orphans,
    groups: Arc<Groups>,
    /// The locks of directories.
    pub(crate) directories: DirectoryLocks,
    /// Where entries were added last.
    pub(crate) last_entries: LastEntries,
    /// The free blocks.
    pub(crate) space: Arc<Space>,
    /// Content that is not on the device yet.
    pub(crate) unstored: Unstored,
    /// Attributes that can be shared.
    pub(crate) shared: Shared,
    /// Of the next inode whose place in the table was used before.
    generation: AtomicU32,
    /// [`Ext4::close`] has been called.
    pub(crate) is_closed: AtomicBool,
}

impl Writer {
    /// Reads every group descriptor.
    pub(crate) fn new(
        fs: &Ext4,
        journal: Journal,
        journal_runs: &[(u64, u64)],
        clock: Clock,
    ) -> Result<Writer> {
        let groups = (0..fs.sb.groups).map(GroupNumber).map(|group| {
            let desc = fs.group(group)?;
            let place = Structure::GroupDescriptor(group).at(fs.descriptor_place(group).0);
            desc.check(group, &fs.sb).map_err(|problem| place.corrupt(problem))?;
            Ok(desc)
        });
        let groups = groups.collect::<Result<Vec<_>>>()?;
        let space = Space::new(fs, &groups, journal_runs)?;
        // Far from what an earlier session began with; 1 is that of inodes whose place in the table was never used.
        let InodeTime { seconds, nanos } = clock.now();
        let generation = (u32::try_from(seconds & 0xFFFF_FFFF).unwrap_or(0).rotate_left(16) ^ nanos).max(2);
        let groups = Arc::new(Groups::new(fs, groups));
        let its = Arc::clone(&groups);
        journal.before_commit(move |last| its.finish(last));
        Ok(Writer {
            journal,
            clock,
            has_extra_times: fs.sb.has_extra_times(),
            orphans: fs.read_orphans()?,
            groups,
            directories: DirectoryLocks::new(),
            last_entries: LastEntries::new(),
            space,
            unstored: Unstored::default(),
            shared: Shared::default(),
            generation: AtomicU32::new(generation),
            is_closed: AtomicBool::new(false),
        })
    }

    /// The descriptor of a group, below `sb.groups`, as it is now.
    pub(crate) fn group(&self, group: GroupNumber) -> GroupDesc {
        self.groups.lock(group).desc
    }

    /// The same, if nobody has its lock.
    pub(crate) fn try_group(&self, group: GroupNumber) -> Option<GroupDesc> {
        self.groups.try_lock(group).map(|kept| kept.desc)
    }

    /// Free inodes, as the descriptors say.
    pub(crate) fn free_inodes(&self) -> u64 {
        self.groups.free_inodes()
    }

    /// From where on to look for a free inode of a group; the number of its inodes where none is.
    pub(crate) fn first_free_inode(&self, group: GroupNumber) -> &AtomicU32 {
        self.groups.first_free_inode(group)
    }

    /// A generation for an inode whose place was used before: in one session none comes twice.
    pub(crate) fn next_generation(&self) -> u32 {
        self.generation.fetch_add(1, Relaxed)
    }

    /// The time that changes are made at, as new inodes hold it.
    pub(crate) fn now(&self) -> InodeTime {
        self.clock.now().clamped(self.has_extra_times)
    }
}

/// Where times come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Clock {
    /// The machine.
    #[default]
    System,
    /// It is always this time: for images that come out the same each time they are made.
    Fixed(InodeTime),
}

impl Clock {
    /// The machine's clock moves by ticks here, of 1 to 10 ms: that is the one which the kernel's file systems take, and changes within
    /// a tick find the time of their directory written already.
    pub(crate) fn now(self) -> InodeTime {
        match self {
            Clock::Fixed(time) => time,
            Clock::System => {
                let now = clock_gettime(ClockId::RealtimeCoarse);
                InodeTime { seconds: now.tv_sec, nanos: u32::try_from(now.tv_nsec).unwrap_or(0) }
            }
        }
    }
}

/// A handle with so many credits more; where its transaction has no room for them, another, and what was changed so far may be committed
/// without what comes.
pub(crate) fn extended(mut handle: Handle<'_>, credits: u32) -> Result<Handle<'_>> {
    Ok(if handle.extend(credits) { handle } else { handle.restart(credits)? })
}

impl Ext4 {
    /// What changes go through.
    ///
    /// # Errors
    /// [`Error::ReadOnly`].
    pub(crate) fn writer(&self) -> Result<&Writer> {
        self.writer.as_ref().ok_or(Error::ReadOnly)
    }

    /// Starts a change of at most `credits` blocks of metadata.
    pub(crate) fn start(&self, credits: u32) -> Result<Handle<'_>> {
        Ok(self.writer()?.journal.start(credits)?)
    }

    /// The most credits that a handle can have; 0 where nothing is changed.
    pub(crate) fn most_credits(&self) -> u32 {
        self.writer.as_ref().map_or(0, |writer| writer.journal.most_credits())
    }

    /// Looks at a group under its lock: neither its descriptor nor its bitmaps change meanwhile.
    pub(crate) fn look_at_group<R>(
        &self,
        group: GroupNumber,
        look: impl FnOnce(&GroupDesc) -> Result<R>,
    ) -> Result<R> {
        match &self.writer {
            Some(writer) => look(&writer.groups.lock(group).desc),
            None => look(&self.group(group)?),
        }
    }

    /// Changes a group under its lock. `change` is given the descriptor, which comes into its block with the transaction where it was changed, and the
    /// handle, for the group's bitmaps. It fails only before it has changed anything.
    pub(crate) fn change_group<R>(
        &self,
        handle: &mut Handle<'_>,
        group: GroupNumber,
        change: impl FnOnce(&mut GroupDesc, &mut Handle<'_>) -> Result<R>,
    ) -> Result<R> {
        let writer = self.writer()?;
        self.change_locked_group(handle, group, writer, writer.groups.lock(group), change)
    }

    /// The same, if nobody has its lock.
    pub(crate) fn try_change_group<R>(
        &self,
        handle: &mut Handle<'_>,
        group: GroupNumber,
        change: impl FnOnce(&mut GroupDesc, &mut Handle<'_>) -> Result<R>,
    ) -> Result<Option<R>> {
        let writer = self.writer()?;
        let Some(kept) = writer.groups.try_lock(group) else { return Ok(None) };
        self.change_locked_group(handle, group, writer, kept, change).map(Some)
    }

    fn change_locked_group<R>(
        &self,
        handle: &mut Handle<'_>,
        group: GroupNumber,
        writer: &Writer,
        mut kept: MutexGuard<'_, Kept>,
        change: impl FnOnce(&mut GroupDesc, &mut Handle<'_>) -> Result<R>,
    ) -> Result<R> {
        let mut next = kept.desc;
        let answer = change(&mut next, handle)?;
        if next != kept.desc {
            let tid = handle.tid();
            writer.groups.replace(group, &mut kept, next, tid, |block, encode| {
                self.update(handle, block, Structure::GroupDescriptor(group).at(block), encode)
            })?;
        }
        Ok(answer)
    }

    /// Makes the next snapshot of an inode, and writes it to the inode table.
    pub(crate) fn change_inode<R>(
        &self,
        handle: &mut Handle<'_>,
        node: &Node,
        change: impl FnOnce(&mut Snapshot) -> R,
    ) -> Result<R> {
        // Of two changes the later must also be the later one on disk.
        let _writing = node.lock_writing();
        let (answer, snapshot) = node.change_and_hold(change);
        self.update_inode(handle, node.ino(), |bytes| snapshot.encode(bytes, &self.sb))?;
        node.note_change(handle.tid());
        Ok(answer)
    }

    /// Changes the bytes of an inode in the table.
    pub(crate) fn update_inode(
        &self,
        handle: &mut Handle<'_>,
        ino: InodeNumber,
        change: impl FnOnce(&mut [u8]),
    ) -> Result<()> {
        let (block, within) = self.find_inode(ino)?;
        let place = Structure::Inode.of(ino).at(block);
        let size = usize::try_from(self.sb.inode_size).unwrap_or(usize::MAX);
        self.update(handle, block, place, |bytes| {
            if let Some(bytes) = bytes.chunks_exact_mut(size).nth(within) {
                change(bytes);
            }
        })
    }

    /// Changes the superblock within a transaction.
    pub(crate) fn update_superblock(
        &self,
        handle: &mut Handle<'_>,
        change: impl FnOnce(&mut [u8; SUPERBLOCK_SIZE]),
    ) -> Result<()> {
        let block = BlockNumber(SUPERBLOCK_OFFSET >> self.sb.block_size.log2());
        let within = SUPERBLOCK_OFFSET & u64::from(self.sb.block_size.bytes() - 1);
        let within = usize::try_from(within).unwrap_or(usize::MAX);
        self.update(handle, block, Structure::Superblock.at(block), |bytes| {
            if let Some(bytes) = bytes.get_mut(within..).and_then(<[u8]>::first_chunk_mut) {
                change(bytes);
            }
        })
    }

    /// Changes a block of metadata, which has been checked against the file system's size.
    pub(crate) fn update<R>(
        &self,
        handle: &mut Handle<'_>,
        block: BlockNumber,
        place: Place,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R> {
        handle.update(block.0, change).map_err(|source| place.at(block).io(source))
    }
}
