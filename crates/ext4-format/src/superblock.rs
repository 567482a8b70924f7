//! The superblock. Source: kernel document `super.rst`.

use crate::raw::{join, raw_layout};
use crate::{
    BlockNumber, BlockSize, ChecksumSeed, Compat, GroupNumber, Incompat, InodeNumber, InodeTime, Problem,
    RoCompat, crc32c,
};
use zerocopy::{IntoBytes, little_endian as le};

mod encode;
mod writers;

/// Byte offset of the primary superblock.
pub const SUPERBLOCK_OFFSET: u64 = 1024;
/// Bytes of a superblock.
pub const SUPERBLOCK_SIZE: usize = 1024;

const MAGIC: u16 = 0xEF53;
const CHECKSUM_TYPE_CRC32C: u8 = 1;
const GOOD_OLD_REVISION: u32 = 0;
const GOOD_OLD_INODE_SIZE: u32 = 128;
const GOOD_OLD_FIRST_INO: u32 = 11;

raw_layout! {
    /// `struct ext4_super_block`.
    RawSuperblock, size 0x400 {
        0x00 s_inodes_count: le::U32,
        0x04 s_blocks_count_lo: le::U32,
        0x08 s_r_blocks_count_lo: le::U32,
        0x0C s_free_blocks_count_lo: le::U32,
        0x10 s_free_inodes_count: le::U32,
        0x14 s_first_data_block: le::U32,
        0x18 s_log_block_size: le::U32,
        0x1C s_log_cluster_size: le::U32,
        0x20 s_blocks_per_group: le::U32,
        0x24 s_clusters_per_group: le::U32,
        0x28 s_inodes_per_group: le::U32,
        0x2C s_mtime: le::U32,
        0x30 s_wtime: le::U32,
        0x34 s_mnt_count: le::U16,
        0x36 s_max_mnt_count: le::U16,
        0x38 s_magic: le::U16,
        0x3A s_state: le::U16,
        0x3C s_errors: le::U16,
        0x3E s_minor_rev_level: le::U16,
        0x40 s_lastcheck: le::U32,
        0x44 s_checkinterval: le::U32,
        0x48 s_creator_os: le::U32,
        0x4C s_rev_level: le::U32,
        0x50 s_def_resuid: le::U16,
        0x52 s_def_resgid: le::U16,
        0x54 s_first_ino: le::U32,
        0x58 s_inode_size: le::U16,
        0x5A s_block_group_nr: le::U16,
        0x5C s_feature_compat: le::U32,
        0x60 s_feature_incompat: le::U32,
        0x64 s_feature_ro_compat: le::U32,
        0x68 s_uuid: [u8; 16],
        0x78 s_volume_name: [u8; 16],
        0x88 s_last_mounted: [u8; 64],
        0xC8 s_algorithm_usage_bitmap: le::U32,
        0xCC s_prealloc_blocks: u8,
        0xCD s_prealloc_dir_blocks: u8,
        0xCE s_reserved_gdt_blocks: le::U16,
        0xD0 s_journal_uuid: [u8; 16],
        0xE0 s_journal_inum: le::U32,
        0xE4 s_journal_dev: le::U32,
        0xE8 s_last_orphan: le::U32,
        0xEC s_hash_seed: [le::U32; 4],
        0xFC s_def_hash_version: u8,
        0xFD s_jnl_backup_type: u8,
        0xFE s_desc_size: le::U16,
        0x100 s_default_mount_opts: le::U32,
        0x104 s_first_meta_bg: le::U32,
        0x108 s_mkfs_time: le::U32,
        0x10C s_jnl_blocks: [le::U32; 17],
        0x150 s_blocks_count_hi: le::U32,
        0x154 s_r_blocks_count_hi: le::U32,
        0x158 s_free_blocks_count_hi: le::U32,
        0x15C s_min_extra_isize: le::U16,
        0x15E s_want_extra_isize: le::U16,
        0x160 s_flags: le::U32,
        0x164 s_raid_stride: le::U16,
        0x166 s_mmp_interval: le::U16,
        0x168 s_mmp_block: le::U64,
        0x170 s_raid_stripe_width: le::U32,
        0x174 s_log_groups_per_flex: u8,
        0x175 s_checksum_type: u8,
        0x176 s_encryption_level: u8,
        0x177 s_reserved_pad: u8,
        0x178 s_kbytes_written: le::U64,
        0x180 s_snapshot_inum: le::U32,
        0x184 s_snapshot_id: le::U32,
        0x188 s_snapshot_r_blocks_count: le::U64,
        0x190 s_snapshot_list: le::U32,
        0x194 s_error_count: le::U32,
        0x198 s_first_error_time: le::U32,
        0x19C s_first_error_ino: le::U32,
        0x1A0 s_first_error_block: le::U64,
        0x1A8 s_first_error_func: [u8; 32],
        0x1C8 s_first_error_line: le::U32,
        0x1CC s_last_error_time: le::U32,
        0x1D0 s_last_error_ino: le::U32,
        0x1D4 s_last_error_line: le::U32,
        0x1D8 s_last_error_block: le::U64,
        0x1E0 s_last_error_func: [u8; 32],
        0x200 s_mount_opts: [u8; 64],
        0x240 s_usr_quota_inum: le::U32,
        0x244 s_grp_quota_inum: le::U32,
        0x248 s_overhead_clusters: le::U32,
        0x24C s_backup_bgs: [le::U32; 2],
        0x254 s_encrypt_algos: [u8; 4],
        0x258 s_encrypt_pw_salt: [u8; 16],
        0x268 s_lpf_ino: le::U32,
        0x26C s_prj_quota_inum: le::U32,
        0x270 s_checksum_seed: le::U32,
        0x274 s_wtime_hi: u8,
        0x275 s_mtime_hi: u8,
        0x276 s_mkfs_time_hi: u8,
        0x277 s_lastcheck_hi: u8,
        0x278 s_first_error_time_hi: u8,
        0x279 s_last_error_time_hi: u8,
        0x27A s_first_error_errcode: u8,
        0x27B s_last_error_errcode: u8,
        0x27C s_encoding: le::U16,
        0x27E s_encoding_flags: le::U16,
        0x280 s_orphan_file_inum: le::U32,
        0x284 s_reserved: [le::U32; 94],
        0x3FC s_checksum: le::U32,
    }
}

