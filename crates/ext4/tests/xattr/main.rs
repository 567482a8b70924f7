//! Extended attributes on every kind of image.

#[path = "../common/mod.rs"]
mod common;

mod xattr_mixed;
mod xattrs;
