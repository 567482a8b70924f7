//! Where files, inodes, system blocks and free space are.

use crate::alloc::{SystemBlocks, copies_in};
use crate::inode::Snapshot;
use crate::map::FILE_END;
use crate::{Error, Ext4, Node, Result, Structure};
use dentree_ext4_format::{
    BlockNumber, Extent, ExtentNode, GroupDesc, GroupFlags, GroupNumber, InodeFlags, InodeNumber,
    LogicalBlock, Problem, free_runs, verify_extent_block,
};
use std::collections::HashSet;
use std::ops::{ControlFlow, Range};

/// A run of a file's blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileExtent {
    /// Its first file block.
    pub logical: u64,
    /// Its first device block.
    pub start: BlockNumber,
    /// Its length in blocks.
    pub len: u64,
    /// Never written: reads as zeros.
    pub is_unwritten: bool,
}

/// Blocks of an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// Content, or a directory's entries.
    Content(FileExtent),
    /// An extent tree node, or an indirect block.
    Tree(BlockNumber),
    /// Attributes, which inodes may share.
    Xattrs(BlockNumber),
}

impl Part {
    /// Its device blocks.
    pub fn blocks(&self) -> Range<u64> {
        match *self {
            Part::Content(extent) => extent.start.0..extent.start.0 + extent.len,
            Part::Tree(block) | Part::Xattrs(block) => block.0..block.0 + 1,
        }
    }
}

const DIRECT: usize = 12;

struct Walk<'a> {
    fs: &'a Ext4,
    node: &'a Snapshot,
    each: &'a mut dyn FnMut(Part) -> ControlFlow<()>,
    damaged: &'a mut dyn FnMut(Error),
    /// Indirect blocks seen: those of a hostile map may form a loop.
    walked: HashSet<u64>,
}

impl Ext4 {
    /// A file's runs of blocks, in order, as in its block map.
    ///
    /// # Errors
    /// The first damage in the block map.
    pub fn file_extents(&self, node: &Node) -> Result<Vec<FileExtent>> {
        let (mut extents, mut failed) = (Vec::<FileExtent>::new(), None);
        let node = node.snapshot();
        let by_pointers = !node.has(InodeFlags::EXTENTS);
        // As in the kernel, runs end where an indirect block ends.
        let per_block = u64::from(self.sb.block_size.bytes() / 4);
        let begins_block =
            |logical: u64| logical.checked_sub(12).is_some_and(|behind| behind.is_multiple_of(per_block));
        let mut each = |part| {
            let Part::Content(extent) = part else { return ControlFlow::Continue(()) };
            match extents.last_mut() {
                Some(last)
                    if by_pointers
                        && !begins_block(extent.logical)
                        && last.logical + last.len == extent.logical
                        && last.start.0 + last.len == extent.start.0 =>
                {
                    last.len += extent.len
                }
                _ => extents.push(extent),
            }
            ControlFlow::Continue(())
        };
        self.walk_map(&node, &mut each, &mut |error| failed = failed.take().or(Some(error)));
        failed.map_or(Ok(extents), Err)
    }

    /// Whether the block map is an extent tree.
    pub fn has_extents(&self, node: &Node) -> bool {
        node.with_snapshot(|node| node.has(InodeFlags::EXTENTS))
    }

    /// The byte of the image at which inline content begins; `None` without.
    ///
    /// # Errors
    /// Those of reading the inode's group.
    pub fn inline_place(&self, node: &Node) -> Result<Option<u64>> {
        let node = node.snapshot();
        if !node.has(InodeFlags::INLINE_DATA) {
            return Ok(None);
        }
        let (block, within) = self.find_inode(node.ino)?;
        let within = u64::try_from(within).unwrap_or(0) * u64::from(self.sb.inode_size);
        const I_BLOCK_AT: u64 = 40;
        Ok(Some((block.0 << self.sb.block_size.log2()) + within + I_BLOCK_AT))
    }

    /// Calls `each` for content, trees and attributes of an inode, in use or not.
    ///
    /// # Errors
    /// Those of reading the inode. Damage below it goes to `damaged`.
    pub fn inode_blocks(
        &self,
        ino: InodeNumber,
        each: &mut dyn FnMut(Part) -> ControlFlow<()>,
        damaged: &mut dyn FnMut(Error),
    ) -> Result<()> {
        let (bytes, place) = self.inode_bytes(ino)?;
        let node = self.parse_inode(ino, &bytes, place)?;
        if let Some(block) = node.inode.xattr_block
            && each(Part::Xattrs(block)).is_break()
        {
            return Ok(());
        }
        self.walk_map(&node, each, damaged);
        Ok(())
    }