/// A superblock with consistent fields.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Superblock {
    /// `s_feature_compat`.
    pub compat: Compat,
    /// `s_feature_incompat`.
    pub incompat: Incompat,
    /// `s_feature_ro_compat`.
    pub ro_compat: RoCompat,
    /// 0 (fixed inode size, no features) or 1.
    pub revision: u32,
    /// Block size.
    pub block_size: BlockSize,
    /// Base-2 logarithm of blocks per cluster; 0 without bigalloc.
    pub log_cluster_ratio: u32,
    /// Blocks.
    pub blocks_count: u64,
    /// Blocks reserved for root.
    pub reserved_blocks_count: u64,
    /// Free blocks.
    pub free_blocks_count: u64,
    /// Inodes.
    pub inodes_count: u32,
    /// Free inodes.
    pub free_inodes_count: u32,
    /// First block of group 0: 1 with 1 KiB blocks and no bigalloc, else 0.
    pub first_data_block: u32,
    /// Blocks per group.
    pub blocks_per_group: u32,
    /// Inodes per group.
    pub inodes_per_group: u32,
    /// Number of groups.
    pub groups: u32,
    /// Bytes per inode: a power of two, 128 to the block size.
    pub inode_size: u32,
    /// First inode that is not reserved.
    pub first_ino: u32,
    /// Bytes per group descriptor: 32, or a power of two from 64 to 1024.
    pub desc_size: u32,
    /// First meta block group; earlier descriptors follow the superblock.
    pub first_meta_bg: u32,
    /// Blocks reserved for more group descriptors.
    pub reserved_gdt_blocks: u16,
    /// Groups with a backup, with sparse_super2.
    pub backup_groups: [u32; 2],
    /// Group of this copy.
    pub block_group_nr: u16,
    /// Clusters of metadata; 0: unknown.
    pub overhead_clusters: u32,
    /// Groups with adjacent bitmaps and inode tables; 1 without flex_bg.
    pub groups_per_flex: u32,
    /// UUID.
    pub uuid: [u8; 16],
    /// Label, up to the first NUL.
    pub volume_name: Vec<u8>,
    /// Last mount point, up to the first NUL.
    pub last_mounted: Vec<u8>,
    /// Default mount options, up to the first NUL.
    pub mount_opts: Vec<u8>,
    /// `s_default_mount_opts`: 4 user_xattr, 8 acl, and more.
    pub default_mount_opts: u32,
    /// `s_state`: 1 clean, 2 errors, 4 orphan recovery.
    pub state: u16,
    /// On errors: 1 continue, 2 remount read-only, 3 panic.
    pub errors: u16,
    /// 0 Linux, 1 Hurd, 2 Masix, 3 FreeBSD, 4 Lites.
    pub creator_os: u32,
    /// Creation time.
    pub mkfs_time: InodeTime,
    /// Last mount; 0: never.
    pub mount_time: InodeTime,
    /// Last write.
    pub write_time: InodeTime,
    /// Last check.
    pub lastcheck: InodeTime,
    /// Mounts since the last check.
    pub mount_count: u16,
    /// Mounts between checks; 0 or less: unlimited.
    pub max_mount_count: i16,
    /// Seconds between checks; 0: unlimited.
    pub check_interval: u32,
    /// User that may take reserved blocks.
    pub reserved_uid: u16,
    /// Group that may take reserved blocks.
    pub reserved_gid: u16,
    /// RAID: blocks per disk; 0: unknown.
    pub raid_stride: u16,
    /// RAID: blocks per stripe; 0: unknown.
    pub raid_stripe_width: u32,
    /// Kilobytes ever written.
    pub kbytes_written: u64,
    /// Errors recorded by the kernel.
    pub error_count: u32,
    /// Time of the first error.
    pub first_error_time: InodeTime,
    /// Time of the last error.
    pub last_error_time: InodeTime,
    /// First error.
    pub first_error: ErrorRecord,
    /// Last error.
    pub last_error: ErrorRecord,
    /// Journal inode; 0: none.
    pub journal_inum: InodeNumber,
    /// External journal's UUID.
    pub journal_uuid: [u8; 16],
    /// External journal's device number; 0: none.
    pub journal_dev: u32,
    /// Backup of the journal inode: `i_block`, size (high, low).
    pub journal_backup: Option<[u32; 17]>,
    /// First orphan of the list; 0: none.
    pub last_orphan: u32,
    /// Orphan file's inode; 0: none.
    pub orphan_file_inum: u32,
    /// Inodes of user, group and project quota; 0: none.
    pub quota_inums: [u32; 3],
    /// Block of multiple mount protection; 0: none.
    pub mmp_block: u64,
    /// Directory hash seed.
    pub hash_seed: [u32; 4],
    /// `s_def_hash_version`: hash of new directories.
    pub default_hash_version: u8,
    /// `s_flags`: 1 signed hash, 2 unsigned hash, 4 test file system.
    pub flags: u32,
    /// Casefold encoding: 1 is UTF-8 12.1.
    pub encoding: u16,
    /// Casefold flags: 1 refuses invalid names.
    pub encoding_flags: u16,
    /// Extra bytes in every inode.
    pub min_extra_isize: u16,
    /// Extra bytes in new inodes.
    pub want_extra_isize: u16,
    /// Start value of metadata checksums.
    pub checksum_seed: ChecksumSeed,
}

