//! Attribute blocks.

use super::XattrCaches;
use crate::alloc::ReservationClass;
use crate::inode::Snapshot;
use crate::{Ext4, Place, Result, Structure};
use dentree_bufcache::Buffer;
use dentree_ext4_format::xattr::{
    MAX_BLOCK_USERS, XattrBlock, XattrEntry, XattrList, block_hash, fits_in_block, overwrite_block,
    set_block_checksum, set_block_refcount, write_block,
};
use dentree_ext4_format::{BlockNumber, ChecksumSeed};
use dentree_jbd2::Handle;
use dentree_mbcache::Users;

/// A candidate just filled; a new block with bitmap and descriptor; the old one, or its bitmap and
/// descriptor; the superblock.
pub(super) const BLOCK_CREDITS: u32 = 1 + 3 + 3 + 1;

/// A verified attribute block.
pub(super) struct AttrBlock {
    pub(super) number: BlockNumber,
    pub(super) place: Place,
    /// The cache's hash; computed if the block lacks one.
    pub(super) key: u32,
    users: u32,
}

/// The bytes are one immutable version.
pub(super) struct AttrBlockData {
    pub(super) block: AttrBlock,
    bytes: Buffer,
}

impl AttrBlockData {
    pub(super) fn list(&self) -> Result<XattrList<'_>> {
        let parsed = XattrBlock::parse(&self.bytes);
        parsed.map(|parsed| parsed.list).map_err(|problem| self.block.place.corrupt(problem))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NewBlock {
    None,
    /// Another inode's; the user is counted.
    Shared(BlockNumber),
    /// The old one, without other users.
    Rewritten(BlockNumber),
    Created(BlockNumber),
}

impl NewBlock {
    pub(super) fn number(self) -> Option<BlockNumber> {
        match self {
            NewBlock::None => None,
            NewBlock::Shared(number) | NewBlock::Rewritten(number) | NewBlock::Created(number) => {
                Some(number)
            }
        }
    }
}

impl Ext4 {
    /// Caches the block for sharing. The caller has the attribute lock or the only node.
    pub(super) fn xattr_block(&self, node: &Snapshot) -> Result<Option<AttrBlockData>> {
        let Some(number) = node.inode.xattr_block else { return Ok(None) };
        let place = node.place(Structure::XattrBlock).at(number);
        let bytes = self.metadata(number, place)?;
        let parsed = XattrBlock::parse(&bytes).map_err(|problem| place.corrupt(problem))?;
        let hashes = || parsed.list.iter().map(|entry| entry.map_or(0, |entry| entry.hash));
        let key = if parsed.hash == 0 { block_hash(hashes()) } else { parsed.hash };
        let users = parsed.refcount;
        let caches = self.writer.as_ref().map(|writer| &writer.xattr_caches);
        // Cached blocks are verified, or written here.
        if !caches.is_some_and(|caches| caches.is_block_cached(key, number, users)) {
            if let Some(seed) = self.xattr_checksum_seed() {
                parsed.verify(seed, number).map_err(|problem| place.corrupt(problem))?;
            }
            if let Some(caches) = caches {
                caches.cache_block(key, number, users);
            }
        }
        Ok(Some(AttrBlockData { block: AttrBlock { number, place, key, users }, bytes }))
    }

    fn xattr_checksum_seed(&self) -> Option<ChecksumSeed> {
        self.sb.has_metadata_csum().then_some(self.sb.checksum_seed)
    }

