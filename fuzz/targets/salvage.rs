//! Damaged images: salvage, and what check, undelete, blocks and journal call.
#![no_main]

use dentree_fuzz::damage::salvaged;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Some(device) = dentree_fuzz::device(data, |_| true) {
        salvaged::other_commands(device.clone());
        salvaged::everything(device);
    }
});
