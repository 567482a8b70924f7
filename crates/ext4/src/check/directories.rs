//! Pass 2: entries of directories, and their indexes.

use super::records::Kind;
use super::{Check, Defect};
use crate::inode::Snapshot;
use crate::layout::Part;
use crate::{Place, Structure};
use dentree_ext4_format::casefold::FoldedName;
use dentree_ext4_format::hash::HashVersion;
use dentree_ext4_format::htree::{IndexBlock, IndexEntry};
use dentree_ext4_format::{
    BlockNumber, BlockRole, Entry, Incompat, InodeFlags, InodeNumber, LogicalBlock, Problem, block_role,
    verify_leaf,
};
use dentree_vfs::FileType;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::ops::ControlFlow;

/// Most findings that are reported for one directory.
const MOST_DAMAGED: u32 = 1000;
/// Bytes of a directory that are read at once.
const CHUNK: u64 = 1 << 20;
/// Longest name of which an encrypted directory has none: a cipher block is longer.
const SHORTEST_ENCRYPTED: usize = 16;

/// The parents of directories, by two accounts.
#[derive(Default)]
pub(super) struct Parents {
    /// Directories, and those with an entry for them.
    pub(super) named_in: Vec<(u32, u32)>,
    /// Directories, and those that their `..` names.
    pub(super) dotdots: Vec<(u32, u32)>,
}

/// A directory that is being checked.
struct Directory<'c, 'a> {
    check: &'c Check<'a>,
    node: &'c Snapshot,
    out: &'c mut Parents,
    left: u32,
    /// The hash of an index.
    version: Option<HashVersion>,
    /// Least and greatest hash of each leaf's names; `None` for one without names.
    leaves: BTreeMap<u32, Option<(u32, u32)>>,
    /// Entries of index blocks, but the root's.
    nodes: BTreeMap<u32, Vec<IndexEntry>>,
    root: Option<(u8, Vec<IndexEntry>)>,
}

impl Check<'_> {
    pub(super) fn directories(&self) -> Parents {
        let mut dirs = std::mem::take(&mut *self.directories.lock());
        dirs.sort_unstable();
        let found = self.in_parallel(dirs.len(), |at, out: &mut Parents| {
            if let Some(&ino) = dirs.get(at) {
                self.directory(InodeNumber(ino), out);
            }
        });
        *self.directories.lock() = dirs;
        let mut all = Parents::default();
        for mut parents in found {
            all.named_in.append(&mut parents.named_in);
            all.dotdots.append(&mut parents.dotdots);
        }
        all
    }

    fn directory(&self, ino: InodeNumber, out: &mut Parents) {
        let Ok((bytes, place)) = self.fs.inode_bytes(ino) else { return };
        let Ok(node) = self.parse(ino, &bytes, place) else { return };
        let mut directory = Directory {
            check: self,
            node: &node,
            out,
            left: MOST_DAMAGED,
            version: None,
            leaves: BTreeMap::new(),
            nodes: BTreeMap::new(),
            root: None,
        };
        if node.has(InodeFlags::INLINE_DATA) {
            directory.inline();
        } else {
            directory.blocks();
            directory.index();
        }
    }
}

impl Directory<'_, '_> {
    fn found(&mut self, place: Place, defect: Defect) {
        if self.left > 0 {
            self.left -= 1;
            self.check.found(2, place, defect);
        }
    }

    fn damaged(&mut self, place: Place, problem: Problem) {
        self.found(place, Defect::Damaged(problem));
    }

    fn entry_is(&mut self, place: Place, entry: &Entry<'_>, because: &'static str) {
        let (name, inode) = (entry.name.to_vec(), entry.inode);
        self.found(place, Defect::Entry { name, inode, because });
    }

