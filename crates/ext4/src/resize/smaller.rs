//! The superblock, bitmaps and descriptors of a smaller file system.

use super::change::Change;
use super::{checked, reserved};
use crate::alloc::{SystemBlocks, copies_in};
use crate::mkfs::LEAST_DATA;
use crate::{Ext4, Result, Structure};
use dentree_ext4_format::{
    BlockNumber, Compat, GroupDesc, GroupFlags, GroupNumber, Incompat, Problem, Superblock, clear_bits,
    free_runs, set_bits,
};
use std::ops::Range;

/// Where the metadata of fixed place lies, in a file system of some size.
#[derive(Clone)]
pub(super) struct Shape {
    pub(super) sb: Superblock,
    pub(super) descs: Vec<GroupDesc>,
    system: SystemBlocks,
    /// Where bitmaps and tables end, those of each group and the groups before it.
    ends: Vec<u64>,
}

impl Shape {
    pub(super) fn of(fs: &Ext4) -> Result<Shape> {
        let descs =
            (0..fs.sb.groups).map(|group| checked(fs, GroupNumber(group))).collect::<Result<Vec<_>>>()?;
        Shape::new(fs.sb.clone(), descs)
    }

    fn new(sb: Superblock, descs: Vec<GroupDesc>) -> Result<Shape> {
        let system = SystemBlocks::of(&sb, &descs, &[])?;
        let table = sb.inode_table_blocks();
        let ends = descs.iter().scan(0, |end: &mut u64, desc| {
            let bitmaps = desc.block_bitmap.0.max(desc.inode_bitmap.0) + 1;
            *end = bitmaps.max(desc.inode_table.0 + table).max(*end);
            Some(*end)
        });
        Ok(Shape { ends: ends.collect(), sb, descs, system })
    }

    /// The same without all from block `blocks` on. The superblock keeps its free counts.
    pub(super) fn cut(&self, blocks: u64) -> Result<Shape> {
        let sb = superblock(&self.sb, blocks);
        let descs: Vec<_> = self.descs.iter().copied().take(index(sb.groups)).collect();
        let mut shape = Shape::new(sb, descs)?;
        let overhead = u64::from(self.sb.overhead_clusters);
        if overhead != 0 {
            // 0 means unknown.
            let gone = self.system_blocks(self.sb.blocks_count) - shape.system_blocks(blocks);
            shape.sb.overhead_clusters = u32::try_from(overhead.saturating_sub(gone)).unwrap_or(0);
        }
        Ok(shape)
    }

    /// Blocks of metadata of fixed place before `end`.
    pub(super) fn system_blocks(&self, end: u64) -> u64 {
        self.system.within(BlockNumber(0), end).map(|range| range.end - range.start).sum()
    }