/// An error record; zeros are unknown.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ErrorRecord {
    /// Inode.
    pub inode: u32,
    /// Block.
    pub block: u64,
    /// Kernel function, at most 32 bytes.
    pub function: Vec<u8>,
    /// Line.
    pub line: u32,
    /// 0 unknown, 1 EIO, 2 ENOMEM, 3 EFSBADCRC, 4 EFSCORRUPTED, 5 ENOSPC, 6 ENOKEY, 7 EROFS, 8
    /// EFBIG, 9 EEXIST, …
    pub code: u8,
}

impl Superblock {
    /// Parses a superblock, and verifies its checksum. Does not check features; see
    /// [`Incompat::READABLE`].
    pub fn parse(bytes: &[u8; SUPERBLOCK_SIZE]) -> Result<Superblock, Problem> {
        let raw: RawSuperblock = zerocopy::transmute!(*bytes);
        let magic = u64::from(raw.s_magic.get());
        if magic != u64::from(MAGIC) {
            return Err(Problem::Magic { found: magic, expected: u64::from(MAGIC) });
        }
        verify_checksum(&raw)?;
        let geometry = Geometry::of(&raw)?;
        Ok(build(&raw, geometry))
    }

    /// Whether metadata has CRC32c checksums.
    pub fn has_metadata_csum(&self) -> bool {
        self.ro_compat.has(RoCompat::METADATA_CSUM)
    }