    fn inline(&mut self) {
        let node = self.node;
        let place = node.place(Structure::InlineData);
        self.check.records.count(node.ino);
        match self.check.fs.inline_parent(node) {
            Ok(parent) => {
                self.check.records.count(parent);
                self.out.dotdots.push((node.ino.0, parent.0));
            }
            Err(error) => self.check.error(2, error),
        }
        let pieces = match self.check.fs.inline_entries(node) {
            Ok(pieces) => pieces,
            Err(error) => return self.check.error(2, error),
        };
        let mut names = HashSet::new();
        for (_, bytes) in pieces {
            for entry in self.check.fs.entries(bytes) {
                match entry {
                    Ok(entry) => self.entry(place, &entry, &mut names),
                    Err(problem) => self.damaged(place, problem),
                }
            }
        }
    }

    /// Reads all blocks.
    fn blocks(&mut self) {
        let (check, node) = (self.check, self.node);
        let log = check.fs.sb.block_size.log2();
        let end = node.inode.size >> log;
        let mut runs = Vec::new();
        let mut each = |part| {
            if let Part::Content(extent) = part {
                runs.push(extent);
            }
            ControlFlow::Continue(())
        };
        // Damage of the map is reported by pass 1.
        check.fs.walk_map(node, &mut each, &mut |_| {});
        let mut at = 0;
        for run in runs {
            self.hole(at, run.logical.min(end));
            at = at.max(run.logical + run.len);
            if run.is_unwritten {
                self.hole(run.logical, run.logical + run.len);
                continue;
            }
            let most = (CHUNK >> log).max(1);
            for skipped in (0..run.len).step_by(usize::try_from(most).unwrap_or(1)) {
                let blocks = most.min(run.len - skipped);
                let start = BlockNumber(run.start.0 + skipped);
                let mut bytes = vec![0; usize::try_from(blocks << log).unwrap_or(0)];
                if let Err(source) = check.fs.device.read_at(start.0 << log, &mut bytes) {
                    let place = node.place(Structure::Content).at(start);
                    self.found(place, Defect::Unreadable(source.to_string()));
                    continue;
                }
                for (n, bytes) in (0..).zip(bytes.chunks_exact(check.fs.sb.block_size.in_memory())) {
                    let logical = run.logical + skipped + n;
                    if let Ok(logical) = u32::try_from(logical) {
                        self.block(LogicalBlock(logical), BlockNumber(start.0 + n), bytes);
                    }
                }
            }
        }
        self.hole(at, end);
    }

    fn hole(&mut self, from: u64, to: u64) {
        if from < to {
            let block = LogicalBlock(u32::try_from(from).unwrap_or(u32::MAX));
            let place = self.node.place(Structure::DirectoryLeaf(block));
            self.damaged(place, Problem::Missing { what: "the block" });
        }
    }

    fn block(&mut self, block: LogicalBlock, at: BlockNumber, bytes: &[u8]) {
        let (fs, node) = (self.check.fs, self.node);
        let indexed = fs.is_indexed(node);
        let role = block_role(bytes, block, indexed, fs.sb.block_size);
        let leaf = node.place(Structure::DirectoryLeaf(block)).at(at);
        if role == BlockRole::Index && self.index_block(block, at, bytes) {
            if block.0 == 0 {
                self.entries(leaf, block, bytes);
            }
            return;
        }
        if fs.sb.has_metadata_csum()
            && let Err(problem) = verify_leaf(bytes, node.inode.checksum_seed)
        {
            self.damaged(leaf, problem);
        }
        self.entries(leaf, block, bytes);
    }

