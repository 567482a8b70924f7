//! State of a writable file system. Lock order, and what a crash may show:
//! `docs/internals/writing.md`.

use crate::alloc::Space;
use crate::alloc::{GroupState, Groups};
use crate::dir::{DirectoryLocks, LastInserts};
use crate::file::DirtyInodes;
use crate::inode::Orphans;
use crate::inode::Snapshot;
use crate::xattr::XattrCaches;
use crate::{Error, Ext4, Node, Place, Result, Structure};
use dentree_ext4_format::{
    BlockNumber, GroupDesc, GroupNumber, InodeNumber, InodeTime, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE,
};
use dentree_jbd2::{Handle, Journal};
use dentree_sync::lockstat::NamedMutexGuard;
use dentree_vfs::Timestamp;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

pub(crate) struct Writer {
    pub(crate) journal: Journal,
    pub(crate) clock: Clock,
    /// Inodes hold times past 2038 and nanoseconds.
    has_extra_times: bool,
    pub(crate) orphans: Orphans,
    groups: Arc<Groups>,
    pub(crate) directories: DirectoryLocks,
    pub(crate) last_inserts: LastInserts,
    pub(crate) space: Arc<Space>,
    pub(crate) dirty: DirtyInodes,
    pub(crate) xattr_caches: XattrCaches,
    /// Next generation of a reused inode.
    generation: AtomicU32,
    pub(crate) is_closed: AtomicBool,
}

impl Writer {
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
        // Far from earlier sessions. An inode's first generation is 1.
        let InodeTime { seconds, nanos } = clock.now();
        let generation = (u32::try_from(seconds & 0xFFFF_FFFF).unwrap_or(0).rotate_left(16) ^ nanos).max(2);
        let groups = Arc::new(Groups::new(fs, groups));
        let for_commit = Arc::clone(&groups);
        journal.before_commit(move |changes| for_commit.write_dirty(changes));
        Ok(Writer {
            journal,
            clock,
            has_extra_times: fs.sb.has_extra_times(),
            orphans: fs.read_orphans()?,
            groups,
            directories: DirectoryLocks::new(),
            last_inserts: LastInserts::new(),
            space,
            dirty: DirtyInodes::default(),
            xattr_caches: XattrCaches::default(),
            generation: AtomicU32::new(generation),
            is_closed: AtomicBool::new(false),
        })
    }

    pub(crate) fn group(&self, group: GroupNumber) -> GroupDesc {
        self.groups.lock(group).desc
    }

    /// `None` if that would wait.
    pub(crate) fn try_group(&self, group: GroupNumber) -> Option<GroupDesc> {
        self.groups.try_lock(group).map(|state| state.desc)
    }

    pub(crate) fn free_inodes(&self) -> u64 {
        self.groups.free_inodes()
    }

    pub(crate) fn first_free_inode(&self, group: GroupNumber) -> &AtomicU32 {
        self.groups.first_free_inode(group)
    }

    /// Unique in this session.
    pub(crate) fn next_generation(&self) -> u32 {
        self.generation.fetch_add(1, Relaxed)
    }

    /// Clamped to what new inodes hold.
    pub(crate) fn now(&self) -> InodeTime {
        self.clock.now().clamped(self.has_extra_times)
    }
}

/// Source of timestamps.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Clock {
    /// The system's clock, by [`Timestamp::now`].
    #[default]
    System,
    /// Always this time: for reproducible images.
    Fixed(InodeTime),
}

impl Clock {
    pub(crate) fn now(self) -> InodeTime {
        match self {
            Clock::Fixed(time) => time,
            Clock::System => {
                let Timestamp { seconds, nanos } = Timestamp::now();
                InodeTime { seconds, nanos }
            }
        }
    }
}

/// Restarts a handle whose transaction is full: changes so far may be committed without what
/// follows.
pub(crate) fn extend_or_restart(mut handle: Handle<'_>, credits: u32) -> Result<Handle<'_>> {
    Ok(if handle.extend(credits) { handle } else { handle.restart(credits)? })
}

impl Ext4 {
    pub(crate) fn writer(&self) -> Result<&Writer> {
        self.writer.as_ref().ok_or(Error::ReadOnly)
    }

    /// `credits`: most blocks changed.
    pub(crate) fn start(&self, credits: u32) -> Result<Handle<'_>> {
        Ok(self.writer()?.journal.start(credits)?)
    }

    /// 0 in a read-only file system.
    pub(crate) fn max_credits(&self) -> u32 {
        self.writer.as_ref().map_or(0, |writer| writer.journal.most_credits())
    }

    /// Holds the lock of descriptor and bitmaps.
    pub(crate) fn with_group<R>(
        &self,
        group: GroupNumber,
        look: impl FnOnce(&GroupDesc) -> Result<R>,
    ) -> Result<R> {
        match &self.writer {
            Some(writer) => look(&writer.groups.lock(group).desc),
            None => look(&self.group(group)?),
        }
    }

    /// `change` fails before it changes anything. The descriptor reaches its block with the
    /// transaction.
    pub(crate) fn change_group<R>(
        &self,
        handle: &mut Handle<'_>,
        group: GroupNumber,
        change: impl FnOnce(&mut GroupDesc, &mut Handle<'_>) -> Result<R>,
    ) -> Result<R> {
        let writer = self.writer()?;
        self.change_locked_group(handle, group, writer, writer.groups.lock(group), change)
    }

    /// `None` if that would wait.
    pub(crate) fn try_change_group<R>(
        &self,
        handle: &mut Handle<'_>,
        group: GroupNumber,
        change: impl FnOnce(&mut GroupDesc, &mut Handle<'_>) -> Result<R>,
    ) -> Result<Option<R>> {
        let writer = self.writer()?;
        let Some(state) = writer.groups.try_lock(group) else { return Ok(None) };
        self.change_locked_group(handle, group, writer, state, change).map(Some)
    }

    fn change_locked_group<R>(
        &self,
        handle: &mut Handle<'_>,
        group: GroupNumber,
        writer: &Writer,
        mut state: NamedMutexGuard<'_, GroupState>,
        change: impl FnOnce(&mut GroupDesc, &mut Handle<'_>) -> Result<R>,
    ) -> Result<R> {
        let mut next = state.desc;
        let result = change(&mut next, handle)?;
        if next != state.desc {
            let tid = handle.tid();
            writer.groups.set(group, &mut state, next, tid, |block, encode| {
                self.update(handle, block, Structure::GroupDescriptor(group).at(block), encode)
            })?;
        }
        Ok(result)
    }

    /// Makes the next snapshot, and writes it to the inode table.
    pub(crate) fn change_inode<R>(
        &self,
        handle: &mut Handle<'_>,
        node: &Node,
        change: impl FnOnce(&mut Snapshot) -> R,
    ) -> Result<R> {
        // Keeps the order of changes in the table.
        let _writing = node.lock_table_write();
        let (result, snapshot) = node.change_and_hold(change);
        self.update_inode(handle, node.ino(), |bytes| snapshot.encode(bytes, &self.sb))?;
        node.note_change(handle.tid());
        Ok(result)
    }

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

    /// `block` was checked against the file system's size.
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
