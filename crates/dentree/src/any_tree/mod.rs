//! A tree to compare or sum up, in an image or in a local directory, read through one interface.

pub(crate) mod digest;
pub(crate) mod image;

use crate::fanout::Width;
use crate::progress::Progress;
use crate::tree::{Entry, Listing};
use dentree_vfs::{FileType, Ino, Timestamp};
use std::sync::Arc;

/// A tree. A call that fails reports the problem and returns what it has, or `None`.
pub(crate) trait Source: Sync {
    /// A file with its attributes.
    type File: Send + Sync;

    /// The entries of a directory, in any order, with their types.
    fn list(&self, dir: &Self::File, path: &[u8]) -> Listing;
    /// An entry of `dir`.
    fn open(&self, dir: &Arc<Self::File>, entry: Entry<'_>, path: &[u8]) -> Option<Self::File>;
    fn facts(&self, file: &Self::File) -> Facts;
    fn target(&self, file: &Self::File, path: &[u8]) -> Option<Vec<u8>>;
    fn xattrs(&self, file: &Self::File, path: &[u8]) -> Option<Vec<(Vec<u8>, Vec<u8>)>>;
    /// The digest of a regular file's content.
    fn content(&self, file: &Self::File, path: &[u8]) -> Option<blake3::Hash>;
    fn progress(&self) -> &Progress;

    /// How work that reads its contents is divided.
    fn width(&self) -> Width {
        Width::local()
    }

    /// The UUID of the image's file system; `None` in a local directory.
    fn uuid(&self) -> Option<[u8; 16]> {
        None
    }

    /// The inode's version; `None` in a local directory.
    fn version(&self, _: &Self::File) -> Option<Version> {
        None
    }

    /// An inode of the image by its number.
    fn by_number(&self, _: Ino, _path: &[u8]) -> Option<Self::File> {
        None
    }
}

/// The attributes of a file that do not depend on where it is stored.
pub(crate) struct Facts {
    pub(crate) kind: FileType,
    pub(crate) permissions: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) size: u64,
    pub(crate) mtime: Timestamp,
    pub(crate) nlink: u64,
    pub(crate) rdev: (u32, u32),
}

/// In two states of one file system, an inode with equal versions has not changed: any change sets
/// its change time, and a reused number has another generation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Version {
    pub(crate) ino: Ino,
    pub(crate) generation: u32,
    pub(crate) ctime: Timestamp,
}
