//! An image that is changed through `Vfs`, by paths.

use crate::common::{Image, fsck};
use dentree_blockdev::{Access, FileDevice};
use dentree_ext4::{Ext4, Options};
use dentree_vfs::{FsStat, Identity, Inode, NewKind, OnExisting, ReaddirStart, Vfs};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

/// mke2fs options, size.
pub const KINDS: [(&str, &str); 10] = [
    ("-t ext4", "24M"),
    ("-t ext4 -O metadata_csum_seed,orphan_file", "24M"),
    ("-t ext4 -O ^has_journal", "16M"),
    ("-t ext4 -b 1024 -O large_dir", "24M"),
    ("-t ext4 -b 1024 -O ^metadata_csum,uninit_bg", "24M"),
    ("-t ext4 -b 4096 -I 512 -O inline_data", "24M"),
    ("-t ext4 -I 128 -O ^has_journal,^64bit", "16M"),
    ("-t ext2 -b 4096", "16M"),
    ("-t ext2 -b 1024 -O ^dir_index,^filetype", "16M"),
    ("-t ext3 -b 1024", "24M"),
];

pub type Node = Arc<Inode<Ext4>>;

pub struct Tree {
    pub vfs: Vfs<Ext4>,
    pub who: Identity,
}

impl Tree {
    pub fn open(image: &Image) -> Tree {
        let device = FileDevice::open(image.path(), Access::ReadWrite).unwrap();
        let options = Options { writable: true, ..Options::default() };
        let fs = Ext4::open(Arc::new(device), options).unwrap();
        Tree { vfs: Vfs::new(fs).unwrap(), who: Identity::Superuser }
    }

    pub fn root(&self) -> Node {
        self.vfs.root().clone()
    }

    pub fn at(&self, path: &str) -> Node {
        path.split('/').filter(|name| !name.is_empty()).fold(self.root(), |dir, name| {
            let found = self.vfs.lookup(&self.who, &dir, name.as_bytes()).unwrap();
            found.unwrap_or_else(|| panic!("no {name} of {path}"))
        })
    }

    pub fn make(&self, dir: &Node, name: &str, kind: NewKind<'_>) -> Node {
        self.vfs
            .create(&self.who, dir, name.as_bytes(), kind, 0o755)
            .unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Makes missing directories.
    pub fn dir(&self, path: &str) -> Node {
        path.split('/').filter(|name| !name.is_empty()).fold(self.root(), |dir, name| {
            let found = self.vfs.lookup(&self.who, &dir, name.as_bytes()).unwrap();
            found.unwrap_or_else(|| self.make(&dir, name, NewKind::Directory))
        })
    }

    pub fn file(&self, path: &str) -> Node {
        let (dir, name) = self.split(path);
        self.make(&dir, name, NewKind::Regular)
    }

    fn split<'a>(&self, path: &'a str) -> (Node, &'a str) {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        (self.dir(dir), name)
    }

    pub fn unnamed(&self) -> Node {
        self.vfs.create_unnamed(&self.who, &self.root(), 0o600).unwrap()
    }

    pub fn link(&self, node: &Node, dir: &Node, name: &str) {
        self.vfs.link(&self.who, node, dir, name.as_bytes()).unwrap();
    }

    pub fn unlink(&self, dir: &Node, name: &str) {
        self.vfs.unlink(&self.who, dir, name.as_bytes()).unwrap_or_else(|error| panic!("{name}: {error}"));
    }

    pub fn rmdir(&self, dir: &Node, name: &str) {
        self.vfs.rmdir(&self.who, dir, name.as_bytes()).unwrap_or_else(|error| panic!("{name}: {error}"));
    }

    pub fn rename(&self, from: &str, to: &str) {
        self.rename_as(from, to, OnExisting::Replace);
    }

    pub fn exchange(&self, from: &str, to: &str) {
        self.rename_as(from, to, OnExisting::Exchange);
    }

    fn rename_as(&self, from: &str, to: &str, how: OnExisting) {
        let ((from_dir, from_name), (to_dir, to_name)) = (self.split(from), self.split(to));
        self.vfs
            .rename(&self.who, &from_dir, from_name.as_bytes(), &to_dir, to_name.as_bytes(), how)
            .unwrap_or_else(|error| panic!("{from} to {to}: {error}"));
    }

    pub fn names(&self, path: &str) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        let each = &mut |entry: dentree_vfs::DirEntry<'_>| {
            assert!(names.insert(String::from_utf8(entry.name.to_vec()).unwrap()), "a name comes twice");
            ControlFlow::Continue(())
        };
        self.vfs.readdir(&self.who, &self.at(path), ReaddirStart::First, each).unwrap();
        names
    }

    pub fn free(&self) -> (u64, u64) {
        let FsStat { blocks_free, inodes_free, .. } = self.vfs.statfs().unwrap();
        (blocks_free, inodes_free)
    }

    pub fn close(self) {
        let fs = self.vfs.into_fs().expect("no inode is in use");
        fs.close().unwrap();
    }
}

pub fn check(image: &Image, what: &str) {
    fsck::is_clean(&image.path()).unwrap_or_else(|text| panic!("{what}: {text}"));
}
