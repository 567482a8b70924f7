//! Directories of an image as all commands traverse them: whole listings, reported damage, loop
//! detection. [`fanout`](crate::fanout) runs the traversal.

use crate::image::{Image, Node, SUPERUSER};
use crate::path::join;
use crate::report::{Problem, Report, Status};
pub(crate) use dentree_find::Named as Entry;
use dentree_find::Problems;
use dentree_sync::Mutex;
use dentree_vfs::{Attr, DirEntry, Error, FileType, Ino};
use std::collections::HashSet;
use std::ops::ControlFlow;

/// Damaged places reported per directory.
const MAX_DAMAGE_REPORTS: usize = 20;

/// The entries of a directory. Names share one buffer: two allocations per directory.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    names: Vec<u8>,
    entries: Vec<Listed>,
}

#[derive(Clone, Copy, Debug)]
struct Listed {
    ino: Ino,
    kind: Option<FileType>,
    start: usize,
    len: usize,
}

impl Listing {
    /// Empty; most directories fit without another allocation.
    fn with_room() -> Self {
        Listing { names: Vec::with_capacity(1024), entries: Vec::with_capacity(64) }
    }

    pub(crate) fn push(&mut self, entry: Entry<'_>) {
        let start = self.names.len();
        self.names.extend_from_slice(entry.name);
        self.entries.push(Listed { ino: entry.ino, kind: entry.kind, start, len: entry.name.len() });
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn get(&self, index: usize) -> Entry<'_> {
        show(&self.names, &self.entries[index])
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = Entry<'_>> + ExactSizeIterator {
        self.entries.iter().map(|listed| show(&self.names, listed))
    }

    /// Sorts by inode number: neighbours in the inode table are read together.
    pub(crate) fn sort_by_inode(&mut self) {
        self.entries.sort_unstable_by_key(|listed| listed.ino);
    }

    pub(crate) fn sort_by_name(&mut self) {
        let names = &self.names;
        self.entries.sort_unstable_by(|a, b| show(names, a).name.cmp(show(names, b).name));
    }
}

fn show<'a>(names: &'a [u8], listed: &Listed) -> Entry<'a> {
    Entry { name: &names[listed.start..listed.start + listed.len], ino: listed.ino, kind: listed.kind }
}

/// State of one command's traversal of one image.
pub(crate) struct Tree<'a> {
    pub(crate) image: &'a Image,
    pub(crate) report: &'a Report,
    /// Directories already listed.
    entered: Mutex<HashSet<Ino>>,
}

impl<'a> Tree<'a> {
    pub(crate) fn new(image: &'a Image, report: &'a Report) -> Self {
        Tree { image, report, entered: Mutex::default() }
    }

    /// The entries of directory `dir` at `path`, in any order. Damage is reported, and the readable
    /// entries are returned. A directory listed before is damage too (no directory has two names),
    /// and returns nothing.
    pub(crate) fn list(&self, dir: &Node, path: &[u8]) -> Listing {
        if !self.entered.lock().insert(dir.ino()) {
            let message = format!("directory inode {} has a second name here; not entered again", dir.ino());
            self.report.problem(&Problem::new(self.image.at(path), Status::Damaged, message));
            return Listing::default();
        }
        self.entries(dir, path)
    }

