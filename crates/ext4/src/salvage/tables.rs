//! Where the inode tables lie: by descriptors, by backups of them, or where mkfs puts tables.
//!
//! A checksum proves a descriptor. Without one, or where no descriptor is sound, the inodes in a
//! table prove its place: their checksums are of their numbers, too.

use super::plausible::is_plausible;
use super::reader::read_past_damage;
use crate::Ext4;
use crate::alloc::{copies_in, is_in_meta_group};
use dentree_ext4_format::{
    BlockNumber, Compat, GroupDesc, GroupFlags, GroupNumber, Incompat, Inode, InodeNumber, Superblock,
};
use std::collections::BTreeMap;

/// Blocks of a table that are looked at for inodes.
const PROBED: u64 = 4;

/// An inode table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Table {
    pub(super) start: BlockNumber,
    /// Inodes from its start that may have been used.
    pub(super) used: u32,
}

/// What is known of all groups.
#[derive(Default)]
pub(super) struct Tables {
    /// By group.
    pub(super) tables: BTreeMap<u32, Table>,
    /// Groups whose descriptor is a backup, or was derived.
    pub(super) not_primary: u32,
    /// Groups without a table.
    pub(super) missing: Vec<u32>,
}

/// The groups that may have anything on a device that may be shorter than the file system.
pub(super) fn groups_there(fs: &Ext4) -> u32 {
    let sb = &fs.sb;
    let blocks = (fs.device.size() >> sb.block_size.log2()).saturating_sub(u64::from(sb.first_data_block));
    let there = blocks.div_ceil(u64::from(sb.blocks_per_group));
    // Tables of a group may lie before it.
    let there = u32::try_from(there).unwrap_or(u32::MAX).saturating_add(sb.groups_per_flex);
    sb.groups.min(there)
}

/// Finds the tables of the first `count` groups.
pub(super) fn find(fs: &Ext4, count: u32) -> Tables {
    let mut found = Tables::default();
    let mut blocks = Descriptors { fs, last: None };
    for group in (0..count).map(GroupNumber) {
        let (first, within) = fs.descriptor_place(group);
        if let Some(table) = blocks.table(group, first, within) {
            found.tables.insert(group.0, table);
            continue;
        }
        found.not_primary += 1;
        // Backups are as old as the file system, and do not know which inodes were used since.
        let used = fs.sb.inodes_per_group;
        let backup = backups(&fs.sb, group).find_map(|block| blocks.table(group, block, within));
        let table = backup.map(|table| Table { used, ..table }).or_else(|| {
            candidates(&fs.sb, group, &found.tables)
                .into_iter()
                .find(|start| evidence(fs, group, *start) == Evidence::Inodes)
                .map(|start| Table { start, used })
        });
        match table {
            Some(table) => drop(found.tables.insert(group.0, table)),
            None => found.missing.push(group.0),
        }
    }
    found
}

/// The last block of descriptors that was read.
struct Descriptors<'a> {
    fs: &'a Ext4,
    last: Option<(BlockNumber, Vec<u8>)>,
}

impl Descriptors<'_> {
    /// The table that descriptor number `within` of a block names, if it is one of `group`.
    fn table(&mut self, group: GroupNumber, block: BlockNumber, within: usize) -> Option<Table> {
        let sb = &self.fs.sb;
        if self.last.as_ref().is_none_or(|(last, _)| *last != block) {
            let mut bytes = vec![0; sb.block_size.in_memory()];
            read_past_damage(&*self.fs.device, block.0 << sb.block_size.log2(), &mut bytes, &mut |_| {});
            self.last = Some((block, bytes));
        }
        let (_, bytes) = self.last.as_ref()?;
        let size = usize::try_from(sb.desc_size).ok()?;
        let desc = GroupDesc::parse(bytes.chunks_exact(size).nth(within)?, group, sb).ok()?;
        desc.check(group, sb).ok()?;
        let is_proved = sb.has_group_checksums();
        if !is_proved && evidence(self.fs, group, desc.inode_table) == Evidence::Garbage {
            return None;
        }
        let used = match (is_proved, desc.flags.has(GroupFlags::INODE_UNINIT)) {
            (true, true) => 0,
            (true, false) => sb.inodes_per_group.saturating_sub(desc.itable_unused),
            (false, _) => sb.inodes_per_group,
        };
        Some(Table { start: desc.inode_table, used })
    }
}

/// The blocks with copies of a group's descriptor.
fn backups(sb: &Superblock, group: GroupNumber) -> impl Iterator<Item = BlockNumber> {
    let per_block = sb.descs_per_block();
    let meta = group.0 / per_block;
    let in_meta = is_in_meta_group(sb, group);
    let behind_superblock =
        |group: GroupNumber| BlockNumber(sb.group_start(group).0 + u64::from(sb.group_has_superblock(group)));
    let first = meta * per_block;
    let last = (first + per_block - 1).min(sb.groups.saturating_sub(1));
    let in_meta_group = [first + 1, last].into_iter().filter(move |_| in_meta).map(GroupNumber);
    // The powers of 3, 5 and 7 and two groups: a few dozen at most, or every group.
    const MOST: usize = 64;
    let all = (1..sb.groups).map(GroupNumber).filter(move |_| !in_meta);
    let with_superblock = all.filter(|group| sb.group_has_superblock(*group)).take(MOST);
    in_meta_group
        .map(behind_superblock)
        .chain(with_superblock.map(move |group| BlockNumber(sb.group_start(group).0 + 1 + u64::from(meta))))
}

