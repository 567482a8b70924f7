//! Pass 2: entries of directories, and their indexes.

use super::index::{Head, Index, Role, Wrong};
use super::records::Kind;
use super::{Check, Code, Defect, classify};
use crate::inode::Snapshot;
use crate::layout::Part;
use crate::{Place, Structure};
use dentree_ext4_format::casefold::FoldedName;
use dentree_ext4_format::hash::HashVersion;
use dentree_ext4_format::htree::set_index_checksum;
use dentree_ext4_format::{
    BlockNumber, Entries, Entry, Incompat, Inode, InodeFlags, InodeNumber, LogicalBlock, Problem, verify_leaf,
};
use dentree_vfs::FileType;
use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::ControlFlow;

/// Most findings that are reported for one directory.
const MOST_DAMAGED: u32 = 1000;
/// Bytes of a directory that are read at once.
const CHUNK: u64 = 1 << 20;
/// Holes of a directory that its index may lead to.
const SPARE_BLOCKS: u64 = 1024;
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
    /// Its index, if it has one.
    index: Option<Index>,
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
        let Ok((bytes, place)) = self.inode_bytes(ino) else { return };
        let Ok(node) = self.parse(ino, &bytes, place) else { return };
        let mut directory = Directory { check: self, node: &node, out, left: MOST_DAMAGED, index: None };
        if node.has(InodeFlags::INLINE_DATA) {
            directory.inline();
        } else {
            directory.blocks();
            directory.compare_index();
        }
    }
}

impl Directory<'_, '_> {
    fn found(&mut self, code: Code, place: Place, defect: Defect) {
        if self.left > 0 {
            self.left -= 1;
            self.check.found(code, place, defect);
        }
    }

    fn damaged(&mut self, code: Code, place: Place, problem: Problem) {
        self.found(code, place, Defect::Damaged(problem));
    }

    fn entry_is(&mut self, code: Code, place: Place, entry: &Entry<'_>, because: &'static str) {
        let (name, inode) = (entry.name.to_vec(), entry.inode);
        self.found(code, place, Defect::Entry { name, inode, because });
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
                    Err(problem) => self.damaged(classify::of_entry(&problem), place, problem),
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
        if check.fs.is_indexed(node) {
            // Of a hostile size, no more than its blocks explain.
            let mapped = runs.iter().fold(SPARE_BLOCKS, |sum, run| run.len.saturating_add(sum));
            let blocks = usize::try_from(end.min(mapped)).unwrap_or(0);
            if runs.first().is_none_or(|run| run.logical != 0) {
                let place = node.place(Structure::DirectoryIndex(LogicalBlock(0)));
                self.damaged(Code::PR_1_HTREE_BADROOT, place, Problem::Missing { what: "the root" });
            }
            self.index = (!runs.is_empty()).then(|| Index::new(blocks, check.fs.sb.has_metadata_csum()));
        }
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
                    self.found(Code::PR_2_READ_DIRBLOCK, place, Defect::Unreadable(source.to_string()));
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
    }

    fn hole(&mut self, from: u64, to: u64) {
        if from < to {
            let block = LogicalBlock(u32::try_from(from).unwrap_or(u32::MAX));
            let place = self.node.place(Structure::DirectoryLeaf(block));
            let code = match self.node.has(InodeFlags::EXTENTS) {
                true => Code::PR_1_COLLAPSE_DBLOCK,
                false => Code::PR_2_DIRECTORY_HOLE,
            };
            self.damaged(code, place, Problem::Missing { what: "the block" });
        }
    }

