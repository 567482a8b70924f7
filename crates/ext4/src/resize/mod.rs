//! Changing the size of a file system that no one uses.
//!
//! | file | what |
//! |---|---|
//! | `grow` | new groups |
//! | `geometry` | the superblock of a larger file system |
//! | `groups` | new groups, and the last one that becomes longer |
//! | `shrink` | what a smaller size takes, and its steps |
//! | `smaller` | the superblock, bitmaps and descriptors of a smaller file system |
//! | `evacuate` | moving blocks out of the end |
//! | `renumber` | moving inodes out of the end |
//! | `journal` | moving the journal |
//! | `reserved` | the resize inode |
//! | `change` | the last step of both: descriptors, bitmaps, superblock |
//!
//! # Growing
//! New groups hold their own bitmaps and inode tables. Descriptors of new groups take blocks that
//! the resize inode reserves, or those of their meta block group.
//!
//! 1. What lies in new groups, which nothing refers to yet. A flush.
//! 2. One transaction of the journal with all that changes in old blocks: the last group's bitmap,
//!    descriptors, the resize inode, the superblock. A crash leaves the old size or the new one.
//!    Without a journal the superblock is marked as not unmounted cleanly before, and a crash asks
//!    for e2fsck.
//! 3. Backups in old groups. Until then they are those of the old size.
//!
//! # Shrinking
//! 1. The journal's blocks move out of the end: see `journal`.
//! 2. A session of the file system as it is, whose allocations end at the new size, moves inodes
//!    and blocks, each in a transaction of its own: new blocks, a copy, the new pointer, the old
//!    blocks freed. A crash leaves some of them moved, in a file system of the old size.
//! 3. The last step of growing, with fewer groups.
//!
//! Bitmaps and tables of groups that go may lie in groups that stay (flex_bg), and are free only
//! after step 3. Where that space is needed, a first round goes as far down as it can.

mod change;
mod evacuate;
mod geometry;
mod groups;
mod grow;
mod journal;
mod renumber;
pub(crate) mod reserved;
mod shrink;
mod smaller;

pub use grow::{enlarged, grow};
pub use shrink::{shrink, shrunk};

use crate::open::read_superblock;
use crate::txn::STATE_VALID;
use crate::{Error, Ext4, Options, Result, Structure};
use dentree_blockdev::BlockDevice;
use dentree_ext4_format::{BlockNumber, GroupDesc, GroupNumber, Incompat, SUPERBLOCK_OFFSET, Superblock};
use std::sync::Arc;

/// How large a file system is to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Size {
    /// In its blocks.
    Blocks(u64),
    /// In bytes. Part of a block does not count.
    Bytes(u64),
}

impl Size {
    /// The blocks of a file system.
    pub fn in_blocks(self, sb: &Superblock) -> u64 {
        match self {
            Size::Blocks(blocks) => blocks,
            Size::Bytes(bytes) => bytes >> sb.block_size.log2(),
        }
    }
}

/// Opens a file system that may be changed now.
fn open(device: &Arc<dyn BlockDevice>) -> Result<Ext4> {
    let sb = read_superblock(&**device, SUPERBLOCK_OFFSET)?
        .map_err(|problem| Structure::Superblock.at(BlockNumber(0)).corrupt(problem))?;
    let fs = Ext4::over(device.clone(), sb, SUPERBLOCK_OFFSET, &Options::default())?;
    fs.check_writable()?;
    if fs.sb.incompat.has(Incompat::RECOVER) {
        return refuse("the journal must be replayed first, as any command that changes a file does");
    }
    if fs.sb.state & STATE_VALID == 0 {
        return refuse("the file system was not unmounted cleanly: e2fsck checks it");
    }
    Ok(fs)
}

fn refuse<T>(what: &str) -> Result<T> {
    Err(Error::Unsupported(what.to_owned()))
}

/// A descriptor in which nothing is wrong.
fn checked(fs: &Ext4, group: GroupNumber) -> Result<GroupDesc> {
    let desc = fs.group(group)?;
    let place = Structure::GroupDescriptor(group).at(fs.descriptor_place(group).0);
    desc.check(group, &fs.sb).map_err(|problem| place.corrupt(problem))?;
    Ok(desc)
}
