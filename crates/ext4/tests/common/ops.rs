//! Random operations on paths, for any file system under `Vfs`, and the resulting tree.

use super::writing::Dice;
use dentree_vfs::*;
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::sync::Arc;

#[derive(Clone, Debug)]
pub enum Op {
    Create(String),
    Mkdir(String),
    Symlink {
        path: String,
        target: String,
    },
    Write {
        path: String,
        at: u64,
        len: usize,
        fill: u8,
    },
    Append {
        path: String,
        len: usize,
        fill: u8,
    },
    Truncate {
        path: String,
        size: u64,
    },
    Allocate {
        path: String,
        at: u64,
        len: u64,
        how: Allocate,
    },
    Chmod {
        path: String,
        permissions: u16,
    },
    Rename {
        from: String,
        to: String,
        how: OnExisting,
    },
    Link {
        from: String,
        to: String,
    },
    Unlink(String),
    Rmdir(String),
    SetXattr {
        path: String,
        name: &'static str,
        value: Vec<u8>,
    },
    RemoveXattr {
        path: String,
        name: &'static str,
    },
    /// Keeps it open across its removal.
    Hold(String),
    Release,
    Fsync(String),
    Sync,
}

#[derive(Clone, Debug, Default)]
pub struct OpMix {
    /// Empty, or a directory with a slash.
    pub top: String,
    /// `fallocate` is included.
    pub allocates: bool,
    /// A sync each so many operations; 0 for none.
    pub durable_one_of: usize,
}

const DIRS: [&str; 3] = ["a", "b", "c"];

const XATTRS: [&str; 3] = ["user.a", "user.longer", "trusted.t"];

impl OpMix {
    pub fn op(&self, dice: &mut Dice) -> Op {
        if self.durable_one_of > 0 && dice.roll(self.durable_one_of) == 0 {
            return if dice.roll(5) == 0 { Op::Sync } else { Op::Fsync(self.path(dice)) };
        }
        let path = self.path(dice);
        let is_large = dice.roll(8) == 0;
        let at = u64::try_from(dice.roll(60_000)).unwrap();
        let (at, most) = match is_large {
            // Large writes at these offsets are direct.
            true if dice.roll(2) == 0 => ((2 << 20) + (at & !1023), 90_000),
            true => (at, 90_000),
            false => (at, 6000),
        };
        let (len, fill) = (1 + dice.roll(most), u8::try_from(dice.roll(256)).unwrap());
        match dice.roll(36) {
            0..=4 => Op::Create(path),
            5..=7 => Op::Mkdir(self.directory(dice)),
            // Half of the targets fit into the inode.
            8 => Op::Symlink { path, target: "x".repeat(1 + len % if fill < 128 { 59 } else { 300 }) },
            9..=12 => Op::Write { path, at, len, fill },
            13..=15 => Op::Append { path, len, fill },
            16..=17 => Op::Truncate { path, size: at },
            18 if self.allocates => {
                let how =
                    [Allocate::Reserve, Allocate::ReserveKeepSize, Allocate::PunchHole, Allocate::ZeroRange];
                Op::Allocate { path, at, len: u64::try_from(len).unwrap(), how: how[dice.roll(4)] }
            }
            18..=19 => Op::Chmod { path, permissions: if dice.roll(2) == 0 { 0o755 } else { 0o640 } },
            20..=23 => {
                let how = [OnExisting::Replace, OnExisting::Replace, OnExisting::Fail, OnExisting::Exchange];
                let from = if dice.roll(3) == 0 { self.directory(dice) } else { path };
                Op::Rename { from, to: self.path(dice), how: how[dice.roll(4)] }
            }
            24..=25 => Op::Link { from: path, to: self.path(dice) },
            26..=28 => Op::Unlink(path),
            29 => Op::Rmdir(self.directory(dice)),
            30 => Op::Hold(path),
            // Few values, so that inodes share a block; all fit into one.
            31..=33 => {
                let value = vec![fill % 3; [10, 40, 240][dice.roll(3)]];
                Op::SetXattr { path, name: XATTRS[dice.roll(3)], value }
            }
            34 => Op::RemoveXattr { path, name: XATTRS[dice.roll(3)] },
            _ => Op::Release,
        }
    }

    fn directory(&self, dice: &mut Dice) -> String {
        let names: Vec<&str> = (0..=dice.roll(2)).map(|_| DIRS[dice.roll(3)]).collect();
        format!("{}{}", self.top, names.join("/"))
    }

    /// Some are so long that a few fill a block.
    fn path(&self, dice: &mut Dice) -> String {
        let mut path = self.top.clone();
        for _ in 0..dice.roll(3) {
            path += DIRS[dice.roll(3)];
            path.push('/');
        }
        match dice.roll(8) {
            0 => path += DIRS[dice.roll(3)],
            1..=4 => path += &format!("file {}", dice.roll(6)),
            _ => path += &format!("{} {}", "long ".repeat(40), dice.roll(20)),
        }
        path
    }
}

