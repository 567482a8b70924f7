//! Feature flags, named as in `mke2fs -O` and `dumpe2fs`.

macro_rules! feature_set {
    ($(#[$meta:meta])* $name:ident, letter $letter:literal {
        $($(#[$flag_meta:meta])* $flag:ident = $bit:literal, $text:literal;)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
        pub struct $name(pub u32);

        impl $name {
            $($(#[$flag_meta])* pub const $flag: $name = $name($bit);)*

            /// Whether all of `flags` are set.
            pub fn has(self, flags: $name) -> bool {
                self.0 & flags.0 == flags.0
            }

            /// The flags not in `known`.
            pub fn without(self, known: $name) -> $name {
                $name(self.0 & !known.0)
            }

            /// Names of the set flags, lowest bit first; unnamed ones as set and bit.
            pub fn names(self) -> Vec<String> {
                (0..32)
                    .filter(|bit| self.0 & 1 << bit != 0)
                    .map(|bit| match 1_u32 << bit {
                        $($bit => $text.to_owned(),)*
                        _ => format!("FEATURE_{}{bit}", $letter),
                    })
                    .collect()
            }
        }
    };
}

feature_set! {
    /// `s_feature_compat`: may be ignored.
    Compat, letter 'C' {
        /// Preallocates directory blocks.
        DIR_PREALLOC = 0x1, "dir_prealloc";
        /// AFS server; unused.
        IMAGIC_INODES = 0x2, "imagic_inodes";
        /// Has a journal.
        HAS_JOURNAL = 0x4, "has_journal";
        /// Has extended attributes.
        EXT_ATTR = 0x8, "ext_attr";
        /// Blocks reserved for more group descriptors.
        RESIZE_INODE = 0x10, "resize_inode";
        /// Directories may have an htree.
        DIR_INDEX = 0x20, "dir_index";
        /// Unused.
        LAZY_BG = 0x40, "lazy_bg";
        /// Snapshot patches; unused.
        EXCLUDE_INODE = 0x80, "exclude_inode";
        /// Snapshot patches; unused.
        EXCLUDE_BITMAP = 0x100, "snapshot_bitmap";
        /// Superblock backups only in the groups of `s_backup_bgs`.
        SPARSE_SUPER2 = 0x200, "sparse_super2";
        /// The journal may have fast commits.
        FAST_COMMIT = 0x400, "fast_commit";
        /// Inode numbers and UUID are fixed: keys depend on them.
        STABLE_INODES = 0x800, "stable_inodes";
        /// Orphans are in a file.
        ORPHAN_FILE = 0x1000, "orphan_file";
    }
}

feature_set! {
    /// `s_feature_incompat`: must be known to read.
    Incompat, letter 'I' {
        /// Compressed files; never released.
        COMPRESSION = 0x1, "compression";
        /// Directory entries have a file type.
        FILETYPE = 0x2, "filetype";
        /// The journal needs a replay.
        RECOVER = 0x4, "needs_recovery";
        /// An external journal.
        JOURNAL_DEV = 0x8, "journal_dev";
        /// Group descriptors are in their meta block groups.
        META_BG = 0x10, "meta_bg";
        /// Files may have extents.
        EXTENTS = 0x40, "extent";
        /// 64-bit block numbers.
        BITS64 = 0x80, "64bit";
        /// Multiple mount protection.
        MMP = 0x100, "mmp";
        /// Bitmaps and inode tables may be in other groups.
        FLEX_BG = 0x200, "flex_bg";
        /// Large attribute values have their own inodes.
        EA_INODE = 0x400, "ea_inode";
        /// Data in directory entries (Lustre).
        DIRDATA = 0x1000, "dirdata";
        /// The superblock stores the checksum seed.
        CSUM_SEED = 0x2000, "metadata_csum_seed";
        /// Directories above 2 GiB, and htrees of three levels.
        LARGEDIR = 0x4000, "large_dir";
        /// Small files and directories are in the inode.
        INLINE_DATA = 0x8000, "inline_data";
        /// May have encrypted files.
        ENCRYPT = 0x10000, "encrypt";
        /// Directories may be case-insensitive.
        CASEFOLD = 0x20000, "casefold";
    }
}

feature_set! {
    /// `s_feature_ro_compat`: must be known to write.
    RoCompat, letter 'R' {
        /// Superblock backups only in groups 0, 1 and powers of 3, 5 and 7.
        SPARSE_SUPER = 0x1, "sparse_super";
        /// Files above 2 GiB.
        LARGE_FILE = 0x2, "large_file";
        /// Unused.
        BTREE_DIR = 0x4, "btree_dir";
        /// Files above 2 TiB: `i_blocks` may count file system blocks.
        HUGE_FILE = 0x8, "huge_file";
        /// Group descriptors have a CRC16, and groups may be uninitialized.
        GDT_CSUM = 0x10, "uninit_bg";
        /// More than 65,000 subdirectories.
        DIR_NLINK = 0x20, "dir_nlink";
        /// Inodes have nanoseconds and more.
        EXTRA_ISIZE = 0x40, "extra_isize";
        /// Snapshot patches.
        HAS_SNAPSHOT = 0x80, "snapshot";
        /// Quota files are metadata.
        QUOTA = 0x100, "quota";
        /// Allocation in clusters of blocks.
        BIGALLOC = 0x200, "bigalloc";
        /// CRC32c checksums of all metadata.
        METADATA_CSUM = 0x400, "metadata_csum";
        /// Never merged.
        REPLICA = 0x800, "replica";
        /// Must not be mounted for writing.
        READONLY = 0x1000, "read-only";
        /// Project quotas.
        PROJECT = 0x2000, "project";
        /// Files may share blocks (Android).
        SHARED_BLOCKS = 0x4000, "shared_blocks";
        /// May have fs-verity files.
        VERITY = 0x8000, "verity";
        /// The orphan file may be in use.
        ORPHAN_PRESENT = 0x10000, "orphan_present";
    }
}

impl Incompat {
    /// Features that this crate can read.
    pub const READABLE: Incompat = Incompat(
        Incompat::FILETYPE.0
            | Incompat::RECOVER.0
            | Incompat::META_BG.0
            | Incompat::EXTENTS.0
            | Incompat::BITS64.0
            | Incompat::MMP.0
            | Incompat::FLEX_BG.0
            | Incompat::EA_INODE.0
            | Incompat::CSUM_SEED.0
            | Incompat::LARGEDIR.0
            | Incompat::INLINE_DATA.0
            | Incompat::ENCRYPT.0
            | if cfg!(feature = "casefold") { Incompat::CASEFOLD.0 } else { 0 },
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_named_and_unknown_bits_numbered() {
        let set = Incompat(Incompat::FILETYPE.0 | Incompat::BITS64.0 | 1 << 30);
        assert_eq!(set.names(), ["filetype", "64bit", "FEATURE_I30"]);
        assert_eq!(set.without(Incompat::READABLE), Incompat(1 << 30));
    }
}
