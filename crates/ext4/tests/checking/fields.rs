//! The fields of each structure, from the kernel's documents: name, offset, bytes.

/// Name, offset in the structure, bytes.
pub type Field = (&'static str, usize, usize);

pub const SUPERBLOCK: &[Field] = &[
    ("s_inodes_count", 0x0, 4),
    ("s_blocks_count_lo", 0x4, 4),
    ("s_r_blocks_count_lo", 0x8, 4),
    ("s_free_blocks_count_lo", 0xc, 4),
    ("s_free_inodes_count", 0x10, 4),
    ("s_first_data_block", 0x14, 4),
    ("s_log_block_size", 0x18, 4),
    ("s_log_cluster_size", 0x1c, 4),
    ("s_blocks_per_group", 0x20, 4),
    ("s_clusters_per_group", 0x24, 4),
    ("s_inodes_per_group", 0x28, 4),
    ("s_mtime", 0x2c, 4),
    ("s_wtime", 0x30, 4),
    ("s_mnt_count", 0x34, 2),
    ("s_max_mnt_count", 0x36, 2),
    ("s_magic", 0x38, 2),
    ("s_state", 0x3a, 2),
    ("s_errors", 0x3c, 2),
    ("s_minor_rev_level", 0x3e, 2),
    ("s_lastcheck", 0x40, 4),
    ("s_checkinterval", 0x44, 4),
    ("s_creator_os", 0x48, 4),
    ("s_rev_level", 0x4c, 4),
    ("s_def_resuid", 0x50, 2),
    ("s_def_resgid", 0x52, 2),
    ("s_first_ino", 0x54, 4),
    ("s_inode_size", 0x58, 2),
    ("s_block_group_nr", 0x5a, 2),
    ("s_feature_compat", 0x5c, 4),
    ("s_feature_incompat", 0x60, 4),
    ("s_feature_ro_compat", 0x64, 4),
    ("s_uuid", 0x68, 16),
    ("s_volume_name", 0x78, 16),
    ("s_last_mounted", 0x88, 64),
    ("s_algorithm_usage_bitmap", 0xc8, 4),
    ("s_prealloc_blocks", 0xcc, 1),
    ("s_prealloc_dir_blocks", 0xcd, 1),
    ("s_reserved_gdt_blocks", 0xce, 2),
    ("s_journal_uuid", 0xd0, 16),
    ("s_journal_inum", 0xe0, 4),
    ("s_journal_dev", 0xe4, 4),
    ("s_last_orphan", 0xe8, 4),
    ("s_hash_seed", 0xec, 16),
    ("s_def_hash_version", 0xfc, 1),
    ("s_jnl_backup_type", 0xfd, 1),
    ("s_desc_size", 0xfe, 2),
    ("s_default_mount_opts", 0x100, 4),
    ("s_first_meta_bg", 0x104, 4),
    ("s_mkfs_time", 0x108, 4),
    ("s_jnl_blocks", 0x10c, 68),
    ("s_blocks_count_hi", 0x150, 4),
    ("s_r_blocks_count_hi", 0x154, 4),
    ("s_free_blocks_count_hi", 0x158, 4),
    ("s_min_extra_isize", 0x15c, 2),
    ("s_want_extra_isize", 0x15e, 2),
    ("s_flags", 0x160, 4),
    ("s_raid_stride", 0x164, 2),
    ("s_mmp_interval", 0x166, 2),
    ("s_mmp_block", 0x168, 8),
    ("s_raid_stripe_width", 0x170, 4),
    ("s_log_groups_per_flex", 0x174, 1),
    ("s_checksum_type", 0x175, 1),
    ("s_encryption_level", 0x176, 1),
    ("s_reserved_pad", 0x177, 1),
    ("s_kbytes_written", 0x178, 8),
    ("s_snapshot_inum", 0x180, 4),
    ("s_snapshot_id", 0x184, 4),
    ("s_snapshot_r_blocks_count", 0x188, 8),
    ("s_snapshot_list", 0x190, 4),
    ("s_error_count", 0x194, 4),
    ("s_first_error_time", 0x198, 4),
    ("s_first_error_ino", 0x19c, 4),
    ("s_first_error_block", 0x1a0, 8),
    ("s_first_error_func", 0x1a8, 32),
    ("s_first_error_line", 0x1c8, 4),
    ("s_last_error_time", 0x1cc, 4),
    ("s_last_error_ino", 0x1d0, 4),
    ("s_last_error_line", 0x1d4, 4),
    ("s_last_error_block", 0x1d8, 8),
    ("s_last_error_func", 0x1e0, 32),
    ("s_mount_opts", 0x200, 64),
    ("s_usr_quota_inum", 0x240, 4),
    ("s_grp_quota_inum", 0x244, 4),
    ("s_overhead_clusters", 0x248, 4),
    ("s_backup_bgs", 0x24c, 8),
    ("s_encrypt_algos", 0x254, 4),
    ("s_encrypt_pw_salt", 0x258, 16),
    ("s_lpf_ino", 0x268, 4),
    ("s_prj_quota_inum", 0x26c, 4),
    ("s_checksum_seed", 0x270, 4),
    ("s_wtime_hi", 0x274, 1),
    ("s_mtime_hi", 0x275, 1),
    ("s_mkfs_time_hi", 0x276, 1),
    ("s_lastcheck_hi", 0x277, 1),
    ("s_first_error_time_hi", 0x278, 1),
    ("s_last_error_time_hi", 0x279, 1),
    ("s_first_error_errcode", 0x27a, 1),
    ("s_last_error_errcode", 0x27b, 1),
    ("s_encoding", 0x27c, 2),
    ("s_encoding_flags", 0x27e, 2),
    ("s_orphan_file_inum", 0x280, 4),
    ("s_checksum", 0x3fc, 4),
];

pub const DESCRIPTOR: &[Field] = &[
    ("bg_block_bitmap_lo", 0x0, 4),
    ("bg_inode_bitmap_lo", 0x4, 4),
    ("bg_inode_table_lo", 0x8, 4),
    ("bg_free_blocks_count_lo", 0xc, 2),
    ("bg_free_inodes_count_lo", 0xe, 2),
    ("bg_used_dirs_count_lo", 0x10, 2),
    ("bg_flags", 0x12, 2),
    ("bg_exclude_bitmap_lo", 0x14, 4),
    ("bg_block_bitmap_csum_lo", 0x18, 2),
    ("bg_inode_bitmap_csum_lo", 0x1a, 2),
    ("bg_itable_unused_lo", 0x1c, 2),
    ("bg_checksum", 0x1e, 2),
];

pub const DESCRIPTOR_HIGH: &[Field] = &[
    ("bg_block_bitmap_hi", 0x20, 4),
    ("bg_inode_bitmap_hi", 0x24, 4),
    ("bg_inode_table_hi", 0x28, 4),
    ("bg_free_blocks_count_hi", 0x2c, 2),
    ("bg_free_inodes_count_hi", 0x2e, 2),
    ("bg_used_dirs_count_hi", 0x30, 2),
    ("bg_itable_unused_hi", 0x32, 2),
    ("bg_exclude_bitmap_hi", 0x34, 4),
    ("bg_block_bitmap_csum_hi", 0x38, 2),
    ("bg_inode_bitmap_csum_hi", 0x3a, 2),
    ("bg_reserved", 0x3c, 4),
];

pub const INODE: &[Field] = &[
    ("i_mode", 0x0, 2),
    ("i_uid", 0x2, 2),
    ("i_size_lo", 0x4, 4),
    ("i_atime", 0x8, 4),
    ("i_ctime", 0xc, 4),
    ("i_mtime", 0x10, 4),
    ("i_dtime", 0x14, 4),
    ("i_gid", 0x18, 2),
    ("i_links_count", 0x1a, 2),
    ("i_blocks_lo", 0x1c, 4),
    ("i_flags", 0x20, 4),
    ("l_i_version", 0x24, 4),
    ("i_generation", 0x64, 4),
    ("i_file_acl_lo", 0x68, 4),
    ("i_size_high", 0x6c, 4),
    ("i_obso_faddr", 0x70, 4),
    ("l_i_blocks_high", 0x74, 2),
    ("l_i_file_acl_high", 0x76, 2),
    ("l_i_uid_high", 0x78, 2),
    ("l_i_gid_high", 0x7a, 2),
    ("l_i_checksum_lo", 0x7c, 2),
    ("l_i_reserved", 0x7e, 2),
];

pub const INODE_EXTRA: &[Field] = &[
    ("i_extra_isize", 0x80, 2),
    ("i_checksum_hi", 0x82, 2),
    ("i_ctime_extra", 0x84, 4),
    ("i_mtime_extra", 0x88, 4),
    ("i_atime_extra", 0x8c, 4),
    ("i_crtime", 0x90, 4),
    ("i_crtime_extra", 0x94, 4),
    ("i_version_hi", 0x98, 4),
    ("i_projid", 0x9c, 4),
];

pub const EXTENT_HEADER: &[Field] = &[
    ("eh_magic", 0x0, 2),
    ("eh_entries", 0x2, 2),
    ("eh_max", 0x4, 2),
    ("eh_depth", 0x6, 2),
    ("eh_generation", 0x8, 4),
];

pub const EXTENT: &[Field] =
    &[("ee_block", 0x0, 4), ("ee_len", 0x4, 2), ("ee_start_hi", 0x6, 2), ("ee_start_lo", 0x8, 4)];

pub const EXTENT_INDEX: &[Field] =
    &[("ei_block", 0x0, 4), ("ei_leaf_lo", 0x4, 4), ("ei_leaf_hi", 0x8, 2), ("ei_unused", 0xa, 2)];

pub const DIR_ENTRY: &[Field] =
    &[("inode", 0x0, 4), ("rec_len", 0x4, 2), ("name_len", 0x6, 1), ("file_type", 0x7, 1)];

pub const XATTR_HEADER: &[Field] = &[
    ("h_magic", 0x0, 4),
    ("h_refcount", 0x4, 4),
    ("h_blocks", 0x8, 4),
    ("h_hash", 0xc, 4),
    ("h_checksum", 0x10, 4),
    ("h_reserved", 0x14, 12),
];

pub const XATTR_ENTRY: &[Field] = &[
    ("e_name_len", 0x0, 1),
    ("e_name_index", 0x1, 1),
    ("e_value_offs", 0x2, 2),
    ("e_value_inum", 0x4, 4),
    ("e_value_size", 0x8, 4),
    ("e_hash", 0xc, 4),
];

/// The first block of an indexed directory.
pub const HTREE_ROOT: &[Field] = &[
    ("dot.inode", 0x0, 4),
    ("dot.rec_len", 0x4, 2),
    ("dot.name_len", 0x6, 1),
    ("dot.file_type", 0x7, 1),
    ("dot.name", 0x8, 4),
    ("dotdot.inode", 0xC, 4),
    ("dotdot.rec_len", 0x10, 2),
    ("dotdot.name_len", 0x12, 1),
    ("dotdot.file_type", 0x13, 1),
    ("dotdot.name", 0x14, 4),
    ("reserved_zero", 0x18, 4),
    ("hash_version", 0x1C, 1),
    ("info_length", 0x1D, 1),
    ("indirect_levels", 0x1E, 1),
    ("unused_flags", 0x1F, 1),
    ("limit", 0x20, 2),
    ("count", 0x22, 2),
    ("block of entry 0", 0x24, 4),
    ("hash of entry 1", 0x28, 4),
    ("block of entry 1", 0x2C, 4),
    ("hash of entry 5", 0x48, 4),
    ("block of entry 5", 0x4C, 4),
];

pub const HTREE_NODE: &[Field] = &[
    ("inode", 0x0, 4),
    ("rec_len", 0x4, 2),
    ("name_len", 0x6, 1),
    ("file_type", 0x7, 1),
    ("limit", 0x8, 2),
    ("count", 0xA, 2),
    ("block of entry 0", 0xC, 4),
    ("hash of entry 1", 0x10, 4),
    ("block of entry 1", 0x14, 4),
    ("hash of entry 5", 0x30, 4),
    ("block of entry 5", 0x34, 4),
];

/// The tail of a leaf with a checksum, from the end of the block.
pub const LEAF_TAIL: &[Field] = &[
    ("det_reserved_zero1", 0x0, 4),
    ("det_rec_len", 0x4, 2),
    ("det_reserved_zero2", 0x6, 1),
    ("det_reserved_ft", 0x7, 1),
    ("det_checksum", 0x8, 4),
];

pub const POINTERS: &[Field] = &[
    ("pointer 0", 0x0, 4),
    ("pointer 1", 0x4, 4),
    ("pointer 7", 0x1C, 4),
    ("pointer 12", 0x30, 4),
    ("pointer 13", 0x34, 4),
    ("pointer 14", 0x38, 4),
];

/// Big-endian.
pub const JOURNAL: &[Field] = &[
    ("h_magic", 0x0, 4),
    ("h_blocktype", 0x4, 4),
    ("h_sequence", 0x8, 4),
    ("s_blocksize", 0xC, 4),
    ("s_maxlen", 0x10, 4),
    ("s_first", 0x14, 4),
    ("s_sequence", 0x18, 4),
    ("s_start", 0x1C, 4),
    ("s_errno", 0x20, 4),
    ("s_feature_compat", 0x24, 4),
    ("s_feature_incompat", 0x28, 4),
    ("s_feature_ro_compat", 0x2C, 4),
    ("s_uuid", 0x30, 16),
    ("s_nr_users", 0x40, 4),
    ("s_checksum_type", 0x50, 1),
    ("s_num_fc_blks", 0x54, 4),
    ("s_head", 0x58, 4),
    ("s_checksum", 0xFC, 4),
];

pub const ORPHANS: &[Field] = &[("slot 0", 0x0, 4), ("slot 1", 0x4, 4)];

/// From the end of the block.
pub const ORPHANS_TAIL: &[Field] = &[("ob_magic", 0x0, 4), ("ob_checksum", 0x4, 4)];

pub const MMP: &[Field] = &[
    ("mmp_magic", 0x0, 4),
    ("mmp_seq", 0x4, 4),
    ("mmp_time", 0x8, 8),
    ("mmp_nodename", 0x10, 64),
    ("mmp_bdevname", 0x50, 32),
    ("mmp_check_interval", 0x70, 2),
    ("mmp_checksum", 0x3FC, 4),
];

/// The header of a quota file, and its first block of the tree.
pub const QUOTA: &[Field] = &[
    ("dqh_magic", 0x0, 4),
    ("dqh_version", 0x4, 4),
    ("dqi_bgrace", 0x8, 4),
    ("dqi_igrace", 0xC, 4),
    ("dqi_flags", 0x10, 4),
    ("dqi_blocks", 0x14, 4),
    ("dqi_free_blk", 0x18, 4),
    ("dqi_free_entry", 0x1C, 4),
    ("the tree's first reference", 0x400, 4),
];
