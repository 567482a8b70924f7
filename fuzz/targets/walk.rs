//! Paths: links, `..`, long names, indexed and folded directories.
#![no_main]

use dentree_vfs::{Budgets, Identity, Vfs, WalkOptions};

/// Caches that a few walks overflow, and that are made quickly.
const BUDGETS: Budgets = Budgets { names: 64 << 10, inodes: 64 << 10 };

/// Paths of the images' common tree, and some that are not there.
const PATHS: &[&[u8]] = &[
    b"/hello",
    b"/a/hard",
    b"/fast",
    b"/slow",
    b"/a/b/../b/c/d/../../../../large/",
    b"/null",
    b"/HELLO",
    b"/absent/x",
    b"/dir/file-3-10",
    b"/large/                                      60",
    b"/large/                                      99",
    b"/lost+found/..",
];

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some(fs) = dentree_fuzz::open(data, |_| true) else { return };
    let Ok(vfs) = Vfs::with_budgets(fs, BUDGETS) else { return };
    let wide = format!("/large/{:220}", 300);
    for path in PATHS.iter().copied().chain([wide.as_bytes()]) {
        for options in [WalkOptions::FOLLOW, WalkOptions { beneath: true, ..WalkOptions::KEEP_LINK }] {
            let _ = vfs.walk(&Identity::Superuser, vfs.root(), path, options);
        }
    }
});
