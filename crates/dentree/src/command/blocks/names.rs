//! The names of inodes.

use crate::fanout::{self, Order};
use crate::image::Image;
use crate::path::join;
use crate::report::Report;
use crate::tree::Tree;
use dentree_vfs::{FileType, Ino};
use std::collections::{BTreeMap, HashSet};
use std::ops::ControlFlow;

/// All names of the wanted inodes, sorted, by a walk of all directories. Damage goes to `report`.
pub(crate) fn names(image: &Image, wanted: &HashSet<u32>, report: &Report) -> BTreeMap<u32, Vec<Vec<u8>>> {
    let mut found = BTreeMap::<u32, Vec<Vec<u8>>>::new();
    if wanted.is_empty() {
        return found;
    }
    let tree = Tree::new(image, report);
    let is_wanted = |ino: Ino| u32::try_from(ino.0).ok().filter(|ino| wanted.contains(ino));
    let root = image.vfs.root().ino();
    if let Some(ino) = is_wanted(root) {
        found.insert(ino, vec![b"/".to_vec()]);
    }
    fanout::run(
        image.width().threads,
        Order::AsReady,
        vec![(root, Vec::new())],
        |(ino, path): (Ino, Vec<u8>), emit| {
            let Some(dir) = tree.inode(ino, &path) else { return };
            for entry in tree.list(&dir, &path).iter() {
                let below = join(&path, entry.name);
                if let Some(ino) = is_wanted(entry.ino) {
                    emit.put((ino, below.clone()));
                }
                if tree.kind(entry, &below) == Some(FileType::Directory) {
                    emit.spawn((entry.ino, below));
                }
            }
        },
        |(ino, path)| {
            found.entry(ino).or_default().push(path);
            ControlFlow::Continue(())
        },
    );
    found.values_mut().for_each(|paths| paths.sort_unstable());
    found
}