    /// The fewest blocks that hold so many of content, next to this metadata, and so many inodes.
    pub(super) fn least(&self, content: u64, inodes: u64) -> u64 {
        let (mut low, mut high) = (0, self.sb.blocks_count);
        while low < high {
            let middle = low + (high - low) / 2;
            if middle - self.system_blocks(middle) >= content {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        self.lowest_from(low, inodes)
    }

    /// The lowest number of blocks from `blocks` on that the file system can have.
    pub(super) fn lowest_from(&self, blocks: u64, inodes: u64) -> u64 {
        let groups = u32::try_from(inodes.div_ceil(u64::from(self.sb.inodes_per_group))).unwrap_or(u32::MAX);
        let mut lowest = blocks.max(self.sb.group_start(GroupNumber(groups.max(1) - 1)).0 + 1);
        while lowest < self.sb.blocks_count {
            let next = lowest.max(self.end_of_metadata(lowest)).max(self.least_of_last_group(lowest));
            if next == lowest {
                break;
            }
            lowest = next;
        }
        lowest.min(self.sb.blocks_count)
    }

    /// The end of the bitmaps and tables of the groups before `blocks`.
    fn end_of_metadata(&self, blocks: u64) -> u64 {
        let groups = superblock(&self.sb, blocks).groups;
        index(groups).checked_sub(1).and_then(|last| self.ends.get(last)).copied().unwrap_or(0)
    }

    /// `blocks`, or more, so that the last group holds more than its metadata.
    fn least_of_last_group(&self, blocks: u64) -> u64 {
        let sb = superblock(&self.sb, blocks);
        let last = GroupNumber(sb.groups - 1);
        let start = sb.group_start(last).0;
        let own = (copies_in(&sb, last) + LEAST_DATA).min(u64::from(sb.blocks_per_group));
        blocks.max((start + own).min(self.sb.blocks_count))
    }

    /// `blocks`, or fewer: without last groups that would hold little but their metadata, or not
    /// even that.
    pub(super) fn without_short_group(&self, blocks: u64) -> u64 {
        let mut highest = blocks;
        while self.lowest_from(highest, 0) > highest {
            let last = superblock(&self.sb, highest).groups - 1;
            if last == 0 {
                break;
            }
            highest = self.sb.group_start(GroupNumber(last)).0.min(highest - 1);
        }
        highest
    }

    /// The blocks of a range that are metadata here and not in `smaller`.
    fn freed_for(&self, smaller: &Shape, start: BlockNumber, count: u64) -> Vec<Range<u64>> {
        let mut freed = Vec::new();
        for Range { start, end } in self.system.within(start, count) {
            let mut from = start;
            for kept in smaller.system.within(BlockNumber(start), end - start) {
                freed.push(from..kept.start);
                from = kept.end;
            }
            freed.push(from..end);
        }
        freed.retain(|range| !range.is_empty());
        freed
    }

    /// The groups that both have, in which blocks of metadata become free.
    pub(super) fn groups_with_freed(&self, smaller: &Shape) -> usize {
        let sb = &smaller.sb;
        let groups = (0..sb.groups).map(GroupNumber);
        let counts = groups.map(|group| (sb.group_start(group), u64::from(sb.blocks_in_group(group))));
        counts.filter(|&(start, count)| !self.freed_for(smaller, start, count).is_empty()).count()
    }
}

fn index(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// The superblock with `blocks` blocks, fewer than before, but with the old free counts.
fn superblock(old: &Superblock, blocks: u64) -> Superblock {
    let mut sb = old.clone();
    sb.blocks_count = blocks;
    let groups = blocks.saturating_sub(u64::from(sb.first_data_block));
    let groups = groups.div_ceil(u64::from(sb.blocks_per_group)).max(1);
    // At most what it was, and so are the inodes.
    sb.groups = u32::try_from(groups).unwrap_or(u32::MAX).min(old.groups);
    sb.inodes_count = sb.groups * sb.inodes_per_group;
    let scaled = u128::from(old.reserved_blocks_count) * u128::from(blocks);
    sb.reserved_blocks_count = u64::try_from(scaled / u128::from(old.blocks_count)).unwrap_or(0);
    for backup in &mut sb.backup_groups {
        if *backup >= sb.groups {
            *backup = 0;
        }
    }
    if sb.incompat.has(Incompat::META_BG) {
        sb.first_meta_bg = sb.first_meta_bg.min(sb.desc_blocks());
    } else if sb.compat.has(Compat::RESIZE_INODE) && sb.reserved_gdt_blocks > 0 {
        // Blocks of descriptors are reserved again, as far as the resize inode can map them.
        let all = u32::from(old.reserved_gdt_blocks) + old.desc_blocks() - sb.desc_blocks();
        sb.reserved_gdt_blocks = u16::try_from(all.min(sb.block_size.bytes() / 4)).unwrap_or(u16::MAX);
    }
    sb
}

/// The last step: `fs` ends with its last block of `smaller`, beyond which nothing is in use but
/// metadata of groups that go.
pub(super) fn plan<'a>(fs: &'a Ext4, now: &Shape, smaller: &Shape) -> Result<Change<'a>> {
    let mut sb = smaller.sb.clone();
    check_empty(fs, now, sb.blocks_count)?;
    let mut descs = smaller.descs.clone();
    let mut bitmaps = Vec::new();
    for (group, desc) in (0..sb.groups).map(GroupNumber).zip(&mut descs) {
        bitmaps.extend(shorten(fs, (now, smaller), group, desc)?);
    }
    sb.free_blocks_count = descs.iter().map(|desc| u64::from(desc.free_blocks)).sum();
    sb.free_inodes_count = descs.iter().map(|desc| desc.free_inodes).fold(0, u32::wrapping_add);
    let mut change = Change::new(fs, sb, fs.journal_location()?)?;
    change.changed.extend(bitmaps);
    for (group, (desc, before)) in (0..).map(GroupNumber).zip(descs.iter().zip(&now.descs)) {
        if desc != before {
            change.put(group, desc);
        }
    }
    change.end_table();
    change.change_table();
    reserved::update(fs, &change.sb, &mut change.changed)?;
    change.check_journal()?;
    Ok(change)
}

/// Checks that only metadata of fixed place lies from block `end` on, and no inode in groups from
/// there on.
fn check_empty(fs: &Ext4, now: &Shape, end: u64) -> Result<()> {
    let sb = &now.sb;
    for (group, desc) in (0..).map(GroupNumber).zip(&now.descs) {
        let start = sb.group_start(group).0;
        let count = u64::from(sb.blocks_in_group(group));
        if start + count <= end {
            continue;
        }
        let place = Structure::BlockBitmap(group).at(desc.block_bitmap);
        let bitmap = bitmap(fs, now, group, desc)?;
        let from = end.max(start);
        let system = now.system.within(BlockNumber(from), start + count - from);
        let system: u64 = system.map(|range| range.end - range.start).sum();
        let bit = |block: u64| usize::try_from(block - start).unwrap_or(usize::MAX);
        let free: usize = free_runs(&bitmap, bit(from), bit(start + count)).map(|run| run.len).sum();
        if u64::try_from(free).unwrap_or(0) + system != start + count - from {
            return Err(place.corrupt(Problem::Missing { what: "an owner of a block in use" }));
        }
        if start >= end && desc.free_inodes != sb.inodes_per_group {
            let place = Structure::InodeBitmap(group).at(desc.inode_bitmap);
            return Err(place.corrupt(Problem::Missing { what: "a name of an inode in use" }));
        }
    }
    Ok(())
}

/// A group's block bitmap.
fn bitmap(fs: &Ext4, now: &Shape, group: GroupNumber, desc: &GroupDesc) -> Result<Vec<u8>> {
    if is_uninit(fs, desc) {
        return Ok(fs.initial_block_bitmap(group, &now.system));
    }
    let place = Structure::BlockBitmap(group).at(desc.block_bitmap);
    let bytes = fs.metadata(desc.block_bitmap, place)?.to_vec();
    if let Some(sum) = fs.sb.block_bitmap_sum(&bytes) {
        Problem::check_sum(desc.block_bitmap_sum, sum).map_err(|problem| place.corrupt(problem))?;
    }
    Ok(bytes)
}

fn is_uninit(fs: &Ext4, desc: &GroupDesc) -> bool {
    fs.sb.has_group_checksums() && desc.flags.has(GroupFlags::BLOCK_UNINIT)
}

/// Frees metadata of groups that go in one that stays, and ends the last one. Returns its new block
/// bitmap; `None` where that follows from the layout, or does not change.
fn shorten(
    fs: &Ext4,
    (now, smaller): (&Shape, &Shape),
    group: GroupNumber,
    desc: &mut GroupDesc,
) -> Result<Option<(u64, Vec<u8>)>> {
    let sb = &smaller.sb;
    let (start, count) = (sb.group_start(group), sb.blocks_in_group(group));
    let freed = now.freed_for(smaller, start, u64::from(count));
    // The last group's bitmap is always on disk, as mke2fs and e2fsck have it.
    let is_last = group.0 + 1 == sb.groups;
    let is_shorter = count < now.sb.blocks_in_group(group);
    if freed.is_empty() && !is_shorter && !(is_last && is_uninit(fs, desc)) {
        return Ok(None);
    }
    let mut bytes = bitmap(fs, now, group, desc)?;
    let bit = |block: u64| usize::try_from(block - start.0).unwrap_or(usize::MAX);
    for range in freed {
        clear_bits(&mut bytes, bit(range.start), bit(range.end));
    }
    let (end, all) = (index(count), bytes.len() * 8);
    set_bits(&mut bytes, end, all);
    let free: usize = free_runs(&bytes, 0, end).map(|run| run.len).sum();
    desc.free_blocks = u32::try_from(free).unwrap_or(u32::MAX);
    if is_uninit(fs, desc) && !is_last {
        return Ok(None);
    }
    desc.flags = desc.flags.without(GroupFlags::BLOCK_UNINIT);
    desc.block_bitmap_sum = sb.block_bitmap_sum(&bytes).unwrap_or(0);
    Ok(Some((desc.block_bitmap.0, bytes)))
}
