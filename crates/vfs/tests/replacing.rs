//! POSIX: the target of a rename exists at every instant. The bug: in a complete directory the old
//! dentry was removed before the new one was linked.

use dentree_vfs::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

const TURNS: u64 = if cfg!(debug_assertions) { 60_000 } else { 200_000 };

/// Also after a panic.
struct AtEnd<'a>(&'a AtomicBool);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn a_file_that_is_replaced_by_renames_is_there_at_every_instant() {
    check(|vfs, caller, dir| {
        vfs.create(caller, dir, b"temporary", NewKind::Regular, 0o644)?;
        vfs.rename(caller, dir, b"temporary", dir, b"target", OnExisting::Replace)
    });
}

/// The bug: the name cache was updated first for the rename, then for the whiteout.
#[test]
fn a_name_that_a_rename_leaves_to_a_whiteout_is_there_at_every_instant() {
    check(|vfs, caller, dir| {
        vfs.rename_leaving_whiteout(caller, dir, b"target", dir, b"away", OnExisting::Replace)
    });
}

/// While other threads look `dir/target` up.
fn check<T>(change: impl Fn(&Vfs<MemoryFs>, &Identity, &Arc<Inode<MemoryFs>>) -> Result<T> + Sync) {
    let vfs = Vfs::new(MemoryFs::default()).unwrap();
    let (caller, root) = (Identity::Superuser, vfs.root());
    let dir = vfs.create(&caller, root, b"dir", NewKind::Directory, 0o755).unwrap();
    vfs.create(&caller, &dir, b"target", NewKind::Regular, 0o644).unwrap();
    let (done, walks) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            let _done = AtEnd(&done);
            (0..TURNS).for_each(|_| drop(change(&vfs, &caller, &dir).unwrap()));
        });
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                let walk = vfs.walk(&caller, root, b"dir/target", WalkOptions::FOLLOW);
                assert!(walk.is_ok(), "walk {walks:?}: {:?}", walk.err());
                let cached = vfs.walk_cached(&caller, root, b"dir/target", WalkOptions::FOLLOW);
                assert!(!matches!(cached, Some(Err(Error::NotFound))), "walk_cached");
                let many = vfs.walk_many(&caller, root, &["dir/target"; 2], WalkOptions::FOLLOW);
                assert!(many.iter().all(Result::is_ok), "walk_many");
                assert!(vfs.lookup(&caller, &dir, b"target").unwrap().is_some(), "lookup");
                walks.fetch_add(1, Ordering::Relaxed);
            }
        });
    });
    println!("{TURNS} renames, {} rounds of lookups", walks.into_inner());
}
