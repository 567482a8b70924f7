//! Extended attributes, and what inodes share of them.

use super::{Check, Defect};
use crate::inode::Snapshot;
use crate::{Error, Place, Structure};
use dentree_ext4_format::xattr::{Namespace, XattrBlock, XattrList, XattrValue};
use dentree_ext4_format::{BlockNumber, Incompat, InodeFlags, InodeNumber, Problem};
use dentree_sync::Mutex;
use std::collections::HashMap;

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
                    self.found(1, place, Defect::Damaged(problem));
                }
                let facts = self.xattr_list(parsed.list, place, true);
                Share { stored: u64::from(parsed.refcount), counted: 1, facts }
            }
            Err(problem) => {
                self.found(1, place, Defect::Damaged(problem));
                // Its users are not counted.
                Share { stored: u64::MAX, counted: 1, facts: Facts::default() }
            }
        };
        blocks.insert(block.0, share);
        share.facts
    }

    fn xattr_list(&self, list: XattrList<'_>, place: Place, is_block: bool) -> Facts {
        let mut facts = Facts::default();
        for entry in list.iter() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(problem) => {
                    self.found(1, place, Defect::Damaged(problem));
                    return facts;
                }
            };
            facts.is_encrypted |= entry.name_index == Namespace::Encryption.index();
            let mut value_hash = 0;
            if let XattrValue::Inode { inode, size } = entry.value {
                facts.value_blocks += self.fs.sb.block_size.blocks_for(u64::from(size));
                match self.value_of(inode, place) {
                    Ok(hash) => value_hash = hash,
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
                self.found(1, place, Defect::Damaged(problem));
            }
        }
        if let Ok(true) = list.overlaps() {
            self.value(1, place, "e_value_offs", 0, "gives bytes that are used already");
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
        let (bytes, at) = self.fs.inode_bytes(ino)?;
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
                self.count(1, place, "users (h_refcount)", share.stored, share.counted);
            }
        }
        for (&ino, users) in self.shares.values.lock().iter() {
            let place = Structure::XattrValue.of(InodeNumber(ino));
            if let Some(stored) = users.stored {
                self.count(4, place, "users of the value", stored, users.counted);
            }
        }
    }
}
