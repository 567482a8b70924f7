//! Positions in a directory that no listing returned: `seekdir(3)` takes any number.
//!
//! The bug (`xfstests` generic/676): a listing by hash took a small one for a byte offset and
//! ended.

use crate::common::Image;
use crate::common::writing::Dice;
use crate::tree::{KINDS, Node, Tree};
use dentree_vfs::ReaddirStart;
use std::ops::ControlFlow;

fn listed(tree: &Tree, dir: &Node, start: ReaddirStart) -> Vec<u64> {
    let mut cookies = Vec::new();
    let each = &mut |entry: dentree_vfs::DirEntry<'_>| {
        cookies.push(entry.cookie);
        ControlFlow::Continue(())
    };
    tree.vfs.readdir(&tree.who, dir, start, each).unwrap();
    cookies
}

#[test]
fn a_listing_from_any_position_returns_the_names_after_it() {
    for (options, size) in KINDS {
        let image = Image::new(options, size, |_| ());
        let tree = Tree::open(&image);
        for count in [1, 30, 700] {
            let path = format!("of {count}");
            let dir = tree.dir(&path);
            (0..count).for_each(|n| drop(tree.file(&format!("{path}/a name with number {n}"))));
            let all = listed(&tree, &dir, ReaddirStart::First);
            assert_eq!(all.len(), count);
            assert!(all.is_sorted(), "{options}: {count}");
            let (last, mut dice) = (all[count - 1], Dice(7));
            let random = (0..200).map(|n| dice.roll(usize::MAX) as u64 >> (n % 50) as u32);
            for position in random.chain([0, 1, 12, 4096, last - 1, last, last + 1]) {
                let behind: Vec<u64> = all.iter().copied().filter(|&cookie| cookie > position).collect();
                let mut found = listed(&tree, &dir, ReaddirStart::After(position));
                // A byte offset inside an entry skips it.
                if !options.contains("^dir_index") || all.contains(&position) {
                    assert_eq!(found, behind, "{options}: {count} names, from {position:#x}");
                } else {
                    found.extend(behind.first());
                    assert!(behind.iter().all(|cookie| found.contains(cookie)), "{options}: {position:#x}");
                }
            }
        }
        tree.close();
    }
}
