//! Opening, and what is told of the whole file system.
#![no_main]

use dentree_vfs::FileSystem;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Some(fs) = dentree_fuzz::open(data, |_| true) {
        let _ = fs.statfs();
        let _ = fs.load(fs.root());
        for notice in fs.notices() {
            assert!(!notice.to_string().is_empty());
        }
    }
});
