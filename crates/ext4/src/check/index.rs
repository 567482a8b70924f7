//! The htree index of a directory, as pass 2 judges it.
//!
//! e2fsck reads index blocks past a wrong head, as far as the block goes, and follows each entry
//! to the block that it names. So do we: the same blocks are then found wrong.

use super::Code;
use dentree_ext4_format::hash::HashVersion;

/// The low bit of a hash says that the block before continues.
const CONTINUED: u32 = 1;
const GREATEST: u32 = 0xFFFF_FFFE;
const BLOCK_MASK: u32 = 0x0FFF_FFFF;
const ENTRY: usize = 8;
/// Before the entries of a node, and before the head of a root.
const NODE_AT: usize = 8;
const ROOT_HEAD_AT: usize = 24;
/// Levels without the feature large_dir.
const LEVELS: u8 = 2;

/// What block of the directory it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Role {
    #[default]
    Leaf,
    Node,
    Root,
}

/// A block of an indexed directory.
#[derive(Clone, Copy, Debug)]
struct Block {
    role: Role,
    /// Of its names, or of the blocks below.
    hashes: (u32, u32),
    /// By the entry that names it.
    promised: (u32, u32),
    parent: usize,
    is_first: bool,
    is_last: bool,
    is_named: bool,
    is_named_twice: bool,
}

impl Default for Block {
    fn default() -> Block {
        Block {
            role: Role::Leaf,
            hashes: (u32::MAX, 0),
            promised: (0, 0),
            parent: 0,
            is_first: false,
            is_last: false,
            is_named: false,
            is_named_twice: false,
        }
    }
}

/// The head of a root, read whatever it says.
#[derive(Clone, Copy)]
pub(super) struct Head {
    reserved: u32,
    pub(super) version: u8,
    length: u8,
    levels: u8,
    flags: u8,
}

impl Head {
    pub(super) fn of(bytes: &[u8]) -> Option<Head> {
        let &[a, b, c, d, version, length, levels, flags] = bytes.get(ROOT_HEAD_AT..)?.first_chunk()?;
        Some(Head { reserved: u32::from_le_bytes([a, b, c, d]), version, length, levels, flags })
    }

    /// Whether it is that of a root, as far as checksums need it.
    pub(super) fn is_root(&self) -> bool {
        self.reserved == 0 && self.length == 8
    }

    /// What is wrong with it: code, field, value, reason.
    pub(super) fn problems(&self, has_large_dirs: bool, has_siphash: bool) -> Vec<HeadProblem> {
        let most = LEVELS + u8::from(has_large_dirs);
        let (version, levels) = (u64::from(self.version), u64::from(self.levels));
        let is_no_root = self.reserved != 0 || self.length < 8;
        let length = u64::from(self.length);
        let known = matches!(self.version, 0..=2 | 6);
        let is_siphash = self.version == 6;
        let all = [
            (is_no_root, Code::PR_1_HTREE_BADROOT, "info_length", length, "is not that of a root"),
            (!known, Code::PR_1_HTREE_HASHV, "hash_version", version, "is no known directory hash"),
            (
                has_siphash && !is_siphash,
                Code::PR_1_HTREE_NEEDS_SIPHASH,
                "hash_version",
                version,
                "must be SipHash here",
            ),
            (
                !has_siphash && is_siphash,
                Code::PR_1_HTREE_CANNOT_SIPHASH,
                "hash_version",
                version,
                "is for encrypted names that ignore case",
            ),
            (
                self.flags & 1 != 0,
                Code::PR_1_HTREE_INCOMPAT,
                "unused_flags",
                u64::from(self.flags),
                "asks for an index format that was never defined",
            ),
            (self.levels > most, Code::PR_1_HTREE_DEPTH, "indirect_levels", levels, "is too deep"),
            (
                self.levels > LEVELS && !has_large_dirs,
                Code::PR_2_FEATURE_LARGE_DIRS,
                "indirect_levels",
                levels,
                "needs the feature large_dir",
            ),
            (
                is_no_root || self.levels >= most,
                Code::PR_2_HTREE_BAD_ROOT,
                "indirect_levels",
                levels,
                "or the head is not that of a root",
            ),
        ];
        all.into_iter()
            .filter(|(wrong, ..)| *wrong)
            .map(|(_, code, field, value, because)| (code, field, value, because))
            .collect()
    }
}

/// Code, field, value, reason.
pub(super) type HeadProblem = (Code, &'static str, u64, &'static str);

/// The index of a directory, block by block.
pub(super) struct Index {
    blocks: Vec<Block>,
    depth: u8,
    has_sums: bool,
    pub(super) version: Option<HashVersion>,
}

/// Something wrong with a block of the index.
pub(super) struct Wrong {
    pub(super) block: usize,
    pub(super) code: Code,
    pub(super) value: u64,
}

impl Index {
    pub(super) fn new(blocks: usize, has_sums: bool) -> Index {
        Index { blocks: vec![Block::default(); blocks], depth: 0, has_sums, version: None }
    }

    /// The role of a block by its bytes.
    pub(super) fn role(&self, block: usize, bytes: &[u8]) -> Role {
        let room = (bytes.len() - NODE_AT) / ENTRY;
        let limit = usize::from(half(bytes, NODE_AT));
        let is_empty = word(bytes, 0) == 0 && bytes.get(6) == Some(&0);
        let len = usize::from(half(bytes, 4));
        let is_whole = len == bytes.len() || bytes.len() == 1 << 16 && matches!(len, 0 | 0xFFFF);
        match block {
            0 => Role::Root,
            _ if is_empty && is_whole && (limit == room || limit + 1 == room) => Role::Node,
            _ => Role::Leaf,
        }
    }

