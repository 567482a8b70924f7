//! The comparison of two trees, directory by directory, on a pool of threads.

use super::difference::{Change, Difference};
use crate::any_tree::{Source, Version};
use crate::fanout::Emit;
use crate::path::join;
use crate::tree::{Entry, Listing};
use dentree_vfs::FileType;
use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

pub(super) struct Comparison<'a, A, B> {
    pub(super) old: &'a A,
    pub(super) new: &'a B,
    /// Files of equal size and modification time have equal content.
    pub(super) is_quick: bool,
}

pub(super) enum Job<A, B> {
    /// Two files, the roots.
    Files(A, B),
    /// Directories of the same path.
    Directories { old: Arc<A>, new: Arc<B>, path: Vec<u8> },
    /// Some of the names that two directories have in common.
    Common(Arc<Directories<A, B>>, Range<usize>),
    /// A directory that only the old tree has.
    Removed(Arc<A>, Vec<u8>),
    /// A directory that only the new tree has.
    Added(Arc<B>, Vec<u8>),
}

/// Two listed directories of the same path.
pub(super) struct Directories<A, B> {
    old: (Arc<A>, Listing),
    new: (Arc<B>, Listing),
    path: Vec<u8>,
    /// Indices of equal names.
    common: Vec<(usize, usize)>,
}

type Out<'a, A, B> = Emit<'a, Job<<A as Source>::File, <B as Source>::File>, Difference>;

