//! Directories.
//!
//! | file | contents |
//! |---|---|
//! | `format` | blocks and entries |
//! | `name` | comparing, hashing and showing names |
//! | `lookup` | lookups, htree paths |
//! | `list` | listings |
//! | `lock` | parallel directory operations |
//! | `insert` | insertion, growth of linear directories |
//! | `last_insert` | position of each leaf's last insertion |
//! | `split` | htree splits, the first index |
//! | `presize` | an htree for an expected number of entries |
//! | `inline` | directories in the inode |
//! | `make`, `link`, `rename` | the operations |
//! | `renumber` | new inode numbers, as a file system becomes smaller |
//!
//! # Steps of an operation
//! It works on a copy of the snapshot ([`DirUpdate`]). ENOSPC and damage show before the first
//! change of a block, or are undone. Then blocks change; last the copy is published. A failure in
//! between aborts the journal ([`Ext4::all_or_abort`]).
//!
//! # Who protects what
//! `lock` guards entries, blocks and size; for renames `vfs` excludes other changes. Owner, mode
//! and times are not guarded, so publishing takes over only the layout, and only where it differs
//! from the copy's origin.

mod format;
mod inline;
mod insert;
mod last_insert;
mod link;
mod list;
mod lock;
mod lookup;
mod make;
#[cfg(all(test, loom))]
mod models;
mod name;
mod presize;
mod rename;
mod renumber;
mod split;

pub(crate) use last_insert::LastInserts;
pub(crate) use lock::DirectoryLocks;

use crate::inode::Snapshot;
use crate::xattr::adopt_inline_data;
use crate::{Ext4, Node, Result, Structure};
use dentree_ext4_format::{Inode, InodeFlags, InodeTime, Problem};
use dentree_jbd2::Handle;
use std::ops::{Deref, DerefMut};

/// More links are possible with `dir_nlink`; the count is then 1.
const MAX_LINKS: u16 = 65_000;

/// The leaf and the directory's inode.
const ENTRY_CREDITS: u32 = 2;

struct DirUpdate {
    next: Snapshot,
    /// The state as last published. A clone: holding the snapshot would force a copy.
    before: Snapshot,
    links_before: u16,
}

impl DirUpdate {
    fn of(dir: &Node) -> DirUpdate {
        let before = dir.with_snapshot(Snapshot::clone);
        DirUpdate { next: before.clone(), links_before: before.inode.links, before }
    }

    fn has_new_layout(&self) -> bool {
        let (next, before) = (&self.next.inode, &self.before.inode);
        (next.size, next.flags, next.block) != (before.size, before.flags, before.block)
            || self.next.has(InodeFlags::INLINE_DATA) && self.next.tail != self.before.tail
    }

    fn lay_out(&self, snapshot: &mut Snapshot) -> std::result::Result<(), Problem> {
        let inode = &mut snapshot.inode;
        inode.block = self.inode.block;
        inode.size = self.inode.size;
        // Attributes may have changed the count meanwhile.
        let before = self.before.inode.sectors;
        let gained = self.inode.sectors.saturating_sub(before);
        let lost = before.saturating_sub(self.inode.sectors);
        inode.sectors = inode.sectors.saturating_add(gained).saturating_sub(lost);
        let of_layout = InodeFlags::INDEX.with(InodeFlags::EXTENTS).with(InodeFlags::INLINE_DATA);
        let was_inline = inode.flags.has(InodeFlags::INLINE_DATA);
        let kept = inode.flags.without(of_layout);
        inode.flags = kept.with(InodeFlags(self.inode.flags.0 & of_layout.0));
        if was_inline { adopt_inline_data(&mut snapshot.tail, &self.tail) } else { Ok(()) }
    }
}

impl Deref for DirUpdate {
    type Target = Snapshot;

    fn deref(&self) -> &Snapshot {
        &self.next
    }
}

impl DerefMut for DirUpdate {
    fn deref_mut(&mut self) -> &mut Snapshot {
        &mut self.next
    }
}

impl Ext4 {
    /// Leaves the inode alone if another change in this clock tick published the same state: it is
    /// in the table, or will be in this transaction.
    fn publish_directory(&self, handle: &mut Handle<'_>, dir: &Node, updated: &DirUpdate) -> Result<()> {
        let writer = self.writer()?;
        let has_same_counts = updated.inode.links == updated.links_before && !updated.has_new_layout();
        if has_same_counts && dir.with_snapshot(|now| is_changed_at(&now.inode, writer.now())) {
            dir.note_change(handle.tid());
            return Ok(());
        }
        let changed = self.change_inode(handle, dir, |snapshot| {
            // Read under the inode's write lock: times never go back.
            let now = writer.now();
            let inode = &mut snapshot.inode;
            // Other threads may have made subdirectories.
            let links =
                i32::from(inode.links) + i32::from(updated.inode.links) - i32::from(updated.links_before);
            inode.links = u16::try_from(links).unwrap_or(u16::MAX);
            inode.mtime = now;
            inode.ctime = now;
            if updated.has_new_layout() { updated.lay_out(snapshot) } else { Ok(()) }
        })?;
        changed.map_err(|problem| updated.place(Structure::InlineData).corrupt(problem))
    }

    /// New blocks come before the rest.
    fn publish_layout(&self, handle: &mut Handle<'_>, dir: &Node, updated: &mut DirUpdate) -> Result<()> {
        let changed = self.change_inode(handle, dir, |snapshot| updated.lay_out(snapshot))?;
        changed.map_err(|problem| updated.place(Structure::InlineData).corrupt(problem))?;
        updated.before.clone_from(&updated.next);
        Ok(())
    }

    /// Past the limit the count is 1, "many".
    fn count_subdirectory(&self, dir: &mut Snapshot) -> Result<()> {
        let links = dir.inode.links;
        let many = self.counts_many(dir);
        dir.inode.links = match links {
            1 if many => 1,
            _ if links < MAX_LINKS => links + 1,
            _ if many => 1,
            _ => return Err(crate::Error::TooManyLinks(dir.ino)),
        };
        Ok(())
    }

    fn uncount_subdirectory(dir: &mut Snapshot) {
        if dir.inode.links > 2 {
            dir.inode.links -= 1;
        }
    }

    fn counts_many(&self, dir: &Snapshot) -> bool {
        self.sb.ro_compat.has(dentree_ext4_format::RoCompat::DIR_NLINK) && self.is_indexed(dir)
    }

    /// The error if the directory lacks a name that `vfs` found.
    fn no_entry(dir: &Snapshot) -> crate::Error {
        dir.place(Structure::DirectoryEntry).corrupt(Problem::Missing { what: "the name" })
    }
}

fn is_changed_at(dir: &Inode, time: InodeTime) -> bool {
    (dir.mtime, dir.ctime) == (time, time)
}