    /// Reads a block of the index. `false` for one that is a leaf without names.
    fn index_block(&mut self, block: LogicalBlock, at: BlockNumber, bytes: &[u8]) -> bool {
        let (fs, node) = (self.check.fs, self.node);
        let place = node.place(Structure::DirectoryIndex(block)).at(at);
        let seed = fs.sb.has_metadata_csum().then_some(node.inode.checksum_seed);
        if block.0 == 0 {
            match fs.parse_root(bytes) {
                Ok(root) => {
                    if let Err(problem) = root.entries.verify(seed) {
                        self.damaged(place, problem);
                    }
                    self.version = Some(root.hash_version);
                    self.root = Some((root.indirect_levels, root.entries.iter().collect()));
                }
                Err(problem) => self.damaged(place, problem),
            }
            return true;
        }
        match IndexBlock::parse_node(bytes, fs.sb.has_metadata_csum()) {
            Ok(index) => {
                if let Err(problem) = index.verify(seed) {
                    self.damaged(place, problem);
                }
                self.nodes.insert(block.0, index.iter().collect());
                true
            }
            // Without checksums, a leaf with one unused entry looks the same.
            Err(_) => false,
        }
    }

    /// Checks the entries of a block.
    fn entries(&mut self, place: Place, block: LogicalBlock, bytes: &[u8]) {
        let check = self.check;
        let (mut names, mut hashes): (_, Option<(u32, u32)>) = (HashSet::new(), None);
        let mut index = 0;
        for entry in check.fs.entries(bytes) {
            let entry = match entry {
                Ok(entry) => entry,
                Err(problem) => {
                    self.damaged(place, problem);
                    break;
                }
            };
            if block.0 == 0 && index < 2 {
                self.dot(place, &entry, index);
                if bytes.get(entry.name_range().end).is_some_and(|byte| *byte != 0) {
                    self.entry_is(place, &entry, "does not end with a zero byte");
                }
            } else {
                self.entry(place, &entry, &mut names);
                if let Some(hash) = self.hash(entry.name) {
                    let (least, greatest) = hashes.unwrap_or((hash, hash));
                    hashes = Some((least.min(hash), greatest.max(hash)));
                }
            }
            index += 1;
        }
        if block.0 == 0 && index < 2 {
            self.damaged(place, Problem::Missing { what: "the entry `.` or `..`" });
        }
        self.leaves.insert(block.0, hashes);
    }

    fn hash(&self, name: &[u8]) -> Option<u32> {
        let (fs, version) = (self.check.fs, self.version?);
        let folded = fs.folded(self.node, name);
        let hash = version.hash(folded.as_deref().unwrap_or(name), fs.hash_seed())?;
        Some(hash.major.get())
    }

    /// The first two entries.
    fn dot(&mut self, place: Place, entry: &Entry<'_>, index: u32) {
        let (node, check) = (self.node, self.check);
        let (name, because) = match index {
            0 => (&b"."[..], "must be `.`"),
            _ => (&b".."[..], "must be `..`"),
        };
        if entry.name != name {
            self.entry_is(place, entry, because);
        }
        if index == 0 && entry.inode != node.ino {
            self.entry_is(place, entry, "must name its own directory");
        }
        if index == 1 {
            self.out.dotdots.push((node.ino.0, entry.inode.0));
        }
        self.kind(place, entry, Kind::Of(FileType::Directory));
        check.records.count(entry.inode);
    }

