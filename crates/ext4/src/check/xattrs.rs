//! Extended attributes, and what inodes share of them.

use super::{Check, Code, classify};
use crate::inode::Snapshot;
use crate::{Error, Place, Structure};
use dentree_ext4_format::xattr::{Namespace, XattrBlock, XattrList, XattrValue};
use dentree_ext4_format::{BlockNumber, Incompat, InodeFlags, InodeNumber, Problem};
use dentree_sync::Mutex;
use std::collections::HashMap;

/// Of an attribute without a name.
const SHORTEST_ENTRY: usize = 16;

/// Blocks and values that inodes share, with their users.
#[derive(Default)]
pub(super) struct Shares {
    blocks: Mutex<HashMap<u64, Share>>,
    /// By the inode with the value.
    values: Mutex<HashMap<u32, Users>>,
}

#[derive(Clone, Copy, Default)]
struct Share {
    stored: u64,
    counted: u64,
    facts: Facts,
}

#[derive(Clone, Copy, Default)]
struct Users {
    stored: Option<u64>,
    counted: u64,
}

/// What a list of attributes says about its inode.
#[derive(Clone, Copy, Default)]
pub(super) struct Facts {
    /// Blocks of values in inodes of their own.
    pub(super) value_blocks: u64,
    pub(super) is_encrypted: bool,
}

impl Facts {
    fn and(self, other: Facts) -> Facts {
        Facts {
            value_blocks: self.value_blocks + other.value_blocks,
            is_encrypted: self.is_encrypted || other.is_encrypted,
        }
    }
}

