//! The superblock of a larger file system.

use crate::alloc::copies_in;
use crate::mkfs::LEAST_DATA;
use crate::{Error, Result};
use dentree_ext4_format::{Compat, GroupNumber, Incompat, Superblock};

/// The most blocks where block numbers have 32 bits.
const MOST_32_BITS: u64 = u32::MAX as u64;
/// The most blocks where they have 48, as in extents.
const MOST_48_BITS: u64 = 1 << 48;

/// The superblock with `blocks` blocks, but with the old free counts. A last group with little more
/// than its own metadata is dropped; so all may stay as it is.
pub(super) fn superblock(old: &Superblock, blocks: u64) -> Result<Superblock> {
    let mut sb = old.clone();
    sb.blocks_count = blocks;
    let refuse = |what: String| Err(Error::Unsupported(what));
    if blocks < old.blocks_count {
        let now = old.blocks_count;
        return refuse(format!("{blocks} blocks are fewer than the {now} there are"));
    }
    // Those of the resize inode have 32 bits.
    let has_32_bits = !sb.is_64bit() || sb.compat.has(Compat::RESIZE_INODE);
    let most = if has_32_bits { MOST_32_BITS } else { MOST_48_BITS };
    if blocks > most {
        return refuse(format!("{blocks} blocks are more than the {most} that this file system can number"));
    }
    while sb.blocks_count > old.blocks_count {
        set_groups(&mut sb, old)?;
        let last = GroupNumber(sb.groups - 1);
        let rest = u64::from(sb.blocks_in_group(last));
        let is_whole = sb.groups == old.groups || rest == u64::from(sb.blocks_per_group);
        if is_whole || rest >= own_blocks(&sb, last) + LEAST_DATA {
            break;
        }
        sb.blocks_count = sb.group_start(last).0.max(old.blocks_count);
    }
    if sb.blocks_count == old.blocks_count {
        return Ok(old.clone());
    }
    let own = (old.groups..sb.groups).map(|group| own_blocks(&sb, GroupNumber(group)));
    if own.clone().any(|own| own > u64::from(sb.blocks_per_group)) {
        return refuse("its groups are too small for the metadata of more of them".to_owned());
    }
    let overhead = u64::from(old.overhead_clusters) + own.sum::<u64>();
    if old.overhead_clusters != 0 {
        // 0 means unknown.
        sb.overhead_clusters = u32::try_from(overhead).unwrap_or(0);
    }
    let scaled = u128::from(old.reserved_blocks_count) * u128::from(sb.blocks_count);
    sb.reserved_blocks_count = u64::try_from(scaled / u128::from(old.blocks_count)).unwrap_or(0);
    Ok(sb)
}

/// Blocks of a group's metadata.
pub(super) fn own_blocks(sb: &Superblock, group: GroupNumber) -> u64 {
    copies_in(sb, group) + 2 + sb.inode_table_blocks()
}

/// Sets what follows from the number of blocks. New descriptors take reserved blocks.
fn set_groups(sb: &mut Superblock, old: &Superblock) -> Result<()> {
    let groups = (sb.blocks_count - u64::from(sb.first_data_block)).div_ceil(u64::from(sb.blocks_per_group));
    let inodes = u64::from(sb.inodes_per_group).saturating_mul(groups);
    let too_many = |_| {
        let most = u32::MAX / old.inodes_per_group;
        Error::Unsupported(format!(
            "{groups} groups are too many: {most} have as many inodes as can be numbered"
        ))
    };
    sb.inodes_count = u32::try_from(inodes).map_err(too_many)?;
    // Fewer than the inodes.
    sb.groups = u32::try_from(groups).map_err(too_many)?;
    if sb.incompat.has(Incompat::META_BG) {
        return Ok(());
    }
    let more = sb.desc_blocks() - old.desc_blocks();
    let kept = if old.compat.has(Compat::RESIZE_INODE) { u32::from(old.reserved_gdt_blocks) } else { 0 };
    let Some(left) = kept.checked_sub(more) else {
        let groups = u64::from(old.desc_blocks() + kept) * u64::from(old.descs_per_block());
        let most = u64::from(old.first_data_block) + groups * u64::from(old.blocks_per_group);
        return Err(Error::Unsupported(format!(
            "the descriptors of so many groups have no place: there is one for up to {most} blocks; \
             `resize2fs` moves what is in the way"
        )));
    };
    if old.compat.has(Compat::RESIZE_INODE) {
        // At most what it was.
        sb.reserved_gdt_blocks = u16::try_from(left).unwrap_or(0);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use dentree_ext4_format::{BlockSize, RoCompat};

    /// 15 groups of 512 blocks with 16 descriptors in a block.
    fn small() -> Superblock {
        let mut sb = Superblock::new(BlockSize::from_log_block_size(0).unwrap(), [0; 16]);
        sb.compat = Compat::RESIZE_INODE;
        sb.incompat = Incompat::BITS64;
        sb.ro_compat = RoCompat::SPARSE_SUPER;
        (sb.groups, sb.blocks_count, sb.blocks_per_group) = (15, 1 + 15 * 512, 512);
        (sb.inodes_per_group, sb.inodes_count) = (64, 15 * 64);
        (sb.desc_size, sb.reserved_gdt_blocks) = (64, 200);
        sb
    }

    #[test]
    fn a_dropped_last_group_gives_its_descriptor_block_back() {
        // A 17th group of 20 blocks.
        let sb = superblock(&small(), 1 + 16 * 512 + 20).unwrap();
        assert_eq!((sb.blocks_count, sb.groups, sb.reserved_gdt_blocks), (1 + 16 * 512, 16, 200));
        let sb = superblock(&small(), 1 + 16 * 512 + 100).unwrap();
        assert_eq!((sb.groups, sb.desc_blocks(), sb.reserved_gdt_blocks), (17, 2, 199));
    }

    #[test]
    fn reserved_blocks_keep_their_share_and_overhead_counts_new_groups() {
        let mut old = small();
        (old.reserved_blocks_count, old.overhead_clusters) = (768, 7);
        let sb = superblock(&old, 1 + 30 * 512).unwrap();
        assert_eq!(sb.reserved_blocks_count, 768 * (1 + 30 * 512) / (1 + 15 * 512));
        // Groups 25 and 27 have backups.
        assert_eq!(u64::from(sb.overhead_clusters), 7 + 15 * 18 + 2 * (1 + 2 + 199));
    }
}
