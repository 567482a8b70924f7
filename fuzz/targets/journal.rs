//! Journals that need recovery: replay in memory, then everything there is.
#![no_main]

use dentree_fuzz::damage::visit;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Some(fs) = dentree_fuzz::open(data, |name| name.starts_with("journal")) {
        visit::everything(&fs);
    }
});