impl Check<'_> {
    /// Checks the attributes of an inode.
    pub(super) fn xattrs(&self, node: &Snapshot) -> Facts {
        let place = node.place(Structure::InodeXattrs);
        let own = XattrList::in_inode(&node.tail).map(|list| self.xattr_list(list, place, false));
        let own = own.unwrap_or_default();
        match node.inode.xattr_block {
            Some(block) => own.and(self.xattr_block(node, block)),
            None => own,
        }
    }

    fn xattr_block(&self, node: &Snapshot, block: BlockNumber) -> Facts {
        // Held while the block is read: each is read once.
        let mut blocks = self.shares.blocks.lock();
        if let Some(share) = blocks.get_mut(&block.0) {
            share.counted += 1;
            return share.facts;
        }
        let place = node.place(Structure::XattrBlock).at(block);
        let bytes = match self.fs.metadata(block, place) {
            Ok(bytes) => bytes,
            Err(error) => {
                self.error(1, error);
                return Facts::default();
            }
        };
        self.claims.claim(self.claims.clusters(block.0..block.0 + 1));
        let share = match XattrBlock::parse(&bytes) {
            Ok(parsed) => {
                let sb = &self.fs.sb;
                let sum = sb.has_metadata_csum().then(|| parsed.verify(sb.checksum_seed, block));
                if let Some(Err(problem)) = sum {
                    self.damaged(Code::PR_1_EA_BLOCK_ONLY_CSUM_INVALID, place, problem);
                }
                let facts = self.xattr_list(parsed.list, place, true);
                Share { stored: u64::from(parsed.refcount), counted: 1, facts }
            }
            Err(problem) => {
                self.damaged(classify::of_xattr_block(&problem), place, problem);
                let blocks =
                    bytes.get(8..).and_then(<[u8]>::first_chunk).copied().map_or(0, u32::from_le_bytes);
                if matches!(problem, Problem::Magic { .. }) && blocks != 1 {
                    let because = "must be 1";
                    self.value(Code::PR_1_EA_MULTI_BLOCK, place, "h_blocks", u64::from(blocks), because);
                }
                // Its users are not counted.
                Share { stored: u64::MAX, counted: 1, facts: Facts::default() }
            }
        };
        blocks.insert(block.0, share);
        share.facts
    }

    fn xattr_list(&self, list: XattrList<'_>, place: Place, is_block: bool) -> Facts {
        let of = if is_block { classify::of_xattr_block } else { classify::of_inode_xattrs };
        let mut facts = Facts::default();
        for entry in list.iter() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(problem) => {
                    let code = match problem {
                        Problem::Short { what: "an attribute value", need, have }
                            if !is_block && need > have + SHORTEST_ENTRY =>
                        {
                            Code::PR_1_ATTR_VALUE_SIZE
                        }
                        _ => of(&problem),
                    };
                    if code == Code::PR_1_EA_BAD_VALUE {
                        let because = "gives bytes that the block does not have";
                        self.value(Code::PR_1_EA_ALLOC_COLLISION, place, "e_value_offs", 0, because);
                    }
                    self.damaged(code, place, problem);
                    return facts;
                }
            };
            if is_block && entry.name_index == 0 {
                self.value(Code::PR_1_EA_BAD_NAME, place, "e_name_index", 0, "is no namespace");
            }
            facts.is_encrypted |= entry.name_index == Namespace::Encryption.index();
            let mut value_hash = 0;
            if let XattrValue::Inode { inode, size } = entry.value {
                match self.value_of(inode, place) {
                    Ok(hash) => {
                        facts.value_blocks += self.fs.sb.block_size.blocks_for(u64::from(size));
                        value_hash = hash;
                    }
                    Err(error) => {
                        self.error(1, error);
                        continue;
                    }
                }
            }
            // In inodes it may be left out.
            if (is_block || entry.hash != 0)
                && let Err(problem) = entry.verify_hash(value_hash)
            {
                self.damaged(Code::PR_1_ATTR_HASH, place, problem);
            }
        }
        if let Ok(true) = list.overlaps() {
            let code =
                if is_block { Code::PR_1_EA_ALLOC_COLLISION } else { Code::PR_1_INODE_EA_ALLOC_COLLISION };
            self.value(code, place, "e_value_offs", 0, "gives bytes that are used already");
        }
        facts
    }

    /// Counts a user of a value's inode, and returns the value's hash.
    fn value_of(&self, ino: InodeNumber, place: Place) -> Result<u32, Error> {
        let sb = &self.fs.sb;
        if !sb.incompat.has(Incompat::EA_INODE) {
            let (field, because) = ("e_value_inum", "is for file systems with ea_inode");
            return Err(place.corrupt(Problem::Value { field, value: u64::from(ino.0), because }));
        }
        sb.check_inode("e_value_inum", ino).map_err(|problem| place.corrupt(problem))?;
        let (bytes, at) = self.inode_bytes(ino)?;
        let holder = self.parse(ino, &bytes, at)?;
        if !holder.has(InodeFlags::EA_INODE) || holder.inode.links == 0 {
            let (field, because) = ("e_value_inum", "is no inode of a value");
            return Err(place.corrupt(Problem::Value { field, value: u64::from(ino.0), because }));
        }
        self.shares.values.lock().entry(ino.0).or_default().counted += 1;
        Ok(holder.inode.raw_times[0])
    }

    /// Remembers how many users a value's inode says it has.
    pub(super) fn value_users(&self, ino: InodeNumber, users: u64) {
        self.shares.values.lock().entry(ino.0).or_default().stored = Some(users);
    }

    /// Compares the users of what is shared.
    pub(super) fn xattr_users(&self) {
        for (&block, share) in self.shares.blocks.lock().iter() {
            if share.stored != u64::MAX {
                let place = Structure::XattrBlock.at(BlockNumber(block));
                let code = Code::PR_1_EXTATTR_REFCOUNT;
                self.count(code, place, "users (h_refcount)", share.stored, share.counted);
            }
        }
        for (&ino, users) in self.shares.values.lock().iter() {
            let place = Structure::XattrValue.of(InodeNumber(ino));
            if let Some(stored) = users.stored {
                let code = Code::PR_4_EA_INODE_REF_COUNT;
                self.count(code, place, "users of the value", stored, users.counted);
            }
        }
    }
}
