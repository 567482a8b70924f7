//! The problem codes of e2fsck, and what it does about each.

use std::fmt;

/// A problem as e2fsck numbers it: the pass in the upper half, the problem within it in the lower.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Code(u32);

/// What e2fsck does about a problem where it may write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Repair {
    /// Stops, or goes on without a change.
    Nothing,
    /// Writes the right value.
    Fix,
    /// Sets the field to zero, or removes the entry.
    Clear,
    /// Frees the inode.
    ClearInode,
    /// Clears the flag.
    ClearFlag,
    /// Moves the structure to other blocks.
    Relocate,
    /// Gives it blocks.
    Allocate,
    /// Names it in lost+found.
    Connect,
    /// Makes it anew.
    Recreate,
    /// Keeps the entries that can be read.
    Salvage,
    /// Cuts what is behind.
    Truncate,
    /// Gives each file blocks of its own, or deletes one of them.
    Clone,
    /// Builds the index of the directory anew.
    Reindex,
}

impl fmt::Display for Repair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Repair::Nothing => "stops here",
            Repair::Fix => "writes the right value",
            Repair::Clear => "clears it",
            Repair::ClearInode => "frees the inode",
            Repair::ClearFlag => "clears the flag",
            Repair::Relocate => "moves it",
            Repair::Allocate => "allocates it",
            Repair::Connect => "names it in lost+found",
            Repair::Recreate => "makes it anew",
            Repair::Salvage => "keeps the entries that can be read",
            Repair::Truncate => "truncates it",
            Repair::Clone => "copies the blocks for each file, or deletes one file",
            Repair::Reindex => "builds the index anew",
        })
    }
}

macro_rules! codes {
    ($($number:literal $name:ident $repair:ident,)*) => {
        #[allow(missing_docs, reason = "the names are e2fsck's; its manual lists no meanings")]
        impl Code {
            $(pub const $name: Code = Code($number);)*
        }

        const CODES: &[(u32, &str, Repair)] = &[$(($number, stringify!($name), Repair::$repair)),*];
    };
}