    /// Damage goes to `damaged`, and the walk continues.
    pub(crate) fn walk_map(
        &self,
        node: &Snapshot,
        each: &mut dyn FnMut(Part) -> ControlFlow<()>,
        damaged: &mut dyn FnMut(Error),
    ) {
        if node.maps_nothing() {
            return;
        }
        let mut walk = Walk { fs: self, node, each, damaged, walked: HashSet::new() };
        let _ = if node.has(InodeFlags::EXTENTS) { walk.extents() } else { walk.pointers() };
    }

    /// The use of blocks and inodes.
    ///
    /// # Errors
    /// Damage of the group descriptors.
    pub fn layout(&self) -> Result<Layout<'_>> {
        let groups = (0..self.sb.groups).map(GroupNumber);
        let descs = groups.map(|group| self.group(group)).collect::<Result<Vec<_>>>()?;
        let system = SystemBlocks::new(self, &descs, &[])?;
        Ok(Layout { fs: self, descs, system })
    }
}

impl Walk<'_> {
    fn extents(&mut self) -> ControlFlow<()> {
        let place = self.node.place(Structure::ExtentNode);
        let block = self.node.inode.block;
        match ExtentNode::parse_root(&block).and_then(|root| check_room(&block).map(|()| root)) {
            Ok(root) => self.extent_node(&root, FILE_END),
            Err(problem) => self.damage(place.corrupt(problem)),
        }
    }

    fn damage(&mut self, error: Error) -> ControlFlow<()> {
        (self.damaged)(error);
        ControlFlow::Continue(())
    }

    fn extent_node(&mut self, node: &ExtentNode<'_>, end: u64) -> ControlFlow<()> {
        for Extent { logical, len, start, unwritten } in node.extents() {
            let checked = self.fs.sb.check_blocks("ee_start", start, u64::from(len));
            if let Err(problem) = checked {
                self.damage(self.node.place(Structure::ExtentNode).corrupt(problem))?;
                continue;
            }
            let logical = u64::from(logical.0);
            let (len, is_unwritten) = (u64::from(len), unwritten);
            (self.each)(Part::Content(FileExtent { logical, start, len, is_unwritten }))?;
        }
        let starts = node.indices().map(|index| u64::from(index.logical.0)).skip(1);
        for (index, end) in node.indices().zip(starts.chain([end])) {
            self.extent_child(index.child, node.depth() - 1, u64::from(index.logical.0)..end)?;
        }
        ControlFlow::Continue(())
    }

    fn extent_child(&mut self, child: BlockNumber, depth: u16, range: Range<u64>) -> ControlFlow<()> {
        let (fs, place) = (self.fs, self.node.place(Structure::ExtentNode).at(child));
        if let Err(problem) = fs.sb.check_blocks("ei_leaf", child, 1) {
            return self.damage(place.corrupt(problem));
        }
        (self.each)(Part::Tree(child))?;
        let buffer = match fs.metadata(child, place) {
            Ok(buffer) => buffer,
            Err(error) => return self.damage(error),
        };
        let seed = self.node.inode.checksum_seed;
        let verified = if fs.sb.has_metadata_csum() { verify_extent_block(&buffer, seed) } else { Ok(()) };
        if let Err(problem) = verified {
            self.damage(place.corrupt(problem))?;
        }
        let end = range.end;
        let first = range.start;
        let parsed = ExtentNode::parse(&buffer, depth, range);
        match parsed.and_then(|node| check_room(&buffer).map(|()| node)) {
            Ok(node) => {
                let begins = node.extents().map(|extent| extent.logical).next();
                let begins = begins.or_else(|| node.indices().map(|index| index.logical).next());
                match begins {
                    Some(LogicalBlock(begins)) if u64::from(begins) != first => {
                        let because = "is not the first block of the node below";
                        let problem = Problem::Value { field: "ei_block", value: first, because };
                        self.damage(place.corrupt(problem))?;
                    }
                    None => {
                        let problem = Problem::Missing { what: "an entry of the node" };
                        self.damage(place.corrupt(problem))?;
                    }
                    Some(_) => {}
                }
                self.extent_node(&node, end)
            }
            Err(problem) => self.damage(place.corrupt(problem)),
        }
    }

    fn pointers(&mut self) -> ControlFlow<()> {
        let block = self.node.inode.block;
        let per_block = u64::from(self.fs.sb.block_size.bytes() / 4);
        pointer_roots(&block, per_block)
            .try_for_each(|(pointers, first, levels)| self.pointer_block(pointers, first, levels))
    }

    /// Pointers with `levels` of indirect blocks below them; the first maps file block `first`.
    fn pointer_block(&mut self, bytes: &[u8], first: u64, levels: u32) -> ControlFlow<()> {
        let per_block = u64::from(self.fs.sb.block_size.bytes() / 4);
        let span = per_block.pow(levels);
        let place = self.node.place(Structure::IndirectBlock);
        for (logical, bytes) in (first..).step_by(usize::try_from(span).unwrap_or(1)).zip(bytes.as_chunks().0)
        {
            let start = BlockNumber(u64::from(u32::from_le_bytes(*bytes)));
            if start.0 == 0 {
                continue;
            }
            if let Err(problem) = self.fs.sb.check_blocks("block pointer", start, 1) {
                self.damage(place.corrupt(problem))?;
                continue;
            }
            if levels == 0 {
                let extent = FileExtent { logical, start, len: 1, is_unwritten: false };
                (self.each)(Part::Content(extent))?;
                continue;
            }
            (self.each)(Part::Tree(start))?;
            if !self.walked.insert(start.0) {
                continue;
            }
            match self.fs.metadata(start, place.at(start)) {
                Ok(below) => self.pointer_block(&below, logical, levels - 1)?,
                Err(error) => self.damage(error)?,
            }
        }
        ControlFlow::Continue(())
    }
}

