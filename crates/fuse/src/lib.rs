//! FUSE adapter over vfs.
#![forbid(unsafe_code)]
