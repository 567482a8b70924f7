//! The directories: their entries, and the place of each in the tree.
//!
//! A directory belongs where an entry names it. One that no entry names, as its parent's block with
//! the entry is gone, belongs below the directory that its `..` names, as `#N`. Where that is gone,
//! too, those with the same `..` are kept together below `#N` of their parent.

use super::inodes::{InodeReader, Inodes, Trust};
use super::leaves::{self, Leaves};
use super::map::{self, Piece};
use super::reader::read_past_damage;
use super::tables::Table;
use crate::inode::Snapshot;
use dentree_ext4_format::{
    BlockRole, Entry, InodeFlags, InodeNumber, LogicalBlock, block_role, leaf_room, verify_leaf,
};
use dentree_vfs::FileType;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicU64, Ordering};

/// An entry of a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SalvagedEntry {
    /// The name; `#N` where it is not known.
    pub name: Vec<u8>,
    /// The inode.
    pub ino: InodeNumber,
    /// Its type, as far as the entry says.
    pub kind: Option<FileType>,
}

/// The place of each directory.
#[derive(Default)]
pub(super) struct Places {
    /// Parent and name of each directory that has one.
    above: HashMap<u32, (u32, Vec<u8>)>,
    /// Directories below others that do not name them.
    adopted: BTreeMap<u32, Vec<u32>>,
    /// Parents that are gone: their directories are kept together.
    gone: BTreeSet<u32>,
    /// Directories without a parent.
    tops: BTreeSet<u32>,
    /// What is left of directories whose inode is gone.
    leaves: Leaves,
}

impl Places {
    /// Whether an inode that is gone was a directory, with others below it.
    pub(super) fn is_gone(&self, dir: u32) -> bool {
        self.gone.contains(&dir)
    }

    /// The leaves of a directory whose inode is gone.
    pub(super) fn leaves(&self, dir: u32) -> &[u64] {
        self.leaves.get(&dir).map_or(&[], Vec::as_slice)
    }

    /// Whether this entry is the one that a directory is known by.
    pub(super) fn is_at(&self, dir: u32, parent: u32, name: &[u8]) -> bool {
        self.above.get(&dir).is_some_and(|(above, known)| *above == parent && known == name)
    }

    /// The directories without a place above them.
    pub(super) fn roots(&self) -> impl Iterator<Item = InodeNumber> + '_ {
        let gone = self.gone.iter().filter(|dir| !self.above.contains_key(dir) && !self.tops.contains(dir));
        self.tops.iter().chain(gone).copied().map(InodeNumber).filter(|dir| *dir != InodeNumber::ROOT)
    }

    /// The directories below one that has no entries for them.
    pub(super) fn adopted(&self, parent: u32) -> &[u32] {
        self.adopted.get(&parent).map_or(&[], Vec::as_slice)
    }
}

/// Reads directories.
pub(super) struct Directories<'a> {
    pub(super) reader: InodeReader<'a>,
    pub(super) tables: &'a BTreeMap<u32, Table>,
    /// The journal's blocks, ascending and disjoint.
    pub(super) journal: &'a [Range<u64>],
    /// Blocks of directories that may still be read.
    pub(super) left: &'a AtomicU64,
}