    /// As [`list`](Self::list), however often the directory is entered: for callers that follow
    /// links.
    pub(crate) fn entries(&self, dir: &Node, path: &[u8]) -> Listing {
        let mut listing = Listing::with_room();
        let mut each = |entry: DirEntry<'_>| {
            listing.push(Entry { name: entry.name, ino: entry.ino, kind: entry.kind });
            ControlFlow::Continue(())
        };
        let mut reported: Vec<String> = Vec::new();
        let mut damaged = |error: Error| {
            // A damaged node of a block map fails again for each block that it maps.
            let message = error.to_string();
            if reported.len() < MAX_DAMAGE_REPORTS && !reported.contains(&message) {
                self.problem(path, &error);
                reported.push(message);
            }
        };
        if let Err(error) = self.image.vfs.readdir_past_damage(SUPERUSER, dir, &mut each, &mut damaged) {
            self.problem(path, &error);
        }
        listing
    }

    /// Starts reading the inodes of entries.
    pub(crate) fn prefetch_inodes<'e>(&self, entries: impl Iterator<Item = Entry<'e>>) {
        self.image.vfs.prefetch_inodes(entries.map(|entry| entry.ino));
    }

    /// Starts reading the directories among entries.
    pub(crate) fn prefetch_listings<'e>(&self, entries: impl Iterator<Item = Entry<'e>>) {
        let dirs = entries.filter(|entry| entry.kind == Some(FileType::Directory)).map(|entry| entry.ino);
        let mut dirs: Vec<_> = dirs.collect();
        if !dirs.is_empty() {
            dirs.sort_unstable();
            self.image.vfs.prefetch_listings(&dirs);
        }
    }

    /// The inode of an entry at `path`; `None` after a report.
    pub(crate) fn inode(&self, ino: Ino, path: &[u8]) -> Option<Node> {
        self.image.inode(ino).map_err(|error| self.problem(path, &error)).ok()
    }

    /// The attributes of an inode found at `path`; `None` after a report.
    pub(crate) fn attr(&self, ino: Ino, path: impl FnOnce() -> Vec<u8>) -> Option<Attr> {
        self.image.vfs.attr(ino).map_err(|error| self.problem(&path(), &error)).ok()
    }

    /// The type of an entry at `path`, from its inode where the entry lacks it; `None` after a
    /// report.
    pub(crate) fn kind(&self, entry: Entry<'_>, path: &[u8]) -> Option<FileType> {
        entry.kind.or_else(|| self.attr(entry.ino, || path.to_vec()).map(|attr| attr.kind))
    }

    /// Calls `each` for `node` at `path` and everything below, directories before their contents,
    /// until `stopped`. Links are not followed.
    pub(crate) fn each(
        &self,
        node: &Node,
        path: &[u8],
        stopped: impl Fn() -> bool,
        each: &mut dyn FnMut(&Node, &[u8]) -> dentree_vfs::Result<()>,
    ) {
        let mut visit = |node: &Node, path: &[u8]| {
            if let Err(error) = each(node, path) {
                self.problem(path, &error);
            }
        };
        visit(node, path);
        // Numbers, not inodes: held inodes cannot be evicted.
        let mut left = if node.is_dir() { vec![(node.ino(), path.to_vec())] } else { Vec::new() };
        while let Some((ino, path)) = left.pop() {
            let Some(directory) = self.inode(ino, &path) else { continue };
            for entry in self.list(&directory, &path).iter() {
                if stopped() {
                    return;
                }
                let path = join(&path, entry.name);
                let Some(node) = self.inode(entry.ino, &path) else { continue };
                visit(&node, &path);
                if node.is_dir() {
                    left.push((entry.ino, path));
                }
            }
        }
    }

    pub(crate) fn problem(&self, path: &[u8], error: &dentree_vfs::Error) {
        self.report.problem(&self.image.problem(path, error));
    }
}

impl Problems for Tree<'_> {
    fn problem(&self, path: &[u8], error: &Error) {
        self.report.problem(&self.image.problem(path, error));
    }
}

/// A step through a directory in the byte order of full paths. The contents of `a` come after
/// `a-b`, as `-` is less than `/`: a directory is two steps, one for `a` and one for `a/`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    Entry(usize),
    Inside(usize),
}

/// The steps through a directory of these names; the flag marks directories.
pub(crate) fn in_path_order<'a>(names: impl Iterator<Item = (&'a [u8], bool)>) -> Vec<Step> {
    let mut keys: Vec<(&[u8], Step)> = Vec::new();
    for (index, (name, is_dir)) in names.enumerate() {
        keys.push((name, Step::Entry(index)));
        if is_dir {
            keys.push((name, Step::Inside(index)));
        }
    }
    let bytes = |&(name, step): &(&'a [u8], Step)| {
        name.iter().chain(matches!(step, Step::Inside(_)).then_some(&b'/'))
    };
    keys.sort_unstable_by(|a, b| bytes(a).cmp(bytes(b)));
    keys.into_iter().map(|(_, step)| step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_of_a_directory_sort_by_its_slash() {
        let names: [(&[u8], bool); 4] = [(b"a", true), (b"a-b", false), (b"a0", false), (b"A", true)];
        let steps = in_path_order(names.into_iter());
        use Step::{Entry, Inside};
        assert_eq!(steps, [Entry(3), Inside(3), Entry(0), Entry(1), Inside(0), Entry(2)]);
    }

    #[test]
    fn a_listing_is_sorted_by_inode() {
        let mut listing = Listing::default();
        for ino in 0..1000 {
            listing.push(Entry { name: b"x", ino: Ino(1000 - ino), kind: None });
        }
        listing.sort_by_inode();
        assert_eq!(listing.get(0).ino, Ino(1));
    }
}
