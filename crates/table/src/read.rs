//! What columns ask of an inode beyond its attributes.

use crate::columns::{Columns, Source};
use crate::row::{Row, RowExtent};
use dentree_ext4::{Ext4, FileExtent};
use dentree_sync::Mutex;
use dentree_vfs::{Error, FileType, Ino, Result, Vfs};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::sync::Arc;

/// Bytes of a file that are hashed at a time.
const PIECE: usize = 1 << 20;

/// An image and an inode of it.
type InImage = (Arc<str>, Ino);

/// Completes rows by what their columns need. One is shared by all threads of a search.
pub struct Reader {
    columns: Columns,
    /// Digests of inodes with several names.
    digests: Mutex<HashMap<InImage, Option<[u8; 32]>>>,
}

impl Reader {
    /// Reads what `columns` need.
    pub fn new(columns: Columns) -> Self {
        Reader { columns, digests: Mutex::default() }
    }

    /// Reads what `row` lacks. A part that cannot be read is told to `problem`, and is null.
    pub fn read(&self, vfs: &Vfs<Ext4>, row: &mut Row, problem: &mut dyn FnMut(Error)) {
        if self.columns.needs(Source::Target) && row.kind == FileType::Symlink {
            row.target = vfs.inode(row.ino).and_then(|node| vfs.readlink(&node)).map_err(&mut *problem).ok();
        }
        if self.columns.needs(Source::Xattrs) {
            row.xattrs = xattrs(vfs, row).map_err(&mut *problem).ok();
        }
        if self.columns.needs(Source::Extents) {
            row.extents = extents(vfs, row).map_err(&mut *problem).ok();
        }
        if self.columns.needs(Source::Digest) && row.kind == FileType::Regular {
            row.sha256 = self.digest(vfs, row, problem);
        }
    }

    /// The digest of the content; an inode with several names is hashed once, as a rule.
    fn digest(&self, vfs: &Vfs<Ext4>, row: &Row, problem: &mut dyn FnMut(Error)) -> Option<[u8; 32]> {
        let is_shared = row.attr.is_some_and(|attr| attr.nlink > 1);
        let key = (row.image.clone(), row.ino);
        if is_shared && let Some(known) = self.digests.lock().get(&key) {
            return *known;
        }
        let digest = sha256(vfs, row).map_err(problem).ok();
        if is_shared {
            self.digests.lock().insert(key, digest);
        }
        digest
    }
}

fn xattrs(vfs: &Vfs<Ext4>, row: &Row) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let node = vfs.inode(row.ino)?;
    let names = vfs.listxattr(&node)?.into_iter();
    names.map(|name| vfs.getxattr(&node, &name).map(|value| (name, value))).collect()
}

/// Flags of `linux/fiemap.h`.
const LAST: u32 = 0x1;
const NOT_ALIGNED: u32 = 0x100;
const DATA_INLINE: u32 = 0x200;
const UNWRITTEN: u32 = 0x800;
const MERGED: u32 = 0x1000;

fn extents(vfs: &Vfs<Ext4>, row: &Row) -> Result<Vec<RowExtent>> {
    let (node, fs) = (vfs.inode(row.ino)?, vfs.fs());
    if let Some(physical) = fs.inline_place(node.node())? {
        let flags = LAST | NOT_ALIGNED | DATA_INLINE;
        return Ok(vec![RowExtent { logical: 0, physical, length: node.attr().size, flags }]);
    }
    let block = u64::from(fs.superblock().block_size.bytes());
    // What pointers map has no extents of its own.
    let all = if fs.has_extents(node.node()) { 0 } else { MERGED };
    let extent = |FileExtent { logical, start, len, is_unwritten }| RowExtent {
        logical: logical * block,
        physical: start.0 * block,
        length: len * block,
        flags: all | if is_unwritten { UNWRITTEN } else { 0 },
    };
    let mut extents: Vec<_> = fs.file_extents(node.node())?.into_iter().map(extent).collect();
    if let Some(last) = extents.last_mut() {
        last.flags |= LAST;
    }
    Ok(extents)
}

fn sha256(vfs: &Vfs<Ext4>, row: &Row) -> Result<[u8; 32]> {
    let (node, mut hasher, mut offset) = (vfs.inode(row.ino)?, Sha256::new(), 0);
    let mut buf = vec![0; PIECE];
    loop {
        match vfs.read(&node, offset, &mut buf)? {
            0 => return Ok(hasher.finalize().into()),
            read => {
                hasher.update(&buf[..read]);
                offset += read as u64;
            }
        }
    }
}