    fn entry<'b>(&mut self, place: Place, entry: &Entry<'b>, names: &mut HashSet<Cow<'b, [u8]>>) {
        let (check, node) = (self.check, self.node);
        let is_encrypted = node.has(InodeFlags::ENCRYPT);
        let is_dots = entry.name == b"." || entry.name == b"..";
        if is_dots {
            self.entry_is(place, entry, "stands behind the first two");
        } else if is_encrypted && entry.name.len() < SHORTEST_ENCRYPTED {
            self.entry_is(place, entry, "is too short for an encrypted name");
        } else if !is_encrypted && (entry.name.contains(&b'/') || entry.name.contains(&0)) {
            self.entry_is(place, entry, "has a character that no name has");
        } else if !is_encrypted
            && check.fs.is_casefolded(node)
            && check.fs.sb.encoding_flags & 1 != 0
            && FoldedName::new(entry.name, true).is_err()
        {
            self.entry_is(place, entry, "is no valid text");
        }
        let key = check.fs.folded(node, entry.name).map_or(Cow::Borrowed(entry.name), Cow::Owned);
        if !names.insert(key) {
            self.entry_is(place, entry, "stands there twice");
        }
        if check.is_reserved(entry.inode) {
            return self.entry_is(place, entry, "names a reserved inode");
        }
        let Some(record) = check.records.get(entry.inode) else {
            return self.entry_is(place, entry, "names an inode that is not in use");
        };
        match record.kind {
            Kind::Value => self.entry_is(place, entry, "names the value of an attribute"),
            _ if entry.inode == InodeNumber::ROOT => self.entry_is(place, entry, "names the root"),
            Kind::Of(FileType::Directory) if entry.inode == node.ino => {
                self.entry_is(place, entry, "names its own directory")
            }
            Kind::Of(FileType::Directory) => self.out.named_in.push((entry.inode.0, node.ino.0)),
            _ => {}
        }
        self.kind(place, entry, record.kind);
        check.records.count(entry.inode);
    }

    /// Compares the type that an entry records.
    fn kind(&mut self, place: Place, entry: &Entry<'_>, kind: Kind) {
        let fs = self.check.fs;
        if !fs.sb.incompat.has(Incompat::FILETYPE) {
            if entry.file_type != 0 {
                self.entry_is(place, entry, "records a type, and the file system has none");
            }
        } else if let Kind::Of(kind) = kind
            && fs.kind_of(entry) != Some(kind)
        {
            self.entry_is(place, entry, "records another type than its inode has");
        }
    }

    /// Checks that the index leads to each block once, and to names of its hashes.
    fn index(&mut self) {
        let Some((levels, entries)) = self.root.take() else { return };
        let mut used = HashSet::from([0]);
        self.below(&entries, levels, 0, u32::MAX, &mut used);
        let all: Vec<u32> = self.leaves.keys().chain(self.nodes.keys()).copied().collect();
        for block in all {
            if !used.contains(&block) {
                let place = self.node.place(Structure::DirectoryLeaf(LogicalBlock(block)));
                self.damaged(place, Problem::Missing { what: "an entry of the index for the block" });
            }
        }
    }

    /// Checks the blocks of index entries, whose hashes are at least `least`, and at most `most`.
    fn below(&mut self, entries: &[IndexEntry], levels: u8, least: u32, most: u32, used: &mut HashSet<u32>) {
        for (at, entry) in entries.iter().enumerate() {
            let from = if at == 0 { least } else { entry.hash().get() };
            let to = entries.get(at + 1).map_or(most, |next| next.hash().get());
            let block = entry.block;
            let place = self.node.place(Structure::DirectoryIndex(block));
            let is_node = self.nodes.contains_key(&block.0);
            if !used.insert(block.0) {
                let because = "is named twice by the index";
                let problem = Problem::Value { field: "block", value: u64::from(block.0), because };
                self.damaged(place, problem);
            } else if levels > 0 && is_node {
                let below = self.nodes.get(&block.0).cloned().unwrap_or_default();
                self.below(&below, levels - 1, from, to, used);
            } else if is_node && levels == 0 || levels > 0 {
                self.damaged(
                    place,
                    Problem::Missing { what: "a block of the level that the index promises" },
                );
            } else {
                self.leaf_hashes(block, from, to);
            }
        }
    }

    fn leaf_hashes(&mut self, block: LogicalBlock, from: u32, to: u32) {
        let place = self.node.place(Structure::DirectoryLeaf(block));
        match self.leaves.get(&block.0) {
            None => self.damaged(place, Problem::Missing { what: "the block, which the index names," }),
            Some(&Some((least, greatest))) if least < from || greatest > to => {
                let value = u64::from(if least < from { least } else { greatest });
                let (min, max) = (u64::from(from), u64::from(to));
                self.damaged(place, Problem::Range { field: "a name's hash", value, min, max });
            }
            Some(_) => {}
        }
    }
}