    /// Whether inodes have nanoseconds, and times after 2038.
    pub fn has_extra_times(&self) -> bool {
        self.inode_size > GOOD_OLD_INODE_SIZE
    }

    /// Whether block numbers have 64 bits.
    pub fn is_64bit(&self) -> bool {
        self.incompat.has(Incompat::BITS64)
    }

    /// First block of a group.
    pub fn group_start(&self, group: GroupNumber) -> BlockNumber {
        BlockNumber(u64::from(self.first_data_block) + u64::from(group.0) * u64::from(self.blocks_per_group))
    }

    /// Blocks of a group; the last may be shorter.
    pub fn blocks_in_group(&self, group: GroupNumber) -> u32 {
        let left = self.blocks_count.saturating_sub(self.group_start(group).0);
        u32::try_from(left).unwrap_or(u32::MAX).min(self.blocks_per_group)
    }

    /// Clusters per group.
    pub fn clusters_per_group(&self) -> u32 {
        self.blocks_per_group >> self.log_cluster_ratio
    }

    /// Whether group descriptors have checksums, and groups may be uninitialized.
    pub fn has_group_checksums(&self) -> bool {
        self.has_metadata_csum() || self.ro_compat.has(RoCompat::GDT_CSUM)
    }

    /// Blocks per inode table.
    pub fn inode_table_blocks(&self) -> u64 {
        self.block_size.blocks_for(u64::from(self.inodes_per_group) * u64::from(self.inode_size))
    }

    /// Whether a group has a superblock copy.
    pub fn group_has_superblock(&self, group: GroupNumber) -> bool {
        if group.0 == 0 {
            return true;
        }
        if self.compat.has(Compat::SPARSE_SUPER2) {
            return self.backup_groups.contains(&group.0);
        }
        if group.0 == 1 || !self.ro_compat.has(RoCompat::SPARSE_SUPER) {
            return true;
        }
        group.0 % 2 == 1 && [3, 5, 7].iter().any(|&base| is_power_of(group.0, base))
    }

    /// Groups with a superblock copy.
    pub fn superblock_copies(&self) -> u64 {
        let groups = u64::from(self.groups);
        if self.compat.has(Compat::SPARSE_SUPER2) {
            let backups = self.backup_groups.iter().filter(|&&group| group != 0 && group < self.groups);
            return 1 + u64::try_from(backups.count()).unwrap_or(u64::MAX);
        }
        if !self.ro_compat.has(RoCompat::SPARSE_SUPER) {
            return groups;
        }
        let powers = [3_u64, 5, 7].map(|base| {
            std::iter::successors(Some(base), |power| Some(power * base))
                .take_while(|&power| power < groups)
                .count()
        });
        groups.min(2) + u64::try_from(powers.iter().sum::<usize>()).unwrap_or(u64::MAX)
    }

