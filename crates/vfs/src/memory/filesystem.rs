use super::file::PAGE;
use super::node::Content;
use super::{MemoryFs, MemoryNode, ROOT};
use crate::acl::ACCESS;
use crate::{
    Allocate, Attr, DirEntry, Error, Extent, FileSystem, FileType, FsStat, Ino, Lookup, NameIn, NewInode,
    NewKind, ReaddirStart, Rename, Result, SetAttr, SetXattr,
};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Copied from a directory under its lock; callbacks hold none.
const LISTED_AT_ONCE: usize = 256;

impl FileSystem for MemoryFs {
    type Node = Arc<MemoryNode>;

    fn root(&self) -> Ino {
        ROOT
    }

    fn load(&self, ino: Ino) -> Result<Arc<MemoryNode>> {
        self.find(ino).ok_or(Error::Stale)
    }

    fn has_name(&self, ino: Ino) -> Result<bool> {
        Ok(self.find(ino).is_some_and(|node| MemoryNode::attr(&node).nlink > 0))
    }

    fn node_bytes(&self, _: &Arc<MemoryNode>) -> usize {
        size_of::<MemoryNode>()
    }

    fn attr(&self, node: &Arc<MemoryNode>) -> Attr {
        MemoryNode::attr(node)
    }

    fn lookup(&self, dir: &Arc<MemoryNode>, name: &[u8]) -> Result<Option<Lookup>> {
        let state = dir.state();
        let found = state.directory().ok_or(Error::NotADirectory)?.find(name);
        Ok(found.map(|named| Lookup { ino: named.ino, kind: Some(named.kind) }))
    }

    fn readdir(
        &self,
        dir: &Arc<MemoryNode>,
        mut start: ReaddirStart,
        each: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        loop {
            let some = dir.state().directory().ok_or(Error::NotADirectory)?.list(start, LISTED_AT_ONCE);
            for (cookie, named) in &some {
                if each(named.as_entry(*cookie)).is_break() {
                    return Ok(());
                }
            }
            match some.last() {
                Some((cookie, _)) => start = ReaddirStart::After(*cookie),
                None => return Ok(()),
            }
        }
    }

    fn parent(&self, dir: &Arc<MemoryNode>) -> Result<Ino> {
        dir.state().directory().map(|directory| directory.parent).ok_or(Error::NotADirectory)
    }

    fn read(&self, node: &Arc<MemoryNode>, offset: u64, buf: &mut [u8]) -> Result<usize> {
        Ok(node.state().pages().ok_or(Error::Invalid)?.read(offset, buf))
    }

    fn extent(&self, node: &Arc<MemoryNode>, offset: u64) -> Result<Extent> {
        node.state().pages().ok_or(Error::Invalid)?.extent(offset)
    }

    fn readlink(&self, node: &Arc<MemoryNode>) -> Result<Vec<u8>> {
        if let Content::Symlink(target) = &node.state().content {
            Ok(target.clone())
        } else {
            Err(Error::Invalid)
        }
    }

    fn getxattr(&self, node: &Arc<MemoryNode>, name: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(node.state().xattrs.get(name).cloned())
    }

    fn listxattr(&self, node: &Arc<MemoryNode>) -> Result<Vec<Vec<u8>>> {
        Ok(node.state().xattrs.keys().cloned().collect())
    }

