//! Changes of extent trees.

use super::{Mapped, STEP_EXTENTS, Target};
use crate::{Ext4, Result, Structure};
use dentree_ext4_format::{
    BlockNumber, Extent, ExtentIndex, ExtentNode, LogicalBlock, Problem, remap, set_extent_checksum,
    write_extent_index, write_extent_leaf,
};
use dentree_jbd2::Handle;
use std::ops::Range;

const ROOT_CAPACITY: usize = 4;

struct Path {
    /// The nodes above the leaf, the root first.
    above: Vec<Level>,
    /// `None` for the root.
    leaf_at: Option<BlockNumber>,
    extents: Vec<Extent>,
    end: u64,
}

struct Level {
    /// `None` for the root.
    at: Option<BlockNumber>,
    indices: Vec<ExtentIndex>,
    /// Index of the entry taken.
    slot: usize,
}

enum Entries {
    Leaf(Vec<Extent>),
    Index(Vec<ExtentIndex>),
}

impl Entries {
    fn len(&self) -> usize {
        match self {
            Entries::Leaf(extents) => extents.len(),
            Entries::Index(indices) => indices.len(),
        }
    }

    fn first(&self) -> LogicalBlock {
        let first = match self {
            Entries::Leaf(extents) => extents.first().map(|extent| extent.logical),
            Entries::Index(indices) => indices.first().map(|index| index.logical),
        };
        first.unwrap_or(LogicalBlock(0))
    }

    fn split_off(&mut self, at: usize) -> Entries {
        match self {
            Entries::Leaf(extents) => Entries::Leaf(extents.split_off(at)),
            Entries::Index(indices) => Entries::Index(indices.split_off(at)),
        }
    }

    fn write(&self, bytes: &mut [u8], depth: u16) {
        match self {
            Entries::Leaf(extents) => write_extent_leaf(bytes, extents),
            Entries::Index(indices) => write_extent_index(bytes, depth, indices),
        }
    }
}

struct Edit<'a, 'h, 'j> {
    fs: &'a Ext4,
    handle: &'h mut Handle<'j>,
    /// Allocated before the change, for new nodes.
    new_blocks: Vec<BlockNumber>,
    freed_nodes: Vec<BlockNumber>,
}

impl Ext4 {
    pub(super) fn remap_extents(
        &self,
        handle: &mut Handle<'_>,
        file: &mut Mapped<'_>,
        range: Range<u64>,
        target: Option<Target>,
    ) -> Result<u64> {
        let mut path = self.extent_path(file, range.start, target.is_none())?;
        let mut end = range.end.min(path.end);
        let touched = path.extents.iter().filter(|extent| extent.part(range.start..end).is_some());
        if let Some(last) = touched.clone().nth(STEP_EXTENTS - 1) {
            end = end.min(last.end());
        }
        let with = target.map(|target| extent_of(range.start, end, target));
        let before = path.extents.len();
        let removed = remap(&mut path.extents, range.start..end, with);
        let is_empty_leaf = path.leaf_at.is_some() && path.extents.is_empty();
        if with.is_none() && removed.is_empty() && !is_empty_leaf {
            return Ok(end);
        }
        let kept = with.map(|with| with.start.0..with.start.0 + u64::from(with.len));
        let freed: Vec<(BlockNumber, u64)> = removed
            .into_iter()
            .filter(|extent| kept.as_ref().is_none_or(|kept| !kept.contains(&extent.start.0)))
            .map(|extent| (extent.start, u64::from(extent.len)))
            .collect();
        if with.is_none() {
            self.check_distinct(freed.iter().copied().chain(path.nodes().map(|node| (node, 1))))?;
        }
        let appended =
            path.extents.last().is_some_and(|last| last.end() <= end) && path.extents.len() > before;
        let count = path.blocks_needed(self.extents_in_block());
        let new_blocks = self.allocate_tree_blocks(handle, file, path.goal(file, self), count)?;
        let mut edit = Edit { fs: self, handle, new_blocks, freed_nodes: Vec::new() };
        let stored = edit.write_path(file, path, appended);
        let freed_nodes = edit.freed_nodes;
        self.all_or_abort(stored)?;
        self.free_tree_blocks(handle, file, &freed_nodes)?;
        for (start, count) in freed {
            self.free_mapped(handle, file, start, count)?;
        }
        Ok(end)
    }

    fn extents_in_block(&self) -> usize {
        (self.sb.block_size.in_memory() - 12) / 12
    }

    /// The path to the leaf that may map `block`: the last that starts at or before it, else the
    /// first. `may_be_empty`: the path may end at an index node without entries.
    fn extent_path(&self, file: &Mapped<'_>, block: u64, may_be_empty: bool) -> Result<Path> {
        let place = Structure::ExtentNode.of(file.ino);
        let root = ExtentNode::parse_root(&file.inode.block).map_err(|problem| place.corrupt(problem))?;
        let (mut path, mut at, mut node) = (Vec::new(), None, root);
        let (mut range, mut buffer) = (0..1 << 32, None);
        loop {
            if node.depth() == 0 {
                let extents: Vec<Extent> = node.extents().collect();
                for extent in &extents {
                    self.sb
                        .check_blocks("ee_start", extent.start, u64::from(extent.len))
                        .map_err(|problem| place.corrupt(problem))?;
                }
                return Ok(Path { above: path, leaf_at: at, extents, end: range.end });
            }
            let depth = node.depth() - 1;
            let indices: Vec<ExtentIndex> = node.indices().collect();
            let slot = indices.partition_point(|index| u64::from(index.logical.0) <= block).saturating_sub(1);
            let Some(&index) = indices.get(slot) else {
                // Like a leaf without extents, but for insertions.
                if may_be_empty {
                    return Ok(Path { above: path, leaf_at: at, extents: Vec::new(), end: range.end });
                }
                return Err(place.corrupt(Problem::Missing { what: "an entry" }));
            };
            let end = indices.get(slot + 1).map_or(range.end, |next| u64::from(next.logical.0));
            let place = place.at(index.child);
            let bytes = buffer.insert(self.extent_block(file.ino, index.child, file.inode.checksum_seed)?);
            path.push(Level { at, indices, slot });
            range = u64::from(index.logical.0)..end;
            node =
                ExtentNode::parse(bytes, depth, range.clone()).map_err(|problem| place.corrupt(problem))?;
            at = Some(index.child);
        }
    }
}