    /// Group descriptors per block.
    pub fn descs_per_block(&self) -> u32 {
        self.block_size.bytes() / self.desc_size
    }

    /// Blocks of all group descriptors.
    pub fn desc_blocks(&self) -> u32 {
        self.groups.div_ceil(self.descs_per_block())
    }

    /// Checks that blocks are in the file system, after its first block.
    pub fn check_blocks(&self, field: &'static str, first: BlockNumber, count: u64) -> Result<(), Problem> {
        let min = u64::from(self.first_data_block) + 1;
        let max = self.blocks_count - 1;
        Problem::check_range(field, first.0, min, max)?;
        let last = first.0.saturating_add(count.saturating_sub(1));
        Problem::check_range(field, last, min, max)
    }

    /// Checks an inode number's range.
    pub fn check_inode(&self, field: &'static str, ino: InodeNumber) -> Result<(), Problem> {
        Problem::check_range(field, u64::from(ino.0), 1, u64::from(self.inodes_count))
    }
}

fn is_power_of(mut number: u32, base: u32) -> bool {
    while number.is_multiple_of(base) {
        number /= base;
    }
    number == 1
}

fn verify_checksum(raw: &RawSuperblock) -> Result<(), Problem> {
    if !RoCompat(raw.s_feature_ro_compat.get()).has(RoCompat::METADATA_CSUM) {
        return Ok(());
    }
    if raw.s_checksum_type != CHECKSUM_TYPE_CRC32C {
        return Err(Problem::Value {
            field: "s_checksum_type",
            value: u64::from(raw.s_checksum_type),
            because: "is not a known checksum type (1 is CRC32c)",
        });
    }
    let bytes = raw.as_bytes();
    let summed = bytes.get(..bytes.len() - 4).unwrap_or_default();
    Problem::check_sum(raw.s_checksum.get(), crc32c(!0, summed))
}

/// Validated fields that determine addresses.
struct Geometry {
    block_size: BlockSize,
    log_cluster_ratio: u32,
    blocks_count: u64,
    groups: u32,
    inode_size: u32,
    desc_size: u32,
}

impl Geometry {
    fn of(raw: &RawSuperblock) -> Result<Geometry, Problem> {
        let incompat = Incompat(raw.s_feature_incompat.get());
        let log_block_size = raw.s_log_block_size.get();
        Problem::check_range("s_log_block_size", u64::from(log_block_size), 0, 6)?;
        let block_size = BlockSize::from_log_block_size(log_block_size)
            .ok_or(Problem::Missing { what: "a block size" })?;
        let log_cluster_ratio = cluster_ratio(raw)?;
        let bits64 = incompat.has(Incompat::BITS64);
        let blocks_count = wide(bits64, raw.s_blocks_count_hi, raw.s_blocks_count_lo);
        check_groups(raw, block_size)?;
        let groups = count_groups(raw, block_size, blocks_count)?;
        Ok(Geometry {
            block_size,
            log_cluster_ratio,
            blocks_count,
            groups,
            inode_size: inode_size(raw, block_size)?,
            desc_size: desc_size(raw, bits64)?,
        })
    }
}

fn wide(bits64: bool, high: le::U32, low: le::U32) -> u64 {
    if bits64 { join(high, low) } else { u64::from(low.get()) }
}

fn cluster_ratio(raw: &RawSuperblock) -> Result<u32, Problem> {
    if !RoCompat(raw.s_feature_ro_compat.get()).has(RoCompat::BIGALLOC) {
        return Ok(0);
    }
    let block = raw.s_log_block_size.get();
    let cluster = raw.s_log_cluster_size.get();
    // The kernel's limit is 2^30 bytes.
    Problem::check_range("s_log_cluster_size", u64::from(cluster), u64::from(block), 20)?;
    let ratio = cluster - block;
    let blocks = u64::from(raw.s_clusters_per_group.get()) << ratio;
    Problem::check_range("s_blocks_per_group", u64::from(raw.s_blocks_per_group.get()), blocks, blocks)?;
    Ok(ratio)
}

