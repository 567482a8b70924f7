//! Renames. In one directory, both changes go to one [`DirUpdate`]. The new entry comes first,
//! against ENOSPC.

use super::{DirUpdate, ENTRY_CREDITS};
use crate::dir::format::Found;
use crate::inode::ORPHAN_CREDITS;
use crate::{Ext4, Node, Result};
use dentree_ext4_format::{InodeNumber, InodeTime, NewEntry};
use dentree_jbd2::Handle;
use dentree_vfs::{FileType, Rename};

struct DirUpdates {
    from: DirUpdate,
    /// `None` for a rename in one directory.
    to: Option<DirUpdate>,
}

impl DirUpdates {
    fn of(rename: &Rename<'_, Node>) -> DirUpdates {
        let (from, to) = (DirUpdate::of(rename.from.dir), DirUpdate::of(rename.to.dir));
        let across = to.ino != from.ino;
        DirUpdates { from, to: Some(to).filter(|_| across) }
    }

    fn to(&mut self) -> &mut DirUpdate {
        self.to.as_mut().unwrap_or(&mut self.from)
    }
}

struct RenamedInodes {
    moved: (InodeNumber, FileType),
    replaced: Option<(InodeNumber, FileType)>,
}

/// Inode and orphan list.
fn whiteout_credits(rename: &Rename<'_, Node>) -> u32 {
    if rename.left.is_some() { 1 + ORPHAN_CREDITS } else { 0 }
}

impl Ext4 {
    pub(crate) fn rename(&self, rename: &Rename<'_, Node>) -> Result<()> {
        let identity = |node: &Node| {
            let snapshot = node.snapshot();
            (snapshot.ino, snapshot.kind)
        };
        let inodes = RenamedInodes { moved: identity(rename.moved), replaced: rename.replaced.map(identity) };
        match rename.replaced {
            Some(replaced) if rename.exchange => self.exchange(rename, replaced, &inodes),
            Some(replaced) if inodes.replaced.is_some_and(|(ino, _)| ino != inodes.moved.0) => {
                self.replace(rename, replaced, &inodes)
            }
            _ => self.retry_after_commit(|| self.move_entry(rename, &inodes)),
        }
    }

    /// `vfs` has found no entry and holds the name's lock.
    fn move_entry(&self, rename: &Rename<'_, Node>, inodes: &RenamedInodes) -> Result<()> {
        let (ino, kind) = inodes.moved;
        if inodes.replaced.is_some() {
            // Two names of one inode, or two spellings of one name: rename(2) keeps both.
            return Ok(());
        }
        let plan = self.plan_insert(rename.to.dir, rename.to.name)?;
        // The plan may have moved an inline directory to a block.
        let mut dirs = DirUpdates::of(rename);
        let source = self.entry_of_node(&dirs.from, rename.from.name, rename.moved)?;
        // Moved entries may include the old one.
        let source = Some(source).filter(|_| plan.keeps_entries());
        self.count_move(&mut dirs, kind, 0)?;
        let mut handle = self.start(plan.credits() + 2 * ENTRY_CREDITS + 3 + whiteout_credits(rename))?;
        let entry = NewEntry { name: rename.to.name, inode: ino, file_type: self.entry_type(kind) };
        self.insert_entry(&mut handle, rename.to.dir, dirs.to(), plan, &entry)?;
        let done = self.finish_move(&mut handle, rename, dirs, source, inodes);
        self.all_or_abort(done)?;
        handle.stop();
        Ok(())
    }

    /// `source`: the old name's entry, if known.
    fn finish_move(
        &self,
        handle: &mut Handle<'_>,
        rename: &Rename<'_, Node>,
        mut dirs: DirUpdates,
        source: Option<Found>,
        inodes: &RenamedInodes,
    ) -> Result<()> {
        let now = self.writer()?.now();
        let source = match source {
            Some(source) => source,
            None => self.entry_of_node(&dirs.from, rename.from.name, rename.moved)?,
        };
        match rename.left {
            None => self.remove_entry(handle, &mut dirs.from, source)?,
            Some(left) => self.put_whiteout(handle, &mut dirs.from, source, left, now)?,
        }
        let to = dirs.to().ino;
        self.touch_moved(handle, rename.moved, dirs.to.is_some().then_some(to), inodes.moved.1, now)?;
        self.publish_both(handle, rename, &dirs)
    }

    fn put_whiteout(
        &self,
        handle: &mut Handle<'_>,
        dir: &mut DirUpdate,
        source: Found,
        left: &Node,
        now: InodeTime,
    ) -> Result<()> {
        let (ino, kind) = left.with_snapshot(|snapshot| (snapshot.ino, snapshot.kind));
        self.set_entry_inode(handle, dir, source, (ino, kind))?;
        self.change_inode(handle, left, |snapshot| {
            snapshot.inode.links = 1;
            snapshot.inode.ctime = now;
        })?;
        self.remove_orphan(handle, ino, 0)
    }