    /// Adds the hash of a name; `None` where the version is unknown.
    pub(super) fn name(&mut self, block: usize, hash: Option<u32>) {
        if let Some(block) = self.blocks.get_mut(block) {
            let hash = hash.unwrap_or(0);
            block.hashes = (block.hashes.0.min(hash), block.hashes.1.max(hash));
        }
    }

    /// Reads the entries of a root or a node. Returns what is wrong with them.
    pub(super) fn entries(&mut self, block: usize, role: Role, bytes: &[u8]) -> Vec<Wrong> {
        let mut all = Vec::new();
        let mut wrong = |code, value: u64| all.push(Wrong { block, code, value });
        let at = match (role, Head::of(bytes)) {
            (Role::Root, Some(head)) => {
                self.depth = head.levels.wrapping_add(1);
                ROOT_HEAD_AT + usize::from(head.length)
            }
            _ => NODE_AT,
        };
        let room = (bytes.len().saturating_sub(at) / ENTRY).saturating_sub(usize::from(self.has_sums));
        let (limit, count) = (usize::from(half(bytes, at)), usize::from(half(bytes, at + 2)));
        if limit != room {
            wrong(Code::PR_2_HTREE_BAD_LIMIT, u64::try_from(limit).unwrap_or(0));
        }
        if count > room {
            wrong(Code::PR_2_HTREE_BAD_COUNT, u64::try_from(count).unwrap_or(0));
        }
        let count = count.min(room);
        let (mut before, mut hashes) = (0, (u32::MAX, 0));
        for n in 0..count {
            let entry = at + n * ENTRY;
            let hash_of = |entry: usize| word(bytes, entry) & !CONTINUED;
            let hash = if n == 0 { 0 } else { hash_of(entry) };
            let below = word(bytes, entry + 4) & BLOCK_MASK;
            let previous = std::mem::replace(&mut before, hash);
            let Some(named) = usize::try_from(below).ok().and_then(|below| self.blocks.get_mut(below)) else {
                wrong(Code::PR_2_HTREE_BADBLK, u64::from(below));
                continue;
            };
            if hash < previous {
                wrong(Code::PR_2_HTREE_HASH_ORDER, u64::from(hash));
            }
            if named.is_named {
                named.is_named_twice = true;
            } else {
                (named.is_named, named.parent) = (true, block);
            }
            hashes = (hashes.0.min(hash), hashes.1.max(hash));
            let end = if n + 1 < count { hash_of(entry + ENTRY) } else { GREATEST };
            named.promised = (hash, end);
            named.is_first |= n == 0;
            named.is_last |= n + 1 == count;
        }
        if let Some(own) = self.blocks.get_mut(block) {
            (own.role, own.hashes) = (role, hashes);
            own.is_first |= role == Role::Root;
            own.is_last |= role == Role::Root;
        }
        all
    }

    /// Compares what entries promise with what the blocks hold. Returns what is wrong.
    pub(super) fn compare(&mut self) -> Vec<Wrong> {
        let mut all = Vec::new();
        match self.blocks.first_mut() {
            Some(root) if root.is_named => root.is_named_twice = true,
            Some(root) => root.is_named = true,
            None => return all,
        }
        self.raise_hashes();
        for (at, block) in self.blocks.iter().enumerate() {
            let depth = self.depth_of(at);
            let is_deep = block.role == Role::Leaf && block.is_named && depth != u32::from(self.depth);
            let found = [
                (
                    !block.is_first && block.hashes.0 < block.promised.0,
                    Code::PR_2_HTREE_MIN_HASH,
                    block.hashes.0,
                ),
                (
                    !block.is_last && block.hashes.1 > block.promised.1,
                    Code::PR_2_HTREE_MAX_HASH,
                    block.hashes.1,
                ),
                (!block.is_named, Code::PR_2_HTREE_NOTREF, 0),
                (block.is_named_twice, Code::PR_2_HTREE_DUPREF, 0),
                (is_deep, Code::PR_2_HTREE_BAD_DEPTH, depth),
            ];
            let found = found.into_iter().filter(|(wrong, ..)| *wrong);
            all.extend(found.map(|(_, code, value)| Wrong { block: at, code, value: u64::from(value) }));
        }
        if !all.is_empty() {
            all.push(Wrong { block: 0, code: Code::PR_2_HTREE_CLEAR, value: 0 });
        }
        all
    }

    /// Gives each node the least and the greatest hash below it: no entry stores the least.
    fn raise_hashes(&mut self) {
        let mut below: Vec<(u32, usize)> = (0..self.blocks.len()).map(|at| (self.depth_of(at), at)).collect();
        below.sort_unstable_by(|one, other| other.cmp(one));
        for (_, at) in below {
            let block = self.blocks[at];
            let Some(parent) = self.blocks.get_mut(block.parent).filter(|_| block.role != Role::Root) else {
                continue;
            };
            if block.is_first {
                parent.hashes.0 = block.hashes.0;
            }
            if block.is_last {
                parent.hashes.1 = block.hashes.1;
            }
        }
    }

    /// Steps up to the root, at most those of the deepest index.
    fn depth_of(&self, mut at: usize) -> u32 {
        let mut depth = 0;
        while let Some(block) = self.blocks.get(at).filter(|block| block.role != Role::Root && depth < 32) {
            at = block.parent;
            depth += 1;
        }
        depth
    }
}

fn half(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).copied().map_or(0, u16::from_le_bytes)
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).copied().map_or(0, u32::from_le_bytes)
}
