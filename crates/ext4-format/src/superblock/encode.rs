use super::{
    CHECKSUM_TYPE_CRC32C, ErrorRecord, GOOD_OLD_REVISION, MAGIC, RawSuperblock, SUPERBLOCK_SIZE, Superblock,
};
use crate::raw::split;
use crate::{BlockSize, ChecksumSeed, Compat, Incompat, InodeNumber, InodeTime, RoCompat, SumChange, crc32c};
use zerocopy::{IntoBytes, little_endian as le};

const JOURNAL_BACKUP_INODE_BLOCKS: u8 = 1;

impl Superblock {
    /// Revision 1, without features, groups, times or name.
    pub fn new(block_size: BlockSize, uuid: [u8; 16]) -> Superblock {
        let never = InodeTime::default();
        Superblock {
            compat: Compat(0),
            incompat: Incompat(0),
            ro_compat: RoCompat(0),
            revision: 1,
            block_size,
            log_cluster_ratio: 0,
            blocks_count: 0,
            reserved_blocks_count: 0,
            free_blocks_count: 0,
            inodes_count: 0,
            free_inodes_count: 0,
            first_data_block: u32::from(block_size.log2() == 10),
            blocks_per_group: block_size.bytes() * 8,
            inodes_per_group: 0,
            groups: 0,
            inode_size: 256,
            first_ino: super::GOOD_OLD_FIRST_INO,
            desc_size: 32,
            first_meta_bg: 0,
            reserved_gdt_blocks: 0,
            backup_groups: [0; 2],
            block_group_nr: 0,
            overhead_clusters: 0,
            groups_per_flex: 1,
            uuid,
            volume_name: Vec::new(),
            last_mounted: Vec::new(),
            mount_opts: Vec::new(),
            default_mount_opts: 0,
            state: 1,
            errors: 1,
            creator_os: 0,
            mkfs_time: never,
            mount_time: never,
            write_time: never,
            lastcheck: never,
            mount_count: 0,
            max_mount_count: -1,
            check_interval: 0,
            reserved_uid: 0,
            reserved_gid: 0,
            raid_stride: 0,
            raid_stripe_width: 0,
            kbytes_written: 0,
            error_count: 0,
            first_error_time: never,
            last_error_time: never,
            first_error: ErrorRecord::default(),
            last_error: ErrorRecord::default(),
            journal_inum: InodeNumber(0),
            journal_uuid: [0; 16],
            journal_dev: 0,
            journal_backup: None,
            last_orphan: 0,
            orphan_file_inum: 0,
            quota_inums: [0; 3],
            mmp_block: 0,
            hash_seed: [0; 4],
            default_hash_version: 1,
            flags: 1,
            encoding: 0,
            encoding_flags: 0,
            min_extra_isize: 0,
            want_extra_isize: 0,
            checksum_seed: ChecksumSeed::of_uuid(&uuid),
        }
    }

    /// Writes all fields and the checksum over `bytes`; other bytes do not change. Cuts labels and
    /// paths that are too long.
    pub fn encode(&self, bytes: &mut [u8; SUPERBLOCK_SIZE]) {
        let mut raw: RawSuperblock = zerocopy::transmute!(*bytes);
        raw.s_magic.set(MAGIC);
        self.encode_sizes(&mut raw);
        self.encode_features(&mut raw);
        self.encode_identity(&mut raw);
        self.encode_history(&mut raw);
        self.encode_journal(&mut raw);
        if self.has_metadata_csum() {
            raw.s_checksum_type = CHECKSUM_TYPE_CRC32C;
            set_checksum(&mut raw);
        }
        *bytes = zerocopy::transmute!(raw);
    }

    /// Writes `s_last_orphan`, and updates the checksum incrementally, because each deleted file
    /// enters and leaves the list.
    pub fn set_last_orphan(bytes: &mut [u8; SUPERBLOCK_SIZE], ino: u32) {
        const AT: usize = std::mem::offset_of!(RawSuperblock, s_last_orphan);
        const CHANGE: SumChange = SumChange::at(std::mem::offset_of!(RawSuperblock, s_checksum) - AT);
        let raw: &mut RawSuperblock = zerocopy::transmute_mut!(bytes);
        let difference = raw.s_last_orphan.get() ^ ino;
        raw.s_last_orphan.set(ino);
        if RoCompat(raw.s_feature_ro_compat.get()).has(RoCompat::METADATA_CSUM) {
            raw.s_checksum.set(raw.s_checksum.get() ^ CHANGE.of(difference));
        }
    }