    fn replace(&self, rename: &Rename<'_, Node>, replaced: &Node, inodes: &RenamedInodes) -> Result<()> {
        let mut dirs = DirUpdates::of(rename);
        let source = self.entry_of_node(&dirs.from, rename.from.name, rename.moved)?;
        let target = self.entry_of_node(dirs.to(), rename.to.name, replaced)?;
        let is_dir = inodes.replaced.is_some_and(|(_, kind)| kind == FileType::Directory);
        if is_dir {
            self.check_empty(&replaced.snapshot())?;
        }
        self.count_move(&mut dirs, inodes.moved.1, u16::from(is_dir))?;
        let mut handle = self.start(2 * ENTRY_CREDITS + 4 + ORPHAN_CREDITS + whiteout_credits(rename))?;
        self.set_entry_inode(&mut handle, dirs.to(), target, inodes.moved)?;
        let now = self.writer()?.now();
        let done = self.finish_move(&mut handle, rename, dirs, Some(source), inodes).and_then(|()| {
            if is_dir {
                self.orphan_directory(&mut handle, replaced, now)
            } else {
                self.decrement_links(&mut handle, replaced, now)
            }
        });
        self.all_or_abort(done)?;
        handle.stop();
        Ok(())
    }

    fn exchange(&self, rename: &Rename<'_, Node>, other: &Node, inodes: &RenamedInodes) -> Result<()> {
        let Some(replaced) = inodes.replaced else { return Ok(()) };
        let mut dirs = DirUpdates::of(rename);
        let source = self.entry_of_node(&dirs.from, rename.from.name, rename.moved)?;
        let target = self.entry_of_node(dirs.to(), rename.to.name, other)?;
        if let Some(to) = &mut dirs.to {
            let is_dir = |(_, kind): (InodeNumber, FileType)| kind == FileType::Directory;
            let (gains, loses) = match (is_dir(inodes.moved), is_dir(replaced)) {
                (true, false) => (Some(to), Some(&mut dirs.from)),
                (false, true) => (Some(&mut dirs.from), Some(to)),
                _ => (None, None),
            };
            gains.map_or(Ok(()), |dir| self.count_subdirectory(dir))?;
            loses.into_iter().for_each(|dir| Ext4::uncount_subdirectory(dir));
        }
        let mut handle = self.start(2 * ENTRY_CREDITS + 4)?;
        self.set_entry_inode(&mut handle, &mut dirs.from, source, replaced)?;
        let now = self.writer()?.now();
        let done = (|| {
            self.set_entry_inode(&mut handle, dirs.to(), target, inodes.moved)?;
            let across = dirs.to.as_ref().map(|to| (to.ino, dirs.from.ino));
            let (to, from) = across.unzip();
            self.touch_moved(&mut handle, rename.moved, to, inodes.moved.1, now)?;
            self.touch_moved(&mut handle, other, from, replaced.1, now)?;
            self.publish_both(&mut handle, rename, &dirs)
        })();
        self.all_or_abort(done)?;
        handle.stop();
        Ok(())
    }

    /// `gone`: subdirectories replaced in the target.
    fn count_move(&self, dirs: &mut DirUpdates, kind: FileType, gone: u16) -> Result<()> {
        if kind != FileType::Directory {
            return Ok(());
        }
        if gone > 0 {
            Ext4::uncount_subdirectory(dirs.to());
        }
        if dirs.to.is_some() {
            self.count_subdirectory(dirs.to())?;
            Ext4::uncount_subdirectory(&mut dirs.from);
        }
        Ok(())
    }

    /// Sets the time, and `..` under a new parent.
    fn touch_moved(
        &self,
        handle: &mut Handle<'_>,
        node: &Node,
        parent: Option<InodeNumber>,
        kind: FileType,
        now: InodeTime,
    ) -> Result<()> {
        if let Some(parent) = parent.filter(|_| kind == FileType::Directory) {
            self.set_parent(handle, node, parent)?;
        }
        self.change_inode(handle, node, |snapshot| snapshot.inode.ctime = now)
    }

    fn publish_both(
        &self,
        handle: &mut Handle<'_>,
        rename: &Rename<'_, Node>,
        dirs: &DirUpdates,
    ) -> Result<()> {
        if let Some(to) = &dirs.to {
            self.publish_directory(handle, rename.to.dir, to)?;
        }
        self.publish_directory(handle, rename.from.dir, &dirs.from)
    }
}