fn check_groups(raw: &RawSuperblock, block_size: BlockSize) -> Result<(), Problem> {
    let bits = u64::from(block_size.bytes()) * 8;
    Problem::check_range("s_inodes_per_group", u64::from(raw.s_inodes_per_group.get()), 1, bits)?;
    let bigalloc = RoCompat(raw.s_feature_ro_compat.get()).has(RoCompat::BIGALLOC);
    let (field, count) = if bigalloc {
        ("s_clusters_per_group", raw.s_clusters_per_group.get())
    } else {
        ("s_blocks_per_group", raw.s_blocks_per_group.get())
    };
    Problem::check_range(field, u64::from(count), 1, bits)?;
    let first = u64::from(raw.s_first_data_block.get());
    Problem::check_range("s_first_data_block", first, 0, 1)
}

/// Byte offsets fit into 63 bits.
fn count_groups(raw: &RawSuperblock, block_size: BlockSize, blocks_count: u64) -> Result<u32, Problem> {
    let first = u64::from(raw.s_first_data_block.get());
    Problem::check_range("s_blocks_count", blocks_count, first + 2, 1 << (63 - block_size.log2()).min(48))?;
    let per_group = u64::from(raw.s_blocks_per_group.get());
    let groups = (blocks_count - first).div_ceil(per_group);
    let inodes = u64::from(raw.s_inodes_per_group.get()).saturating_mul(groups);
    Problem::check_range("s_inodes_count", u64::from(raw.s_inodes_count.get()), inodes, inodes)?;
    u32::try_from(groups).map_err(|_| Problem::Range {
        field: "the number of groups",
        value: groups,
        min: 1,
        max: u64::from(u32::MAX),
    })
}

fn inode_size(raw: &RawSuperblock, block_size: BlockSize) -> Result<u32, Problem> {
    if raw.s_rev_level.get() == GOOD_OLD_REVISION {
        return Ok(GOOD_OLD_INODE_SIZE);
    }
    let size = u32::from(raw.s_inode_size.get());
    Problem::check_range("s_inode_size", u64::from(size), 128, u64::from(block_size.bytes()))?;
    power_of_two("s_inode_size", size)
}

fn desc_size(raw: &RawSuperblock, bits64: bool) -> Result<u32, Problem> {
    if !bits64 {
        return Ok(32);
    }
    let size = u32::from(raw.s_desc_size.get());
    Problem::check_range("s_desc_size", u64::from(size), 64, 1024)?;
    power_of_two("s_desc_size", size)
}

fn power_of_two(field: &'static str, value: u32) -> Result<u32, Problem> {
    if value.is_power_of_two() {
        Ok(value)
    } else {
        Err(Problem::Value { field, value: u64::from(value), because: "is not a power of two" })
    }
}

