//! The first inodes: root, `lost+found`, resize inode, journal, orphan file.

use super::geometry::base_blocks;
use super::layout::{LOST_AND_FOUND, Layout, ORPHAN_FILE};
use super::space::UsedBlocks;
use dentree_ext4_format::{
    BlockNumber, Compat, Extent, ExtentIndex, GroupNumber, Incompat, Inode, InodeFlags, InodeNumber,
    InodeTime, LogicalBlock, NewEntry, Superblock, leaf_room, set_extent_checksum, set_leaf_checksum,
    write_entry, write_extent_index, write_extent_leaf,
};
use std::ops::Range;

const RESIZE: u32 = 7;
const JOURNAL: u32 = 8;

/// Blocks of an initialized extent.
const EXTENT_MAX: u64 = 32768;
const ROOT_EXTENTS: usize = 4;
const DIRECT: usize = 12;

const DIRECTORY: u8 = 2;
const ORPHAN_MAGIC: u32 = 0x0B10_CA04;

#[derive(Default)]
pub(super) struct Files {
    pub(super) inodes: Vec<(InodeNumber, Inode)>,
    /// Blocks that are not all zeros.
    pub(super) blocks: Vec<(u64, Vec<u8>)>,
}

/// `None` if there is no space.
pub(super) fn files(sb: &mut Superblock, layout: &mut Layout, now: InodeTime) -> Option<Files> {
    let mut builder = Builder { sb, space: &mut layout.space, now, files: Files::default() };
    builder.directory(InodeNumber::ROOT, 0o40_755, 3, &layout.root)?;
    builder.directory(InodeNumber(LOST_AND_FOUND), 0o40_700, 2, &layout.lost_and_found)?;
    if let Some(pointers) = layout.resize {
        builder.resize(pointers)?;
    }
    if !layout.orphans.is_empty() {
        builder.orphan_file(&layout.orphans)?;
    }
    let mut files = builder.files;
    if !layout.journal.is_empty() {
        let mut builder = Builder { sb, space: &mut layout.space, now, files };
        let backup = builder.journal(&layout.journal)?;
        files = builder.files;
        sb.journal_inum = InodeNumber(JOURNAL);
        sb.journal_backup = Some(backup);
    }
    if sb.compat.has(Compat::ORPHAN_FILE) {
        sb.orphan_file_inum = ORPHAN_FILE;
    }
    Some(files)
}

struct Builder<'a> {
    sb: &'a Superblock,
    space: &'a mut UsedBlocks,
    now: InodeTime,
    files: Files,
}

