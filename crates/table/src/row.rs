//! A name in an image, and what was read of it.

use dentree_vfs::{Attr, FileType, Ino, Timestamp};
use std::sync::Arc;

/// A name in an image.
#[derive(Clone, Debug)]
pub struct Row {
    pub(crate) image: Arc<str>,
    pub(crate) path: Vec<u8>,
    pub(crate) ino: Ino,
    pub(crate) kind: FileType,
    pub(crate) attr: Option<Attr>,
    pub(crate) stamp: Option<Stamp>,
    pub(crate) target: Option<Vec<u8>>,
    pub(crate) xattrs: Option<Vec<(Vec<u8>, Vec<u8>)>>,
    pub(crate) extents: Option<Vec<RowExtent>>,
    pub(crate) sha256: Option<[u8; 32]>,
}

/// A run of content, as FIEMAP of Linux has it: in bytes, `physical` from the file system's start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RowExtent {
    pub(crate) logical: u64,
    pub(crate) physical: u64,
    pub(crate) length: u64,
    pub(crate) flags: u32,
}

impl Row {
    /// A row of the name at `path`; [`Reader::read`](crate::Reader::read) completes it. Without
    /// `attr`, which damage takes away, the columns of the inode are null.
    pub fn new(image: Arc<str>, path: Vec<u8>, ino: Ino, kind: FileType, attr: Option<Attr>) -> Self {
        Row {
            image,
            path,
            ino,
            kind,
            attr,
            stamp: None,
            target: None,
            xattrs: None,
            extents: None,
            sha256: None,
        }
    }

    /// From the image's root on.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// The name alone; of the root, `/`.
    pub(crate) fn name(&self) -> &[u8] {
        let name = self.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        if name.is_empty() { b"/" } else { name }
    }

    /// The memory that it takes, about.
    pub fn bytes(&self) -> usize {
        let xattrs = self.xattrs.iter().flatten().map(|(name, value)| name.len() + value.len());
        let extents = self.extents.as_ref().map_or(0, |extents| extents.len() * size_of::<RowExtent>());
        size_of::<Row>() + self.path.len() + xattrs.sum::<usize>() + extents
    }

    /// A row for each time stamp of the inode, the earliest first.
    pub fn stamps(&self) -> Vec<Row> {
        let Some(attr) = &self.attr else { return Vec::new() };
        let times = [
            (Stamp::Modified, Some(attr.mtime)),
            (Stamp::Accessed, Some(attr.atime)),
            (Stamp::Changed, Some(attr.ctime)),
            (Stamp::Born, attr.crtime),
        ];
        let stamps = times.into_iter().filter(|(_, time)| time.is_some()).map(|(stamp, _)| stamp);
        let mut rows: Vec<Row> = stamps.map(|stamp| Row { stamp: Some(stamp), ..self.clone() }).collect();
        rows.sort_by_key(Row::time);
        rows
    }

    /// The time of its stamp.
    pub(crate) fn time(&self) -> Option<Timestamp> {
        let attr = self.attr.as_ref()?;
        match self.stamp? {
            Stamp::Modified => Some(attr.mtime),
            Stamp::Accessed => Some(attr.atime),
            Stamp::Changed => Some(attr.ctime),
            Stamp::Born => attr.crtime,
        }
    }
}

/// Which of an inode's times a row of a timeline is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stamp {
    /// Last change of content.
    Modified,
    /// Last access.
    Accessed,
    /// Last change of the inode.
    Changed,
    /// Creation.
    Born,
}

impl Stamp {
    /// Its letter as of mactime(1).
    pub(crate) fn letter(self) -> &'static str {
        match self {
            Stamp::Modified => "m",
            Stamp::Accessed => "a",
            Stamp::Changed => "c",
            Stamp::Born => "b",
        }
    }
}
