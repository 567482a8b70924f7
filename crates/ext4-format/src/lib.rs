//! The ext4 on-disk structures, checksums and hashes: pure, no I/O.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]
