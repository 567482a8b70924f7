//! Links.

use super::lock::Insertion;
use super::{DirUpdate, ENTRY_CREDITS, MAX_LINKS};
use crate::inode::ORPHAN_CREDITS;
use crate::{Error, Ext4, Node, Result};
use dentree_ext4_format::{InodeTime, NewEntry};
use dentree_jbd2::Handle;
use dentree_vfs::FileType;

impl Ext4 {
    /// `node` may be an orphan, but no directory. `dir` lacks `name`.
    pub(crate) fn link(&self, dir: &Node, name: &[u8], node: &Node) -> Result<()> {
        self.retry_after_commit(|| {
            let target = node.snapshot();
            if target.inode.links >= MAX_LINKS {
                return Err(Error::TooManyLinks(target.ino));
            }
            let Insertion { plan, guard: _guard } = self.lock_for_insert(dir, name, false)?;
            let mut updated = DirUpdate::of(dir);
            let mut handle = self.start(plan.credits() + 1 + ORPHAN_CREDITS)?;
            let entry = NewEntry { name, inode: target.ino, file_type: self.entry_type(target.kind) };
            self.insert_entry(&mut handle, dir, &mut updated, plan, &entry)?;
            let now = self.writer()?.now();
            let done = self.publish_directory(&mut handle, dir, &updated).and_then(|()| {
                let before = self.change_inode(&mut handle, node, |snapshot| {
                    let before = snapshot.inode.links;
                    snapshot.inode.links = before + 1;
                    snapshot.inode.ctime = now;
                    before
                })?;
                if before == 0 { self.remove_orphan(&mut handle, target.ino, 0) } else { Ok(()) }
            });
            self.all_or_abort(done)?;
            handle.stop();
            Ok(())
        })
    }

    /// `node` is no directory.
    pub(crate) fn unlink(&self, dir: &Node, name: &[u8], node: &Node) -> Result<()> {
        let (found, _guard) = self.lock_entry(dir, name, node)?;
        let mut updated = DirUpdate::of(dir);
        let mut handle = self.start(ENTRY_CREDITS + 1 + ORPHAN_CREDITS)?;
        let now = self.writer()?.now();
        self.remove_entry(&mut handle, &mut updated, found)?;
        let done = self
            .publish_directory(&mut handle, dir, &updated)
            .and_then(|()| self.decrement_links(&mut handle, node, now));
        self.all_or_abort(done)?;
        handle.stop();
        Ok(())
    }

    pub(crate) fn rmdir(&self, dir: &Node, name: &[u8], node: &Node) -> Result<()> {
        let mut updated = DirUpdate::of(dir);
        let found = self.entry_of_node(&updated, name, node)?;
        self.check_empty(&node.snapshot())?;
        let mut handle = self.start(ENTRY_CREDITS + 1 + ORPHAN_CREDITS)?;
        let now = self.writer()?.now();
        self.remove_entry(&mut handle, &mut updated, found)?;
        Ext4::uncount_subdirectory(&mut updated);
        let done = self
            .publish_directory(&mut handle, dir, &updated)
            .and_then(|()| self.orphan_directory(&mut handle, node, now));
        self.all_or_abort(done)?;
        handle.stop();
        Ok(())
    }

    /// Removes an unused inode's last link and frees it, under one handle. `false`, with nothing
    /// changed, if freeing takes several.
    pub(crate) fn unlink_and_free(&self, dir: &Node, name: &[u8], node: &Node) -> Result<bool> {
        let snapshot = node.snapshot();
        let is_dir = snapshot.kind == FileType::Directory;
        if !is_dir && snapshot.inode.links != 1 {
            return Ok(false);
        }
        let Some(end) = self.plan_free(&snapshot) else { return Ok(false) };
        let credits = ENTRY_CREDITS + end.credits;
        // Write-back may be in progress.
        let Some(mut content) = node.try_content_mut().filter(|_| credits <= self.max_credits()) else {
            return Ok(false);
        };
        let (found, _guard) = if is_dir {
            let found = self.entry_of_node(&dir.snapshot(), name, node)?;
            self.check_empty(&snapshot)?;
            (found, None)
        } else {
            let (found, guard) = self.lock_entry(dir, name, node)?;
            (found, Some(guard))
        };
        let mut updated = DirUpdate::of(dir);
        let mut handle = self.start(credits)?;
        let now = self.writer()?.now();
        self.remove_entry(&mut handle, &mut updated, found)?;
        if is_dir {
            Ext4::uncount_subdirectory(&mut updated);
        }
        let mut unused = Vec::new();
        let done = self
            .publish_directory(&mut handle, dir, &updated)
            .and_then(|()| self.free_with_link(&mut handle, &snapshot, &end, now, &mut unused))
            .and_then(|()| self.discard_content_locked(node, &mut content));
        self.all_or_abort(done)?;
        handle.stop();
        drop(content);
        self.free_values(unused);
        Ok(true)
    }

    /// 0 links make an orphan.
    pub(super) fn decrement_links(&self, handle: &mut Handle<'_>, node: &Node, now: InodeTime) -> Result<()> {
        let links = self.change_inode(handle, node, |snapshot| {
            snapshot.inode.links = snapshot.inode.links.saturating_sub(1);
            snapshot.inode.ctime = now;
            snapshot.inode.links
        })?;
        if links == 0 { self.add_orphan(handle, node.snapshot().ino) } else { Ok(()) }
    }

    pub(super) fn orphan_directory(
        &self,
        handle: &mut Handle<'_>,
        node: &Node,
        now: InodeTime,
    ) -> Result<()> {
        let ino = self.change_inode(handle, node, |snapshot| {
            snapshot.inode.links = 0;
            snapshot.inode.ctime = now;
            snapshot.ino
        })?;
        self.add_orphan(handle, ino)
    }
}
