//! Renames.
//!
//! Within one directory both changes are made to one [`DirUpdate`]. Only the new entry may find no
//! space, so it comes first.

use super::{Draft, ENTRY_CREDITS};
use crate::dir::format::Found;
use crate::inode::ORPHAN_CREDITS;
use crate::{Ext4, Node, Result};
use dentree_ext4_format::{InodeNumber, InodeTime, NewEntry};
use dentree_jbd2::Handle;
use dentree_vfs::{FileType, Rename};

/// The new states of the directories.
struct Drafts {
    from: Draft,
    /// `None` if both names are in one directory.
    to: Option<Draft>,
}

impl Drafts {
    fn of(rename: &Rename<'_, Node>) -> Drafts {
        let (from, to) = (Draft::of(rename.from.dir), Draft::of(rename.to.dir));
        let across = to.ino != from.ino;
        Drafts { from, to: Some(to).filter(|_| across) }
    }

    fn to(&mut self) -> &mut Draft {
        self.to.as_mut().unwrap_or(&mut self.from)
    }
}

/// The inodes as they were.
struct Parties {
    moved: (InodeNumber, FileType),
    replaced: Option<(InodeNumber, FileType)>,
}

/// Credits for a whiteout: its inode and the orphan list.
fn left_credits(rename: &Rename<'_, Node>) -> u32 {
    if rename.left.is_some() { 1 + ORPHAN_CREDITS } else { 0 }
}

impl Ext4 {
    /// Renames an inode, or exchanges two.
    pub(crate) fn rename_entry(&self, rename: &Rename<'_, Node>) -> Result<()> {
        let identity = |node: &Node| {
            let snapshot = node.snapshot();
            (snapshot.ino, snapshot.kind)
        };
        let parties = Parties { moved: identity(rename.moved), replaced: rename.replaced.map(identity) };
        match rename.replaced {
            Some(replaced) if rename.exchange => self.exchange(rename, replaced, &parties),
            Some(replaced) if parties.replaced.is_some_and(|(ino, _)| ino != parties.moved.0) => {
                self.replace(rename, replaced, &parties)
            }
            _ => self.with_space(|| self.move_entry(rename, &parties)),
        }
    }

    /// Moves to a name that does not exist: `vfs` has looked it up and holds its lock.
    fn move_entry(&self, rename: &Rename<'_, Node>, parties: &Parties) -> Result<()> {
        let (ino, kind) = parties.moved;
        if parties.replaced.is_some() {
            // Two names of one inode, or two spellings of one name: rename(2) keeps both.
            return Ok(());
        }
        let plan = self.plan_entry(rename.to.dir, rename.to.name)?;
        // Read after the plan, which may have moved a directory out of its inode.
        let mut drafts = Drafts::of(rename);
        let source = self.entry_for(&drafts.from, rename.from.name, rename.moved)?;
        // Moved entries may include the old one.
        let source = Some(source).filter(|_| plan.keeps_entries());
        self.count_move(&mut drafts, kind, 0)?;
        let mut handle = self.start(plan.credits() + 2 * ENTRY_CREDITS + 3 + left_credits(rename))?;
        let entry = NewEntry { name: rename.to.name, inode: ino, file_type: self.entry_type(kind) };
        self.add_entry(&mut handle, rename.to.dir, drafts.to(), plan, &entry)?;
        let done = self.finish_move(&mut handle, rename, drafts, source, parties);
        self.all_or_abort(done)?;
        handle.stop();
        Ok(())
    }

    /// Removes the old name, whose entry is `source` if known, once the new one is in place.
    fn finish_move(
        &self,
        handle: &mut Handle<'_>,
        rename: &Rename<'_, Node>,
        mut drafts: Drafts,
        source: Option<Found>,
        parties: &Parties,
    ) -> Result<()> {
        let now = self.writer()?.now();
        let source = match source {
            Some(source) => source,
            None => self.entry_for(&drafts.from, rename.from.name, rename.moved)?,
        };
        match rename.left {
            None => self.remove_entry(handle, &mut drafts.from, source)?,
            Some(left) => self.leave(handle, &mut drafts.from, source, left, now)?,
        }
        let to = drafts.to().ino;
        self.touch_moved(handle, rename.moved, drafts.to.is_some().then_some(to), parties.moved.1, now)?;
        self.publish_both(handle, rename, &drafts)
    }

    /// Gives the old name, with entry `source`, to a whiteout, which is an orphan so far.
    fn leave(
        &self,
        handle: &mut Handle<'_>,
        dir: &mut Draft,
        source: Found,
        left: &Node,
        now: InodeTime,
    ) -> Result<()> {
        let (ino, kind) = left.look(|snapshot| (snapshot.ino, snapshot.kind));
        self.point_entry(handle, dir, source, (ino, kind))?;
        self.change_inode(handle, left, |snapshot| {
            snapshot.inode.links = 1;
            snapshot.inode.ctime = now;
        })?;
        self.remove_orphan(handle, ino, 0)
    }

