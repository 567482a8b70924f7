//! The ext4 file system: inodes, extents, directories, extended attributes.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]
