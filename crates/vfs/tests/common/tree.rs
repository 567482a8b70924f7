//! The visible state of a tree.

use super::kernel::Kernel;
use dentree_vfs::{FileSystem, FileType, Identity, Ino, Inode, ReaddirStart, Vfs};
use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

/// An inode under a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    mode: u32,
    uid: u32,
    gid: u32,
    nlink: u64,
    /// Its first path.
    same_as: String,
    /// Length and content, or link target.
    size: u64,
    content: Vec<u8>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Seconds of a time long past. (The kernel updates an older atime.)
    old_mtime: Option<i64>,
}

pub type Tree = BTreeMap<String, Seen>;

/// Bytes.
const COMPARED: usize = 64 << 10;

fn old(seconds: i64) -> Option<i64> {
    (seconds <= 1_700_000_000).then_some(seconds)
}

pub fn of_vfs<F: FileSystem>(vfs: &Vfs<F>) -> Tree {
    let (mut tree, mut first) = (Tree::new(), HashMap::new());
    see(vfs, vfs.root(), ".", &mut tree, &mut first);
    tree
}

fn see<F: FileSystem>(
    vfs: &Vfs<F>,
    inode: &Arc<Inode<F>>,
    path: &str,
    tree: &mut Tree,
    first: &mut HashMap<Ino, String>,
) {
    let caller = Identity::Superuser;
    let attr = inode.attr();
    let content = match attr.kind {
        FileType::Regular => {
            let mut content = vec![0; COMPARED];
            let read = vfs.read(inode, 0, &mut content).unwrap();
            content.truncate(read);
            content
        }
        FileType::Symlink => vfs.readlink(inode).unwrap(),
        _ => Vec::new(),
    };
    let names = vfs.listxattr(inode).unwrap();
    let xattrs = names.into_iter().map(|name| (name.clone(), vfs.getxattr(inode, &name).unwrap())).collect();
    let has_size = matches!(attr.kind, FileType::Regular | FileType::Symlink);
    let seen = Seen {
        mode: attr.mode(),
        uid: attr.uid,
        gid: attr.gid,
        nlink: attr.nlink.into(),
        same_as: first.entry(inode.ino()).or_insert_with(|| path.to_owned()).clone(),
        size: if has_size { attr.size } else { 0 },
        content,
        xattrs,
        old_mtime: old(attr.mtime.seconds),
    };
    tree.insert(path.to_owned(), seen);
    if !inode.is_dir() {
        return;
    }
    let mut names = Vec::new();
    vfs.readdir(&caller, inode, ReaddirStart::First, &mut |entry| {
        names.push((entry.name.to_vec(), entry.ino, entry.kind));
        ControlFlow::Continue(())
    })
    .unwrap();
    names.sort();
    for (name, ino, kind) in names {
        let child = vfs.lookup(&caller, inode, &name).unwrap().expect("a listed name is found");
        assert_eq!((child.ino(), Some(child.kind())), (ino, kind), "{path}/{name:?}");
        if child.is_dir() {
            assert_eq!(vfs.parent(&child).unwrap().ino(), inode.ino(), "the parent of {path}/{name:?}");
        }
        see(vfs, &child, &format!("{path}/{}", String::from_utf8_lossy(&name)), tree, first);
    }
}

pub fn of_kernel(kernel: &Kernel) -> Tree {
    let (mut tree, mut first) = (Tree::new(), HashMap::new());
    see_kernel(&kernel.top, ".", &mut tree, &mut first);
    tree
}

fn see_kernel(at: &Path, path: &str, tree: &mut Tree, first: &mut HashMap<u64, String>) {
    let stat = std::fs::symlink_metadata(at).unwrap();
    let kind = stat.file_type();
    let content = if kind.is_file() {
        let mut content = Vec::new();
        std::io::Read::read_to_end(
            &mut std::io::Read::take(std::fs::File::open(at).unwrap(), COMPARED as u64),
            &mut content,
        )
        .unwrap();
        content
    } else if kind.is_symlink() {
        std::os::unix::ffi::OsStringExt::into_vec(std::fs::read_link(at).unwrap().into_os_string())
    } else {
        Vec::new()
    };
    let mut xattrs = BTreeMap::new();
    let mut list = vec![0; 4096];
    let len = rustix::fs::llistxattr(at, &mut list[..]).unwrap();
    for name in list[..len].split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0; 4096];
        let len = rustix::fs::lgetxattr(at, name, &mut value[..]).unwrap();
        value.truncate(len);
        xattrs.insert(name.to_vec(), value);
    }
    let seen = Seen {
        mode: stat.mode(),
        uid: stat.uid(),
        gid: stat.gid(),
        nlink: stat.nlink(),
        same_as: first.entry(stat.ino()).or_insert_with(|| path.to_owned()).clone(),
        size: if kind.is_file() || kind.is_symlink() { stat.size() } else { 0 },
        content,
        xattrs,
        old_mtime: old(stat.mtime()),
    };
    tree.insert(path.to_owned(), seen);
    if kind.is_dir() {
        let mut names: Vec<_> =
            std::fs::read_dir(at).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        for name in names {
            see_kernel(&at.join(&name), &format!("{path}/{}", name.to_string_lossy()), tree, first);
        }
    }
}

pub fn inodes(tree: &Tree) -> u64 {
    tree.iter().filter(|(path, seen)| **path == seen.same_as).count() as u64
}