/// `eh_max` may leave space for a checksum.
fn check_room(bytes: &[u8]) -> Result<(), Problem> {
    const ENTRY: u64 = 12;
    let room = (u64::try_from(bytes.len()).unwrap_or(0) / ENTRY).saturating_sub(1);
    let max = bytes.get(4..).and_then(<[u8]>::first_chunk).copied().map_or(0, u16::from_le_bytes);
    Problem::check_range("eh_max", u64::from(max), room.saturating_sub(2), room)
}

/// The use of blocks and inodes.
pub struct Layout<'a> {
    fs: &'a Ext4,
    descs: Vec<GroupDesc>,
    system: SystemBlocks,
}

impl Layout<'_> {
    /// The system structure that a block belongs to.
    pub fn system_use(&self, block: BlockNumber) -> Option<Structure> {
        let sb = &self.fs.sb;
        if block.0 < u64::from(sb.first_data_block) {
            return Some(Structure::Superblock);
        }
        self.system.within(block, 1).next()?;
        for (group, desc) in (0..).map(GroupNumber).zip(&self.descs) {
            let table = desc.inode_table.0..desc.inode_table.0 + sb.inode_table_blocks();
            let start = sb.group_start(group).0;
            if block == desc.block_bitmap {
                return Some(Structure::BlockBitmap(group));
            } else if block == desc.inode_bitmap {
                return Some(Structure::InodeBitmap(group));
            } else if table.contains(&block.0) {
                return Some(Structure::InodeTable);
            } else if (start..start + copies_in(sb, group)).contains(&block.0) {
                let has_superblock = sb.group_has_superblock(group) && block.0 == start;
                return Some(if has_superblock {
                    Structure::Superblock
                } else {
                    Structure::GroupDescriptor(group)
                });
            }
        }
        None
    }

    /// The inodes in a block of an inode table.
    pub fn inodes_at(&self, block: BlockNumber) -> Option<Range<u32>> {
        let sb = &self.fs.sb;
        let per_block = sb.block_size.bytes() / sb.inode_size;
        (0..).zip(&self.descs).find_map(|(group, desc)| {
            let within = block.0.checked_sub(desc.inode_table.0)?;
            let within = u32::try_from(within).ok().filter(|at| u64::from(*at) < sb.inode_table_blocks())?;
            let first = group * sb.inodes_per_group + within * per_block + 1;
            Some(first..first + per_block)
        })
    }

    pub(crate) fn inode_table(&self, group: GroupNumber) -> Option<Range<u64>> {
        let start = self.desc(group)?.inode_table.0;
        Some(start..start + self.fs.sb.inode_table_blocks())
    }

    fn desc(&self, GroupNumber(group): GroupNumber) -> Option<&GroupDesc> {
        self.descs.get(usize::try_from(group).ok()?)
    }

    pub(crate) fn bit_of(&self, block: BlockNumber) -> (GroupNumber, usize) {
        let sb = &self.fs.sb;
        let offset = block.0.saturating_sub(u64::from(sb.first_data_block));
        let group = u32::try_from(offset / u64::from(sb.blocks_per_group)).unwrap_or(u32::MAX);
        let bit = (offset % u64::from(sb.blocks_per_group)) >> sb.log_cluster_ratio;
        (GroupNumber(group), usize::try_from(bit).unwrap_or(usize::MAX))
    }

    pub(crate) fn block_bitmap(&self, group: GroupNumber) -> Result<Vec<u8>> {
        let Some(desc) = self.desc(group) else { return Ok(Vec::new()) };
        if self.fs.sb.has_group_checksums() && desc.flags.has(GroupFlags::BLOCK_UNINIT) {
            return Ok(self.fs.initial_block_bitmap(group, &self.system));
        }
        let place = Structure::BlockBitmap(group).at(desc.block_bitmap);
        Ok(self.fs.metadata(desc.block_bitmap, place)?.to_vec())
    }

    /// Whether a block is free.
    ///
    /// # Errors
    /// Those of reading its group's bitmap.
    pub fn is_free(&self, block: BlockNumber) -> Result<bool> {
        let (group, bit) = self.bit_of(block);
        let bitmap = self.block_bitmap(group)?;
        Ok(bitmap.get(bit / 8).is_some_and(|byte| byte >> (bit % 8) & 1 == 0))
    }

    /// Calls `each` for all runs of free blocks, in order, joined across groups.
    ///
    /// # Errors
    /// Those of reading the bitmaps.
    pub fn free_extents(&self, each: &mut dyn FnMut(Range<u64>) -> ControlFlow<()>) -> Result<()> {
        let sb = &self.fs.sb;
        let mut last = 0..0;
        for group in (0..sb.groups).map(GroupNumber) {
            let (start, count) = (sb.group_start(group).0, sb.blocks_in_group(group));
            let clusters = usize::try_from(count.div_ceil(1 << sb.log_cluster_ratio)).unwrap_or(0);
            let bitmap = self.block_bitmap(group)?;
            for run in free_runs(&bitmap, 0, clusters) {
                let at = |bit: usize| {
                    let blocks = u64::try_from(bit).unwrap_or(u64::MAX) << sb.log_cluster_ratio;
                    start + blocks.min(u64::from(count))
                };
                let (from, to) = (at(run.first), at(run.first + run.len));
                if from == last.end {
                    last.end = to;
                } else {
                    if !last.is_empty() && each(last.clone()).is_break() {
                        return Ok(());
                    }
                    last = from..to;
                }
            }
        }
        if !last.is_empty() {
            let _ = each(last);
        }
        Ok(())
    }

    /// The number of groups.
    pub fn groups_count(&self) -> u32 {
        self.fs.sb.groups
    }

    /// The inodes in use, by the group's bitmap.
    ///
    /// # Errors
    /// Those of reading the bitmap.
    pub fn inodes_in_use(&self, group: GroupNumber) -> Result<Vec<InodeNumber>> {
        let sb = &self.fs.sb;
        let Some(desc) = self.desc(group) else { return Ok(Vec::new()) };
        if sb.has_group_checksums() && desc.flags.has(GroupFlags::INODE_UNINIT) {
            return Ok(Vec::new());
        }
        let place = Structure::InodeBitmap(group).at(desc.inode_bitmap);
        let bitmap = self.fs.metadata(desc.inode_bitmap, place)?;
        let first = group.0 * sb.inodes_per_group + 1;
        let in_use = (0..sb.inodes_per_group).zip(bitmap.iter().flat_map(|byte| {
            let byte = *byte;
            (0..8).map(move |bit| byte >> bit & 1 == 1)
        }));
        Ok(in_use.filter(|(_, in_use)| *in_use).map(|(index, _)| InodeNumber(first + index)).collect())
    }

    /// A block as after journal replay.
    ///
    /// # Errors
    /// Those of the device.
    pub fn read_at(&self, block: BlockNumber) -> Result<Vec<u8>> {
        let place = Structure::Content.at(block);
        Ok(self.fs.metadata(block, place)?.to_vec())
    }
}

/// The pointers of an inode: bytes, the file block that the first maps, and the levels of pointer
/// blocks below.
pub(crate) fn pointer_roots(block: &[u8; 60], per_block: u64) -> impl Iterator<Item = (&[u8], u64, u32)> {
    let (direct, roots) = block.split_at(DIRECT * 4);
    let mut next = (12, per_block);
    let below = (1..).zip(roots.chunks_exact(4)).map(move |(levels, root)| {
        let (first, span) = next;
        next = (first + span, span * per_block);
        (root, first, levels)
    });
    std::iter::once((direct, 0, 0)).chain(below)
}
