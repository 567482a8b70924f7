//! A file system in memory, and mounts of it that end with the test.

use dentree_fuse::{Channel, Handle, Options, Session};
use dentree_testing::OverIoUring;
use dentree_vfs::{
    Attr, DirEntry, Error, Extent, FileSystem, FileType, FsStat, Ino, Lookup, ReaddirStart, Result,
    Timestamp, Vfs,
};
use std::collections::HashMap;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use tempfile::TempDir;

/// As ext4's: not FUSE's 1.
pub const ROOT: Ino = Ino(2);

/// What an inode holds.
enum Content {
    Dir {
        parent: Ino,
        entries: Vec<(Vec<u8>, Ino)>,
        by_name: HashMap<Vec<u8>, Ino>,
    },
    /// Pieces of data by offset, each longer than nothing; the rest is hole.
    File(Vec<(u64, Vec<u8>)>),
    Link(Vec<u8>),
    /// An inode that cannot be read.
    Damaged,
}

struct Thing {
    attr: Attr,
    content: Content,
    xattrs: Vec<(&'static str, Vec<u8>)>,
}

/// A tree of files, made once and then mounted.
#[derive(Default)]
pub struct Tree {
    things: HashMap<Ino, Thing>,
}

impl Tree {
    pub fn new() -> Self {
        let mut tree = Tree::default();
        let content = Content::Dir { parent: ROOT, entries: Vec::new(), by_name: HashMap::new() };
        tree.things
            .insert(ROOT, Thing { attr: attr(ROOT, FileType::Directory, 0), content, xattrs: Vec::new() });
        tree
    }

    pub fn dir(&mut self, parent: Ino, name: &str) -> Ino {
        let content = Content::Dir { parent, entries: Vec::new(), by_name: HashMap::new() };
        self.add(parent, name, FileType::Directory, 4096, content)
    }

    pub fn file(&mut self, parent: Ino, name: &str, data: &[u8]) -> Ino {
        self.sparse(parent, name, data.len() as u64, vec![(0, data.to_vec())])
    }

    pub fn sparse(&mut self, parent: Ino, name: &str, size: u64, pieces: Vec<(u64, Vec<u8>)>) -> Ino {
        let pieces = pieces.into_iter().filter(|(_, data)| !data.is_empty()).collect();
        self.add(parent, name, FileType::Regular, size, Content::File(pieces))
    }

    pub fn link(&mut self, parent: Ino, name: &str, target: &str) -> Ino {
        self.add(parent, name, FileType::Symlink, target.len() as u64, Content::Link(target.into()))
    }

    pub fn damaged(&mut self, parent: Ino, name: &str) -> Ino {
        self.add(parent, name, FileType::Regular, 0, Content::Damaged)
    }

    pub fn attr_mut(&mut self, ino: Ino) -> &mut Attr {
        &mut self.things.get_mut(&ino).unwrap().attr
    }

    pub fn xattr(&mut self, ino: Ino, name: &'static str, value: &[u8]) {
        self.things.get_mut(&ino).unwrap().xattrs.push((name, value.to_vec()));
    }

    fn add(&mut self, parent: Ino, name: &str, kind: FileType, size: u64, content: Content) -> Ino {
        let ino = Ino(self.things.len() as u64 + 10);
        self.things.insert(ino, Thing { attr: attr(ino, kind, size), content, xattrs: Vec::new() });
        let Content::Dir { entries, by_name, .. } = &mut self.things.get_mut(&parent).unwrap().content else {
            panic!("the parent of {name} is a directory");
        };
        entries.push((name.into(), ino));
        by_name.insert(name.into(), ino);
        ino
    }

    fn thing(&self, node: &Ino) -> &Thing {
        &self.things[node]
    }
}

fn attr(ino: Ino, kind: FileType, size: u64) -> Attr {
    let time = Timestamp { seconds: 1_000_000_000 + ino.0 as i64, nanos: 123_456_789 };
    Attr {
        ino,
        kind,
        permissions: if kind == FileType::Directory { 0o755 } else { 0o644 },
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev_major: 0,
        rdev_minor: 0,
        size,
        blocks: size.div_ceil(512),
        block_size: 4096,
        atime: time,
        mtime: time,
        ctime: time,
        crtime: None,
        generation: 7,
        flags: 0,
        has_acl: false,
    }
}

impl FileSystem for Tree {
    type Node = Ino;

    fn root(&self) -> Ino {
        ROOT
    }

    fn load(&self, ino: Ino) -> Result<Ino> {
        match self.things.get(&ino).map(|thing| &thing.content) {
            None => Err(Error::Stale),
            Some(Content::Damaged) => Err(Error::Corrupt(format!("inode {ino} is damaged").into())),
            Some(_) => Ok(ino),
        }
    }

    fn node_bytes(&self, _: &Ino) -> usize {
        0
    }

    fn attr(&self, node: &Ino) -> Attr {
        self.thing(node).attr
    }

    fn lookup(&self, dir: &Ino, name: &[u8]) -> Result<Option<Lookup>> {
        let Content::Dir { by_name, .. } = &self.thing(dir).content else {
            return Err(Error::NotADirectory);
        };
        Ok(by_name.get(name).map(|&ino| Lookup { ino, kind: None }))
    }

