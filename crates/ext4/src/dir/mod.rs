//! Changes of names: entries are added to directories, pointed elsewhere and removed, and the operations that are made of that.
//!
//! | file | what |
//! |---|---|
//! | `format` | blocks and their entries |
//! | `name` | names: shown, compared, hashed |
//! | `lookup` | the way through an htree |
//! | `list` | listings |
//! | `entries` | one entry of a directory, wherever it stands |
//! | `lock` | who holds what while names are changed side by side |
//! | `insert` | where a new entry finds room, and how a directory grows for it |
//! | `last` | where a leaf's last entry was put, behind which the next one goes |
//! | `split` | the same under an htree: splits of leaves and index blocks |
//! | `presize` | directories that are laid out for the entries to come |
//! | `inline` | directories within their inode |
//! | `make` | inodes with their first name, or none |
//! | `link` | more names, fewer names, and the last one together with its inode |
//! | `rename` | other names |
//!
//! # How an operation goes
//! It works on a *draft*: a copy of the directory's snapshot, which new blocks are mapped in. All that can fail for want of
//! space, or because an image is damaged, comes before the first change of a block, or is undone; then the blocks are
//! changed, and last what the draft says is made the directory's state. What fails after the first change aborts the
//! journal ([`Ext4::all_or_abort`]): half an operation is not committed.
//!
//! The names of a directory are guarded by the locks of `lock`, its blocks and size too; where `vfs` has the directory alone, for a
//! rename, nobody else holds one. Its owner, mode and times are not: of a draft only the rest is taken over, and
//! that only where it differs from what the draft was made of.

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
mod split;

pub(crate) use last_insert::LastEntries;
pub(crate) use lock::DirectoryLocks;

use crate::inode::Snapshot;
use crate::xattr::adopt_inline_data;
use crate::{Ext4, Node, Result, Structure};
use dentree_ext4_format::{Inode, InodeFlags, InodeTime, Problem};
use dentree_jbd2::Handle;
use std::ops::{Deref, DerefMut};

/// Most names that an inode has; directories with dir_nlink may have more, and then say 1.
const MAX_LINKS: u16 = 65_000;

/// Blocks that removing or changing an entry changes: the leaf, and the directory's inode.
const ENTRY_CREDITS: u32 = 2;

/// A directory as it is to become.
struct Draft {
    next: Snapshot,
    /// As it was, or was last published. A copy: while a snapshot is held, the next one cannot be made in its place.
    before: Snapshot,
    /// The number of links as it was.
    links_before: u16,
}

impl Draft {
    fn of(dir: &Node) -> Draft {
        let before = dir.look(Snapshot::clone);
        Draft { next: before.clone(), links_before: before.inode.links, before }
    }

    fn has_new_layout(&self) -> bool {
        let (next, before) = (&self.next.inode, &self.before.inode);
        (next.size, next.flags, next.block) != (before.size, before.flags, before.block)
            || self.next.has(InodeFlags::INLINE_DATA) && self.next.tail != self.before.tail
    }

    /// Makes the layout of the draft that of a snapshot of the directory.
    fn lay_out(&self, snapshot: &mut Snapshot) -> std::result::Result<(), Problem> {
        let inode = &mut snapshot.inode;
        inode.block = self.inode.block;
        inode.size = self.inode.size;
        // Attributes may take and free blocks meanwhile.
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

impl Deref for Draft {
    type Target = Snapshot;

    fn deref(&self) -> &Snapshot {
        &self.next
    }
}

impl DerefMut for Draft {
    fn deref_mut(&mut self) -> &mut Snapshot {
        &mut self.next
    }
}

impl Ext4 {
    /// Makes what the draft of a directory says its state, as of now.
    ///
    /// Where that is its state already, as another name was changed in the same tick of the clock, its inode is left alone: it is in the table, or
    /// whoever has made it so is about to write it there, by a handle of this transaction.
    fn publish_directory(&self, handle: &mut Handle<'_>, dir: &Node, draft: &Draft) -> Result<()> {
        let writer = self.writer()?;
        let has_same_counts = draft.inode.links == draft.links_before && !draft.has_new_layout();
        if has_same_counts && dir.look(|now| is_changed_at(&now.inode, writer.now())) {
            dir.note_change(handle.tid());
            return Ok(());
        }
        let changed = self.change_inode(handle, dir, |snapshot| {
            // Asked here, where one comes after the other: times do not go back.
            let now = writer.now();
            let inode = &mut snapshot.inode;
            // Others may have made subdirectories meanwhile.
            let links = i32::from(inode.links) + i32::from(draft.inode.links) - i32::from(draft.links_before);
            inode.links = u16::try_from(links).unwrap_or(u16::MAX);
            inode.mtime = now;
            inode.ctime = now;
            if draft.has_new_layout() { draft.lay_out(snapshot) } else { Ok(()) }
        })?;
        changed.map_err(|problem| draft.place(Structure::InlineData).corrupt(problem))
    }

    /// Makes what the draft says of the directory's blocks its state, ahead of the rest.
    fn publish_layout(&self, handle: &mut Handle<'_>, dir: &Node, draft: &mut Draft) -> Result<()> {
        let changed = self.change_inode(handle, dir, |snapshot| draft.lay_out(snapshot))?;
        changed.map_err(|problem| draft.place(Structure::InlineData).corrupt(problem))?;
        draft.before.clone_from(&draft.next);
        Ok(())
    }

    /// One more subdirectory. Past the limit of an indexed directory the count says 1, for "many".
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

    /// One subdirectory less.
    fn uncount_subdirectory(dir: &mut Snapshot) {
        if dir.inode.links > 2 {
            dir.inode.links -= 1;
        }
    }

    fn counts_many(&self, dir: &Snapshot) -> bool {
        self.sb.ro_compat.has(dentree_ext4_format::RoCompat::DIR_NLINK) && self.is_indexed(dir)
    }

    /// That a name which `vfs` has found is not there.
    fn no_entry(dir: &Snapshot) -> crate::Error {
        dir.place(Structure::DirectoryEntry).corrupt(Problem::Missing { what: "the name" })
    }
}

fn is_changed_at(dir: &Inode, time: InodeTime) -> bool {
    (dir.mtime, dir.ctime) == (time, time)
}