impl<A: Source, B: Source> Comparison<'_, A, B> {
    /// Whether the trees are in two states of one file system.
    pub(super) fn is_one_file_system(&self) -> bool {
        self.old.uuid().is_some_and(|uuid| uuid != [0; 16] && self.new.uuid() == Some(uuid))
    }

    pub(super) fn work(&self, job: Job<A::File, B::File>, emit: &mut Out<'_, A, B>) {
        match job {
            Job::Files(old, new) => self.files(old, new, b".".to_vec(), emit),
            Job::Directories { old, new, path } => self.directories(old, new, path, emit),
            Job::Common(dirs, range) => {
                for &(in_old, in_new) in &dirs.common[range] {
                    let path = join(&dirs.path, dirs.old.1.get(in_old).name);
                    let old = self.old.open(&dirs.old.0, dirs.old.1.get(in_old), &path);
                    let new = self.new.open(&dirs.new.0, dirs.new.1.get(in_new), &path);
                    if let (Some(old), Some(new)) = (old, new) {
                        self.files(old, new, path, emit);
                    }
                }
            }
            Job::Removed(dir, path) => {
                let listing = self.old.list(&dir, &path);
                listing.iter().for_each(|entry| self.removed(&dir, entry, &path, emit));
            }
            Job::Added(dir, path) => {
                let listing = self.new.list(&dir, &path);
                listing.iter().for_each(|entry| self.added(&dir, entry, &path, emit));
            }
        }
    }

    /// Lists two directories and merges their names.
    fn directories(&self, old: Arc<A::File>, new: Arc<B::File>, path: Vec<u8>, emit: &mut Out<'_, A, B>) {
        let (mut olds, mut news) = (self.old.list(&old, &path), self.new.list(&new, &path));
        olds.sort_by_name();
        news.sort_by_name();
        let mut common = Vec::new();
        let (mut a, mut b) = (0, 0);
        while a < olds.len() || b < news.len() {
            let order = match (a < olds.len(), b < news.len()) {
                (true, true) => olds.get(a).name.cmp(news.get(b).name),
                (has_old, _) => {
                    if has_old {
                        Ordering::Less
                    } else {
                        Ordering::Greater
                    }
                }
            };
            match order {
                Ordering::Less => self.removed(&old, olds.get(a), &path, emit),
                Ordering::Greater => self.added(&new, news.get(b), &path, emit),
                Ordering::Equal => common.push((a, b)),
            }
            a += usize::from(order.is_le());
            b += usize::from(order.is_ge());
        }
        let parts: Vec<_> = self.old.width().of_both(self.new.width()).parts(common.len()).collect();
        let dirs = Arc::new(Directories { old: (old, olds), new: (new, news), path, common });
        parts.into_iter().for_each(|part| emit.spawn(Job::Common(dirs.clone(), part)));
    }

    /// Two files of the same path.
    fn files(&self, old: A::File, new: B::File, path: Vec<u8>, emit: &mut Out<'_, A, B>) {
        let changes = self.changes(&old, &new, &path);
        self.new.progress().add(1, 0);
        if !changes.is_empty() {
            emit.put(Difference::new(path.clone(), Change::Changed(changes)));
        }
        let is_dir = |kind| kind == FileType::Directory;
        match (is_dir(self.old.facts(&old).kind), is_dir(self.new.facts(&new).kind)) {
            (true, true) => {
                emit.spawn(Job::Directories { old: Arc::new(old), new: Arc::new(new), path });
            }
            (true, false) => emit.spawn(Job::Removed(Arc::new(old), path)),
            (false, true) => emit.spawn(Job::Added(Arc::new(new), path)),
            (false, false) => {}
        }
    }

    fn removed(&self, dir: &Arc<A::File>, entry: Entry<'_>, path: &[u8], emit: &mut Out<'_, A, B>) {
        let path = join(path, entry.name);
        let (version, dir) = self.only(self.old, dir, entry, &path);
        emit.put(Difference { version, ..Difference::new(path.clone(), Change::Removed) });
        if let Some(dir) = dir {
            emit.spawn(Job::Removed(Arc::new(dir), path));
        }
    }

    fn added(&self, dir: &Arc<B::File>, entry: Entry<'_>, path: &[u8], emit: &mut Out<'_, A, B>) {
        let path = join(path, entry.name);
        let (version, dir) = self.only(self.new, dir, entry, &path);
        emit.put(Difference { version, ..Difference::new(path.clone(), Change::Added) });
        if let Some(dir) = dir {
            emit.spawn(Job::Added(Arc::new(dir), path));
        }
    }

    /// Of an entry that only one tree has: its version where moves can be found, and the entry
    /// itself if it is a directory.
    fn only<S: Source>(
        &self,
        tree: &S,
        dir: &Arc<S::File>,
        entry: Entry<'_>,
        path: &[u8],
    ) -> (Option<Version>, Option<S::File>) {
        let is_dir = entry.kind == Some(FileType::Directory);
        if !is_dir && !self.is_one_file_system() {
            return (None, None);
        }
        let file = tree.open(dir, entry, path);
        (file.as_ref().and_then(|file| tree.version(file)), file.filter(|_| is_dir))
    }

    /// What differs between two files.
    pub(super) fn changes(&self, old: &A::File, new: &B::File, path: &[u8]) -> Vec<&'static str> {
        let (a, b) = (self.old.facts(old), self.new.facts(new));
        if a.kind != b.kind {
            return vec!["type"];
        }
        if self.is_one_file_system() && self.old.version(old) == self.new.version(new) && a.size == b.size {
            return Vec::new();
        }
        let mut changes = Vec::new();
        let mut note = |differs: bool, what| changes.extend(differs.then_some(what));
        note(a.permissions != b.permissions, "mode");
        note((a.uid, a.gid) != (b.uid, b.gid), "owner");
        match a.kind {
            FileType::Regular if a.size != b.size => note(true, "content"),
            FileType::Regular if self.is_quick => note(a.mtime != b.mtime, "content"),
            FileType::Regular => {
                note(differ(self.old.content(old, path), self.new.content(new, path)), "content");
            }
            FileType::Symlink => {
                note(differ(self.old.target(old, path), self.new.target(new, path)), "target");
            }
            FileType::BlockDevice | FileType::CharDevice => note(a.rdev != b.rdev, "device"),
            _ => {}
        }
        let sorted = |xattrs: Option<Vec<_>>| {
            xattrs.map(|mut xattrs| {
                xattrs.sort_unstable();
                xattrs
            })
        };
        note(differ(sorted(self.old.xattrs(old, path)), sorted(self.new.xattrs(new, path))), "xattrs");
        changes
    }
}

/// Whether two values differ; what could not be read was reported.
fn differ<T: PartialEq>(old: Option<T>, new: Option<T>) -> bool {
    old.zip(new).is_some_and(|(old, new)| old != new)
}