fn build(raw: &RawSuperblock, geometry: Geometry) -> Superblock {
    let incompat = Incompat(raw.s_feature_incompat.get());
    let bits64 = incompat.has(Incompat::BITS64);
    let dynamic = raw.s_rev_level.get() != GOOD_OLD_REVISION;
    let flex = incompat.has(Incompat::FLEX_BG) && (1..32).contains(&raw.s_log_groups_per_flex);
    Superblock {
        compat: Compat(raw.s_feature_compat.get()),
        incompat,
        ro_compat: RoCompat(raw.s_feature_ro_compat.get()),
        revision: raw.s_rev_level.get(),
        block_size: geometry.block_size,
        log_cluster_ratio: geometry.log_cluster_ratio,
        blocks_count: geometry.blocks_count,
        reserved_blocks_count: wide(bits64, raw.s_r_blocks_count_hi, raw.s_r_blocks_count_lo),
        free_blocks_count: wide(bits64, raw.s_free_blocks_count_hi, raw.s_free_blocks_count_lo),
        inodes_count: raw.s_inodes_count.get(),
        free_inodes_count: raw.s_free_inodes_count.get(),
        first_data_block: raw.s_first_data_block.get(),
        blocks_per_group: raw.s_blocks_per_group.get(),
        inodes_per_group: raw.s_inodes_per_group.get(),
        groups: geometry.groups,
        inode_size: geometry.inode_size,
        first_ino: if dynamic { raw.s_first_ino.get() } else { GOOD_OLD_FIRST_INO },
        desc_size: geometry.desc_size,
        first_meta_bg: raw.s_first_meta_bg.get(),
        reserved_gdt_blocks: raw.s_reserved_gdt_blocks.get(),
        backup_groups: raw.s_backup_bgs.map(le::U32::get),
        block_group_nr: raw.s_block_group_nr.get(),
        overhead_clusters: raw.s_overhead_clusters.get(),
        groups_per_flex: if flex { 1 << raw.s_log_groups_per_flex } else { 1 },
        uuid: raw.s_uuid,
        volume_name: until_nul(&raw.s_volume_name),
        last_mounted: until_nul(&raw.s_last_mounted),
        mount_opts: until_nul(&raw.s_mount_opts),
        default_mount_opts: raw.s_default_mount_opts.get(),
        state: raw.s_state.get(),
        errors: raw.s_errors.get(),
        creator_os: raw.s_creator_os.get(),
        mkfs_time: time(raw.s_mkfs_time, raw.s_mkfs_time_hi),
        mount_time: time(raw.s_mtime, raw.s_mtime_hi),
        write_time: time(raw.s_wtime, raw.s_wtime_hi),
        lastcheck: time(raw.s_lastcheck, raw.s_lastcheck_hi),
        mount_count: raw.s_mnt_count.get(),
        max_mount_count: raw.s_max_mnt_count.get().cast_signed(),
        check_interval: raw.s_checkinterval.get(),
        reserved_uid: raw.s_def_resuid.get(),
        reserved_gid: raw.s_def_resgid.get(),
        raid_stride: raw.s_raid_stride.get(),
        raid_stripe_width: raw.s_raid_stripe_width.get(),
        kbytes_written: raw.s_kbytes_written.get(),
        error_count: raw.s_error_count.get(),
        first_error_time: time(raw.s_first_error_time, raw.s_first_error_time_hi),
        last_error_time: time(raw.s_last_error_time, raw.s_last_error_time_hi),
        first_error: ErrorRecord {
            inode: raw.s_first_error_ino.get(),
            block: raw.s_first_error_block.get(),
            function: until_nul(&raw.s_first_error_func),
            line: raw.s_first_error_line.get(),
            code: raw.s_first_error_errcode,
        },
        last_error: ErrorRecord {
            inode: raw.s_last_error_ino.get(),
            block: raw.s_last_error_block.get(),
            function: until_nul(&raw.s_last_error_func),
            line: raw.s_last_error_line.get(),
            code: raw.s_last_error_errcode,
        },
        journal_inum: InodeNumber(raw.s_journal_inum.get()),
        journal_uuid: raw.s_journal_uuid,
        journal_dev: raw.s_journal_dev.get(),
        journal_backup: encode::journal_backup(raw),
        last_orphan: raw.s_last_orphan.get(),
        orphan_file_inum: raw.s_orphan_file_inum.get(),
        quota_inums: [raw.s_usr_quota_inum.get(), raw.s_grp_quota_inum.get(), raw.s_prj_quota_inum.get()],
        mmp_block: if incompat.has(Incompat::MMP) { raw.s_mmp_block.get() } else { 0 },
        hash_seed: raw.s_hash_seed.map(le::U32::get),
        default_hash_version: raw.s_def_hash_version,
        flags: raw.s_flags.get(),
        encoding: raw.s_encoding.get(),
        encoding_flags: raw.s_encoding_flags.get(),
        min_extra_isize: raw.s_min_extra_isize.get(),
        want_extra_isize: raw.s_want_extra_isize.get(),
        checksum_seed: checksum_seed(raw, incompat),
    }
}

