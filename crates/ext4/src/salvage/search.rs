//! Inode tables found by their inodes, where nothing else says where they lie.
//!
//! The checksum of an inode is of its number, too. CRCs can be undone: from the bytes of an inode,
//! its checksum and the seed of the file system follows its number, and with it the place of its
//! table.

use super::start::each_chunk;
use super::tables::{Evidence, Table, evidence};
use crate::Ext4;
use dentree_blockdev::BlockDevice;
use dentree_ext4_format::{BlockNumber, GroupNumber, Inode, Superblock};
use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;

/// Most places that are remembered.
const MOST_PLACES: usize = 1 << 20;
/// The size of inodes with a checksum of 32 bits that mke2fs makes.
pub(super) const INODE_SIZE: usize = 256;

/// Calls `each` with the byte at which something lies that looks like an inode in use, the seed of
/// the file system XORed with its number, and its bytes.
pub(super) fn each_inode(
    device: &dyn BlockDevice,
    inode_size: usize,
    goes_on: &dyn Fn(u64) -> bool,
    each: &mut dyn FnMut(u64, u32, &[u8]),
) {
    each_chunk(device, goes_on, &mut |offset, bytes| {
        let step = inode_size as u64;
        for (at, bytes) in (offset..).step_by(inode_size).zip(bytes.chunks_exact(inode_size)) {
            if at.is_multiple_of(step)
                && looks_used(bytes)
                && let Some(masked) = Inode::masked_number(bytes)
            {
                each(at, masked, bytes);
            }
        }
        ControlFlow::Continue(())
    });
}

/// Whether bytes can be an inode in use: most that are none fail here.
fn looks_used(bytes: &[u8]) -> bool {
    Inode::head(bytes).is_some_and(|head| {
        let kind = head.mode >> 12;
        matches!(kind, 1 | 2 | 4 | 6 | 8 | 10 | 12) && (1..=65_000).contains(&head.links)
    })
}

/// Finds the tables of groups that have none yet.
pub(super) fn tables(fs: &Ext4, missing: &[u32], goes_on: &dyn Fn(u64) -> bool) -> BTreeMap<u32, Table> {
    let sb = &fs.sb;
    let mut found = BTreeMap::new();
    let Ok(inode_size) = usize::try_from(sb.inode_size) else { return found };
    if !sb.has_metadata_csum() || inode_size < INODE_SIZE || missing.is_empty() {
        return found;
    }
    let mut votes = HashMap::<(u32, u64), u32>::new();
    each_inode(&*fs.device, inode_size, goes_on, &mut |at, masked, _| {
        let ino = masked ^ sb.checksum_seed.0;
        if let Some(place) = table_of(sb, (sb.inodes_per_group, sb.inodes_count), ino, at)
            .filter(|(group, _)| missing.binary_search(group).is_ok())
            .filter(|place| votes.len() < MOST_PLACES || votes.contains_key(place))
        {
            *votes.entry(place).or_default() += 1;
        }
    });
    let mut best = BTreeMap::<u32, (u32, u64)>::new();
    for ((group, start), count) in votes {
        let known = best.entry(group).or_insert((0, start));
        if (count, start) > *known {
            *known = (count, start);
        }
    }
    for (group, (_, start)) in best {
        let start = BlockNumber(start);
        let fits = sb.check_blocks("bg_inode_table", start, sb.inode_table_blocks()).is_ok();
        if fits && evidence(fs, GroupNumber(group), start) == Evidence::Inodes {
            found.insert(group, Table { start, used: sb.inodes_per_group });
        }
    }
    found
}

/// The group of an inode and the block at which its table begins, if the inode lies at byte `at`.
/// `counts`: the inodes of a group, and all inodes.
pub(super) fn table_of(sb: &Superblock, counts: (u32, u32), ino: u32, at: u64) -> Option<(u32, u64)> {
    let (per_group, all) = counts;
    let index = ino.checked_sub(1).filter(|index| *index < all)?;
    let start = at.checked_sub(u64::from(index % per_group) * u64::from(sb.inode_size))?;
    let block_bytes = u64::from(sb.block_size.bytes());
    start.is_multiple_of(block_bytes).then(|| (index / per_group, start / block_bytes))
}
