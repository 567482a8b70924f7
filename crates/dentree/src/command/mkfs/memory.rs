//! A minimal file system in memory, to test filling alone.

use dentree_vfs::{
    Attr, DirEntry, Error, Extent, FileSystem, FileType, FsStat, Ino, Lookup, NewInode, NewKind,
    ReaddirStart, Result, SetAttr, SetTime, SetXattr, Timestamp,
};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Mutex;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) kind: Option<FileType>,
    pub(super) permissions: u16,
    pub(super) owner: (u32, u32),
    pub(super) mtime: i64,
    pub(super) links: u32,
    pub(super) device: (u32, u32),
    pub(super) target: Vec<u8>,
    /// Up to the last written byte.
    pub(super) content: Vec<u8>,
    pub(super) size: u64,
    pub(super) written: u64,
    pub(super) names: BTreeMap<Vec<u8>, u64>,
    pub(super) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// Inode numbers index the vector; a node is its number.
pub(super) struct Memory {
    pub(super) inodes: Mutex<Vec<Held>>,
    /// Bytes left until it is full.
    pub(super) room: u64,
}

impl Memory {
    /// With a root that has `lost+found`.
    pub(super) fn new(room: u64) -> Memory {
        let directory = Held { kind: Some(FileType::Directory), links: 2, ..Held::default() };
        let root = Held { names: BTreeMap::from([(b"lost+found".to_vec(), 1)]), ..directory.clone() };
        Memory { inodes: Mutex::new(vec![root, directory]), room }
    }

    /// The file at an absolute path.
    pub(super) fn at(&self, path: &str) -> Option<(u64, Held)> {
        let inodes = self.inodes.lock().unwrap();
        let mut ino = 0;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            ino = *inodes[ino as usize].names.get(name.as_bytes())?;
        }
        Some((ino, inodes[ino as usize].clone()))
    }

    fn change<T>(&self, ino: u64, change: impl FnOnce(&mut Held) -> T) -> T {
        change(&mut self.inodes.lock().unwrap()[ino as usize])
    }

    fn name(&self, dir: u64, name: &[u8], ino: u64) -> Result<()> {
        self.change(dir, |dir| match dir.names.insert(name.to_vec(), ino) {
            None => Ok(()),
            Some(_) => Err(Error::Exists),
        })
    }
}

impl FileSystem for Memory {
    type Node = u64;

    fn root(&self) -> Ino {
        Ino(0)
    }

    fn load(&self, ino: Ino) -> Result<u64> {
        Ok(ino.0)
    }

    fn node_bytes(&self, _: &u64) -> usize {
        8
    }

    fn attr(&self, _: &u64) -> Attr {
        unreachable!("filling knows what it has made")
    }

    fn lookup(&self, dir: &u64, name: &[u8]) -> Result<Option<Lookup>> {
        let found = self.change(*dir, |dir| dir.names.get(name).copied());
        Ok(found.map(|ino| Lookup { ino: Ino(ino), kind: None }))
    }

    fn readdir(
        &self,
        _: &u64,
        _: ReaddirStart,
        _: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        Err(Error::Invalid)
    }

    fn parent(&self, _: &u64) -> Result<Ino> {
        Err(Error::Invalid)
    }

    fn read(&self, _: &u64, _: u64, _: &mut [u8]) -> Result<usize> {
        Err(Error::Invalid)
    }

    fn extent(&self, _: &u64, _: u64) -> Result<Extent> {
        Err(Error::Invalid)
    }

    fn readlink(&self, _: &u64) -> Result<Vec<u8>> {
        Err(Error::Invalid)
    }

    fn getxattr(&self, _: &u64, _: &[u8]) -> Result<Option<Vec<u8>>> {
        Err(Error::Invalid)
    }

    fn listxattr(&self, _: &u64) -> Result<Vec<Vec<u8>>> {
        Err(Error::Invalid)
    }

    fn statfs(&self) -> Result<FsStat> {
        Err(Error::Invalid)
    }

    fn create(&self, dir: &u64, name: &[u8], new: &NewInode<'_>) -> Result<u64> {
        let (kind, device, target) = match new.kind {
            NewKind::Regular => (FileType::Regular, (0, 0), &b""[..]),
            NewKind::Directory => (FileType::Directory, (0, 0), &b""[..]),
            NewKind::Symlink(target) => (FileType::Symlink, (0, 0), target),
            NewKind::Fifo => (FileType::Fifo, (0, 0), &b""[..]),
            NewKind::Socket => (FileType::Socket, (0, 0), &b""[..]),
            NewKind::CharDevice { major, minor } => (FileType::CharDevice, (major, minor), &b""[..]),
            NewKind::BlockDevice { major, minor } => (FileType::BlockDevice, (major, minor), &b""[..]),
        };
        let held = Held {
            kind: Some(kind),
            permissions: new.permissions,
            owner: (new.uid, new.gid),
            links: 1,
            device,
            target: target.to_vec(),
            ..Held::default()
        };
        let ino = {
            let mut inodes = self.inodes.lock().unwrap();
            inodes.push(held);
            inodes.len() as u64 - 1
        };
        self.name(*dir, name, ino)?;
        Ok(ino)
    }

    fn link(&self, dir: &u64, name: &[u8], node: &u64) -> Result<()> {
        self.name(*dir, name, *node)?;
        self.change(*node, |held| held.links += 1);
        Ok(())
    }

    fn set_attr(&self, node: &u64, changes: &SetAttr) -> Result<()> {
        self.change(*node, |held| {
            held.permissions = changes.permissions.unwrap_or(held.permissions);
            held.owner = (changes.uid.unwrap_or(held.owner.0), changes.gid.unwrap_or(held.owner.1));
            held.size = changes.size.unwrap_or(held.size);
            if let Some(SetTime::At(Timestamp { seconds, .. })) = changes.mtime {
                held.mtime = seconds;
            }
        });
        Ok(())
    }

    fn write(&self, node: &u64, offset: u64, data: &[u8]) -> Result<usize> {
        let used: u64 = self.inodes.lock().unwrap().iter().map(|held| held.written).sum();
        let fits = usize::try_from(self.room - used).unwrap_or(usize::MAX).min(data.len());
        self.change(*node, |held| {
            let end = offset as usize + fits;
            held.content.resize(held.content.len().max(end), 0);
            held.content[offset as usize..end].copy_from_slice(&data[..fits]);
            held.size = held.size.max(end as u64);
            held.written += fits as u64;
        });
        Ok(fits)
    }

    fn setxattr(&self, node: &u64, name: &[u8], value: &[u8], _: SetXattr) -> Result<()> {
        self.change(*node, |held| held.xattrs.insert(name.to_vec(), value.to_vec()));
        Ok(())
    }
}
