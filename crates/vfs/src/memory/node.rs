use super::directory::Directory;
use super::file::{PAGE, Pages};
use crate::acl::ACCESS;
use crate::{Attr, FileType, Ino, NewInode, NewKind, SetAttr, SetTime, Timestamp};
use dentree_sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::collections::BTreeMap;

/// An inode of a [`MemoryFs`](super::MemoryFs).
pub struct MemoryNode {
    pub(super) ino: Ino,
    pub(super) kind: FileType,
    generation: u32,
    state: RwLock<State>,
}

pub(super) struct State {
    pub(super) content: Content,
    pub(super) nlink: u32,
    pub(super) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    permissions: u16,
    uid: u32,
    gid: u32,
    atime: Timestamp,
    mtime: Timestamp,
    ctime: Timestamp,
    crtime: Timestamp,
    pub(super) flags: u32,
}

pub(super) enum Content {
    Directory(Directory),
    File(Pages),
    Symlink(Vec<u8>),
    Device { major: u32, minor: u32 },
    Other,
}

impl Content {
    pub(super) fn new(new: &NewInode<'_>, parent: Ino) -> Self {
        match new.kind {
            NewKind::Directory => Content::Directory(Directory::new(parent)),
            NewKind::Regular => Content::File(Pages::default()),
            NewKind::Symlink(target) => Content::Symlink(target.to_vec()),
            NewKind::CharDevice { major, minor } | NewKind::BlockDevice { major, minor } => {
                Content::Device { major, minor }
            }
            NewKind::Fifo | NewKind::Socket => Content::Other,
        }
    }
}

impl MemoryNode {
    pub(super) fn new(ino: Ino, kind: FileType, generation: u32, state: State) -> Self {
        MemoryNode { ino, kind, generation, state: RwLock::new(state) }
    }

    pub(super) fn state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read()
    }

    pub(super) fn state_mut(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write()
    }

    pub(super) fn attr(&self) -> Attr {
        let state = self.state();
        let (size, pages) = match &state.content {
            Content::Directory(directory) => (directory.len() as u64 * 32, 0),
            Content::File(pages) => (pages.size(), pages.stored()),
            Content::Symlink(target) => (target.len() as u64, 0),
            Content::Device { .. } | Content::Other => (0, 0),
        };
        let (rdev_major, rdev_minor) = match state.content {
            Content::Device { major, minor } => (major, minor),
            _ => (0, 0),
        };
        Attr {
            ino: self.ino,
            kind: self.kind,
            permissions: state.permissions,
            nlink: state.nlink,
            uid: state.uid,
            gid: state.gid,
            rdev_major,
            rdev_minor,
            size,
            blocks: pages * (PAGE as u64 / 512),
            block_size: PAGE as u32,
            atime: state.atime,
            mtime: state.mtime,
            ctime: state.ctime,
            crtime: Some(state.crtime),
            generation: self.generation,
            flags: state.flags,
            has_acl: state.xattrs.contains_key(ACCESS),
        }
    }
}

impl State {
    pub(super) fn new(content: Content, new: &NewInode<'_>, nlink: u32) -> Self {
        let now = Timestamp::now();
        State {
            content,
            nlink,
            xattrs: new.xattrs.iter().map(|(name, value)| (name.to_vec(), value.clone())).collect(),
            permissions: new.permissions,
            uid: new.uid,
            gid: new.gid,
            atime: now,
            mtime: now,
            ctime: now,
            crtime: now,
            flags: 0,
        }
    }

    /// After a change of content.
    pub(super) fn modified(&mut self) {
        let now = Timestamp::now();
        (self.mtime, self.ctime) = (now, now);
    }

    /// After another change.
    pub(super) fn changed(&mut self) {
        self.ctime = Timestamp::now();
    }

    pub(super) fn add_link(&mut self) {
        self.nlink += 1;
        self.changed();
    }

    pub(super) fn drop_link(&mut self) {
        self.nlink = self.nlink.saturating_sub(1);
        self.changed();
    }

    /// All but the length.
    pub(super) fn set(&mut self, changes: &SetAttr) {
        let now = Timestamp::now();
        let time = |wanted: SetTime| match wanted {
            SetTime::Now => now,
            SetTime::At(time) => time,
        };
        self.permissions = changes.permissions.unwrap_or(self.permissions);
        self.uid = changes.uid.unwrap_or(self.uid);
        self.gid = changes.gid.unwrap_or(self.gid);
        self.atime = changes.atime.map_or(self.atime, time);
        self.mtime = changes.mtime.map_or(self.mtime, time);
        self.ctime = changes.ctime.map_or(now, time);
    }

    pub(super) fn directory(&self) -> Option<&Directory> {
        if let Content::Directory(directory) = &self.content { Some(directory) } else { None }
    }

    pub(super) fn directory_mut(&mut self) -> Option<&mut Directory> {
        if let Content::Directory(directory) = &mut self.content { Some(directory) } else { None }
    }

    pub(super) fn pages(&self) -> Option<&Pages> {
        if let Content::File(pages) = &self.content { Some(pages) } else { None }
    }

    pub(super) fn pages_mut(&mut self) -> Option<&mut Pages> {
        if let Content::File(pages) = &mut self.content { Some(pages) } else { None }
    }
}