fn extent_of(first: u64, end: u64, target: Target) -> Extent {
    Extent {
        // A leaf's range ends at 2^32 or before.
        logical: LogicalBlock(u32::try_from(first).unwrap_or(u32::MAX)),
        len: u32::try_from(end - first).unwrap_or(u32::MAX),
        start: target.start,
        unwritten: target.unwritten,
    }
}

impl Path {
    /// New nodes needed, with `room` entries to a block.
    fn blocks_needed(&self, room: usize) -> usize {
        let (mut needed, mut more) = (0, 0);
        let leaf = (self.leaf_at, self.extents.len());
        let above = self.above.iter().rev().map(|level| (level.at, level.indices.len()));
        for (at, len) in std::iter::once(leaf).chain(above) {
            more = usize::from(len + more > if at.is_some() { room } else { ROOT_CAPACITY });
            needed += more;
            if more == 0 {
                break;
            }
        }
        needed
    }

    fn nodes(&self) -> impl Iterator<Item = BlockNumber> {
        self.above.iter().filter_map(|level| level.at).chain(self.leaf_at)
    }

    fn goal(&self, file: &Mapped<'_>, fs: &Ext4) -> BlockNumber {
        self.leaf_at.unwrap_or_else(|| fs.goal_of(file.ino))
    }
}

impl Edit<'_, '_, '_> {
    /// Writes the leaf and its changed ancestors. `appended`: more entries will follow at the end.
    fn write_path(&mut self, file: &mut Mapped<'_>, path: Path, appended: bool) -> Result<()> {
        let seed = file.inode.checksum_seed;
        let (mut at, mut entries) = (path.leaf_at, Entries::Leaf(path.extents));
        let mut appended = appended;
        let mut depth = 0;
        let levels = path.above.len();
        for (above, mut level) in path.above.into_iter().enumerate().rev() {
            let Some(block) = at else { break };
            // An only child that fits replaces its parent in the inode.
            if above == 0 && level.indices.len() == 1 && entries.len() <= ROOT_CAPACITY {
                self.freed_nodes.push(block);
                break;
            }
            let children = self.write_node(seed, block, entries, depth, appended)?;
            depth += 1;
            at = level.at;
            appended &= level.slot + 1 == level.indices.len();
            let same = children.as_slice() == level.indices.get(level.slot..=level.slot).unwrap_or_default();
            if same {
                return Ok(());
            }
            level.indices.splice(level.slot..=level.slot, children);
            entries = Entries::Index(level.indices);
            debug_assert!(usize::from(depth) <= levels);
        }
        self.write_root(file, entries, depth)
    }

    /// Overflow goes to a new block. Returns the entries for the parent.
    fn write_node(
        &mut self,
        seed: dentree_ext4_format::ChecksumSeed,
        block: BlockNumber,
        mut entries: Entries,
        depth: u16,
        appended: bool,
    ) -> Result<Vec<ExtentIndex>> {
        if entries.len() == 0 {
            self.freed_nodes.push(block);
            return Ok(Vec::new());
        }
        let room = self.fs.extents_in_block();
        let mut children = vec![ExtentIndex { logical: entries.first(), child: block }];
        if entries.len() > room {
            // A growing file leaves full nodes behind.
            let behind = entries.split_off(if appended { room } else { entries.len() / 2 });
            if let Some(new) = self.new_blocks.pop() {
                children.push(ExtentIndex { logical: behind.first(), child: new });
                self.write_block(seed, new, &behind, depth, true)?;
            }
        }
        self.write_block(seed, block, &entries, depth, false)?;
        Ok(children)
    }

    fn write_block(
        &mut self,
        seed: dentree_ext4_format::ChecksumSeed,
        block: BlockNumber,
        entries: &Entries,
        depth: u16,
        is_new: bool,
    ) -> Result<()> {
        let has_sum = self.fs.sb.has_metadata_csum();
        let write = |bytes: &mut [u8]| {
            entries.write(bytes, depth);
            if has_sum {
                set_extent_checksum(bytes, seed);
            }
        };
        let written =
            if is_new { self.handle.create(block.0, write) } else { self.handle.update(block.0, write) };
        written.map_err(|source| Structure::ExtentNode.at(block).io(source))
    }

    /// Adds a level if the entries overflow.
    fn write_root(&mut self, file: &mut Mapped<'_>, entries: Entries, depth: u16) -> Result<()> {
        match self.new_blocks.pop() {
            _ if entries.len() == 0 => Entries::Leaf(Vec::new()).write(&mut file.inode.block, 0),
            Some(child) if entries.len() > ROOT_CAPACITY => {
                self.write_block(file.inode.checksum_seed, child, &entries, depth, true)?;
                let root = vec![ExtentIndex { logical: entries.first(), child }];
                Entries::Index(root).write(&mut file.inode.block, depth + 1);
            }
            _ => entries.write(&mut file.inode.block, depth),
        }
        Ok(())
    }
}