codes! {
    0x000001 PR_0_BB_NOT_GROUP Relocate,
    0x000002 PR_0_IB_NOT_GROUP Relocate,
    0x000003 PR_0_ITABLE_NOT_GROUP Relocate,
    0x000004 PR_0_SB_CORRUPT Nothing,
    0x000005 PR_0_FS_SIZE_WRONG Nothing,
    0x00000B PR_0_MISC_CORRUPT_SUPER Nothing,
    0x00000D PR_0_INODE_COUNT_WRONG Fix,
    0x00000F PR_0_JOURNAL_BAD_INODE Clear,
    0x000011 PR_0_CANT_FIND_JOURNAL Nothing,
    0x000014 PR_0_JOURNAL_UNSUPP_SUPER Nothing,
    0x000015 PR_0_JOURNAL_BAD_SUPER Fix,
    0x000016 PR_0_JOURNAL_HAS_JOURNAL Clear,
    0x000017 PR_0_JOURNAL_RECOVER_SET Clear,
    0x000018 PR_0_JOURNAL_RECOVERY_CLEAR Nothing,
    0x000019 PR_0_JOURNAL_RESET_JOURNAL Fix,
    0x00001A PR_0_FS_REV_LEVEL Fix,
    0x000020 PR_0_ORPHAN_CLEAR_INODE ClearInode,
    0x000023 PR_0_ORPHAN_ILLEGAL_HEAD_INODE Nothing,
    0x000024 PR_0_ORPHAN_ILLEGAL_INODE Nothing,
    0x000025 PR_0_JOURNAL_UNSUPP_ROCOMPAT Nothing,
    0x000026 PR_0_JOURNAL_UNSUPP_INCOMPAT Nothing,
    0x000027 PR_0_JOURNAL_UNSUPP_VERSION Nothing,
    0x00002A PR_0_CLEAR_V2_JOURNAL Clear,
    0x00002E PR_0_NONZERO_RESERVED_GDT_BLOCKS Fix,
    0x00002F PR_0_CLEAR_RESIZE_INODE Clear,
    0x000030 PR_0_RESIZE_INODE_INVALID Recreate,
    0x000031 PR_0_FUTURE_SB_LAST_MOUNT Fix,
    0x000032 PR_0_FUTURE_SB_LAST_WRITE Fix,
    0x000035 PR_0_GDT_CSUM Fix,
    0x000036 PR_0_GDT_UNINIT Fix,
    0x000038 PR_0_GDT_ITABLE_UNUSED Fix,
    0x000039 PR_0_BB_UNINIT_LAST Fix,
    0x00003A PR_0_JNL_TXN_CORRUPT Nothing,
    0x00003B PR_0_CLEAR_TESTFS_FLAG Clear,
    0x00003C PR_0_FUTURE_SB_LAST_MOUNT_FUDGED Fix,
    0x00003D PR_0_FUTURE_SB_LAST_WRITE_FUDGED Fix,
    0x00003E PR_0_GDT_CSUM_LATCH Fix,
    0x000041 PR_0_HIDE_QUOTA Nothing,
    0x000042 PR_0_MMP_INVALID_BLK Clear,
    0x000043 PR_0_MMP_INVALID_MAGIC Fix,
    0x000044 PR_0_OPEN_FAILED Nothing,
    0x000045 PR_0_CHECK_DESC_FAILED Nothing,
    0x000046 PR_0_META_AND_GDT_CSUM_SET Fix,
    0x000047 PR_0_MMP_CSUM_INVALID Fix,
    0x000048 PR_0_64BIT_WITHOUT_EXTENTS Fix,
    0x000049 PR_0_FIRST_META_BG_TOO_BIG Clear,
    0x00004B PR_0_CSUM_SEED_WITHOUT_META_CSUM Fix,
    0x00004D PR_0_MIN_EXTRA_ISIZE_INVALID Fix,
    0x00004E PR_0_WANT_EXTRA_ISIZE_INVALID Fix,
    0x00004F PR_0_INVALID_QUOTA_INO Fix,
    0x000051 PR_0_DISABLE_RESIZE_INODE Fix,
    0x000052 PR_0_ORPHAN_FILE_HOLE Nothing,
    0x000053 PR_0_ORPHAN_FILE_BAD_MAGIC Nothing,
    0x000054 PR_0_ORPHAN_FILE_BAD_CHECKSUM Nothing,
    0x000055 PR_0_ORPHAN_FILE_BAD_SIZE Nothing,
    0x010001 PR_1_ROOT_NO_DIR Clear,
    0x010002 PR_1_ROOT_DTIME Fix,
    0x010003 PR_1_RESERVED_BAD_MODE Clear,
    0x010004 PR_1_ZERO_DTIME Fix,
    0x010005 PR_1_SET_DTIME Fix,
    0x010006 PR_1_ZERO_LENGTH_DIR Clear,
    0x010007 PR_1_BB_CONFLICT Relocate,
    0x010008 PR_1_IB_CONFLICT Relocate,
    0x010009 PR_1_ITABLE_CONFLICT Relocate,
    0x01000C PR_1_BAD_I_SIZE Fix,
    0x01000D PR_1_BAD_I_BLOCKS Fix,
    0x01000E PR_1_ILLEGAL_BLOCK_NUM Clear,
    0x01000F PR_1_BLOCK_OVERLAPS_METADATA Clear,
    0x010012 PR_1_BB_ILLEGAL_BLOCK_NUM Clear,
    0x010028 PR_1_ISCAN_ERROR Nothing,
    0x010029 PR_1_BLOCK_ITERATE Nothing,
    0x01002F PR_1_SET_IMAGIC Clear,
    0x010030 PR_1_SET_IMMUTABLE Clear,
    0x010032 PR_1_SET_NONZSIZE Fix,
    0x010033 PR_1_FS_REV_LEVEL Fix,
    0x010034 PR_1_JOURNAL_INODE_NOT_CLEAR Clear,
    0x010035 PR_1_JOURNAL_BAD_MODE Fix,
    0x010036 PR_1_LOW_DTIME Fix,
    0x010039 PR_1_READ_EA_BLOCK Clear,
    0x01003A PR_1_BAD_EA_BLOCK Clear,
    0x01003C PR_1_EXTATTR_REFCOUNT Fix,
    0x01003E PR_1_EA_MULTI_BLOCK Clear,
    0x010040 PR_1_EA_ALLOC_COLLISION Clear,
    0x010041 PR_1_EA_BAD_NAME Clear,
    0x010042 PR_1_EA_BAD_VALUE Clear,
    0x010044 PR_1_TOOBIG_DIR Clear,
    0x010045 PR_1_TOOBIG_REG Clear,
    0x010046 PR_1_TOOBIG_SYMLINK Clear,
    0x010047 PR_1_HTREE_SET Reindex,
    0x010048 PR_1_HTREE_NODIR Reindex,
    0x010049 PR_1_HTREE_BADROOT Reindex,
    0x01004A PR_1_HTREE_HASHV Reindex,
    0x01004B PR_1_HTREE_INCOMPAT Reindex,
    0x01004C PR_1_HTREE_DEPTH Reindex,
    0x01004D PR_1_BB_FS_BLOCK Clear,
    0x01004F PR_1_EXTRA_ISIZE Fix,
    0x010050 PR_1_ATTR_NAME_LEN Clear,
    0x010051 PR_1_ATTR_VALUE_OFFSET Clear,
    0x010052 PR_1_ATTR_VALUE_BLOCK Clear,
    0x010053 PR_1_ATTR_VALUE_SIZE Clear,
    0x010054 PR_1_ATTR_HASH Clear,
    0x010055 PR_1_TREAT_AS_DIRECTORY Fix,
    0x010056 PR_1_READ_EXTENT ClearInode,
    0x010058 PR_1_EXTENT_BAD_START_BLK Clear,
    0x010059 PR_1_EXTENT_ENDS_BEYOND Clear,
    0x01005A PR_1_EXTENTS_SET Clear,
    0x01005B PR_1_EXTENT_FEATURE Fix,
    0x01005C PR_1_UNSET_EXTENT_FL Fix,
    0x01005D PR_1_FAST_SYMLINK_EXTENT_FL Clear,
    0x01005E PR_1_OUT_OF_ORDER_EXTENTS Clear,
    0x01005F PR_1_EXTENT_HEADER_INVALID Clear,
    0x010062 PR_1_QUOTA_BAD_MODE Clear,
    0x010063 PR_1_QUOTA_INODE_NOT_CLEAR Clear,
    0x010064 PR_1_QUOTA_INODE_NOT_HIDDEN Clear,
    0x010065 PR_1_INVALID_BAD_INODE Clear,
    0x010066 PR_1_EXTENT_LENGTH_ZERO Clear,
    0x010067 PR_1_INODE_IS_GARBAGE Clear,
    0x010068 PR_1_INODE_ONLY_CSUM_INVALID Fix,
    0x010069 PR_1_INODE_EA_ALLOC_COLLISION Clear,
    0x01006A PR_1_EXTENT_ONLY_CSUM_INVALID Fix,
    0x01006C PR_1_EA_BLOCK_ONLY_CSUM_INVALID Fix,
    0x01006D PR_1_EXTENT_INDEX_START_INVALID Fix,
    0x01006E PR_1_EXTENT_END_OUT_OF_BOUNDS Clear,
    0x01006F PR_1_INLINE_DATA_FEATURE Fix,
    0x010070 PR_1_INLINE_DATA_SET Clear,
    0x010071 PR_1_CRITICAL_METADATA_COLLISION Nothing,
    0x010072 PR_1_COLLAPSE_DBLOCK Fix,
    0x010073 PR_1_UNINIT_DBLOCK Fix,
    0x010074 PR_1_MISALIGNED_CLUSTER Clone,
    0x010075 PR_1_INLINE_DATA_NO_ATTR Truncate,
    0x010076 PR_1_SPECIAL_EXTENTS_IDATA Clear,
    0x010077 PR_1_CLEAR_INLINE_DATA_FOR_EXTENT Fix,
    0x010078 PR_1_CLEAR_EXTENT_FOR_INLINE_DATA Fix,
    0x010079 PR_1_CLEAR_EXTENT_INLINE_DATA_FLAGS Fix,
    0x01007A PR_1_CLEAR_EXTENT_INLINE_DATA_INODE ClearInode,
    0x01007B PR_1_BBINODE_BAD ClearInode,
    0x01007D PR_1_EXTENT_COLLISION Clear,
    0x01007F PR_1_EXTENT_BAD_MAX_DEPTH Fix,
    0x010080 PR_1_NO_BIGALLOC_BLOCKMAP_FILES Fix,
    0x010081 PR_1_MISSING_EXTENT_HEADER ClearInode,
    0x010082 PR_1_EA_TIME_OUT_OF_RANGE Fix,
    0x010083 PR_1_ATTR_INVALID_EA_INODE Clear,
    0x010085 PR_1_ATTR_NO_EA_INODE_FL Clear,
    0x010086 PR_1_ATTR_SET_EA_INODE_FL Fix,
    0x010087 PR_1_UNINIT_SYMLINK Clear,
    0x010088 PR_1_CASEFOLD_NONDIR ClearFlag,
    0x010089 PR_1_CASEFOLD_FEATURE ClearFlag,
    0x01008A PR_1_MISSING_ENCRYPTION_XATTR ClearFlag,
    0x01008B PR_1_CORRUPT_ENCRYPTION_XATTR ClearInode,
    0x01008D PR_1_HTREE_NEEDS_SIPHASH Reindex,
    0x01008E PR_1_HTREE_CANNOT_SIPHASH Reindex,
    0x01008F PR_1_ORPHAN_FILE_BAD_MODE Clear,
    0x010090 PR_1_ORPHAN_FILE_NOT_CLEAR Clear,
    0x011002 PR_1B_DUP_BLOCK Clone,
    0x020001 PR_2_BAD_INODE_DOT Fix,
    0x020002 PR_2_BAD_INO Clear,
    0x020003 PR_2_UNUSED_INODE Clear,
    0x020004 PR_2_LINK_DOT Clear,
    0x020006 PR_2_LINK_DIR Clear,
    0x020007 PR_2_LINK_ROOT Clear,
    0x020008 PR_2_BAD_NAME Fix,
    0x020009 PR_2_MISSING_DOT Fix,
    0x02000A PR_2_MISSING_DOT_DOT Fix,
    0x02000B PR_2_1ST_NOT_DOT Fix,
    0x02000C PR_2_2ND_NOT_DOT_DOT Fix,
    0x02000D PR_2_FADDR_ZERO Clear,
    0x02000E PR_2_FILE_ACL_ZERO Clear,
    0x02000F PR_2_DIR_SIZE_HIGH_ZERO Clear,
    0x020010 PR_2_FRAG_ZERO Clear,
    0x020011 PR_2_FSIZE_ZERO Clear,
    0x020012 PR_2_BAD_MODE Clear,
    0x020013 PR_2_DIR_CORRUPTED Salvage,
    0x020014 PR_2_FILENAME_LONG Truncate,
    0x020015 PR_2_DIRECTORY_HOLE Allocate,
    0x020016 PR_2_DOT_NULL_TERM Fix,
    0x020017 PR_2_DOT_DOT_NULL_TERM Fix,
    0x020018 PR_2_BAD_CHAR_DEV Clear,
    0x020019 PR_2_BAD_BLOCK_DEV Clear,
    0x02001A PR_2_DUP_DOT Fix,
    0x02001B PR_2_DUP_DOT_DOT Fix,
    0x02001D PR_2_DOT_REC_LEN Fix,
    0x020020 PR_2_READ_DIRBLOCK Nothing,
    0x020024 PR_2_SPLIT_DOT Fix,
    0x020025 PR_2_BAD_FIFO Clear,
    0x020026 PR_2_BAD_SOCKET Clear,
    0x020027 PR_2_SET_FILETYPE Fix,
    0x020028 PR_2_BAD_FILETYPE Fix,
    0x020029 PR_2_CLEAR_FILETYPE Clear,
    0x020030 PR_2_NULL_NAME Clear,
    0x020031 PR_2_INVALID_SYMLINK Clear,
    0x020032 PR_2_FILE_ACL_BAD Clear,
    0x020033 PR_2_FEATURE_LARGE_FILES Fix,
    0x020034 PR_2_HTREE_NOTREF Reindex,
    0x020035 PR_2_HTREE_DUPREF Reindex,
    0x020036 PR_2_HTREE_MIN_HASH Reindex,
    0x020037 PR_2_HTREE_MAX_HASH Reindex,
    0x020038 PR_2_HTREE_CLEAR Reindex,
    0x020039 PR_2_FEATURE_LARGE_DIRS Fix,
    0x02003A PR_2_HTREE_BADBLK Reindex,
    0x02003C PR_2_HTREE_BAD_ROOT Reindex,
    0x02003D PR_2_HTREE_BAD_LIMIT Reindex,
    0x02003E PR_2_HTREE_BAD_COUNT Reindex,
    0x02003F PR_2_HTREE_HASH_ORDER Reindex,
    0x020040 PR_2_HTREE_BAD_DEPTH Reindex,
    0x020041 PR_2_DUPLICATE_DIRENT Clear,
    0x020042 PR_2_NON_UNIQUE_FILE Fix,
    0x020043 PR_2_REPORT_DUP_DIRENT Reindex,
    0x020044 PR_2_BLOCKS_HI_ZERO Clear,
    0x020045 PR_2_UNEXPECTED_HTREE_BLOCK Reindex,
    0x020046 PR_2_INOREF_BG_INO_UNINIT Fix,
    0x020047 PR_2_INOREF_IN_UNUSED Fix,
    0x020048 PR_2_I_FILE_ACL_HI_ZERO Clear,
    0x020049 PR_2_HTREE_ROOT_CSUM_INVALID Reindex,
    0x02004A PR_2_HTREE_NODE_CSUM_INVALID Reindex,
    0x02004C PR_2_LEAF_NODE_MISSING_CSUM Fix,
    0x02004D PR_2_LEAF_NODE_ONLY_CSUM_INVALID Fix,
    0x02004E PR_2_BAD_INLINE_DIR_SIZE Fix,
    0x020050 PR_2_BAD_ENCRYPTED_NAME Clear,
    0x020051 PR_2_UNENCRYPTED_FILE Clear,
    0x020053 PR_2_BAD_ENCODED_NAME Fix,
    0x030001 PR_3_NO_ROOT_INODE Allocate,
    0x030003 PR_3_UNCONNECTED_DIR Connect,
    0x030004 PR_3_NO_LF_DIR Recreate,
    0x030005 PR_3_BAD_DOT_DOT Fix,
    0x030015 PR_3_NO_ROOT_INODE_ABORT Nothing,
    0x030017 PR_3_LPF_NOTDIR Clear,
    0x030018 PR_3_LPF_INLINE_DATA Clear,
    0x03001B PR_3_LPF_ENCRYPTED Clear,
    0x03001D PR_3_LOOPED_DIR Connect,
    0x040001 PR_4_ZERO_LEN_INODE Clear,
    0x040002 PR_4_UNATTACHED_INODE Connect,
    0x040003 PR_4_BAD_REF_COUNT Fix,
    0x040005 PR_4_EA_INODE_REF_COUNT Fix,
    0x040006 PR_4_DIR_NLINK_FEATURE Fix,
    0x040007 PR_4_DIR_OVERFLOW_REF_COUNT Fix,
    0x050001 PR_5_INODE_BMAP_PADDING Fix,
    0x050002 PR_5_BLOCK_BMAP_PADDING Fix,
    0x050004 PR_5_BLOCK_UNUSED Fix,
    0x050005 PR_5_BLOCK_USED Fix,
    0x050008 PR_5_INODE_UNUSED Fix,
    0x050009 PR_5_INODE_USED Fix,
    0x05000B PR_5_FREE_INODE_COUNT_GROUP Fix,
    0x05000C PR_5_FREE_DIR_COUNT_GROUP Fix,
    0x05000D PR_5_FREE_INODE_COUNT Fix,
    0x05000E PR_5_FREE_BLOCK_COUNT_GROUP Fix,
    0x05000F PR_5_FREE_BLOCK_COUNT Fix,
    0x050014 PR_5_BLOCK_RANGE_UNUSED Fix,
    0x050015 PR_5_BLOCK_RANGE_USED Fix,
    0x050016 PR_5_INODE_RANGE_UNUSED Fix,
    0x050017 PR_5_INODE_RANGE_USED Fix,
    0x050018 PR_5_BLOCK_UNINIT Fix,
    0x050019 PR_5_INODE_UNINIT Fix,
    0x05001A PR_5_INODE_BITMAP_CSUM_INVALID Fix,
    0x05001B PR_5_BLOCK_BITMAP_CSUM_INVALID Fix,
    0x060002 PR_6_UPDATE_QUOTAS Fix,
    0x060007 PR_6_ORPHAN_FILE_WITHOUT_JOURNAL Clear,
    0x06000C PR_6_ORPHAN_BLOCK_DIRTY Clear,
    0x06000D PR_6_ORPHAN_PRESENT_CLEAN_FILE Clear,
    0x06000E PR_6_ORPHAN_PRESENT_NO_FILE Clear,
}

impl Code {
    /// The number, as `problem_log_filename` of `e2fsck.conf` logs it.
    pub fn number(self) -> u32 {
        self.0
    }

    /// The pass of e2fsck that finds it: 0 to 6.
    pub fn pass(self) -> u8 {
        u8::try_from(self.0 >> 16).unwrap_or(u8::MAX)
    }

    fn known(self) -> Option<&'static (u32, &'static str, Repair)> {
        CODES.binary_search_by_key(&self.0, |known| known.0).ok().and_then(|at| CODES.get(at))
    }

    /// The name in e2fsck's `problem.h`.
    pub fn name(self) -> &'static str {
        self.known().map_or("", |known| known.1)
    }

    /// What e2fsck does about it.
    pub fn repair(self) -> Repair {
        self.known().map_or(Repair::Nothing, |known| known.2)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#08x} {}", self.0, self.name())
    }
}
