//! The names below a directory that a search finds, a directory at a time.

use crate::find::Search;
use dentree_ext4::Ext4;
use dentree_find::{Candidate, FoundAt, Named, Problems};
use dentree_vfs::{Attr, Error, FileType, Identity, Ino, Inode, Result, Vfs};
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What could not be read: path and reason.
#[derive(Default)]
pub(crate) struct Noted(Mutex<Vec<(String, String)>>);

impl Noted {
    fn all(&self) -> MutexGuard<'_, Vec<(String, String)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn list(&self) -> Vec<(String, String)> {
        self.all().clone()
    }

    pub(crate) fn take(&self) -> Vec<(String, String)> {
        std::mem::take(&mut self.all())
    }
}

impl Problems for Noted {
    fn problem(&self, path: &[u8], error: &Error) {
        self.all().push((String::from_utf8_lossy(path).into_owned(), error.to_string()));
    }
}

/// A name that was found.
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
    search: Search,
    start: Vec<u8>,
    /// Directories to enter, and the level of their entries.
    left: Vec<(Vec<u8>, Ino, u32)>,
    entered: HashSet<Ino>,
    with_attr: bool,
}

impl Tree {
    /// What `search` finds below `top`, a directory at `path`.
    pub(crate) fn new(path: Vec<u8>, top: Ino, search: Search, with_attr: bool) -> Self {
        let left = if *search.depth.end() > 0 { vec![(path.clone(), top, 1)] } else { Vec::new() };
        Tree { search, start: path, left, entered: HashSet::new(), with_attr }
    }

    /// `top` itself at `path`, if the search finds it, and what is below, if it is a directory.
    pub(crate) fn with_top(
        vfs: &Vfs<Ext4>,
        path: Vec<u8>,
        top: &Inode<Ext4>,
        search: Search,
        problems: &dyn Problems,
    ) -> (Option<Entry>, Self) {
        let mut tree = Tree::new(path, top.ino(), search, false);
        let path = tree.start.clone();
        let name = path.rsplit(|byte| *byte == b'/').next().filter(|name| !name.is_empty()).unwrap_or(b"/");
        let place =
            FoundAt { vfs, problems, dir: &path, parent: None, start: &tree.start, depth: 0, follows: false };
        let named = Named { name, ino: top.ino(), kind: Some(top.kind()) };
        let (entry, enters) = tree.judge(place, named);
        if !enters {
            tree.left.clear();
        }
        (entry, tree)
    }

    /// What is found in the next directory; `None` after the last. What is damaged goes to
    /// `problems`, and is left out.
    pub(crate) fn next(&mut self, vfs: &Vfs<Ext4>, problems: &dyn Problems) -> Option<Vec<Entry>> {
        let (path, ino, depth) = loop {
            let next = self.left.pop()?;
            if self.entered.insert(next.1) {
                break next;
            }
        };
        let listed = list(vfs, ino, &mut |error| problems.problem(&path, &error)).unwrap_or_else(|error| {
            problems.problem(&path, &error);
            Vec::new()
        });
        let place = FoundAt {
            vfs,
            problems,
            dir: &path,
            parent: Some(ino),
            start: &self.start,
            depth,
            follows: false,
        };
        vfs.prefetch_inodes(listed.iter().filter(|one| self.needs_inode(place, named(one))).map(|one| one.1));
        let (mut found, mut below) = (Vec::new(), Vec::new());
        for one in &listed {
            let (entry, enters) = self.judge(place, named(one));
            if enters && depth < *self.search.depth.end() {
                below.push((join(&path, &one.0), one.1, depth + 1));
            }
            found.extend(entry);
        }
        self.left.extend(below.into_iter().rev());
        Some(found)
    }

    fn needs_inode(&self, place: FoundAt<'_, Ext4>, entry: Named<'_>) -> bool {
        entry.kind.is_none()
            || self.search.depth.contains(&place.depth)
                && self.search.expression.peek(place, entry).is_none_or(|holds| holds && self.with_attr)
    }

    /// The entry, if the search finds it, and whether it is a directory to enter.
    fn judge(&self, place: FoundAt<'_, Ext4>, named: Named<'_>) -> (Option<Entry>, bool) {
        let (file, mut pruned) = (Candidate::new(place, named), false);
        let mut prune = |_: &crate::find::Prune| {
            pruned = true;
            Some(true)
        };
        let finds = self.search.depth.contains(&place.depth)
            && self.search.expression.evaluate(&file, &mut prune) == Some(true);
        let Some(kind) = file.kind() else { return (None, false) };
        let enters = kind == FileType::Directory && !pruned;
        if !finds {
            return (None, enters);
        }
        let attr = if self.with_attr { file.attr().copied() } else { None };
        if self.with_attr && attr.is_none() {
            return (None, false);
        }
        let kind = attr.map_or(kind, |attr| attr.kind);
        (Some(Entry { path: file.into_path(), ino: named.ino, kind, attr }), enters)
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

fn named((name, ino, kind): &Listed) -> Named<'_> {
    Named { name, ino: *ino, kind: *kind }
}

fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if dir.ends_with(b"/") { b"" } else { b"/" };
    [dir, slash, name].concat()
}
