//! The problem code of an error that readers of structures return.

use super::{Code, Defect, Finding};
use crate::{Error, Place, Structure};
use dentree_ext4_format::{BlockNumber, Problem};

/// What to report of an error in a pass. Errors that name no place are the superblock's.
pub(super) fn finding(pass: u8, error: Error, superblock: BlockNumber) -> Finding {
    match error {
        Error::Corrupt { place, problem } => {
            Finding { code: of_problem(pass, place, &problem), place, defect: Defect::Damaged(problem) }
        }
        Error::Io { place, source } => {
            Finding { code: of_unread(pass), place, defect: Defect::Unreadable(source.to_string()) }
        }
        other => {
            let code = match other {
                Error::Journal(_) => Code::PR_0_JOURNAL_BAD_SUPER,
                _ => Code::PR_0_SB_CORRUPT,
            };
            let place = match other {
                Error::Journal(_) => Place { structure: Structure::Journal, inode: None, block: None },
                _ => Structure::Superblock.at(superblock),
            };
            Finding { code, place, defect: Defect::Unreadable(other.to_string()) }
        }
    }
}

fn of_unread(pass: u8) -> Code {
    match pass {
        0 => Code::PR_0_OPEN_FAILED,
        2 => Code::PR_2_READ_DIRBLOCK,
        _ => Code::PR_1_ISCAN_ERROR,
    }
}

fn of_problem(pass: u8, place: Place, problem: &Problem) -> Code {
    match place.structure {
        Structure::Superblock => Code::PR_0_MISC_CORRUPT_SUPER,
        Structure::GroupDescriptor(_) => of_descriptor(problem),
        Structure::Journal => Code::PR_0_JOURNAL_BAD_INODE,
        Structure::OrphanFile => Code::PR_0_ORPHAN_FILE_HOLE,
        Structure::Inode if pass == 0 => Code::PR_0_RESIZE_INODE_INVALID,
        Structure::IndirectBlock if pass == 0 => Code::PR_0_RESIZE_INODE_INVALID,
        Structure::Inode => of_inode(problem),
        Structure::ExtentNode => of_extents(place, problem),
        Structure::IndirectBlock => Code::PR_1_ILLEGAL_BLOCK_NUM,
        Structure::InlineData if pass == 2 => Code::PR_2_DIR_CORRUPTED,
        Structure::InlineData => Code::PR_1_INLINE_DATA_NO_ATTR,
        Structure::SymlinkTarget => Code::PR_2_INVALID_SYMLINK,
        Structure::InodeXattrs => of_inode_xattrs(problem),
        Structure::XattrBlock => of_xattr_block(problem),
        Structure::XattrValue => Code::PR_1_ATTR_NO_EA_INODE_FL,
        _ if pass == 2 => Code::PR_2_DIR_CORRUPTED,
        _ => Code::PR_1_BLOCK_ITERATE,
    }
}

fn field(problem: &Problem) -> &'static str {
    match problem {
        Problem::Range { field, .. } | Problem::Value { field, .. } | Problem::Order { field, .. } => field,
        Problem::Short { what, .. } | Problem::Missing { what } => what,
        Problem::Magic { .. } => "magic",
        Problem::Checksum { .. } => "checksum",
    }
}

pub(super) fn of_descriptor(problem: &Problem) -> Code {
    match field(problem) {
        "checksum" => Code::PR_0_GDT_CSUM,
        "bg_block_bitmap" | "bg_inode_bitmap" | "bg_inode_table" => Code::PR_0_CHECK_DESC_FAILED,
        "bg_free_blocks_count" => Code::PR_5_FREE_BLOCK_COUNT_GROUP,
        "bg_free_inodes_count" => Code::PR_5_FREE_INODE_COUNT_GROUP,
        "bg_used_dirs_count" => Code::PR_5_FREE_DIR_COUNT_GROUP,
        _ => Code::PR_0_GDT_ITABLE_UNUSED,
    }
}

pub(super) fn of_inode(problem: &Problem) -> Code {
    match field(problem) {
        "checksum" => Code::PR_1_INODE_ONLY_CSUM_INVALID,
        "i_extra_isize" => Code::PR_1_EXTRA_ISIZE,
        "i_file_acl" => Code::PR_2_FILE_ACL_BAD,
        _ => Code::PR_2_BAD_MODE,
    }
}

fn of_extents(place: Place, problem: &Problem) -> Code {
    match field(problem) {
        "checksum" => Code::PR_1_EXTENT_ONLY_CSUM_INVALID,
        "ee_start" => Code::PR_1_EXTENT_BAD_START_BLK,
        "ei_leaf" => Code::PR_1_EXTENT_BAD_START_BLK,
        "ee_len" => Code::PR_1_EXTENT_LENGTH_ZERO,
        "ee_block" => Code::PR_1_OUT_OF_ORDER_EXTENTS,
        "ei_block" => Code::PR_1_EXTENT_INDEX_START_INVALID,
        "eh_depth" if place.block.is_none() => Code::PR_1_EXTENT_BAD_START_BLK,
        _ if place.block.is_none() => Code::PR_1_MISSING_EXTENT_HEADER,
        _ => Code::PR_1_EXTENT_HEADER_INVALID,
    }
}

pub(super) fn of_inode_xattrs(problem: &Problem) -> Code {
    match field(problem) {
        "checksum" => Code::PR_1_ATTR_HASH,
        "e_value_size" => Code::PR_1_ATTR_VALUE_SIZE,
        "e_value_inum" => Code::PR_1_ATTR_INVALID_EA_INODE,
        "e_name" => Code::PR_1_ATTR_HASH,
        _ => Code::PR_1_INODE_EA_ALLOC_COLLISION,
    }
}

pub(super) fn of_xattr_block(problem: &Problem) -> Code {
    match field(problem) {
        "checksum" => Code::PR_1_EA_BLOCK_ONLY_CSUM_INVALID,
        "magic" => Code::PR_1_BAD_EA_BLOCK,
        "h_blocks" => Code::PR_1_EA_MULTI_BLOCK,
        "e_value_size" | "an attribute value" => Code::PR_1_EA_BAD_VALUE,
        "e_value_inum" => Code::PR_1_ATTR_INVALID_EA_INODE,
        "e_name_index" => Code::PR_1_EA_BAD_NAME,
        "e_name" => Code::PR_1_ATTR_HASH,
        _ => Code::PR_1_EA_ALLOC_COLLISION,
    }
}

pub(super) fn of_entry(problem: &Problem) -> Code {
    match field(problem) {
        "inode" => Code::PR_2_BAD_INO,
        "name_len" => Code::PR_2_NULL_NAME,
        _ => Code::PR_2_DIR_CORRUPTED,
    }
}