    fn readdir(
        &self,
        dir: &Ino,
        start: ReaddirStart,
        each: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let Content::Dir { entries, .. } = &self.thing(dir).content else {
            return Err(Error::NotADirectory);
        };
        let skip = match start {
            ReaddirStart::First => 0,
            ReaddirStart::After(cookie) => cookie as usize + 1,
        };
        for (cookie, (name, ino)) in entries.iter().enumerate().skip(skip) {
            let kind = Some(self.thing(ino).attr.kind);
            if each(DirEntry { name, ino: *ino, kind, cookie: cookie as u64 }).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn parent(&self, dir: &Ino) -> Result<Ino> {
        match &self.thing(dir).content {
            Content::Dir { parent, .. } => Ok(*parent),
            _ => Err(Error::NotADirectory),
        }
    }

    fn read(&self, node: &Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let thing = self.thing(node);
        let Content::File(pieces) = &thing.content else {
            return Err(Error::Invalid);
        };
        let wanted = thing.attr.size.saturating_sub(offset).min(buf.len() as u64);
        buf[..wanted as usize].fill(0);
        for (at, data) in pieces {
            let from = offset.max(*at);
            let to = (offset + wanted).min(at + data.len() as u64);
            if from < to {
                let piece = &data[(from - at) as usize..(to - at) as usize];
                buf[(from - offset) as usize..(to - offset) as usize].copy_from_slice(piece);
            }
        }
        Ok(wanted as usize)
    }

    fn extent(&self, node: &Ino, offset: u64) -> Result<Extent> {
        let thing = self.thing(node);
        let Content::File(pieces) = &thing.content else {
            return Err(Error::Invalid);
        };
        if offset >= thing.attr.size {
            return Err(Error::NoExtent);
        }
        let end = |(at, data): &(u64, Vec<u8>)| at + data.len() as u64;
        Ok(match pieces.iter().find(|piece| offset < end(piece)) {
            Some(piece) if piece.0 <= offset => Extent::Data(end(piece)),
            Some(piece) => Extent::Hole(piece.0),
            None => Extent::Hole(thing.attr.size),
        })
    }

    fn readlink(&self, node: &Ino) -> Result<Vec<u8>> {
        match &self.thing(node).content {
            Content::Link(target) => Ok(target.clone()),
            _ => Err(Error::Invalid),
        }
    }

    fn getxattr(&self, node: &Ino, name: &[u8]) -> Result<Option<Vec<u8>>> {
        let found = self.thing(node).xattrs.iter().find(|(known, _)| known.as_bytes() == name);
        Ok(found.map(|(_, value)| value.clone()))
    }

    fn listxattr(&self, node: &Ino) -> Result<Vec<Vec<u8>>> {
        Ok(self.thing(node).xattrs.iter().map(|(name, _)| name.as_bytes().to_vec()).collect())
    }

    fn statfs(&self) -> Result<FsStat> {
        Ok(FsStat {
            block_size: 4096,
            blocks: 1000,
            blocks_free: 300,
            blocks_available: 200,
            inodes: 500,
            inodes_free: 400,
            name_max: 255,
            fsid: 42,
        })
    }
}

/// A mount that ends with the test.
pub struct Mounted {
    pub path: PathBuf,
    pub handle: Handle,
    serving: Option<JoinHandle<io::Result<()>>>,
    _dir: TempDir,
    _ring: Option<OverIoUring>,
}

/// Whether this binary's mounts go over io_uring.
pub const OVER_RING: bool = matches!(env!("CARGO_CRATE_NAME").as_bytes(), b"over_ring");

impl Mounted {
    /// Waits for the session's end and answers how it ended.
    pub fn join(&mut self) -> io::Result<()> {
        self.serving.take().expect("joined once").join().expect("no panic while serving")
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let unmounted = self.handle.unmount();
        if let (Ok(()), Some(serving)) = (unmounted, self.serving.take()) {
            let _ = serving.join();
        }
    }
}

/// Mounts `tree` in a fresh directory; `None`, with the reason printed, where that cannot be done
/// here.
pub fn mount(tree: Tree, options: &Options) -> Option<Mounted> {
    mount_vfs(&Arc::new(Vfs::new(tree).unwrap()), options)
}

/// As [`mount`], of a file system that the test keeps an eye on.
pub fn mount_vfs<F: FileSystem>(vfs: &Arc<Vfs<F>>, options: &Options) -> Option<Mounted> {
    if !can_mount() {
        return None;
    }
    let ring = ring()?;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mnt");
    std::fs::create_dir(&path).unwrap();
    let options = Options { io_uring: Some(OVER_RING), ..options.clone() };
    let session: Session<F> = dentree_fuse::mount(vfs.clone(), &path, &options).unwrap();
    let handle = session.handle();
    assert_eq!(handle.channel(), if OVER_RING { Channel::Ring } else { Channel::Classic });
    let serving = Some(std::thread::spawn(move || session.serve()));
    Some(Mounted { path, handle, serving, _dir: dir, _ring: ring })
}

/// The requests while `work` is done, by operation. Without those to forget, which the kernel sends
/// when it likes.
pub fn requests_of(mounted: &Mounted, work: impl FnOnce(&Path)) -> Vec<(&'static str, u64)> {
    let before = mounted.handle.requests();
    work(&mounted.path);
    let asked = mounted.handle.requests().since(&before);
    asked.by_operation().filter(|(name, _)| !name.ends_with("FORGET")).collect()
}

/// What a mount of this binary needs; `None`, with the reason printed, where it is missing.
pub fn ring() -> Option<Option<OverIoUring>> {
    if OVER_RING { OverIoUring::enable().map(Some) } else { Some(None) }
}

/// Options of a mount over this binary's channel.
pub fn offered() -> Options {
    Options { io_uring: Some(OVER_RING), ..Options::default() }
}

/// Whether mounts can be made here; prints why not.
pub fn can_mount() -> bool {
    let root = rustix::process::geteuid().is_root();
    let device = Path::new("/dev/fuse").exists();
    if !root || !device {
        println!("skipped: needs root ({root}) and /dev/fuse ({device})");
    }
    root && device
}
