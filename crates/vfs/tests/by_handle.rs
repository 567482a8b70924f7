//! Lookups by number while numbers are reused.
//!
//! The bug: an inode loaded between the allocation of its number and its insertion into the cache
//! exists twice, and `create` reports corruption.

use dentree_vfs::{Budgets, Error, Identity, Ino, MemoryFs, NewKind, Vfs};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;

const ROUNDS: u32 = 30_000;
/// `MemoryFs` reuses a freed number at once.
const NUMBERS: u64 = 12;

#[test]
fn a_number_leads_to_its_only_inode_or_none_at_any_moment() {
    // A tiny cache: lookups have to load.
    let vfs = Vfs::with_budgets(MemoryFs::default(), Budgets { names: 1 << 20, inodes: 1 }).unwrap();
    let (caller, goes_on) = (Identity::Superuser, AtomicBool::new(true));
    let found = AtomicU64::new(0);
    thread::scope(|scope| {
        let makers: Vec<_> = (0..2)
            .map(|thread| {
                let (vfs, caller) = (&vfs, &caller);
                scope.spawn(move || {
                    let dir = format!("dir {thread}");
                    let dir =
                        vfs.create(caller, vfs.root(), dir.as_bytes(), NewKind::Directory, 0o755).unwrap();
                    for round in 0..ROUNDS {
                        if round % 7 == 0 {
                            vfs.create_unnamed(caller, &dir, 0o600).unwrap();
                        }
                        vfs.create(caller, &dir, b"file", NewKind::Regular, 0o644).unwrap();
                        vfs.unlink(caller, &dir, b"file").unwrap();
                    }
                })
            })
            .collect();
        for _ in 0..2 {
            scope.spawn(|| {
                for number in (3..3 + NUMBERS).cycle() {
                    match vfs.inode_by_handle(Ino(number)) {
                        Ok(inode) => {
                            assert_eq!((inode.ino(), inode.attr().ino), (Ino(number), Ino(number)));
                            found.fetch_add(1, Relaxed);
                        }
                        Err(Error::Stale) => {}
                        Err(error) => panic!("{number}: {error}"),
                    }
                    if !goes_on.load(Relaxed) {
                        return;
                    }
                }
            });
        }
        let ended: Vec<_> = makers.into_iter().map(|maker| maker.join()).collect();
        goes_on.store(false, Relaxed);
        ended.into_iter().for_each(|ended| ended.unwrap());
    });
    assert!(found.into_inner() > 0);
    assert_eq!(vfs.stats().inodes.unhashed, 0);
}
