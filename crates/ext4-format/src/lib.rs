//! The ext4 on-disk structures, checksums and hashes: pure, no I/O.
#![forbid(unsafe_code)]

pub mod casefold;
pub mod hash;