    fn statfs(&self) -> Result<FsStat> {
        let free = self.pages_left.load(Ordering::Relaxed);
        Ok(FsStat {
            block_size: PAGE as u32,
            blocks: self.limits.bytes / PAGE as u64,
            blocks_free: free,
            blocks_available: free,
            inodes: self.limits.inodes,
            inodes_free: self.limits.inodes.saturating_sub(self.table().used()),
            name_max: crate::NAME_MAX as u32,
            fsid: 0,
        })
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn create(&self, dir: &Arc<MemoryNode>, name: &[u8], new: &NewInode<'_>) -> Result<Arc<MemoryNode>> {
        let is_directory = new.kind == NewKind::Directory;
        let node = self.allocate(new, dir.ino, if is_directory { 2 } else { 1 })?;
        let mut above = dir.state_mut();
        above.directory_mut().ok_or(Error::NotADirectory)?.insert(name, node.ino, node.kind);
        above.nlink += u32::from(is_directory);
        above.modified();
        Ok(node)
    }

    fn create_unnamed(&self, dir: &Arc<MemoryNode>, new: &NewInode<'_>) -> Result<Arc<MemoryNode>> {
        self.allocate(new, dir.ino, 0)
    }

    fn link(&self, dir: &Arc<MemoryNode>, name: &[u8], node: &Arc<MemoryNode>) -> Result<()> {
        {
            let mut above = dir.state_mut();
            above.directory_mut().ok_or(Error::NotADirectory)?.insert(name, node.ino, node.kind);
            above.modified();
        }
        node.state_mut().add_link();
        Ok(())
    }

    fn unlink(&self, dir: &Arc<MemoryNode>, name: &[u8], node: &Arc<MemoryNode>) -> Result<()> {
        {
            let mut above = dir.state_mut();
            above.directory_mut().ok_or(Error::NotADirectory)?.remove(name);
            above.modified();
        }
        node.state_mut().drop_link();
        Ok(())
    }

    fn rmdir(&self, dir: &Arc<MemoryNode>, name: &[u8], node: &Arc<MemoryNode>) -> Result<()> {
        must_be_empty(node)?;
        {
            let mut above = dir.state_mut();
            above.directory_mut().ok_or(Error::NotADirectory)?.remove(name);
            above.nlink -= 1;
            above.modified();
        }
        end(node);
        Ok(())
    }

    fn unlink_and_free(&self, dir: &Arc<MemoryNode>, name: &[u8], node: &Arc<MemoryNode>) -> Result<bool> {
        if node.kind == FileType::Directory {
            self.rmdir(dir, name, node)?;
        } else if node.state().nlink == 1 {
            self.unlink(dir, name, node)?;
        } else {
            return Ok(false);
        }
        self.evict(node);
        Ok(true)
    }

    fn rename(&self, rename: &Rename<'_, Arc<MemoryNode>>) -> Result<()> {
        let Rename { from, moved, to, replaced, exchange, left } = rename;
        match replaced {
            Some(other) if *exchange => {
                put(from, other);
                change_parent(other, to.dir, from.dir);
                other.state_mut().changed();
            }
            Some(replaced) if replaced.kind == FileType::Directory => {
                must_be_empty(replaced)?;
                take(from);
                to.dir.state_mut().drop_link();
                end(replaced);
            }
            Some(replaced) => {
                take(from);
                replaced.state_mut().drop_link();
            }
            None => take(from),
        }
        put(to, moved);
        change_parent(moved, from.dir, to.dir);
        moved.state_mut().changed();
        if let Some(left) = left {
            put(from, left);
            left.state_mut().add_link();
        }
        Ok(())
    }

    fn set_attr(&self, node: &Arc<MemoryNode>, changes: &SetAttr) -> Result<()> {
        let mut state = node.state_mut();
        if let Some(size) = changes.size {
            let freed = state.pages_mut().ok_or(Error::Invalid)?.resize(size);
            self.give_pages(freed);
            state.modified();
        }
        state.set(changes);
        Ok(())
    }

    fn set_flags(&self, node: &Arc<MemoryNode>, flags: u32) -> Result<()> {
        let mut state = node.state_mut();
        state.flags = flags;
        state.changed();
        Ok(())
    }

    fn write(&self, node: &Arc<MemoryNode>, offset: u64, data: &[u8]) -> Result<usize> {
        let mut state = node.state_mut();
        let done =
            state.pages_mut().ok_or(Error::Invalid)?.write(offset, data, || self.take_pages(1) == 1)?;
        state.modified();
        Ok(done)
    }

    fn write_back(&self, node: &Arc<MemoryNode>, offset: u64, data: &[u8]) -> Result<usize> {
        node.state_mut().pages_mut().ok_or(Error::Invalid)?.write(offset, data, || self.take_pages(1) == 1)
    }

    fn append(&self, node: &Arc<MemoryNode>, data: &[u8]) -> Result<(u64, usize)> {
        let mut state = node.state_mut();
        let pages = state.pages_mut().ok_or(Error::Invalid)?;
        let offset = pages.size();
        let done = pages.write(offset, data, || self.take_pages(1) == 1)?;
        state.modified();
        Ok((offset, done))
    }

    fn allocate(&self, node: &Arc<MemoryNode>, offset: u64, len: u64, how: Allocate) -> Result<()> {
        let mut state = node.state_mut();
        let pages = state.pages_mut().ok_or(Error::Invalid)?;
        let end = offset + len;
        if how == Allocate::PunchHole {
            let freed = pages.punch(offset, end);
            self.give_pages(freed);
        } else {
            let missing = pages.missing(offset, end);
            let taken = self.take_pages(missing);
            if taken < missing {
                self.give_pages(taken);
                return Err(Error::NoSpace);
            }
            pages.reserve(offset, end);
            if matches!(how, Allocate::ZeroRange | Allocate::ZeroRangeKeepSize) {
                pages.zero(offset, end);
            }
            if matches!(how, Allocate::Reserve | Allocate::ZeroRange) && end > pages.size() {
                let freed = pages.resize(end);
                self.give_pages(freed);
            }
        }
        state.modified();
        Ok(())
    }

    fn evict(&self, node: &Arc<MemoryNode>) {
        let gone = {
            let mut state = node.state_mut();
            if state.nlink == 0
                && let Some(pages) = state.pages_mut()
            {
                let freed = pages.resize(0);
                self.give_pages(freed);
            }
            state.nlink == 0
        };
        if gone {
            self.remove(node);
        }
    }

    fn setxattr(&self, node: &Arc<MemoryNode>, name: &[u8], value: &[u8], how: SetXattr) -> Result<()> {
        let mut state = node.state_mut();
        match (how, state.xattrs.contains_key(name)) {
            (SetXattr::Create, true) => return Err(Error::Exists),
            (SetXattr::Replace, false) => return Err(Error::NoAttribute),
            _ => {}
        }
        state.xattrs.insert(name.to_vec(), value.to_vec());
        state.changed();
        Ok(())
    }

    fn set_acl(&self, node: &Arc<MemoryNode>, acl: Option<&[u8]>, attributes: &SetAttr) -> Result<()> {
        let mut state = node.state_mut();
        match acl {
            Some(acl) => state.xattrs.insert(ACCESS.to_vec(), acl.to_vec()),
            None => state.xattrs.remove(ACCESS),
        };
        state.set(attributes);
        Ok(())
    }

    fn removexattr(&self, node: &Arc<MemoryNode>, name: &[u8]) -> Result<()> {
        let mut state = node.state_mut();
        state.xattrs.remove(name).ok_or(Error::NoAttribute)?;
        state.changed();
        Ok(())
    }
}

fn must_be_empty(dir: &MemoryNode) -> Result<()> {
    match dir.state().directory() {
        Some(directory) if directory.len() > 0 => Err(Error::NotEmpty),
        _ => Ok(()),
    }
}

/// A removed directory loses its name and its `.`.
fn end(dir: &MemoryNode) {
    let mut state = dir.state_mut();
    state.nlink = 0;
    state.changed();
}

fn take(name: &NameIn<'_, Arc<MemoryNode>>) {
    let mut state = name.dir.state_mut();
    if let Some(directory) = state.directory_mut() {
        directory.remove(name.name);
    }
    state.modified();
}

/// The name may exist.
fn put(name: &NameIn<'_, Arc<MemoryNode>>, node: &MemoryNode) {
    let mut state = name.dir.state_mut();
    if let Some(directory) = state.directory_mut() {
        match directory.find(name.name) {
            Some(_) => directory.replace(name.name, node.ino, node.kind),
            None => directory.insert(name.name, node.ino, node.kind),
        }
    }
    state.modified();
}

/// Updates a moved directory and both parents.
fn change_parent(node: &MemoryNode, from: &MemoryNode, to: &MemoryNode) {
    if let Some(directory) = node.state_mut().directory_mut() {
        directory.parent = to.ino;
    } else {
        return;
    }
    from.state_mut().nlink -= 1;
    to.state_mut().nlink += 1;
}