    fn block(&mut self, block: LogicalBlock, at: BlockNumber, bytes: &[u8]) {
        let (fs, node) = (self.check.fs, self.node);
        let place = node.place(Structure::DirectoryIndex(block)).at(at);
        let leaf = node.place(Structure::DirectoryLeaf(block)).at(at);
        let number = usize::try_from(block.0).unwrap_or(usize::MAX);
        let role = self.index.as_ref().map_or(Role::Leaf, |index| index.role(number, bytes));
        if role == Role::Root {
            self.index_head(place, bytes);
        }
        self.entries(leaf, block, bytes);
        if role == Role::Leaf {
            if fs.sb.has_metadata_csum()
                && let Err(problem) = verify_leaf(bytes, node.inode.checksum_seed)
            {
                if !matches!(problem, Problem::Checksum { .. }) {
                    self.damaged(Code::PR_2_LEAF_NODE_MISSING_CSUM, leaf, problem);
                }
                self.damaged(Code::PR_2_LEAF_NODE_ONLY_CSUM_INVALID, leaf, problem);
            }
            return;
        }
        if fs.sb.has_metadata_csum() {
            self.index_sum(place, role, bytes);
        }
        let wrong = self.index.as_mut().map(|index| index.entries(number, role, bytes));
        wrong.unwrap_or_default().into_iter().for_each(|wrong| self.index_is(wrong));
    }

    fn index_head(&mut self, place: Place, bytes: &[u8]) {
        let (fs, Some(head)) = (self.check.fs, Head::of(bytes)) else { return };
        let has_siphash = self.node.has(InodeFlags::ENCRYPT) && self.node.has(InodeFlags::CASEFOLD);
        let has_large = fs.sb.incompat.has(Incompat::LARGEDIR);
        for (code, field, value, because) in head.problems(has_large, has_siphash) {
            self.damaged(code, place, Problem::Value { field, value, because });
        }
        let version = HashVersion::from_disk(head.version, fs.hash_sign());
        if let Some(index) = &mut self.index {
            index.version = version;
        }
    }

    fn index_sum(&mut self, place: Place, role: Role, bytes: &[u8]) {
        let mut right = bytes.to_vec();
        let sealed = set_index_checksum(&mut right, role == Role::Root, self.node.inode.checksum_seed);
        let is_readable = role != Role::Root || Head::of(bytes).is_some_and(|head| head.is_root());
        if is_readable && sealed.is_ok() && right == bytes {
            return;
        }
        let last = |bytes: &[u8]| bytes.last_chunk().copied().map_or(0, u32::from_le_bytes);
        let code = match role {
            Role::Root => Code::PR_2_HTREE_ROOT_CSUM_INVALID,
            _ => Code::PR_2_HTREE_NODE_CSUM_INVALID,
        };
        let problem = sealed.err();
        let sums = Problem::Checksum { stored: last(bytes), computed: last(&right) };
        self.damaged(code, place, problem.unwrap_or(sums));
    }

    /// Compares the index with the blocks.
    fn compare_index(&mut self) {
        let wrong = self.index.as_mut().map(Index::compare);
        wrong.unwrap_or_default().into_iter().for_each(|wrong| self.index_is(wrong));
    }

    fn index_is(&mut self, Wrong { block, code, value }: Wrong) {
        let block = LogicalBlock(u32::try_from(block).unwrap_or(u32::MAX));
        let place = self.node.place(Structure::DirectoryIndex(block));
        let (field, because) = match code {
            Code::PR_2_HTREE_BAD_LIMIT => ("limit", "is not the number of entries that fit into the block"),
            Code::PR_2_HTREE_BAD_COUNT => ("count", "is more than the block holds"),
            Code::PR_2_HTREE_BADBLK => ("block", "is behind the directory's last"),
            Code::PR_2_HTREE_HASH_ORDER => ("hash", "is less than the one before it"),
            Code::PR_2_HTREE_MIN_HASH => ("a name's hash", "is less than the index says"),
            Code::PR_2_HTREE_MAX_HASH => ("a name's hash", "is greater than the index says"),
            Code::PR_2_HTREE_NOTREF => {
                return self.damaged(
                    code,
                    place,
                    Problem::Missing { what: "an entry of the index for the block" },
                );
            }
            Code::PR_2_HTREE_DUPREF => ("block", "is named twice by the index"),
            Code::PR_2_HTREE_BAD_DEPTH => ("depth", "is not that of the index"),
            _ => ("the index", "does not lead to all names"),
        };
        self.damaged(code, place, Problem::Value { field, value, because });
    }

