//! System blocks: metadata of fixed location.

use crate::{Ext4, Result, Structure};
use dentree_ext4_format::{BlockNumber, Compat, GroupDesc, GroupNumber, Incompat, Problem, Superblock};
use std::ops::Range;

/// Ascending and disjoint ranges.
#[derive(Clone)]
pub(crate) struct SystemBlocks(Vec<Range<u64>>);

impl SystemBlocks {
    /// `journal`: its runs of blocks. `Corrupt` if ranges overlap.
    pub(crate) fn new(fs: &Ext4, descs: &[GroupDesc], journal: &[(u64, u64)]) -> Result<SystemBlocks> {
        SystemBlocks::of(&fs.sb, descs, journal)
    }

    /// Those of a file system with this superblock.
    pub(crate) fn of(sb: &Superblock, descs: &[GroupDesc], journal: &[(u64, u64)]) -> Result<SystemBlocks> {
        let before_groups = 0..u64::from(sb.first_data_block);
        let mut ranges = vec![before_groups];
        ranges.extend(journal.iter().map(|&(start, len)| start..start + len));
        for (group, desc) in (0..sb.groups).map(GroupNumber).zip(descs) {
            let start = sb.group_start(group).0;
            ranges.push(start..start + copies_in(sb, group));
            ranges.push(desc.block_bitmap.0..desc.block_bitmap.0 + 1);
            ranges.push(desc.inode_bitmap.0..desc.inode_bitmap.0 + 1);
            ranges.push(desc.inode_table.0..desc.inode_table.0 + sb.inode_table_blocks());
        }
        ranges.sort_unstable_by_key(|range| range.start);
        let mut merged: Vec<Range<u64>> = Vec::new();
        for range in ranges.into_iter().filter(|range| !range.is_empty()) {
            match merged.last_mut() {
                Some(last) if range.start < last.end => {
                    let because = "belongs to two system structures";
                    let problem = Problem::Value { field: "block", value: range.start, because };
                    return Err(Structure::Superblock.at(BlockNumber(range.start)).corrupt(problem));
                }
                Some(last) if range.start == last.end => last.end = range.end,
                _ => merged.push(range),
            }
        }
        Ok(SystemBlocks(merged))
    }

    pub(crate) fn within(&self, first: BlockNumber, count: u64) -> impl Iterator<Item = Range<u64>> {
        let end = first.0 + count;
        let from = self.0.partition_point(|range| range.end <= first.0);
        let touching = self.0.get(from..).unwrap_or_default().iter();
        touching
            .take_while(move |range| range.start < end)
            .map(move |range| range.start.max(first.0)..range.end.min(end))
    }
}

/// The superblock and descriptors at a group's start.
pub(crate) fn copies_in(sb: &Superblock, group: GroupNumber) -> u64 {
    let superblock = u64::from(sb.group_has_superblock(group));
    if is_in_meta_group(sb, group) {
        superblock + u64::from(has_meta_descriptors(sb, group))
    } else {
        superblock * (1 + descriptor_blocks(sb))
    }
}

/// The first, second and last group of a meta block group have its descriptors.
fn has_meta_descriptors(sb: &Superblock, group: GroupNumber) -> bool {
    let within = group.0 % sb.descs_per_block();
    is_in_meta_group(sb, group) && (within <= 1 || within == sb.descs_per_block() - 1)
}

pub(crate) fn is_in_meta_group(sb: &Superblock, group: GroupNumber) -> bool {
    sb.incompat.has(Incompat::META_BG) && group.0 / sb.descs_per_block() >= sb.first_meta_bg
}

/// Counts used and reserved ones, after a superblock.
fn descriptor_blocks(sb: &Superblock) -> u64 {
    let all = if sb.incompat.has(Incompat::META_BG) {
        sb.first_meta_bg.min(sb.desc_blocks())
    } else {
        sb.desc_blocks()
    };
    let kept = if sb.compat.has(Compat::RESIZE_INODE) { sb.reserved_gdt_blocks } else { 0 };
    u64::from(all) + u64::from(kept)
}
