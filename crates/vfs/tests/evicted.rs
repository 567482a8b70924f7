//! Directories with evicted dentries and referenced inodes.

mod common;

use common::{Line, MemFs, dir, file};
use dentree_vfs::{Budgets, Identity, Vfs, WalkOptions};
use std::sync::atomic::Ordering;

#[test]
fn a_walk_starts_in_a_directory_whose_dentry_was_evicted() {
    let leak = |text: String| -> &'static str { text.leak() };
    let mut lines: Vec<Line> = vec![dir("a"), dir("a/b"), dir("a/b/c"), file("a/b/c/f")];
    lines.extend((0..3000).map(|number| file(leak(format!("f{number}")))));
    let vfs = Vfs::with_budgets(MemFs::new(&lines), Budgets { names: 0, inodes: 1 << 20 }).unwrap();
    let caller = Identity::Superuser;
    let deep = vfs.walk(&caller, vfs.root(), b"a/b/c", WalkOptions::FOLLOW).unwrap();
    let file = vfs.walk(&caller, &deep, b"f", WalkOptions::FOLLOW).unwrap();
    for round in 0..3 {
        for number in 0..3000 {
            vfs.walk(&caller, vfs.root(), format!("f{number}").as_bytes(), WalkOptions::FOLLOW).unwrap();
        }
        assert!(vfs.stats().names.evicted > 0, "the budget is too large for this test");
        let asked = vfs.fs().lookups.load(Ordering::Relaxed);
        let again = vfs.walk(&caller, &deep, b"../c/f", WalkOptions::FOLLOW).unwrap();
        assert_eq!(again.ino(), file.ino());
        assert!(vfs.fs().lookups.load(Ordering::Relaxed) > asked, "round {round}: nothing had been evicted");
        let found = vfs.lookup(&caller, &deep, b"f").unwrap().expect("it is there");
        assert_eq!(found.ino(), file.ino());
    }
}
