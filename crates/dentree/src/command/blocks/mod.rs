//! Questions about blocks: `dentree blocks`, `which`, `free` and `frag`.

pub(crate) mod extents;
pub(crate) mod frag;
pub(crate) mod free;
pub(crate) mod names;
pub(crate) mod which;

use crate::image::Image;
use crate::interrupt;
use dentree_ext4::{BlockNumber, GroupNumber, InodeNumber, Layout, Structure};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

/// What a block is, where it is metadata of fixed place.
pub(crate) fn fixed_use(layout: &Layout<'_>, block: u64) -> Option<String> {
    let structure = layout.system_use(BlockNumber(block))?;
    Some(match layout.inodes_at(BlockNumber(block)).filter(|_| structure == Structure::InodeTable) {
        Some(inodes) => format!("inode table (inodes {} to {})", inodes.start, inodes.end - 1),
        None => structure.to_string(),
    })
}

/// Calls `each` for all inodes in use, from several threads, until Ctrl-C. Groups whose bitmap
/// cannot be read are left out: `dentree check` tells of them.
fn each_inode(image: &Image, layout: &Layout<'_>, each: impl Fn(InodeNumber) + Sync) {
    let next = AtomicU32::new(0);
    let work = || {
        loop {
            let group = next.fetch_add(1, Ordering::Relaxed);
            if group >= layout.groups_count() || interrupt::has_come() {
                return;
            }
            layout.inodes_in_use(GroupNumber(group)).unwrap_or_default().into_iter().for_each(&each);
        }
    };
    thread::scope(|scope| {
        for _ in 0..image.width().threads {
            scope.spawn(work);
        }
    });
}