fn checksum_seed(raw: &RawSuperblock, incompat: Incompat) -> ChecksumSeed {
    if incompat.has(Incompat::CSUM_SEED) {
        ChecksumSeed(raw.s_checksum_seed.get())
    } else {
        ChecksumSeed::of_uuid(&raw.s_uuid)
    }
}

/// Unsigned, 40 bits.
fn time(low: le::U32, high: u8) -> InodeTime {
    InodeTime { seconds: i64::from(high) << 32 | i64::from(low.get()), nanos: 0 }
}

fn until_nul(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().copied().take_while(|&byte| byte != 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros;

    /// 8 groups of 8192 blocks of 1 KiB, no features.
    fn small() -> RawSuperblock {
        let mut raw = RawSuperblock::new_zeroed();
        raw.s_magic.set(MAGIC);
        raw.s_rev_level.set(1);
        raw.s_blocks_count_lo.set(65536);
        raw.s_first_data_block.set(1);
        raw.s_blocks_per_group.set(8192);
        raw.s_clusters_per_group.set(8192);
        raw.s_inodes_per_group.set(2048);
        raw.s_inodes_count.set(16384);
        raw.s_inode_size.set(256);
        raw
    }

    fn parse(raw: &RawSuperblock) -> Result<Superblock, Problem> {
        Superblock::parse(raw.as_bytes().first_chunk().unwrap())
    }

    #[test]
    fn a_plain_superblock_parses() {
        let sb = parse(&small()).unwrap();
        assert_eq!((sb.groups, sb.desc_size, sb.block_size.bytes()), (8, 32, 1024));
        assert_eq!(sb.group_start(GroupNumber(3)), BlockNumber(24577));
    }

    #[test]
    fn inconsistent_sizes_are_refused() {
        for break_it in [
            (|raw| raw.s_log_block_size.set(7)) as fn(&mut RawSuperblock),
            |raw| raw.s_inode_size.set(129),
            |raw| raw.s_inode_size.set(2048),
            |raw| raw.s_inodes_per_group.set(0),
            |raw| raw.s_blocks_per_group.set(0),
            |raw| raw.s_inodes_count.set(1),
            |raw| raw.s_blocks_count_lo.set(0),
            |raw| raw.s_feature_incompat.set(Incompat::BITS64.0),
        ] {
            let mut raw = small();
            break_it(&mut raw);
            assert!(parse(&raw).is_err());
        }
    }

    #[test]
    fn a_wrong_checksum_is_named() {
        let mut raw = small();
        raw.s_feature_ro_compat.set(RoCompat::METADATA_CSUM.0);
        raw.s_checksum_type = CHECKSUM_TYPE_CRC32C;
        assert!(matches!(parse(&raw), Err(Problem::Checksum { stored: 0, .. })));
        let sum = crc32c(!0, &raw.as_bytes()[..0x3FC]);
        raw.s_checksum.set(sum);
        assert!(parse(&raw).is_ok());
    }

    #[test]
    fn sparse_super_keeps_backups_in_0_1_and_powers_of_3_5_7() {
        let mut raw = small();
        raw.s_feature_ro_compat.set(RoCompat::SPARSE_SUPER.0);
        let sb = parse(&raw).unwrap();
        let with: Vec<u32> = (0..130).filter(|&group| sb.group_has_superblock(GroupNumber(group))).collect();
        assert_eq!(with, [0, 1, 3, 5, 7, 9, 25, 27, 49, 81, 125]);
        let in_eight = with.iter().filter(|&&group| group < 8).count();
        assert_eq!(sb.superblock_copies(), u64::try_from(in_eight).unwrap());
    }
}
