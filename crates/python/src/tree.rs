//! All names below a directory, a directory at a time.

use dentree_ext4::Ext4;
use dentree_vfs::{Attr, Error, FileType, Identity, Ino, Result, Vfs};
use std::collections::HashSet;
use std::ops::ControlFlow;

/// A name below the top.
pub(crate) struct Entry {
    /// From the image's root on.
    pub(crate) path: Vec<u8>,
    pub(crate) ino: Ino,
    pub(crate) kind: FileType,
    /// Where it was asked for.
    pub(crate) attr: Option<Attr>,
}

/// Depth first. A directory that several names link to, which only damage makes, is entered once.
pub(crate) struct Tree {
    /// Directories, and how many levels of them are wanted.
    left: Vec<(Vec<u8>, Ino, u32)>,
    entered: HashSet<Ino>,
    with_attr: bool,
}

impl Tree {
    /// As many levels as `depth` says.
    pub(crate) fn new(path: Vec<u8>, top: Ino, depth: u32, with_attr: bool) -> Self {
        Tree { left: vec![(path, top, depth)], entered: HashSet::new(), with_attr }
    }

    /// The entries of the next directory; `None` after the last. What is damaged is told to
    /// `damaged` with its path, and left out.
    pub(crate) fn next(
        &mut self,
        vfs: &Vfs<Ext4>,
        damaged: &mut dyn FnMut(&[u8], Error),
    ) -> Option<Vec<Entry>> {
        let (path, ino, depth) = loop {
            let next = self.left.pop()?;
            if self.entered.insert(next.1) {
                break next;
            }
        };
        let listed = list(vfs, ino, &mut |error| damaged(&path, error)).unwrap_or_else(|error| {
            damaged(&path, error);
            Vec::new()
        });
        if self.with_attr {
            vfs.prefetch_inodes(listed.iter().map(|(_, ino, _)| *ino));
        }
        let mut entries = Vec::with_capacity(listed.len());
        for (name, ino, kind) in listed {
            let path = join(&path, &name);
            let attr = match kind {
                Some(_) if !self.with_attr => Ok(None),
                _ => vfs.attr(ino).map(Some),
            };
            match attr {
                Ok(attr) => {
                    let kind = attr.map_or(kind, |attr| Some(attr.kind)).unwrap_or(FileType::Regular);
                    entries.push(Entry { path, ino, kind, attr });
                }
                Err(error) => damaged(&path, error),
            }
        }
        if let Some(depth @ 1..) = depth.checked_sub(1) {
            let below = entries.iter().rev().filter(|entry| entry.kind == FileType::Directory);
            self.left.extend(below.map(|dir| (dir.path.clone(), dir.ino, depth)));
        }
        Some(entries)
    }
}

/// Name, inode and recorded type.
pub(crate) type Listed = (Vec<u8>, Ino, Option<FileType>);

/// The entries of a directory.
pub(crate) fn list(vfs: &Vfs<Ext4>, dir: Ino, damaged: &mut dyn FnMut(Error)) -> Result<Vec<Listed>> {
    let dir = vfs.inode(dir)?;
    let mut entries = Vec::new();
    let mut each = |entry: dentree_vfs::DirEntry<'_>| {
        entries.push((entry.name.to_vec(), entry.ino, entry.kind));
        ControlFlow::Continue(())
    };
    vfs.readdir_past_damage(&Identity::Superuser, &dir, &mut each, damaged)?;
    Ok(entries)
}

pub(crate) fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if dir.ends_with(b"/") { b"" } else { b"/" };
    [dir, slash, name].concat()
}