    /// Checks the entries of a block.
    fn entries(&mut self, place: Place, block: LogicalBlock, bytes: &[u8]) {
        let check = self.check;
        let mut names = HashSet::new();
        let mut index = 0;
        // Any number is read: wrong ones are reported below.
        for entry in Entries::new(bytes, check.fs.sb.block_size, u32::MAX) {
            let entry = match entry {
                Ok(entry) => entry,
                Err(problem) => {
                    let code = match classify::of_entry(&problem) {
                        Code::PR_2_NULL_NAME if self.nameless_is_wrong(bytes) => Code::PR_2_BAD_INO,
                        code => code,
                    };
                    self.damaged(code, place, problem);
                    break;
                }
            };
            if block.0 == 0 && index < 2 {
                self.dot(place, &entry, index);
                if bytes.get(entry.name_range().end).is_some_and(|byte| *byte != 0) {
                    let codes = [Code::PR_2_DOT_NULL_TERM, Code::PR_2_DOT_DOT_NULL_TERM];
                    let code = if index == 0 { codes[0] } else { codes[1] };
                    self.entry_is(code, place, &entry, "does not end with a zero byte");
                }
            } else {
                self.entry(place, &entry, &mut names);
                if self.index.is_some() {
                    let hash = self.hash(entry.name);
                    let number = usize::try_from(block.0).unwrap_or(usize::MAX);
                    self.index.iter_mut().for_each(|index| index.name(number, hash));
                }
            }
            index += 1;
        }
        if block.0 == 0 && index < 2 {
            let code = if index == 0 { Code::PR_2_MISSING_DOT } else { Code::PR_2_MISSING_DOT_DOT };
            self.damaged(code, place, Problem::Missing { what: "the entry `.` or `..`" });
        }
    }

    /// Whether the first entry without a name names no inode that an entry can name.
    fn nameless_is_wrong(&self, bytes: &[u8]) -> bool {
        let mut at = 0;
        while let Some(&[a, b, c, d, low, high, name_len, _]) = bytes.get(at..).and_then(<[u8]>::first_chunk)
        {
            let inode = InodeNumber(u32::from_le_bytes([a, b, c, d]));
            if inode.0 != 0 && name_len == 0 {
                let is_valid = self.check.fs.sb.check_inode("inode", inode).is_ok();
                return !is_valid || self.check.is_reserved(inode);
            }
            at += usize::from(u16::from_le_bytes([low, high])).max(8);
        }
        false
    }

    fn hash(&self, name: &[u8]) -> Option<u32> {
        let (fs, version) = (self.check.fs, self.index.as_ref()?.version?);
        let folded = fs.folded(self.node, name);
        let hash = version.hash(folded.as_deref().unwrap_or(name), fs.hash_seed())?;
        Some(hash.major.get() & !1)
    }

    /// The first two entries.
    fn dot(&mut self, place: Place, entry: &Entry<'_>, index: u32) {
        let (node, check) = (self.node, self.check);
        let (code, name, because) = match index {
            0 => (Code::PR_2_1ST_NOT_DOT, &b"."[..], "must be `.`"),
            _ => (Code::PR_2_2ND_NOT_DOT_DOT, &b".."[..], "must be `..`"),
        };
        if entry.name != name {
            self.entry_is(code, place, entry, because);
        }
        if index == 0 && entry.inode != node.ino {
            self.entry_is(Code::PR_2_BAD_INODE_DOT, place, entry, "must name its own directory");
        }
        self.characters(place, entry);
        if index == 1 && entry.name == name {
            self.out.dotdots.push((node.ino.0, entry.inode.0));
        }
        if check.fs.sb.check_inode("inode", entry.inode).is_err() {
            return self.entry_is(Code::PR_2_BAD_INO, place, entry, "names no inode");
        }
        match check.record(entry.inode) {
            Some(record) => self.kind(place, entry, record.kind),
            None if index == 1 => self.unused(place, entry),
            None => {}
        }
        check.records.count(entry.inode);
    }