    /// Replaces the inode of an existing name.
    fn replace(&self, rename: &Rename<'_, Node>, replaced: &Node, parties: &Parties) -> Result<()> {
        let mut drafts = Drafts::of(rename);
        let source = self.entry_for(&drafts.from, rename.from.name, rename.moved)?;
        let target = self.entry_for(drafts.to(), rename.to.name, replaced)?;
        let is_dir = parties.replaced.is_some_and(|(_, kind)| kind == FileType::Directory);
        if is_dir {
            self.check_empty(&replaced.snapshot())?;
        }
        self.count_move(&mut drafts, parties.moved.1, u16::from(is_dir))?;
        let mut handle = self.start(2 * ENTRY_CREDITS + 4 + ORPHAN_CREDITS + left_credits(rename))?;
        self.point_entry(&mut handle, drafts.to(), target, parties.moved)?;
        let now = self.writer()?.now();
        let done = self.finish_move(&mut handle, rename, drafts, Some(source), parties).and_then(|()| {
            if is_dir {
                self.drop_directory(&mut handle, replaced, now)
            } else {
                self.drop_link(&mut handle, replaced, now)
            }
        });
        self.all_or_abort(done)?;
        handle.stop();
        Ok(())
    }

    /// Exchanges the inodes of two names.
    fn exchange(&self, rename: &Rename<'_, Node>, other: &Node, parties: &Parties) -> Result<()> {
        let Some(replaced) = parties.replaced else { return Ok(()) };
        let mut drafts = Drafts::of(rename);
        let source = self.entry_for(&drafts.from, rename.from.name, rename.moved)?;
        let target = self.entry_for(drafts.to(), rename.to.name, other)?;
        if let Some(to) = &mut drafts.to {
            let is_dir = |(_, kind): (InodeNumber, FileType)| kind == FileType::Directory;
            let (gains, loses) = match (is_dir(parties.moved), is_dir(replaced)) {
                (true, false) => (Some(to), Some(&mut drafts.from)),
                (false, true) => (Some(&mut drafts.from), Some(to)),
                _ => (None, None),
            };
            gains.map_or(Ok(()), |dir| self.count_subdirectory(dir))?;
            loses.into_iter().for_each(|dir| Ext4::uncount_subdirectory(dir));
        }
        let mut handle = self.start(2 * ENTRY_CREDITS + 4)?;
        self.point_entry(&mut handle, &mut drafts.from, source, replaced)?;
        let now = self.writer()?.now();
        let done = (|| {
            self.point_entry(&mut handle, drafts.to(), target, parties.moved)?;
            let across = drafts.to.as_ref().map(|to| (to.ino, drafts.from.ino));
            let (to, from) = across.unzip();
            self.touch_moved(&mut handle, rename.moved, to, parties.moved.1, now)?;
            self.touch_moved(&mut handle, other, from, replaced.1, now)?;
            self.publish_both(&mut handle, rename, &drafts)
        })();
        self.all_or_abort(done)?;
        handle.stop();
        Ok(())
    }

    /// Updates the directories' link counts; `gone` subdirectories of the target are replaced.
    fn count_move(&self, drafts: &mut Drafts, kind: FileType, gone: u16) -> Result<()> {
        if kind != FileType::Directory {
            return Ok(());
        }
        if gone > 0 {
            Ext4::uncount_subdirectory(drafts.to());
        }
        if drafts.to.is_some() {
            self.count_subdirectory(drafts.to())?;
            Ext4::uncount_subdirectory(&mut drafts.from);
        }
        Ok(())
    }

    /// Updates the moved inode: its time, and `..` of a directory with a new parent.
    fn touch_moved(
        &self,
        handle: &mut Handle<'_>,
        node: &Node,
        parent: Option<InodeNumber>,
        kind: FileType,
        now: InodeTime,
    ) -> Result<()> {
        if let Some(parent) = parent.filter(|_| kind == FileType::Directory) {
            self.point_to_parent(handle, node, parent)?;
        }
        self.change_inode(handle, node, |snapshot| snapshot.inode.ctime = now)
    }

    fn publish_both(
        &self,
        handle: &mut Handle<'_>,
        rename: &Rename<'_, Node>,
        drafts: &Drafts,
    ) -> Result<()> {
        if let Some(to) = &drafts.to {
            self.publish_directory(handle, rename.to.dir, to)?;
        }
        self.publish_directory(handle, rename.from.dir, &drafts.from)
    }
}