    /// Sets the feature `ext_attr` and the checksum.
    pub fn set_has_attributes(bytes: &mut [u8; SUPERBLOCK_SIZE]) {
        let mut raw: RawSuperblock = zerocopy::transmute!(*bytes);
        raw.s_feature_compat.set(raw.s_feature_compat.get() | Compat::EXT_ATTR.0);
        if RoCompat(raw.s_feature_ro_compat.get()).has(RoCompat::METADATA_CSUM) {
            set_checksum(&mut raw);
        }
        *bytes = zerocopy::transmute!(raw);
    }

    fn encode_sizes(&self, raw: &mut RawSuperblock) {
        let log_block_size = self.block_size.log2() - 10;
        raw.s_log_block_size.set(log_block_size);
        raw.s_log_cluster_size.set(log_block_size + self.log_cluster_ratio);
        let bits64 = self.is_64bit();
        let wide = |value: u64, high: &mut le::U32, low: &mut le::U32| {
            let (upper, lower) = split(value);
            low.set(lower);
            if bits64 {
                high.set(upper);
            }
        };
        wide(self.blocks_count, &mut raw.s_blocks_count_hi, &mut raw.s_blocks_count_lo);
        wide(self.reserved_blocks_count, &mut raw.s_r_blocks_count_hi, &mut raw.s_r_blocks_count_lo);
        wide(self.free_blocks_count, &mut raw.s_free_blocks_count_hi, &mut raw.s_free_blocks_count_lo);
        raw.s_inodes_count.set(self.inodes_count);
        raw.s_free_inodes_count.set(self.free_inodes_count);
        raw.s_first_data_block.set(self.first_data_block);
        raw.s_blocks_per_group.set(self.blocks_per_group);
        raw.s_clusters_per_group.set(self.clusters_per_group());
        raw.s_inodes_per_group.set(self.inodes_per_group);
        raw.s_first_meta_bg.set(self.first_meta_bg);
        raw.s_reserved_gdt_blocks.set(self.reserved_gdt_blocks);
        raw.s_block_group_nr.set(self.block_group_nr);
        raw.s_overhead_clusters.set(self.overhead_clusters);
        if self.revision != GOOD_OLD_REVISION {
            raw.s_first_ino.set(self.first_ino);
            raw.s_inode_size.set(narrow(self.inode_size));
        }
        if bits64 {
            raw.s_desc_size.set(narrow(self.desc_size));
        }
    }

    fn encode_features(&self, raw: &mut RawSuperblock) {
        raw.s_rev_level.set(self.revision);
        raw.s_feature_compat.set(self.compat.0);
        raw.s_feature_incompat.set(self.incompat.0);
        raw.s_feature_ro_compat.set(self.ro_compat.0);
        raw.s_backup_bgs = self.backup_groups.map(le::U32::new);
        if self.incompat.has(Incompat::FLEX_BG) {
            // A power of two below 2^32.
            raw.s_log_groups_per_flex = u8::try_from(self.groups_per_flex.trailing_zeros()).unwrap_or(0);
        }
        if self.incompat.has(Incompat::CSUM_SEED) {
            raw.s_checksum_seed.set(self.checksum_seed.0);
        }
        raw.s_hash_seed = self.hash_seed.map(le::U32::new);
        raw.s_def_hash_version = self.default_hash_version;
        raw.s_flags.set(self.flags);
        raw.s_encoding.set(self.encoding);
        raw.s_encoding_flags.set(self.encoding_flags);
        raw.s_min_extra_isize.set(self.min_extra_isize);
        raw.s_want_extra_isize.set(self.want_extra_isize);
    }

    fn encode_identity(&self, raw: &mut RawSuperblock) {
        raw.s_uuid = self.uuid;
        raw.s_volume_name = padded(&self.volume_name);
        raw.s_last_mounted = padded(&self.last_mounted);
        raw.s_mount_opts = padded(&self.mount_opts);
        raw.s_default_mount_opts.set(self.default_mount_opts);
        raw.s_creator_os.set(self.creator_os);
    }

