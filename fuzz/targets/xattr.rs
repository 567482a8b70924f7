//! Extended attributes: in inodes, in blocks, in inodes of their own.
#![no_main]

use dentree_fuzz::damage::visit::{self, Findings};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some(fs) = dentree_fuzz::open(data, |_| true) else { return };
    dentree_fuzz::each_inode(&fs, |node| visit::attributes(&fs, node, &mut Findings::default()));
});
