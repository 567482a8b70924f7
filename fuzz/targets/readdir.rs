//! Directories: listing, going on from the middle, look-ups of each name.
#![no_main]

use dentree_fuzz::damage::visit::{self, Findings};
use dentree_vfs::FileSystem;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some(fs) = dentree_fuzz::open(data, |_| true) else { return };
    dentree_fuzz::each_inode(&fs, |node| {
        if fs.attr(node).is_dir() {
            visit::directory(&fs, node, &mut Findings::default());
        }
    });
});