    fn entry<'b>(&mut self, place: Place, entry: &Entry<'b>, names: &mut HashSet<Cow<'b, [u8]>>) {
        let (check, node) = (self.check, self.node);
        let is_encrypted = node.has(InodeFlags::ENCRYPT);
        let is_dots = entry.name == b"." || entry.name == b"..";
        if is_dots {
            let code = if entry.name == b"." { Code::PR_2_DUP_DOT } else { Code::PR_2_DUP_DOT_DOT };
            self.entry_is(code, place, entry, "stands behind the first two");
        } else if is_encrypted && entry.name.len() < SHORTEST_ENCRYPTED {
            self.entry_is(Code::PR_2_BAD_ENCRYPTED_NAME, place, entry, "is too short for an encrypted name");
        } else if !self.characters(place, entry) {
        } else if !is_encrypted
            && check.fs.is_casefolded(node)
            && check.fs.sb.encoding_flags & 1 != 0
            && FoldedName::new(entry.name, true).is_err()
        {
            self.entry_is(Code::PR_2_BAD_ENCODED_NAME, place, entry, "is no valid text");
        }
        let key = check.fs.folded(node, entry.name).map_or(Cow::Borrowed(entry.name), Cow::Owned);
        if !names.insert(key) {
            self.entry_is(Code::PR_2_DUPLICATE_DIRENT, place, entry, "stands there twice");
        }
        if check.fs.sb.check_inode("inode", entry.inode).is_err() {
            return self.entry_is(Code::PR_2_BAD_INO, place, entry, "names no inode");
        }
        if check.is_reserved(entry.inode) {
            return self.entry_is(Code::PR_2_BAD_INO, place, entry, "names a reserved inode");
        }
        let Some(record) = check.record(entry.inode) else {
            return self.unused(place, entry);
        };
        match record.kind {
            Kind::Value => self.entry_is(Code::PR_2_BAD_INO, place, entry, "names the value of an attribute"),
            _ if entry.inode == InodeNumber::ROOT => {
                self.entry_is(Code::PR_2_LINK_ROOT, place, entry, "names the root")
            }
            Kind::Of(FileType::Directory) if entry.inode == node.ino => {
                self.entry_is(Code::PR_2_LINK_DOT, place, entry, "names its own directory")
            }
            Kind::Of(FileType::Directory) => self.out.named_in.push((entry.inode.0, node.ino.0)),
            _ => {}
        }
        self.kind(place, entry, record.kind);
        check.records.count(entry.inode);
    }

    /// Whether the name has no characters that none has.
    fn characters(&mut self, place: Place, entry: &Entry<'_>) -> bool {
        let is_right =
            self.node.has(InodeFlags::ENCRYPT) || !entry.name.iter().any(|byte| matches!(byte, b'/' | 0));
        if !is_right {
            self.entry_is(Code::PR_2_BAD_NAME, place, entry, "has a character that no name has");
        }
        is_right
    }

    /// An entry for an inode that is not in use. Its type may still be that of the inode.
    fn unused(&mut self, place: Place, entry: &Entry<'_>) {
        self.entry_is(Code::PR_2_UNUSED_INODE, place, entry, "names an inode that is not in use");
        if let Some(code) = self.check.never_used(entry.inode) {
            self.entry_is(code, place, entry, "names an inode that the group has never used");
        }
        let mode = match self.check.inode_bytes(entry.inode) {
            Ok((bytes, _)) => Inode::head(&bytes).map_or(0, |head| head.mode),
            Err(_) => 0,
        };
        self.kind(place, entry, FileType::from_mode(u32::from(mode)).map_or(Kind::Unknown, Kind::Of));
    }

    /// Compares the type that an entry records.
    fn kind(&mut self, place: Place, entry: &Entry<'_>, kind: Kind) {
        let fs = self.check.fs;
        if !fs.sb.incompat.has(Incompat::FILETYPE) {
            if entry.file_type != 0 {
                self.entry_is(
                    Code::PR_2_CLEAR_FILETYPE,
                    place,
                    entry,
                    "records a type, and the file system has none",
                );
            }
            return;
        }
        let is_right = match kind {
            Kind::Unknown => entry.file_type == 0,
            Kind::Of(kind) => fs.kind_of(entry) == Some(kind),
            Kind::Value => true,
        };
        if !is_right {
            let code = if entry.file_type == 0 { Code::PR_2_SET_FILETYPE } else { Code::PR_2_BAD_FILETYPE };
            self.entry_is(code, place, entry, "records another type than its inode has");
        }
    }
}
