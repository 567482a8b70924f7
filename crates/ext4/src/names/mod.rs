//! Changes of names: entries are added to directories, pointed elsewhere and removed, and the operations that are made of that.
//!
//! | file | what |
//! |---|---|
//! | `entries` | one entry of a directory, wherever it stands |
//! | `add` | where a new entry finds room, and how a directory grows for it |
//! | `index` | the same under an htree: splits of leaves and index blocks |
//! | `inline` | directories within their inode |
//! | `make` | inodes with their first name, or none |
//! | `links` | more names, fewer names |
//! | `rename` | other names |
//!
//! # How an operation goes
//! It works on a *draft*: a copy of the directory's snapshot, which new blocks are mapped in. All that can fail for want of
//! space, or because an image is damaged, comes before the first change of a block, or is undone; then the blocks are
//! changed, and last what the draft says is made the directory's state. What fails after the first change aborts the
//! journal ([`Ext4::all_or_abort`]): half an operation is not committed.
//!
//! The names of a directory, and so its blocks and size, are guarded by `vfs`'s lock on it, which who calls here holds. Its
//! owner, mode and times are not: of a draft only the rest is taken over.

mod add;
mod entries;
mod index;
mod inline;
mod links;
mod make;
mod rename;

use crate::xattr::adopt_inline_data;
use crate::{Ext4, Node, Result, Snapshot, Structure};
use dentree_ext4_format::{InodeFlags, InodeTime, Problem};
use dentree_jbd2::Handle;
use dentree_vfs::FileType;
use std::ops::{Deref, DerefMut};

/// Most names that an inode has; directories with dir_nlink may have more, and then say 1.
const MAX_LINKS: u16 = 65_000;

/// Blocks that removing or changing an entry changes: the leaf, and the directory's inode.
const ENTRY_CREDITS: u32 = 2;

/// A directory as it is to become.
struct Draft {
    next: Snapshot,
    /// `i_blocks` as it was: attributes may take and free blocks meanwhile.
    sectors_before: u64,
}

impl Draft {
    fn of(dir: &Node) -> Draft {
        let next = (*dir.snapshot()).clone();
        Draft { sectors_before: next.inode.sectors, next }
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
    /// Makes what the draft of a directory says its state, at time `now`.
    fn publish_directory(
        &self,
        handle: &mut Handle<'_>,
        dir: &Node,
        draft: &Draft,
        now: InodeTime,
    ) -> Result<()> {
        let changed = self.change_inode(handle, dir, |snapshot| {
            let inode = &mut snapshot.inode;
            inode.block = draft.inode.block;
            inode.size = draft.inode.size;
            let gained = draft.inode.sectors.saturating_sub(draft.sectors_before);
            let lost = draft.sectors_before.saturating_sub(draft.inode.sectors);
            inode.sectors = inode.sectors.saturating_add(gained).saturating_sub(lost);
            inode.links = draft.inode.links;
            let of_layout = InodeFlags::INDEX.with(InodeFlags::EXTENTS).with(InodeFlags::INLINE_DATA);
            let was_inline = inode.flags.has(InodeFlags::INLINE_DATA);
            let kept = inode.flags.without(of_layout);
            inode.flags = kept.with(InodeFlags(draft.inode.flags.0 & of_layout.0));
            inode.mtime = now;
            inode.ctime = now;
            if was_inline { adopt_inline_data(&mut snapshot.tail, &draft.tail) } else { Ok(()) }
        })?;
        changed.map_err(|problem| draft.place(Structure::InlineData).corrupt(problem))
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

    /// `file_type` of a directory entry.
    fn entry_type(&self, kind: FileType) -> u8 {
        if !self.sb.incompat.has(dentree_ext4_format::Incompat::FILETYPE) {
            return 0;
        }
        match kind {
            FileType::Regular => 1,
            FileType::Directory => 2,
            FileType::CharDevice => 3,
            FileType::BlockDevice => 4,
            FileType::Fifo => 5,
            FileType::Socket => 6,
            FileType::Symlink => 7,
        }
    }

    /// That a name which `vfs` has found is not there.
    fn no_entry(dir: &Snapshot) -> crate::Error {
        dir.place(Structure::DirectoryEntry).corrupt(Problem::Missing { what: "the name" })
    }
}