    /// Finds a block for the sorted `entries`. The inode is then a user of the result, and still of
    /// `old`. On [`Error::NoSpace`](crate::Error::NoSpace), also for a list too long for a block,
    /// nothing has changed.
    pub(super) fn choose_block(
        &self,
        handle: &mut Handle<'_>,
        inode: &Snapshot,
        old: Option<&AttrBlock>,
        entries: &[XattrEntry<'_>],
    ) -> Result<NewBlock> {
        if entries.is_empty() {
            return Ok(NewBlock::None);
        }
        if !fits_in_block(self.sb.block_size.in_memory(), entries) {
            return Err(crate::Error::NoSpace);
        }
        let hash = block_hash(entries.iter().map(|entry| entry.hash));
        let is_other = |number| old.is_none_or(|old| old.number != number);
        if let Some(number) = self.share_block(handle, is_other, hash, entries)? {
            return Ok(NewBlock::Shared(number));
        }
        if let Some(old) = old
            && self.rewrite_block(handle, old, entries, hash)?
        {
            return Ok(NewBlock::Rewritten(old.number));
        }
        let class = ReservationClass::of_owner(inode.inode.uid);
        Ok(NewBlock::Created(self.create_block(handle, inode, entries, class)?))
    }

    /// Creates a block for a sorted list that fits.
    fn create_block(
        &self,
        handle: &mut Handle<'_>,
        inode: &Snapshot,
        entries: &[XattrEntry<'_>],
        class: ReservationClass,
    ) -> Result<BlockNumber> {
        let (number, _) = self.allocate_blocks(handle, self.goal_of(inode.ino), 1, class)?;
        let place = inode.place(Structure::XattrBlock).at(number);
        let created = handle.create(number.0, |to| {
            let hash = write_block(to, entries);
            self.set_checksum(to, number);
            hash
        });
        let hash = self.all_or_abort(created.map_err(|source| place.io(source)))?;
        self.writer()?.xattr_caches.cache_block(hash, number, 1);
        Ok(number)
    }

    /// Another block than `old` for its list, before the end of allocations: one that is shared, or
    /// a copy. Returns whether it is a copy.
    pub(super) fn replace_block(
        &self,
        handle: &mut Handle<'_>,
        inode: &Snapshot,
        old: &AttrBlock,
        entries: &[XattrEntry<'_>],
    ) -> Result<(BlockNumber, bool)> {
        let end = self.writer()?.space.end();
        if let Some(number) = self.share_block(handle, |number| number.0 < end, old.key, entries)? {
            return Ok((number, false));
        }
        let class = ReservationClass::Guaranteed;
        Ok((self.create_block(handle, inode, entries, class)?, true))
    }

    /// The block has one user.
    pub(super) fn set_checksum(&self, to: &mut [u8], number: BlockNumber) {
        if let Some(seed) = self.xattr_checksum_seed() {
            set_block_checksum(to, number, seed);
        }
    }

    /// Becomes a user of a block with `entries`.
    pub(super) fn share_block(
        &self,
        handle: &mut Handle<'_>,
        wanted: impl Fn(BlockNumber) -> bool,
        hash: u32,
        entries: &[XattrEntry<'_>],
    ) -> Result<Option<BlockNumber>> {
        if hash == 0 {
            return Ok(None);
        }
        let mut candidate = self.writer()?.xattr_caches.blocks.find_first(hash);
        while let Some(entry) = candidate {
            let number = BlockNumber(entry.value());
            // While the entry is held, the block keeps its content.
            if wanted(number) && self.has_equal_list(number, entries)? {
                let shared = self.update(handle, number, Structure::XattrBlock.at(number), |bytes| {
                    let users = XattrBlock::parse(bytes).map_or(0, |block| block.refcount);
                    let has_room = (1..MAX_BLOCK_USERS).contains(&users);
                    if has_room {
                        set_block_refcount(bytes, users + 1, self.xattr_checksum_seed().is_some());
                        entry.set_reusable(users + 1 < MAX_BLOCK_USERS);
                    }
                    has_room
                })?;
                entry.touch();
                // Just filled: the search ends, as the credits cover one such block.
                return Ok(shared.then_some(number));
            }
            candidate = entry.find_next();
        }
        Ok(None)
    }

    /// Also checks that it may have another user.
    fn has_equal_list(&self, number: BlockNumber, entries: &[XattrEntry<'_>]) -> Result<bool> {
        let bytes = self.metadata(number, Structure::XattrBlock.at(number))?;
        let Ok(block) = XattrBlock::parse(&bytes) else { return Ok(false) };
        let has_room = (1..MAX_BLOCK_USERS).contains(&block.refcount);
        Ok(has_room && block.list.iter().map(Result::ok).eq(entries.iter().copied().map(Some)))
    }

    /// Does nothing if the block has other users.
    fn rewrite_block(
        &self,
        handle: &mut Handle<'_>,
        old: &AttrBlock,
        entries: &[XattrEntry<'_>],
        hash: u32,
    ) -> Result<bool> {
        if old.users != 1 {
            return Ok(false);
        }
        let caches = &self.writer()?.xattr_caches;
        caches.blocks.hide(old.key, old.number.0);
        let rewritten = self.update(handle, old.number, old.place, |to| {
            let is_ours = XattrBlock::parse(to).is_ok_and(|block| block.refcount == 1);
            if is_ours {
                overwrite_block(to, entries);
                self.set_checksum(to, old.number);
            }
            is_ours
        })?;
        caches.cache_block(if rewritten { hash } else { old.key }, old.number, 1);
        Ok(rewritten)
    }

    /// Frees the block with its last user. Returns whether it did.
    pub(super) fn release_block(&self, handle: &mut Handle<'_>, old: &AttrBlock) -> Result<bool> {
        let &AttrBlock { number, place, key, .. } = old;
        let blocks = &self.writer()?.xattr_caches.blocks;
        let step = |is_hidden: bool| -> Result<Users> {
            let users = self.update(handle, number, place, |bytes| {
                let users = XattrBlock::parse(bytes)?.refcount;
                if users > 1 && !is_hidden {
                    set_block_refcount(bytes, users - 1, self.xattr_checksum_seed().is_some());
                }
                Ok(users)
            })?;
            let users = users.map_err(|problem| place.corrupt(problem))?;
            if users <= 1 {
                return Ok(Users::Alone);
            }
            // A thread that fills it right now may have marked it full before; searches then try it
            // for nothing until a user leaves.
            if users == MAX_BLOCK_USERS && !is_hidden {
                blocks.get(key, number.0).iter().for_each(|entry| entry.set_reusable(true));
            }
            Ok(Users::Others { reusable: users < MAX_BLOCK_USERS })
        };
        let is_free = blocks.leave(key, number.0, step)?;
        if is_free {
            self.free_blocks(handle, number, 1, true)?;
        }
        Ok(is_free)
    }
}

impl XattrCaches {
    /// Also makes an entry reusable below the limit.
    fn is_block_cached(&self, hash: u32, number: BlockNumber, users: u32) -> bool {
        // Hash 0 means "none".
        let entry = if hash == 0 { None } else { self.blocks.get(hash, number.0) };
        // The block may have been full then.
        entry.iter().filter(|_| users < MAX_BLOCK_USERS).for_each(|entry| entry.set_reusable(true));
        entry.is_some()
    }

    /// The caller uses the block.
    fn cache_block(&self, hash: u32, number: BlockNumber, users: u32) {
        if hash != 0 {
            self.blocks.insert(hash, number.0, users < MAX_BLOCK_USERS);
        }
    }
}
