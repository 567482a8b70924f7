//! The ext4 on-disk structures, checksums and hashes: pure functions, no I/O.
//!
//! Each file has a structure's raw fields, with kernel names and offsets, and the validated type. A
//! failed check is a [`Problem`]; the caller adds inode and block.
//!
//! Source: the kernel's `Documentation/filesystems/ext4/`.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod acl;
mod bitmap;
pub mod casefold;
mod checksum;
mod dir_entry;
mod dir_leaf;
mod extent;
mod extent_list;
mod features;
mod group_desc;
pub mod hash;
pub mod htree;
mod inode;
mod no_key_name;
mod orphan;
mod problem;
mod raw;
mod superblock;
mod time;
mod types;
pub mod xattr;

pub use acl::{acl_from_xattr, acl_to_xattr};
pub use bitmap::{FreeRun, all_set, clear_bits, find_free, free_runs, set_bits};
pub use checksum::{ChecksumSeed, SumChange, crc16, crc32c, crc32c_before};
pub use dir_entry::{
    BlockRole, Entries, Entry, NewEntry, block_role, leaf_room, leaf_seed, set_leaf_checksum,
    update_leaf_checksum, verify_leaf, write_entry,
};
pub use dir_leaf::{EntriesMut, entry_len, room_for};
pub use extent::{
    Extent, ExtentIndex, ExtentNode, MAX_DEPTH, Step, set_extent_checksum, verify_extent_block,
    write_extent_index, write_extent_leaf,
};
pub use extent_list::remap;
pub use features::{Compat, Incompat, RoCompat};
pub use group_desc::{GroupDesc, GroupFlags};
pub use inode::{DeviceNumber, I_BLOCK_LEN, Inode, InodeFlags, InodeHead};
pub use no_key_name::NoKeyName;
pub use orphan::{orphan_slots, set_orphan, verify_orphan_block, write_orphan_tail};
pub use problem::Problem;
pub use superblock::{ErrorRecord, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
pub use time::InodeTime;
pub use types::{BlockNumber, BlockSize, GroupNumber, InodeNumber, LogicalBlock};
