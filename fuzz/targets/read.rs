//! Content: reading pieces of files, walking their extents, targets of links.
#![no_main]

use dentree_fuzz::damage::visit::{self, Findings};
use dentree_vfs::{FileSystem, FileType};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some(fs) = dentree_fuzz::open(data, |_| true) else { return };
    dentree_fuzz::each_inode(&fs, |node| match fs.attr(node).kind {
        FileType::Regular => visit::file(&fs, node, &mut Findings::default()),
        FileType::Symlink => drop(fs.readlink(node)),
        _ => {}
    });
});
