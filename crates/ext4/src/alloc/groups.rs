//! Block groups of a file system that may be changed: their descriptors as they are now.
//!
//! # Data
//! The descriptor in memory is the truth. A block of the device has the descriptors of many groups, which many threads change at once: so who
//! changes one first in a transaction puts it into the block, and who changes it later leaves that to the commit ([`Groups::finish`]),
//! which puts the last state there before the transaction is taken over. What is committed has descriptors that fit their
//! bitmaps, and nobody reads them from the blocks while they are changed.
//!
//! # Who protects what
//! A group's lock guards its descriptor and its bitmaps. The list of changed groups has a lock of its own, inside which nothing is taken.
//! The commit takes one after the other, when no handle is inside: so nobody who has one of them waits for the commit.
//!
//! # Guarantees
//! - *Credits.* The block is among those of the transaction from the first change on, which has paid for it.
//! - *No read at a commit.* From then on it is pinned, so that it is in memory.

use crate::Ext4;
use dentree_ext4_format::{BlockNumber, GroupDesc, GroupNumber, Superblock};
use dentree_jbd2::{LastChanges, Tid};
use dentree_lockmeter::{Class, Mutex, MutexGuard};
use std::io;
use std::sync::atomic::AtomicU32;
use std::sync::{Mutex as PlainMutex, MutexGuard as PlainGuard, PoisonError};

/// All block groups.
pub(crate) struct Groups {
    all: Box<[Group]>,
    /// Groups that the running transaction has changed, each once.
    changed: PlainMutex<Vec<GroupNumber>>,
    sb: Superblock,
}

/// A block group. On lines of its own: other threads change its neighbours.
#[repr(align(128))]
struct Group {
    desc: Mutex<Kept>,
    /// No inode of the group before this one is free, and none at all where it is the one behind the last: who looks for one asks for no
    /// lock then. A hint, relaxed; written under the lock.
    first_free_inode: AtomicU32,
}

/// A descriptor.
pub(crate) struct Kept {
    /// As it is now.
    pub(crate) desc: GroupDesc,
    /// Where it lies: the block, and which of that block's it is.
    place: (BlockNumber, usize),
    /// The last transaction that has put it into its block.
    put_in: Option<Tid>,
    /// It was changed since.
    is_newer: bool,
}

impl Groups {
    pub(crate) fn new(fs: &Ext4, descs: Vec<GroupDesc>) -> Groups {
        let class = Class::named("block group");
        let all = (0..).zip(descs).map(|(number, desc)| Group {
            first_free_inode: AtomicU32::new(if desc.free_inodes == 0 { fs.sb.inodes_per_group } else { 0 }),
            desc: Mutex::new(
                class,
                Kept { desc, place: fs.descriptor_place(GroupNumber(number)), put_in: None, is_newer: false },
            ),
        });
        Groups { all: all.collect(), changed: PlainMutex::default(), sb: fs.sb.clone() }
    }

    fn group(&self, group: GroupNumber) -> &Group {
        &self.all[usize::try_from(group.0).unwrap_or(usize::MAX)]
    }

    /// Locks a group, which is below `sb.groups`.
    pub(crate) fn lock(&self, group: GroupNumber) -> MutexGuard<'_, Kept> {
        self.group(group).desc.lock()
    }

    /// The same, if nobody has its lock.
    pub(crate) fn try_lock(&self, group: GroupNumber) -> Option<MutexGuard<'_, Kept>> {
        self.all.get(usize::try_from(group.0).ok()?)?.desc.try_lock()
    }

    /// From where on to look for a free inode of a group; the number of its inodes where none is.
    pub(crate) fn first_free_inode(&self, group: GroupNumber) -> &AtomicU32 {
        &self.group(group).first_free_inode
    }

    /// Free inodes, as the descriptors say.
    pub(crate) fn free_inodes(&self) -> u64 {
        self.all.iter().map(|group| u64::from(group.desc.lock().desc.free_inodes)).sum()
    }

    fn changed(&self) -> PlainGuard<'_, Vec<GroupNumber>> {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes `next` the descriptor of a group by a handle of transaction `tid`. `put` puts it into its block.
    pub(crate) fn replace<E>(
        &self,
        group: GroupNumber,
        kept: &mut Kept,
        next: GroupDesc,
        tid: Tid,
        put: impl FnOnce(BlockNumber, &dyn Fn(&mut [u8])) -> Result<(), E>,
    ) -> Result<(), E> {
        if kept.put_in == Some(tid) {
            (kept.desc, kept.is_newer) = (next, true);
            return Ok(());
        }
        let (block, within) = kept.place;
        put(block, &|bytes| self.encode(bytes, within, group, &next))?;
        (kept.desc, kept.put_in, kept.is_newer) = (next, Some(tid), false);
        self.changed().push(group);
        Ok(())
    }

    fn encode(&self, bytes: &mut [u8], within: usize, group: GroupNumber, desc: &GroupDesc) {
        let size = usize::try_from(self.sb.desc_size).unwrap_or(usize::MAX);
        if let Some(bytes) = bytes.chunks_exact_mut(size).nth(within) {
            desc.encode(bytes, group, &self.sb);
        }
    }

    /// Puts the descriptors into their blocks that have changed since that was last done in the transaction which is taken over.
    pub(crate) fn finish(&self, last: &mut LastChanges<'_>) -> io::Result<()> {
        let changed = std::mem::take(&mut *self.changed());
        for group in changed {
            let mut kept = self.lock(group);
            if std::mem::take(&mut kept.is_newer) {
                let (block, within) = kept.place;
                last.update(block.0, |bytes| self.encode(bytes, within, group, &kept.desc))?;
            }
        }
        Ok(())
    }
}
