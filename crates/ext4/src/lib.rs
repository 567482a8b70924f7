//! The ext4 file system: inodes, extents, directories, extended attributes.
#![forbid(unsafe_code)]
