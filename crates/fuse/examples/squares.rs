//! A file system of your own over FUSE: `squares DIR` mounts a directory in which the file `n`
//! holds the square of n, for n from 1 to 100. `umount DIR` ends it.
//!
//! `cargo run -p dentree-fuse --example squares -- /mnt; cat /mnt/12`

use dentree_vfs::{
    Attr, DirEntry, Error, Extent, FileSystem, FileType, FsStat, Ino, Lookup, ReaddirStart, Result,
    Timestamp, Vfs,
};
use std::ops::ControlFlow;
use std::sync::Arc;

const ROOT: Ino = Ino(2);
/// File `n` is inode `FIRST + n`.
const FIRST: u64 = 10;
const FILES: u64 = 100;

struct Squares;

/// An inode in memory: all that this file system has to know of one is its number.
struct Node(Ino);

impl Node {
    fn content(&self) -> String {
        let n = self.0.0 - FIRST;
        format!("{}\n", n * n)
    }
}

impl FileSystem for Squares {
    type Node = Node;

    fn root(&self) -> Ino {
        ROOT
    }

    fn load(&self, ino: Ino) -> Result<Node> {
        Ok(Node(ino))
    }

    fn node_bytes(&self, _node: &Node) -> usize {
        size_of::<Node>()
    }

    fn attr(&self, node: &Node) -> Attr {
        let is_root = node.0 == ROOT;
        let size = if is_root { 0 } else { node.content().len() as u64 };
        Attr {
            ino: node.0,
            kind: if is_root { FileType::Directory } else { FileType::Regular },
            permissions: if is_root { 0o555 } else { 0o444 },
            nlink: 1 + u32::from(is_root),
            uid: 0,
            gid: 0,
            rdev_major: 0,
            rdev_minor: 0,
            size,
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

    fn lookup(&self, _dir: &Node, name: &[u8]) -> Result<Option<Lookup>> {
        let number = std::str::from_utf8(name).ok().and_then(|name| name.parse().ok());
        let known = number.filter(|n: &u64| (1..=FILES).contains(n) && n.to_string().as_bytes() == name);
        Ok(known.map(|n| Lookup { ino: Ino(FIRST + n), kind: Some(FileType::Regular) }))
    }

    fn readdir(
        &self,
        _dir: &Node,
        start: ReaddirStart,
        each: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let first = match start {
            ReaddirStart::First => 1,
            ReaddirStart::After(cookie) => cookie + 1,
        };
        for n in first..=FILES {
            let (name, kind) = (n.to_string(), Some(FileType::Regular));
            let entry = DirEntry { name: name.as_bytes(), ino: Ino(FIRST + n), kind, cookie: n };
            if each(entry).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn parent(&self, _dir: &Node) -> Result<Ino> {
        Ok(ROOT)
    }

    fn read(&self, node: &Node, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let content = node.content();
        let rest = content.as_bytes().get(usize::try_from(offset).unwrap_or(usize::MAX)..).unwrap_or(&[]);
        let len = rest.len().min(buf.len());
        buf[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }

    fn extent(&self, node: &Node, offset: u64) -> Result<Extent> {
        let len = node.content().len() as u64;
        if offset < len { Ok(Extent::Data(len)) } else { Err(Error::NoExtent) }
    }

    fn readlink(&self, _node: &Node) -> Result<Vec<u8>> {
        Err(Error::Invalid)
    }

    fn getxattr(&self, _node: &Node, _name: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(None)
    }

    fn listxattr(&self, _node: &Node) -> Result<Vec<Vec<u8>>> {
        Ok(Vec::new())
    }

    fn statfs(&self) -> Result<FsStat> {
        Ok(FsStat {
            block_size: 4096,
            blocks: 0,
            blocks_free: 0,
            blocks_available: 0,
            inodes: FILES + 1,
            inodes_free: 0,
            name_max: 255,
            fsid: 0,
        })
    }
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::args_os().nth(1).ok_or("usage: squares DIR")?;
    let vfs = Arc::new(Vfs::new(Squares)?);
    dentree_fuse::mount(vfs, directory.as_ref(), &dentree_fuse::Options::default())?.serve()?;
    Ok(())
}