impl Builder<'_> {
    fn block(&self) -> Vec<u8> {
        vec![0; self.sb.block_size.in_memory()]
    }

    fn inode(&mut self, ino: InodeNumber, mode: u16, runs: &[Range<u64>]) -> Option<Inode> {
        let mut inode = Inode::new(ino, mode, 0, self.now, self.sb);
        let data: u64 = runs.iter().map(|run| run.end - run.start).sum();
        let before = self.files.blocks.len();
        if self.sb.incompat.has(Incompat::EXTENTS) {
            inode.flags = InodeFlags::EXTENTS;
            self.map_by_extents(&mut inode, runs)?;
        } else {
            self.map_by_indirect_blocks(&mut inode, runs)?;
        }
        let mapping = u64::try_from(self.files.blocks.len() - before).ok()?;
        inode.size = data << self.sb.block_size.log2();
        inode.sectors = self.sectors(data + mapping);
        Some(inode)
    }

    fn sectors(&self, blocks: u64) -> u64 {
        blocks << (self.sb.block_size.log2() - 9)
    }

    fn map_by_extents(&mut self, inode: &mut Inode, runs: &[Range<u64>]) -> Option<()> {
        let mut extents = Vec::new();
        let mut logical = 0;
        for run in runs {
            let mut start = run.start;
            while start < run.end {
                let len = u32::try_from((run.end - start).min(EXTENT_MAX)).ok()?;
                extents.push(Extent {
                    logical: LogicalBlock(logical),
                    len,
                    start: BlockNumber(start),
                    unwritten: false,
                });
                logical += len;
                start += u64::from(len);
            }
        }
        if extents.len() <= ROOT_EXTENTS {
            write_extent_leaf(&mut inode.block, &extents);
            return Some(());
        }
        let mut leaf = self.block();
        // Header and entries have 12 bytes each.
        if extents.len() > leaf.len() / 12 - 1 {
            return None;
        }
        let child = self.space.allocate_in_group(self.sb, runs.first()?.start, 1)?;
        write_extent_leaf(&mut leaf, &extents);
        if self.sb.has_metadata_csum() {
            set_extent_checksum(&mut leaf, inode.checksum_seed);
        }
        let index = ExtentIndex { logical: LogicalBlock(0), child: BlockNumber(child) };
        write_extent_index(&mut inode.block, 1, &[index]);
        self.files.blocks.push((child, leaf));
        Some(())
    }

    /// Twelve direct pointers, then trees of one, two and three levels.
    fn map_by_indirect_blocks(&mut self, inode: &mut Inode, runs: &[Range<u64>]) -> Option<()> {
        let near = runs.first()?.start;
        let mut blocks = runs.iter().cloned().flatten();
        for (slot, place) in inode.block.chunks_exact_mut(4).enumerate() {
            let level = slot.saturating_sub(DIRECT - 1);
            let Some(pointer) = self.pointer(&mut blocks, level, near)? else { break };
            place.copy_from_slice(&pointer.to_le_bytes());
        }
        blocks.next().is_none().then_some(())
    }

    /// The next block, or an indirect block `level` levels above it; `Some(None)` after the last.
    fn pointer(
        &mut self,
        blocks: &mut impl Iterator<Item = u64>,
        level: usize,
        near: u64,
    ) -> Option<Option<u32>> {
        if level == 0 {
            return Some(blocks.next().and_then(|block| u32::try_from(block).ok()));
        }
        let mut content = self.block();
        let mut own = None;
        for place in content.chunks_exact_mut(4) {
            let Some(pointer) = self.pointer(blocks, level - 1, near)? else { break };
            place.copy_from_slice(&pointer.to_le_bytes());
            if own.is_none() {
                own = Some(self.space.allocate_in_group(self.sb, near, 1)?);
            }
        }
        let Some(own) = own else { return Some(None) };
        self.files.blocks.push((own, content));
        Some(Some(u32::try_from(own).ok()?))
    }

    /// Writes `.` and `..`, and in the root `lost+found`.
    fn directory(&mut self, ino: InodeNumber, mode: u16, links: u16, run: &Range<u64>) -> Option<()> {
        let sb = self.sb;
        let mut inode = self.inode(ino, mode, std::slice::from_ref(run))?;
        inode.links = links;
        let room = leaf_room(sb.block_size, sb.has_metadata_csum());
        let file_type = if sb.incompat.has(Incompat::FILETYPE) { DIRECTORY } else { 0 };
        let entry = |name, inode| Some(NewEntry { name, inode, file_type });
        for (at, block) in run.clone().enumerate() {
            let mut bytes = self.block();
            if at > 0 {
                write_entry(&mut bytes, 0, room, None, sb.block_size);
            } else if ino == InodeNumber::ROOT {
                write_entry(&mut bytes, 0, 12, entry(b".", ino), sb.block_size);
                write_entry(&mut bytes, 12, 24, entry(b"..", InodeNumber::ROOT), sb.block_size);
                let child = entry(b"lost+found", InodeNumber(LOST_AND_FOUND));
                write_entry(&mut bytes, 24, room, child, sb.block_size);
            } else {
                write_entry(&mut bytes, 0, 12, entry(b".", ino), sb.block_size);
                write_entry(&mut bytes, 12, room, entry(b"..", InodeNumber::ROOT), sb.block_size);
            }
            if sb.has_metadata_csum() {
                set_leaf_checksum(&mut bytes, inode.checksum_seed);
            }
            self.files.blocks.push((block, bytes));
        }
        self.files.inodes.push((ino, inode));
        Some(())
    }

    /// Maps the reserved descriptor blocks: `pointers` to those after the first superblock, each of
    /// them to its counterparts after the backups. A pointer's slot is its block's index among all
    /// descriptor blocks.
    fn resize(&mut self, pointers: u64) -> Option<()> {
        let sb = self.sb;
        let per_block = u64::from(sb.block_size.bytes() / 4);
        let reserved = u64::from(sb.reserved_gdt_blocks);
        let place_of = |group| sb.group_start(group).0 + base_blocks(sb, group) - reserved;
        let backups: Vec<u64> = (1..sb.groups)
            .map(GroupNumber)
            .filter(|&group| sb.group_has_superblock(group))
            .map(place_of)
            .collect();
        let first = place_of(GroupNumber(0));
        let mut top = self.block();
        for nth in 0..reserved {
            let slot = usize::try_from((u64::from(sb.desc_blocks()) + nth) % per_block * 4).ok()?;
            top.get_mut(slot..slot + 4)?.copy_from_slice(&u32::try_from(first + nth).ok()?.to_le_bytes());
            let mut copies = self.block();
            for (place, backup) in copies.chunks_exact_mut(4).zip(&backups) {
                place.copy_from_slice(&u32::try_from(backup + nth).ok()?.to_le_bytes());
            }
            self.files.blocks.push((first + nth, copies));
        }
        self.files.blocks.push((pointers, top));
        let mut inode = Inode::new(InodeNumber(RESIZE), 0o100_600, 0, self.now, sb);
        // The double indirect pointer.
        inode.block.get_mut(13 * 4..14 * 4)?.copy_from_slice(&u32::try_from(pointers).ok()?.to_le_bytes());
        inode.size = (12 + per_block + per_block * per_block) << sb.block_size.log2();
        inode.sectors = self.sectors(1 + reserved * (1 + u64::try_from(backups.len()).ok()?));
        self.files.inodes.push((InodeNumber(RESIZE), inode));
        Some(())
    }

    /// Returns its inode's backup for the superblock.
    fn journal(&mut self, runs: &[Range<u64>]) -> Option<[u32; 17]> {
        let inode = self.inode(InodeNumber(JOURNAL), 0o100_600, runs)?;
        let blocks: u64 = runs.iter().map(|run| run.end - run.start).sum();
        let mut first = self.block();
        let head = dentree_jbd2::empty_journal(
            self.sb.block_size.bytes(),
            u32::try_from(blocks).ok()?,
            self.sb.uuid,
        );
        first.get_mut(..head.len())?.copy_from_slice(&head);
        self.files.blocks.push((runs.first()?.start, first));
        let mut backup = [0; 17];
        for (word, bytes) in backup.iter_mut().zip(inode.block.chunks_exact(4)) {
            *word = u32::from_le_bytes(*bytes.first_chunk()?);
        }
        backup[15] = u32::try_from(inode.size >> 32).ok()?;
        backup[16] = u32::try_from(inode.size & 0xFFFF_FFFF).ok()?;
        self.files.inodes.push((InodeNumber(JOURNAL), inode));
        Some(backup)
    }

    /// Kernel document `orphan.rst`. Each block ends with a magic number and a checksum.
    fn orphan_file(&mut self, run: &Range<u64>) -> Option<()> {
        let ino = InodeNumber(ORPHAN_FILE);
        let inode = self.inode(ino, 0o100_600, std::slice::from_ref(run))?;
        for block in run.clone() {
            let mut bytes = self.block();
            let (entries, tail) = bytes.split_last_chunk_mut::<8>()?;
            let sum = dentree_ext4_format::crc32c(inode.checksum_seed.sum(&block.to_le_bytes()), entries);
            let sum = if self.sb.has_metadata_csum() { sum } else { 0 };
            tail[..4].copy_from_slice(&ORPHAN_MAGIC.to_le_bytes());
            tail[4..].copy_from_slice(&sum.to_le_bytes());
            self.files.blocks.push((block, bytes));
        }
        self.files.inodes.push((ino, inode));
        Some(())
    }
}