/// Numbers are reused, generations are not.
pub type Id = (u64, u32);

pub fn id<F: FileSystem>(inode: &Inode<F>) -> Id {
    (inode.ino().0, inode.attr().generation)
}

pub struct Runner<'a, F: FileSystem> {
    vfs: &'a Vfs<F>,
    held: Vec<Arc<Inode<F>>>,
    pub touched: Vec<Arc<Inode<F>>>,
}

impl<'a, F: FileSystem> Runner<'a, F> {
    pub fn new(vfs: &'a Vfs<F>) -> Self {
        Runner { vfs, held: Vec::new(), touched: Vec::new() }
    }

    /// Independent of the file system.
    pub fn apply(&mut self, op: &Op) -> std::result::Result<u64, Errno> {
        self.try_apply(op).map_err(|error| error.errno())
    }

    pub fn try_apply(&mut self, op: &Op) -> Result<u64> {
        self.touched.clear();
        let who = &Identity::Superuser;
        match op {
            Op::Create(path) => self.make(path, NewKind::Regular),
            Op::Mkdir(path) => self.make(path, NewKind::Directory),
            Op::Symlink { path, target } => self.make(path, NewKind::Symlink(target.as_bytes())),
            Op::Write { path, at, len, fill } => {
                let file = self.at(path)?;
                Ok(self.vfs.write(who, &file, *at, &data(*fill, *len))? as u64)
            }
            Op::Append { path, len, fill } => {
                let file = self.at(path)?;
                Ok(self.vfs.append(who, &file, &data(*fill, *len))?.1 as u64)
            }
            Op::Truncate { path, size } => {
                self.set(path, SetAttr { size: Some(*size), ..SetAttr::default() })
            }
            Op::Chmod { path, permissions } => {
                self.set(path, SetAttr { permissions: Some(*permissions), ..SetAttr::default() })
            }
            Op::Allocate { path, at, len, how } => {
                let file = self.at(path)?;
                self.vfs.allocate(who, &file, *at, *len, *how).map(|()| 0)
            }
            Op::Rename { from, to, how } => self.rename(from, to, *how),
            Op::Link { from, to } => {
                let inode = self.at(from)?;
                let to = self.vfs.walk_parent(who, self.vfs.root(), to.as_bytes())?;
                self.touched.push(to.dir.clone());
                self.vfs.link(who, &inode, &to.dir, to.name).map(|()| 0)
            }
            Op::Unlink(path) | Op::Rmdir(path) => {
                let at = self.vfs.walk_parent(who, self.vfs.root(), path.as_bytes())?;
                self.touched.push(at.dir.clone());
                match (op, path.len().is_multiple_of(3)) {
                    (Op::Unlink(_), false) => self.vfs.unlink(who, &at.dir, at.name)?,
                    (Op::Unlink(_), true) => drop(self.vfs.unlink_and_hold(who, &at.dir, at.name)?),
                    (_, false) => self.vfs.rmdir(who, &at.dir, at.name)?,
                    (_, true) => drop(self.vfs.rmdir_and_hold(who, &at.dir, at.name)?),
                }
                Ok(0)
            }
            Op::SetXattr { path, name, value } => {
                let inode = self.at(path)?;
                self.vfs.setxattr(who, &inode, name.as_bytes(), value, SetXattr::Any).map(|()| 0)
            }
            Op::RemoveXattr { path, name } => {
                let inode = self.at(path)?;
                self.vfs.removexattr(who, &inode, name.as_bytes()).map(|()| 0)
            }
            Op::Hold(path) => {
                let inode = self.at(path)?;
                self.touched.clear();
                self.held.push(inode);
                Ok(0)
            }
            Op::Release => {
                self.held.drain(..self.held.len() / 2 + self.held.len() % 2);
                Ok(0)
            }
            Op::Fsync(path) => {
                let inode = self.at(path)?;
                self.vfs.fsync(&inode, Durability::Full).map(|()| 0)
            }
            Op::Sync => self.vfs.sync().map(|()| 0),
        }
    }

    fn at(&mut self, path: &str) -> Result<Arc<Inode<F>>> {
        let found =
            self.vfs.walk(&Identity::Superuser, self.vfs.root(), path.as_bytes(), WalkOptions::KEEP_LINK)?;
        self.touched.push(found.clone());
        Ok(found)
    }

    fn set(&mut self, path: &str, changes: SetAttr) -> Result<u64> {
        let inode = self.at(path)?;
        if changes.permissions.is_some() && inode.kind() == FileType::Symlink {
            return Err(Error::Invalid);
        }
        self.vfs.set_attr(&Identity::Superuser, &inode, &changes).map(|()| 0)
    }

