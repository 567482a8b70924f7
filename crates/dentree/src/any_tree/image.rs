//! A tree in an image.

use super::digest::Content;
use super::{Facts, Source, Version};
use crate::fanout::Width;
use crate::image::{Image, Location, Node};
use crate::progress::Progress;
use crate::report::Report;
use crate::tree::{Entry, Listing, Tree};
use dentree_vfs::{Error, Extent, Ino, Result};
use std::sync::Arc;

pub(crate) struct InImage<'a> {
    tree: Tree<'a>,
    base: Vec<u8>,
    progress: &'a Progress,
}

impl<'a> InImage<'a> {
    pub(crate) fn new(report: &'a Report, at: &'a Location, progress: &'a Progress) -> Self {
        let base = if at.path == b"/" { Vec::new() } else { at.path.clone() };
        InImage { tree: Tree::new(&at.image, report), base, progress }
    }

    fn image(&self) -> &Image {
        self.tree.image
    }

    /// The path in the image of `./x` in the tree.
    fn path(&self, path: &[u8]) -> Vec<u8> {
        let path = [&self.base, path.strip_prefix(b".").unwrap_or(path)].concat();
        if path.is_empty() { b"/".to_vec() } else { path }
    }

    fn or_report<T>(&self, path: &[u8], result: Result<T>) -> Option<T> {
        result.map_err(|error| self.tree.problem(&self.path(path), &error)).ok()
    }

    fn read_xattrs(&self, file: &Node) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let names = self.image().vfs.listxattr(file)?;
        let pair = |name: Vec<u8>| self.image().vfs.getxattr(file, &name).map(|value| (name, value));
        names.into_iter().map(pair).collect()
    }

    fn read_content(&self, file: &Node) -> Result<blake3::Hash> {
        let vfs = &self.image().vfs;
        let mut content = Content::new();
        let mut offset = 0;
        loop {
            offset = match vfs.extent(file, offset) {
                Ok(Extent::Hole(end)) => end,
                Ok(Extent::Data(end)) => {
                    content.data(offset, end, |offset, buf| {
                        let len = vfs.read(file, offset, buf)?;
                        self.progress.add(0, len as u64);
                        Ok::<_, Error>(len)
                    })?;
                    end
                }
                Err(Error::NoExtent) => return Ok(content.finish()),
                Err(error) => return Err(error),
            };
        }
    }
}

impl Source for InImage<'_> {
    type File = Node;

    fn width(&self) -> Width {
        self.tree.image.width()
    }

    fn list(&self, dir: &Node, path: &[u8]) -> Listing {
        let path = self.path(path);
        let listing = self.tree.list(dir, &path);
        self.tree.prefetch_inodes(listing.iter());
        if listing.iter().all(|entry| entry.kind.is_some()) {
            return listing;
        }
        let mut typed = Listing::default();
        for entry in listing.iter() {
            typed.push(Entry { kind: self.tree.kind(entry, &crate::path::join(&path, entry.name)), ..entry });
        }
        typed
    }

    fn open(&self, _: &Arc<Node>, entry: Entry<'_>, path: &[u8]) -> Option<Node> {
        self.or_report(path, self.image().inode(entry.ino))
    }

    fn facts(&self, file: &Node) -> Facts {
        let attr = file.attr();
        Facts {
            kind: attr.kind,
            permissions: u32::from(attr.permissions),
            uid: attr.uid,
            gid: attr.gid,
            size: attr.size,
            mtime: attr.mtime,
            nlink: u64::from(attr.nlink),
            rdev: (attr.rdev_major, attr.rdev_minor),
        }
    }

    fn target(&self, file: &Node, path: &[u8]) -> Option<Vec<u8>> {
        self.or_report(path, self.image().vfs.readlink(file))
    }

    fn xattrs(&self, file: &Node, path: &[u8]) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
        self.or_report(path, self.read_xattrs(file))
    }

    fn content(&self, file: &Node, path: &[u8]) -> Option<blake3::Hash> {
        self.or_report(path, self.read_content(file))
    }

    fn uuid(&self) -> Option<[u8; 16]> {
        Some(self.image().vfs.fs().superblock().uuid)
    }

    fn version(&self, file: &Node) -> Option<Version> {
        let attr = file.attr();
        Some(Version { ino: attr.ino, generation: attr.generation, ctime: attr.ctime })
    }

    fn by_number(&self, ino: Ino, path: &[u8]) -> Option<Node> {
        self.or_report(path, self.image().inode(ino))
    }

    fn progress(&self) -> &Progress {
        self.progress
    }
}