impl Directories<'_> {
    /// Calls `each` for the entries of a directory, `.` and `..` included. Returns whether all of
    /// it could be read.
    pub(super) fn entries(&self, dir: &Snapshot, each: &mut dyn FnMut(&Entry<'_>)) -> bool {
        let fs = self.reader.fs;
        if dir.has(InodeFlags::INLINE_DATA) {
            let Ok(pieces) = fs.inline_entries(dir) else { return false };
            let damaged = pieces.iter().filter(|(_, bytes)| !self.entries_in(bytes, each)).count();
            return damaged == 0;
        }
        let (mut is_whole, mut end) = (true, 0);
        let blocks = fs.sb.block_size.blocks_for(dir.inode.size);
        let device_blocks = fs.device.size() >> fs.sb.block_size.log2();
        let mut piece = |piece: Piece| {
            match piece {
                Piece::Data { logical, start, len } if logical < blocks => {
                    is_whole &= logical == end;
                    end = (logical + len).min(blocks);
                    for at in 0..end - logical {
                        let is_there = start.0 + at < device_blocks && self.may_read();
                        is_whole &= is_there
                            && self.leaf(dir, LogicalBlock(u32_of(logical + at)), start.0 + at, each);
                        if !is_there {
                            break;
                        }
                    }
                }
                Piece::Data { .. } => return ControlFlow::Break(()),
                Piece::Lost(_) => is_whole = false,
            }
            ControlFlow::Continue(())
        };
        let is_proved = map::walk(fs, self.reader.before, dir, &mut piece);
        is_whole && is_proved && end == blocks
    }

    /// Counts a block of a directory. A block belongs to one directory: a hostile image names it in
    /// many.
    fn may_read(&self) -> bool {
        // Relaxed: a count that guards nothing else.
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    }

    /// Reads a block of a directory. Returns whether it is intact.
    fn leaf(&self, dir: &Snapshot, block: LogicalBlock, at: u64, each: &mut dyn FnMut(&Entry<'_>)) -> bool {
        let fs = self.reader.fs;
        let size = fs.sb.block_size;
        let offset = at << size.log2();
        let mut bytes = vec![0; size.in_memory()];
        let mut is_read = true;
        read_past_damage(&*fs.device, offset, &mut bytes, &mut |_| is_read = false);
        // The index only finds what the leaves hold. Its first block has `.` and `..`.
        if block_role(&bytes, block, fs.is_indexed(dir), size) == BlockRole::Index {
            if block.0 == 0 {
                return self.entries_in(&bytes, each);
            }
            return is_read;
        }
        let seed = dir.inode.checksum_seed;
        let has_sums = fs.sb.has_metadata_csum();
        if !has_sums {
            return self.entries_in(&bytes, each) && is_read;
        }
        if verify_leaf(&bytes, seed).is_err() {
            let mut logged = vec![0; size.in_memory()];
            let read = self.reader.before.map(|before| before.read_at(offset, &mut logged));
            if matches!(read, Some(Ok(()))) && verify_leaf(&logged, seed).is_ok() {
                bytes = logged;
            } else {
                self.entries_in(&bytes, each);
                return false;
            }
        }
        let room = leaf_room(size, has_sums);
        self.entries_in(bytes.get(..room).unwrap_or_default(), each)
    }

    /// Reports the entries in a part of a directory. Behind one that is damaged it goes on with
    /// the next that fits.
    fn entries_in(&self, bytes: &[u8], each: &mut dyn FnMut(&Entry<'_>)) -> bool {
        let all = self.reader.fs.entries(bytes);
        let (mut start, mut is_intact) = (0, true);
        loop {
            let mut end = start;
            let mut is_damaged = false;
            for entry in all.clone().starting_at(start) {
                match entry {
                    Ok(entry) => {
                        end = entry.end;
                        each(&entry);
                    }
                    Err(_) => is_damaged = true,
                }
            }
            if !is_damaged {
                return is_intact;
            }
            is_intact = false;
            // An entry fits if it and all behind it do, up to the end.
            let fits = |at: usize| {
                let mut entries = all.clone().starting_at(at);
                entries.next().is_some_and(|entry| entry.is_ok_and(|entry| is_plausible(&entry)))
                    && entries.all(|entry| entry.is_ok())
            };
            match (end + 4..bytes.len()).step_by(4).find(|at| fits(*at)) {
                Some(next) => start = next,
                None => return false,
            }
        }
    }

    /// Finds the place of each directory, and marks inodes that have names. `goes_on` gets the
    /// number of directories, `searched` bytes of a search.
    pub(super) fn places(
        &self,
        inodes: &mut Inodes,
        goes_on: &dyn Fn(u64) -> bool,
        searched: &dyn Fn(u64) -> bool,
    ) -> Places {
        let mut found = Gathered::default();
        let all: Vec<InodeNumber> = inodes.directories().collect();
        for dir in all {
            let Some((node, trust)) = self.reader.read(self.tables, dir) else { continue };
            let mut listed = Listed::default();
            self.entries(&node, &mut |entry| listed.add(self.reader.fs.kind_of(entry), entry));
            // A doubtful one has to say that it is this directory.
            if trust == Trust::Doubtful && listed.own != Some(dir) {
                inodes.forget(dir);
                continue;
            }
            if node.has(InodeFlags::INLINE_DATA) {
                listed.parent = self.reader.fs.inline_parent(&node).ok();
            }
            found.take(dir, listed, inodes);
            if !goes_on(1) {
                break;
            }
        }
        let wanted = found.gone(inodes);
        found.places.leaves = leaves::find(self.reader.fs, &wanted, self.journal, searched);
        for (dir, blocks) in found.places.leaves.clone() {
            let mut listed = Listed::default();
            self.loose_entries(&blocks, &mut |entry| listed.add(self.reader.fs.kind_of(entry), entry));
            found.take(InodeNumber(dir), listed, inodes);
            found.places.gone.insert(dir);
        }
        let Gathered { mut places, parents, .. } = found;
        adopt(inodes, &parents, &mut places);
        places.cut_loops();
        places
    }

    /// Calls `each` for the entries in leaves without an inode.
    pub(super) fn loose_entries(&self, blocks: &[u64], each: &mut dyn FnMut(&Entry<'_>)) {
        let sb = &self.reader.fs.sb;
        let mut bytes = vec![0; sb.block_size.in_memory()];
        for block in blocks.iter().take_while(|_| self.may_read()) {
            read_past_damage(&*self.reader.fs.device, block << sb.block_size.log2(), &mut bytes, &mut |_| {});
            let room = leaf_room(sb.block_size, sb.has_metadata_csum());
            self.entries_in(bytes.get(..room).unwrap_or_default(), each);
        }
    }
}

/// The entries of a directory.
#[derive(Default)]
struct Listed {
    /// What `.` and `..` name.
    own: Option<InodeNumber>,
    parent: Option<InodeNumber>,
    below: Vec<(InodeNumber, Option<FileType>, Vec<u8>)>,
}

impl Listed {
    fn add(&mut self, kind: Option<FileType>, entry: &Entry<'_>) {
        match entry.name {
            b"." => self.own = self.own.or(Some(entry.inode)),
            b".." => self.parent = self.parent.or(Some(entry.inode)),
            name if is_plausible(entry) => self.below.push((entry.inode, kind, name.to_vec())),
            _ => {}
        }
    }
}

/// What is gathered of all directories.
#[derive(Default)]
struct Gathered {
    places: Places,
    /// What `..` of each directory says.
    parents: HashMap<u32, u32>,
    /// Directories that are named and whose inode is gone, with the directory that names them.
    named_and_gone: HashMap<u32, u32>,
}

impl Gathered {
    fn take(&mut self, dir: InodeNumber, listed: Listed, inodes: &mut Inodes) {
        if let Some(parent) = listed.parent.filter(|parent| *parent != dir) {
            self.parents.insert(dir.0, parent.0);
        }
        for (ino, kind, name) in listed.below {
            inodes.set_named(ino);
            let is_gone = inodes.trust(ino).is_none() && kind == Some(FileType::Directory);
            if ino == InodeNumber::ROOT || ino == dir || !(is_gone || inodes.is_directory(ino)) {
                continue;
            }
            if is_gone {
                self.named_and_gone.insert(ino.0, dir.0);
            }
            // Of two names that one counts which the directory's `..` confirms.
            if !self.places.above.contains_key(&ino.0) || self.parents.get(&ino.0) == Some(&dir.0) {
                self.places.above.insert(ino.0, (dir.0, name));
            }
        }
    }

    /// The directories whose inode is gone, with the directory that names them.
    fn gone(&self, inodes: &Inodes) -> HashMap<u32, Option<u32>> {
        let named = self.named_and_gone.iter().map(|(dir, parent)| (*dir, Some(*parent)));
        let unnamed = self.parents.values().filter(|dir| !inodes.is_directory(InodeNumber(**dir)));
        let unnamed = unnamed.filter(|dir| !self.named_and_gone.contains_key(dir)).map(|dir| (*dir, None));
        let root = (!inodes.is_directory(InodeNumber::ROOT)).then_some((InodeNumber::ROOT.0, None));
        named.chain(unnamed).chain(root).collect()
    }
}

/// Gives a place to directories without names.
fn adopt(inodes: &Inodes, parents: &HashMap<u32, u32>, found: &mut Places) {
    let gone: Vec<u32> = found.gone.iter().copied().collect();
    let all = inodes.directories().chain(gone.into_iter().map(InodeNumber));
    for dir in all.filter(|dir| *dir != InodeNumber::ROOT) {
        if found.above.contains_key(&dir.0) {
            continue;
        }
        match parents.get(&dir.0).copied() {
            Some(parent) => {
                found.above.insert(dir.0, (parent, unnamed(dir)));
                found.adopted.entry(parent).or_default().push(dir.0);
                if !inodes.is_directory(InodeNumber(parent)) {
                    found.gone.insert(parent);
                }
            }
            None => drop(found.tops.insert(dir.0)),
        }
    }
}

impl Places {
    /// Directories that lead to each other have no way up: one of them becomes a top.
    fn cut_loops(&mut self) {
        let mut done = HashSet::<u32>::new();
        let all: Vec<u32> = self.above.keys().copied().collect::<BTreeSet<_>>().into_iter().collect();
        for dir in all {
            let mut way = HashSet::new();
            let mut at = dir;
            while !done.contains(&at) && way.insert(at) {
                match self.above.get(&at) {
                    Some((above, _)) => at = *above,
                    None => break,
                }
            }
            if !done.contains(&at) && self.above.contains_key(&at) {
                if let Some((above, _)) = self.above.remove(&at)
                    && let Some(adopted) = self.adopted.get_mut(&above)
                {
                    adopted.retain(|dir| *dir != at);
                }
                self.tops.insert(at);
            }
            done.extend(way);
        }
    }
}

/// The name of an inode without one, as e2fsck gives it in `lost+found`.
pub(super) fn unnamed(ino: InodeNumber) -> Vec<u8> {
    format!("#{ino}").into_bytes()
}

/// Whether an entry can be one: its name is one component of a path.
pub(super) fn is_plausible(entry: &Entry<'_>) -> bool {
    entry.file_type <= 7 && !entry.name.iter().any(|byte| matches!(byte, 0 | b'/'))
}

fn u32_of(block: u64) -> u32 {
    u32::try_from(block).unwrap_or(u32::MAX)
}