    fn make(&mut self, path: &str, kind: NewKind<'_>) -> Result<u64> {
        let who = &Identity::Superuser;
        let at = self.vfs.walk_parent(who, self.vfs.root(), path.as_bytes())?;
        self.touched.push(at.dir.clone());
        let permissions = if matches!(kind, NewKind::Symlink(_)) { 0o777 } else { 0o750 };
        self.touched.push(self.vfs.create(who, &at.dir, at.name, kind, permissions)?);
        Ok(0)
    }

    fn rename(&mut self, from: &str, to: &str, how: OnExisting) -> Result<u64> {
        let who = &Identity::Superuser;
        self.at(from)?;
        let from = self.vfs.walk_parent(who, self.vfs.root(), from.as_bytes())?;
        let to = self.vfs.walk_parent(who, self.vfs.root(), to.as_bytes())?;
        self.touched.extend([from.dir.clone(), to.dir.clone()]);
        let replaced = self.vfs.rename(who, &from.dir, from.name, &to.dir, to.name, how)?;
        Ok(u64::from(replaced.is_some()))
    }
}

pub fn data(fill: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| fill.wrapping_add((at / 512) as u8) | 1).collect()
}

/// Except a file's content.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    pub mode: u32,
    pub nlink: u32,
    /// The inode's first path.
    pub same_as: String,
    pub target: Vec<u8>,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

pub type Tree = BTreeMap<String, Seen>;

/// Parents first, in order of names.
pub fn walk<F: FileSystem>(vfs: &Vfs<F>, each: &mut dyn FnMut(&str, &Arc<Inode<F>>)) {
    walk_below(vfs, vfs.root(), "", each);
}

fn walk_below<F: FileSystem>(
    vfs: &Vfs<F>,
    inode: &Arc<Inode<F>>,
    path: &str,
    each: &mut dyn FnMut(&str, &Arc<Inode<F>>),
) {
    each(path, inode);
    if !inode.is_dir() {
        return;
    }
    let mut names = BTreeMap::new();
    let list = &mut |entry: DirEntry<'_>| {
        let twice = names.insert(entry.name.to_vec(), entry.ino);
        assert!(twice.is_none(), "{path}: a name comes twice");
        ControlFlow::Continue(())
    };
    vfs.readdir(&Identity::Superuser, inode, ReaddirStart::First, list).unwrap();
    for (name, ino) in names {
        let child = vfs.lookup(&Identity::Superuser, inode, &name).unwrap().expect("a listed name is found");
        assert_eq!(child.ino(), ino);
        walk_below(vfs, &child, &format!("{path}/{}", String::from_utf8_lossy(&name)), each);
    }
}

pub fn tree<F: FileSystem>(vfs: &Vfs<F>) -> Tree {
    let (mut tree, mut first) = (Tree::new(), HashMap::new());
    walk(vfs, &mut |path, inode| {
        let attr = inode.attr();
        let target = if attr.kind == FileType::Symlink { vfs.readlink(inode).unwrap() } else { Vec::new() };
        let same_as = first.entry(inode.ino()).or_insert_with(|| path.to_owned()).clone();
        let xattrs = xattrs(vfs, inode);
        tree.insert(path.to_owned(), Seen { mode: attr.mode(), nlink: attr.nlink, same_as, target, xattrs });
    });
    tree
}

pub fn xattrs<F: FileSystem>(vfs: &Vfs<F>, inode: &Inode<F>) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let names = vfs.listxattr(inode).unwrap();
    names.into_iter().map(|name| (name.clone(), vfs.getxattr(inode, &name).unwrap())).collect()
}

pub fn contents<F: FileSystem>(vfs: &Vfs<F>) -> BTreeMap<String, Vec<u8>> {
    let mut contents = BTreeMap::new();
    walk(vfs, &mut |path, inode| {
        if inode.kind() == FileType::Regular {
            contents.insert(path.to_owned(), content(vfs, inode));
        }
    });
    contents
}

pub fn content<F: FileSystem>(vfs: &Vfs<F>, file: &Inode<F>) -> Vec<u8> {
    let mut bytes = vec![0xEE; usize::try_from(file.attr().size).unwrap()];
    assert_eq!(vfs.read(file, 0, &mut bytes).unwrap(), bytes.len());
    bytes
}

pub fn differences(ours: &Tree, theirs: &Tree) -> String {
    let mut text = String::new();
    for path in ours.keys().chain(theirs.keys().filter(|path| !ours.contains_key(*path))) {
        if ours.get(path) != theirs.get(path) {
            text += &format!("{path:?}: {:?}, but must be {:?}\n", ours.get(path), theirs.get(path));
        }
    }
    text
}

/// It has the initial tree of mke2fs.
pub fn reference() -> Vfs<MemoryFs> {
    let vfs = Vfs::new(MemoryFs::default()).unwrap();
    vfs.create(&Identity::Superuser, vfs.root(), b"lost+found", NewKind::Directory, 0o700).unwrap();
    vfs
}