/// Places where the table of a group may lie, the likeliest first.
fn candidates(sb: &Superblock, group: GroupNumber, known: &BTreeMap<u32, Table>) -> Vec<BlockNumber> {
    let len = sb.inode_table_blocks();
    let flex = if sb.incompat.has(Incompat::FLEX_BG) { sb.groups_per_flex } else { 1 };
    let first = group.0 / flex * flex;
    let mut found = Vec::new();
    // With flex_bg the tables of some groups follow each other.
    if flex > 1 {
        let before = known.range(first..group.0).next_back();
        let behind = known.range(group.0..first.saturating_add(flex)).next();
        for (other, table) in before.into_iter().chain(behind) {
            let place = if *other < group.0 {
                table.start.0.checked_add(u64::from(group.0 - other) * len)
            } else {
                table.start.0.checked_sub(u64::from(other - group.0) * len)
            };
            found.extend(place);
        }
    }
    for together in [flex, flex.min(sb.groups.saturating_sub(first)), 1] {
        let base = if together == 1 { group.0 } else { first };
        let start = sb.group_start(GroupNumber(base)).0 + copies_in(sb, GroupNumber(base));
        let behind_bitmaps = start + 2 * u64::from(together);
        found.push(behind_bitmaps + u64::from(group.0 - base) * len);
        // Without the reserved descriptors: resize2fs and others use them up.
        let kept = u64::from(sb.reserved_gdt_blocks);
        if sb.compat.has(Compat::RESIZE_INODE) && sb.group_has_superblock(GroupNumber(base)) {
            found.push(behind_bitmaps - kept.min(behind_bitmaps) + u64::from(group.0 - base) * len);
        }
    }
    let mut unique: Vec<BlockNumber> = Vec::new();
    for place in found.into_iter().map(BlockNumber) {
        if !unique.contains(&place) && sb.check_blocks("bg_inode_table", place, len).is_ok() {
            unique.push(place);
        }
    }
    unique
}

/// What the blocks at a place say about a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Evidence {
    /// Inodes of the group.
    Inodes,
    /// Nothing: zeros, or what cannot be read.
    Nothing,
    /// Something else.
    Garbage,
}

/// Whether the table of a group begins at `start`.
pub(super) fn evidence(fs: &Ext4, group: GroupNumber, start: BlockNumber) -> Evidence {
    let sb = &fs.sb;
    let (mut sound, mut wrong) = (0_u32, 0_u32);
    let per_block = sb.block_size.bytes() / sb.inode_size;
    let mut bytes = vec![0; sb.block_size.in_memory()];
    let len = sb.inode_table_blocks();
    let size = usize::try_from(sb.inode_size).unwrap_or(usize::MAX);
    for at in (0..len.min(PROBED)).chain(len / 2..len.min(len / 2 + 1)) {
        read_past_damage(&*fs.device, (start.0 + at) << sb.block_size.log2(), &mut bytes, &mut |_| {});
        let within = u32::try_from(at).unwrap_or(0) * per_block;
        let first = group.0.saturating_mul(sb.inodes_per_group).saturating_add(within).saturating_add(1);
        for (ino, bytes) in (first..).map(InodeNumber).zip(bytes.chunks_exact(size)) {
            if bytes.iter().all(|byte| *byte == 0) {
                continue;
            }
            match Inode::head(bytes) {
                Some(head) if head.mode == 0 && Inode::verify_unused(bytes, ino, sb).is_ok() => {
                    sound += u32::from(sb.has_metadata_csum());
                }
                _ if is_inode(fs, ino, bytes) => sound += 1,
                _ => wrong += 1,
            }
        }
    }
    match (sound, wrong) {
        (0, 0) => Evidence::Nothing,
        (sound, wrong) if sound > wrong / 4 => Evidence::Inodes,
        _ => Evidence::Garbage,
    }
}

/// Whether bytes are inode `ino`, in use or freed.
fn is_inode(fs: &Ext4, ino: InodeNumber, bytes: &[u8]) -> bool {
    let place = crate::Structure::Inode.of(ino);
    fs.parse_inode(ino, bytes, place).is_ok_and(|node| is_plausible(fs, &node))
}

/// The blocks of descriptors that name these tables, where the engine looks for them.
pub(super) fn descriptor_blocks(fs: &Ext4, tables: &BTreeMap<u32, Table>) -> BTreeMap<u64, Vec<u8>> {
    let sb = &fs.sb;
    let mut blocks = BTreeMap::new();
    let size = usize::try_from(sb.desc_size).unwrap_or(usize::MAX);
    for (group, table) in tables {
        let group = GroupNumber(*group);
        let (block, within) = fs.descriptor_place(group);
        let bytes = blocks.entry(block.0).or_insert_with(|| vec![0; sb.block_size.in_memory()]);
        let desc = GroupDesc {
            block_bitmap: table.start,
            inode_bitmap: table.start,
            inode_table: table.start,
            free_blocks: 0,
            free_inodes: 0,
            used_dirs: 0,
            itable_unused: 0,
            flags: GroupFlags::default(),
            block_bitmap_sum: 0,
            inode_bitmap_sum: 0,
        };
        if let Some(bytes) = bytes.chunks_exact_mut(size).nth(within) {
            desc.encode(bytes, group, sb);
        }
    }
    blocks
}
