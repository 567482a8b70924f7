//! A file system in memory, from a list of paths.
#![allow(dead_code)] // each test file uses a part of it

pub mod kernel;
pub mod model;
pub mod ops;
pub mod tree;

use dentree_vfs::*;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Clone, Debug)]
pub enum Thing {
    Dir,
    File,
    Link(&'static str),
}

/// A path below the root, the inode, permission bits, owner.
#[derive(Clone, Debug)]
pub struct Line {
    pub path: &'static str,
    pub thing: Thing,
    pub permissions: u16,
    pub uid: u32,
}

pub fn dir(path: &'static str) -> Line {
    Line { path, thing: Thing::Dir, permissions: 0o755, uid: 0 }
}

pub fn file(path: &'static str) -> Line {
    Line { path, thing: Thing::File, permissions: 0o644, uid: 0 }
}

pub fn link(path: &'static str, target: &'static str) -> Line {
    Line { path, thing: Thing::Link(target), permissions: 0o777, uid: 0 }
}

pub struct Node {
    line: Line,
    ino: Ino,
    parent: Ino,
    names: BTreeMap<Vec<u8>, Ino>,
}

/// Counts lookups.
pub struct MemFs {
    nodes: Vec<Node>,
    pub lookups: AtomicU64,
}

impl MemFs {
    /// Parents precede children. Inode 1 is the root, line `i` is inode `i + 2`.
    pub fn new(lines: &[Line]) -> MemFs {
        let root = Node { line: dir(""), ino: Ino(1), parent: Ino(1), names: BTreeMap::new() };
        let mut nodes = vec![root];
        for line in lines {
            let (above, name) = line.path.rsplit_once('/').unwrap_or(("", line.path));
            let parent = nodes.iter().position(|node| node.line.path == above).expect("parents come first");
            let ino = Ino(nodes.len() as u64 + 1);
            nodes[parent].names.insert(name.into(), ino);
            nodes.push(Node {
                line: line.clone(),
                ino,
                parent: Ino(parent as u64 + 1),
                names: BTreeMap::new(),
            });
        }
        MemFs { nodes, lookups: AtomicU64::new(0) }
    }

    fn node(&self, ino: Ino) -> &Node {
        &self.nodes[ino.0 as usize - 1]
    }

    fn kind(&self, ino: Ino) -> FileType {
        match self.node(ino).line.thing {
            Thing::Dir => FileType::Directory,
            Thing::File => FileType::Regular,
            Thing::Link(_) => FileType::Symlink,
        }
    }
}

impl FileSystem for MemFs {
    type Node = Ino;

    fn root(&self) -> Ino {
        Ino(1)
    }

    fn load(&self, ino: Ino) -> Result<Ino> {
        Ok(ino)
    }

    fn node_bytes(&self, _: &Ino) -> usize {
        0
    }

    fn attr(&self, ino: &Ino) -> Attr {
        let line = &self.node(*ino).line;
        Attr {
            ino: *ino,
            kind: self.kind(*ino),
            permissions: line.permissions,
            nlink: 1,
            uid: line.uid,
            gid: line.uid,
            rdev_major: 0,
            rdev_minor: 0,
            size: 0,
            blocks: 0,
            block_size: 4096,
            atime: Timestamp::default(),
            mtime: Timestamp::default(),
            ctime: Timestamp::default(),
            crtime: None,
            generation: 0,
            flags: 0,
            has_acl: false,
        }
    }

    fn lookup(&self, dir: &Ino, name: &[u8]) -> Result<Option<Lookup>> {
        self.lookups.fetch_add(1, Ordering::Relaxed);
        let found = self.node(*dir).names.get(name).copied();
        Ok(found.map(|ino| Lookup { ino, kind: Some(self.kind(ino)) }))
    }

    fn readdir(
        &self,
        dir: &Ino,
        start: ReaddirStart,
        each: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let behind = if let ReaddirStart::After(cookie) = start { cookie } else { 0 };
        for (name, &ino) in self.node(*dir).names.iter().filter(|(_, ino)| ino.0 > behind) {
            if each(DirEntry { name, ino, kind: Some(self.kind(ino)), cookie: ino.0 }).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn parent(&self, dir: &Ino) -> Result<Ino> {
        Ok(self.node(*dir).parent)
    }

    fn read(&self, _: &Ino, _: u64, _: &mut [u8]) -> Result<usize> {
        Ok(0)
    }

    fn extent(&self, _: &Ino, _: u64) -> Result<Extent> {
        Err(Error::NoExtent)
    }

    fn readlink(&self, ino: &Ino) -> Result<Vec<u8>> {
        match self.node(*ino).line.thing {
            Thing::Link(target) => Ok(target.into()),
            _ => Err(Error::Invalid),
        }
    }

    fn getxattr(&self, _: &Ino, _: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(None)
    }

    fn listxattr(&self, _: &Ino) -> Result<Vec<Vec<u8>>> {
        Ok(Vec::new())
    }

    fn statfs(&self) -> Result<FsStat> {
        Err(Error::Invalid)
    }
}