    fn encode_history(&self, raw: &mut RawSuperblock) {
        raw.s_state.set(self.state);
        raw.s_errors.set(self.errors);
        raw.s_mnt_count.set(self.mount_count);
        raw.s_max_mnt_count.set(self.max_mount_count.cast_unsigned());
        raw.s_checkinterval.set(self.check_interval);
        raw.s_def_resuid.set(self.reserved_uid);
        raw.s_def_resgid.set(self.reserved_gid);
        raw.s_raid_stride.set(self.raid_stride);
        raw.s_raid_stripe_width.set(self.raid_stripe_width);
        raw.s_kbytes_written.set(self.kbytes_written);
        set_time(self.mkfs_time, &mut raw.s_mkfs_time, &mut raw.s_mkfs_time_hi);
        set_time(self.mount_time, &mut raw.s_mtime, &mut raw.s_mtime_hi);
        set_time(self.write_time, &mut raw.s_wtime, &mut raw.s_wtime_hi);
        set_time(self.lastcheck, &mut raw.s_lastcheck, &mut raw.s_lastcheck_hi);
        set_time(self.first_error_time, &mut raw.s_first_error_time, &mut raw.s_first_error_time_hi);
        set_time(self.last_error_time, &mut raw.s_last_error_time, &mut raw.s_last_error_time_hi);
        raw.s_error_count.set(self.error_count);
        raw.s_first_error_ino.set(self.first_error.inode);
        raw.s_first_error_block.set(self.first_error.block);
        raw.s_first_error_func = padded(&self.first_error.function);
        raw.s_first_error_line.set(self.first_error.line);
        raw.s_first_error_errcode = self.first_error.code;
        raw.s_last_error_ino.set(self.last_error.inode);
        raw.s_last_error_block.set(self.last_error.block);
        raw.s_last_error_func = padded(&self.last_error.function);
        raw.s_last_error_line.set(self.last_error.line);
        raw.s_last_error_errcode = self.last_error.code;
    }

    fn encode_journal(&self, raw: &mut RawSuperblock) {
        raw.s_journal_inum.set(self.journal_inum.0);
        raw.s_journal_uuid = self.journal_uuid;
        raw.s_journal_dev.set(self.journal_dev);
        if let Some(backup) = self.journal_backup {
            raw.s_jnl_backup_type = JOURNAL_BACKUP_INODE_BLOCKS;
            raw.s_jnl_blocks = backup.map(le::U32::new);
        }
        raw.s_last_orphan.set(self.last_orphan);
        raw.s_orphan_file_inum.set(self.orphan_file_inum);
    }
}

pub(super) fn journal_backup(raw: &RawSuperblock) -> Option<[u32; 17]> {
    (raw.s_jnl_backup_type == JOURNAL_BACKUP_INODE_BLOCKS).then(|| raw.s_jnl_blocks.map(le::U32::get))
}

/// Parsed values fit.
fn narrow(value: u32) -> u16 {
    u16::try_from(value).unwrap_or(u16::MAX)
}

fn padded<const N: usize>(text: &[u8]) -> [u8; N] {
    let mut field = [0; N];
    field.iter_mut().zip(text).for_each(|(to, from)| *to = *from);
    field
}

/// Unsigned, 40 bits; times before 1970 become 1970.
fn set_time(time: InodeTime, low: &mut le::U32, high: &mut u8) {
    let (upper, lower) = split(u64::try_from(time.seconds).unwrap_or(0));
    low.set(lower);
    *high = u8::try_from(upper).unwrap_or(u8::MAX);
}

fn set_checksum(raw: &mut RawSuperblock) {
    let summed = raw.as_bytes();
    let sum = crc32c(!0, summed.get(..summed.len() - 4).unwrap_or_default());
    raw.s_checksum.set(sum);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled() -> Superblock {
        let block_size = BlockSize::from_log_block_size(0).unwrap();
        Superblock {
            incompat: Incompat(Incompat::BITS64.0 | Incompat::FLEX_BG.0 | Incompat::CSUM_SEED.0),
            ro_compat: RoCompat::METADATA_CSUM,
            blocks_count: 65536,
            groups: 8,
            inodes_per_group: 2048,
            inodes_count: 16384,
            free_blocks_count: 5000,
            desc_size: 64,
            groups_per_flex: 16,
            volume_name: b"lab".to_vec(),
            journal_backup: Some([7; 17]),
            mkfs_time: InodeTime { seconds: 1 << 33, nanos: 0 },
            first_error: ErrorRecord { function: b"here".to_vec(), line: 12, ..ErrorRecord::default() },
            max_mount_count: -1,
            checksum_seed: ChecksumSeed(77),
            ..Superblock::new(block_size, [9; 16])
        }
    }

    #[test]
    fn encoding_and_parsing_are_inverse() {
        let mut bytes = [0; SUPERBLOCK_SIZE];
        filled().encode(&mut bytes);
        assert_eq!(Superblock::parse(&bytes), Ok(filled()));
    }

    #[test]
    fn bytes_without_a_field_are_kept() {
        let mut bytes = [0xAA; SUPERBLOCK_SIZE];
        filled().encode(&mut bytes);
        // s_minor_rev_level, s_mmp_interval and s_reserved.
        assert_eq!((bytes[0x3E], bytes[0x166], bytes[0x300]), (0xAA, 0xAA, 0xAA));
        assert_eq!(Superblock::parse(&bytes).map(|sb| sb.volume_name), Ok(b"lab".to_vec()));
    }
}
