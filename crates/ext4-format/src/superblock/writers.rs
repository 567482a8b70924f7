//! Fields on which only writers rely. A wrong value fails a reader, but makes a writer cause
//! damage. `docs/internals/superblock.md` lists the checks by field.

use super::{
    GOOD_OLD_FIRST_INO, GOOD_OLD_INODE_SIZE, RawSuperblock, SUPERBLOCK_SIZE, Superblock, verify_checksum,
};
use crate::hash::{CharSign, HashAlgorithm, HashVersion};
use crate::{Compat, Incompat, Problem, RoCompat};

/// Newest `s_rev_level`.
const DYNAMIC_REVISION: u32 = 1;
/// `s_creator_os`.
const CREATOR_HURD: u32 = 1;
/// The number of groups has 32 bits.
const LOG_GROUPS_PER_FLEX_MAX: u64 = 31;
/// Extra bytes of an inode with all known fields.
const EXTRA_ISIZE: u16 = 32;

impl Superblock {
    /// Checks fields on which only writers rely, in the bytes of this superblock. Does not check
    /// features or other blocks.
    pub fn check_for_writing(&self, bytes: &[u8; SUPERBLOCK_SIZE]) -> Result<(), Problem> {
        let raw: RawSuperblock = zerocopy::transmute!(*bytes);
        verify_checksum(&raw)?;
        Problem::check_range("s_rev_level", u64::from(self.revision), 0, u64::from(DYNAMIC_REVISION))?;
        self.check_layout(&raw)?;
        self.check_inodes()?;
        self.check_hash()?;
        self.check_journal()?;
        self.check_creator()
    }

    /// Extra bytes of new inodes: what the superblock wants, but at least all known fields.
    pub fn extra_isize(&self) -> u16 {
        let wanted = self.want_extra_isize.max(self.min_extra_isize);
        match self.inode_size {
            GOOD_OLD_INODE_SIZE => 0,
            _ if self.ro_compat.has(RoCompat::EXTRA_ISIZE) => wanted.max(EXTRA_ISIZE),
            _ => EXTRA_ISIZE,
        }
    }

    /// Group boundaries and metadata blocks. Bigalloc is refused elsewhere.
    fn check_layout(&self, raw: &RawSuperblock) -> Result<(), Problem> {
        let exactly = |field, value: u32, expected: u32| {
            Problem::check_range(field, u64::from(value), u64::from(expected), u64::from(expected))
        };
        let is_smallest = self.block_size.log2() == 10;
        exactly("s_first_data_block", self.first_data_block, u32::from(is_smallest))?;
        exactly("s_log_cluster_size", raw.s_log_cluster_size.get(), raw.s_log_block_size.get())?;
        exactly("s_clusters_per_group", raw.s_clusters_per_group.get(), self.blocks_per_group)?;
        whole_bytes("s_blocks_per_group", self.blocks_per_group)?;
        let kept = u64::from(self.reserved_gdt_blocks);
        Problem::check_range("s_reserved_gdt_blocks", kept, 0, u64::from(self.block_size.bytes() / 4))?;
        if self.incompat.has(Incompat::META_BG) {
            let first = u64::from(self.first_meta_bg);
            Problem::check_range("s_first_meta_bg", first, 0, u64::from(self.desc_blocks()))?;
        }
        if self.incompat.has(Incompat::FLEX_BG) {
            let log = u64::from(raw.s_log_groups_per_flex);
            Problem::check_range("s_log_groups_per_flex", log, 0, LOG_GROUPS_PER_FLEX_MAX)?;
        }
        Ok(())
    }

    fn check_inodes(&self) -> Result<(), Problem> {
        whole_bytes("s_inodes_per_group", self.inodes_per_group)?;
        let (first, count) = (u64::from(self.first_ino), u64::from(self.inodes_count));
        Problem::check_range("s_first_ino", first, u64::from(GOOD_OLD_FIRST_INO), count)?;
        let room = u64::from(self.inode_size - GOOD_OLD_INODE_SIZE);
        if self.ro_compat.has(RoCompat::EXTRA_ISIZE) && room > 0 {
            Problem::check_range("s_want_extra_isize", u64::from(self.want_extra_isize), 0, room)?;
            Problem::check_range("s_min_extra_isize", u64::from(self.min_extra_isize), 0, room)?;
        }
        let value = u64::from(self.extra_isize());
        if value.is_multiple_of(4) {
            return Ok(());
        }
        Err(Problem::Value { field: "s_want_extra_isize", value, because: "is not a multiple of 4" })
    }

    /// Of directories that get an index.
    fn check_hash(&self) -> Result<(), Problem> {
        let version = self.default_hash_version;
        match HashVersion::from_disk(version, CharSign::Signed) {
            Some(HashVersion { algorithm, .. }) if algorithm != HashAlgorithm::SipHash => Ok(()),
            _ => Err(Problem::Value {
                field: "s_def_hash_version",
                value: u64::from(version),
                because: "is not a default directory hash (0 to 5)",
            }),
        }
    }

    fn check_journal(&self) -> Result<(), Problem> {
        if self.compat.has(Compat::HAS_JOURNAL) && self.journal_inum.0 != 0 && self.journal_dev != 0 {
            return Err(Problem::Value {
                field: "s_journal_dev",
                value: u64::from(self.journal_dev),
                because: "names a second journal besides s_journal_inum",
            });
        }
        Ok(())
    }

    fn check_creator(&self) -> Result<(), Problem> {
        let is_new = self.is_64bit() || self.incompat.has(Incompat::EA_INODE);
        if self.creator_os == CREATOR_HURD && is_new {
            return Err(Problem::Value {
                field: "s_creator_os",
                value: u64::from(self.creator_os),
                because: "is GNU Hurd, whose inodes lack fields for 64bit and ea_inode",
            });
        }
        Ok(())
    }
}

/// Bitmap checksums cover whole bytes.
fn whole_bytes(field: &'static str, bits: u32) -> Result<(), Problem> {
    if bits.is_multiple_of(8) {
        return Ok(());
    }
    Err(Problem::Value { field, value: u64::from(bits), because: "is not a multiple of 8" })
}
