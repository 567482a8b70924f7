//! Allocation of inodes: near the directory and in order by one thread, to the last one by several.

use crate::common::writing::{check, new_image, open};
use dentree_ext4::Ext4;
use dentree_vfs::{Error, FileSystem, Identity, Inode, NewKind, Vfs};
use std::collections::BTreeSet;
use std::sync::{Arc, Barrier};

const WHO: Identity = Identity::Superuser;
/// Groups of 256 inodes, with adjacent tables.
const FOUR_GROUPS: &str = "-t ext4 -b 1024 -N 1024";

fn make(vfs: &Vfs<Ext4>, dir: &Arc<Inode<Ext4>>, name: &str, kind: NewKind<'_>) -> Result<u64, Error> {
    vfs.create(&WHO, dir, name.as_bytes(), kind, 0o755).map(|made| made.ino().0)
}

/// Until no inode is left. Returns names and numbers.
fn fill(vfs: &Vfs<Ext4>, dir: &Arc<Inode<Ext4>>, threads: usize) -> Vec<(String, u64)> {
    let begin = &Barrier::new(threads);
    let one = |thread: usize| {
        let mut files = Vec::new();
        begin.wait();
        loop {
            let name = format!("{thread}.{}", files.len());
            match make(vfs, dir, &name, NewKind::Regular) {
                Ok(ino) => files.push((name, ino)),
                Err(Error::NoSpace) => return files,
                Err(error) => panic!("thread {thread}: {error}"),
            }
        }
    };
    std::thread::scope(|scope| {
        let one = &one;
        let threads: Vec<_> = (0..threads).map(|thread| scope.spawn(move || one(thread))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn several_threads_allocate_every_inode_once() {
    let image = new_image(FOUR_GROUPS, "32M");
    let vfs = Vfs::new(open(&image)).unwrap();
    let dir = vfs.create(&WHO, vfs.root(), b"dir", NewKind::Directory, 0o755).unwrap();
    let free = vfs.fs().statfs().unwrap().inodes_free;
    let files = fill(&vfs, &dir, 4);
    assert_eq!(vfs.fs().statfs().unwrap().inodes_free, 0);
    assert_eq!(files.len() as u64, free);
    let inos: BTreeSet<_> = files.iter().map(|(_, ino)| ino).collect();
    assert_eq!(inos.len(), files.len(), "an inode was taken twice");
    // Other threads may reuse a freed inode.
    for (name, _) in [&files[0], &files[files.len() - 1]] {
        vfs.unlink(&WHO, &dir, name.as_bytes()).unwrap();
    }
    vfs.sync().unwrap();
    assert_eq!(fill(&vfs, vfs.root(), 2).len(), 2);
    drop((dir, vfs));
    check(&image, &[], "all inodes are in use");
}

#[test]
fn one_threads_files_have_consecutive_inodes_near_their_directory() {
    let image = new_image(FOUR_GROUPS, "32M");
    let vfs = Vfs::new(open(&image)).unwrap();
    let dir = vfs.create(&WHO, vfs.root(), b"dir", NewKind::Directory, 0o755).unwrap();
    let first = dir.ino().0 + 1;
    for number in 0..200 {
        assert_eq!(make(&vfs, &dir, &format!("{number}"), NewKind::Regular).unwrap(), first + number);
    }
}
