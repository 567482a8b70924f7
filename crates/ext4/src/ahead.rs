//! Which blocks of a directory, or of the inode table, are read ahead of their use.
//!
//! Who goes through a directory reads it in order: the blocks behind are read ahead in a window that doubles ([`Sequence`]). Who looks
//! for a name goes to one leaf, and the next name may be in any other: those that cost least are the neighbours, which come by
//! one request ([`DxReadAhead`]). The same holds for blocks of the inode table, whose inodes are looked at one by one.

use crate::map::Mapping;
use crate::{Ext4, Snapshot};
use dentree_bufcache::{First, Runs};
use dentree_ext4_format::{BlockNumber, GroupNumber, InodeNumber, LogicalBlock};
use std::ops::{ControlFlow, Range};
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What a look-up in an indexed directory reads ahead when it finds a leaf missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DxReadAhead {
    /// Nothing.
    Off,
    /// The whole directory.
    Whole,
    /// Some blocks to both sides: none at a directory's first miss, then twice as many each time, and half as many
    /// where the cache had to throw out too many that nobody had used.
    #[default]
    Window,
}

impl DxReadAhead {
    /// What a user calls each.
    pub const NAMES: [&str; 3] = ["off", "whole", "window"];
}

impl FromStr for DxReadAhead {
    type Err = String;

    fn from_str(name: &str) -> std::result::Result<DxReadAhead, String> {
        match name {
            "off" => Ok(DxReadAhead::Off),
            "whole" => Ok(DxReadAhead::Whole),
            "window" => Ok(DxReadAhead::Window),
            _ => Err(format!("is none of {}", DxReadAhead::NAMES.join(", "))),
        }
    }
}

/// Most blocks that a window has.
const MAX_WINDOW: u32 = 256;

/// Most blocks of the inode table that are read where one is missing: what the kernel reads, too (`inode_readahead_blks`).
const MAX_INODE_WINDOW: u32 = 32;

/// The windows of directories, by a few bits of their inode numbers; or of groups' inode tables, by those of the groups' numbers and 1.
///
/// A slot is `number << 32 | wasted << 16 | width`: the directory that it is of, how many blocks the cache had thrown out unused at its
/// last miss, and the width of its window then. What threads that meet in a slot lose is a better guess, so relaxed loads and
/// stores do.
pub(crate) struct Windows(Box<[AtomicU64]>);

const SLOTS: u32 = 1 << 12;

impl Windows {
    pub(crate) fn new() -> Windows {
        Windows((0..SLOTS).map(|_| AtomicU64::new(0)).collect())
    }

    /// How many blocks around one that was missing are to be read, with that one. `wasted`: how many blocks the cache has thrown out so far
    /// that were read ahead, of whatever kind, and never used. `max`: no more than so many.
    fn next(&self, number: u32, wasted: u64, max: u32) -> u32 {
        let slot = &self.0[(number % SLOTS) as usize];
        let old = slot.load(Relaxed);
        let wasted = wasted as u16;
        let width = if old >> 32 == u64::from(number) {
            let (before, width) = ((old >> 16) as u16, old as u32 & 0xFFFF);
            let since = u32::from(wasted.wrapping_sub(before));
            if since > width / 2 { (width / 2).max(1) } else { (width * 2).min(max) }
        } else {
            1
        };
        slot.store(u64::from(number) << 32 | u64::from(wasted) << 16 | u64::from(width), Relaxed);
        width
    }
}

/// How far a listing has read ahead.
#[derive(Default)]
pub(crate) struct Sequence {
    /// The first block that has not been.
    next: u32,
    width: u32,
}

/// Most blocks that a listing reads ahead at once.
const MAX_STRIDE: u32 = 128;

impl Sequence {
    /// The blocks to read ahead when block `at` of `end` is missing or used first.
    pub(crate) fn plan(&mut self, at: LogicalBlock, end: u32) -> Option<Vec<Range<u32>>> {
        let LogicalBlock(at) = at;
        // There is enough on its way.
        if at + self.width / 2 < self.next {
            return None;
        }
        self.width = (self.width * 2).clamp(4, MAX_STRIDE);
        let start = self.next.max(at + 1);
        self.next = start.saturating_add(self.width).min(end);
        (start < self.next).then(|| std::iter::once(start..self.next).collect())
    }
}

impl Ext4 {
    /// The blocks to read ahead when a look-up finds leaf `block` missing.
    pub(crate) fn beside(
        &self,
        dir: &Snapshot,
        block: LogicalBlock,
        first: First,
    ) -> Option<Vec<Range<u32>>> {
        let LogicalBlock(block) = block;
        let blocks = self.dir_blocks(dir).ok()?;
        if first == First::Use {
            return None;
        }
        let range = match self.dx_read_ahead {
            DxReadAhead::Off => return None,
            DxReadAhead::Whole => 0..blocks,
            DxReadAhead::Window => {
                let width = self.windows.next(dir.ino.0, self.ahead_wasted(), MAX_WINDOW);
                let start = block.saturating_sub(width / 2);
                start..start.saturating_add(width).min(blocks)
            }
        };
        let beside = [range.start..block, block + 1..range.end];
        let beside: Vec<_> = beside.into_iter().filter(|range| !range.is_empty()).collect();
        (!beside.is_empty()).then_some(beside)
    }

    /// The blocks to read ahead when `block`, which inode `ino` lies in, is missing: of the same group's table.
    pub(crate) fn inodes_beside(&self, ino: InodeNumber, block: BlockNumber, first: First) -> Option<Runs> {
        if first == First::Use {
            return None;
        }
        let (group, in_group) =
            ((ino.0 - 1) / self.sb.inodes_per_group, (ino.0 - 1) % self.sb.inodes_per_group);
        let in_block = self.sb.block_size.bytes() / self.sb.inode_size;
        let table = block.0.saturating_sub(u64::from(in_group / in_block));
        let end = table + u64::from(self.sb.inodes_per_group.div_ceil(in_block));
        let wasted = self.ahead_wasted();
        let width = u64::from(self.table_windows.next(group + 1, wasted, MAX_INODE_WINDOW));
        // Aligned, so that two misses never want the same.
        let start = block.0 - (block.0 - table) % width;
        let behind = start.saturating_add(width).min(end);
        let beside: Runs =
            [start..block.0, block.0 + 1..behind].into_iter().filter(|run| !run.is_empty()).collect();
        (!beside.is_empty()).then_some(beside)
    }

    /// Where blocks of a directory lie. A hole, or a map that cannot be read, is for those to tell who want the block.
    pub(crate) fn on_device(&self, dir: &Snapshot, wanted: &[Range<u32>]) -> Runs {
        let mut runs = Runs::new();
        let wanted: Vec<_> =
            wanted.iter().map(|range| u64::from(range.start)..u64::from(range.end)).collect();
        let mapped = self.map_blocks(dir, &wanted, &mut |_, run| {
            if let Mapping::Data(start) = run.mapping {
                match runs.last_mut() {
                    Some(last) if last.end == start.0 => last.end += run.len,
                    _ => runs.push(start.0..start.0 + run.len),
                }
            }
            Ok(ControlFlow::Continue(()))
        });
        drop(mapped);
        runs
    }
}

impl Ext4 {
    /// Begins to read the blocks of the inode table that these inodes lie in, in the order of the device, neighbours (and what lies between
    /// near ones) in one request. No more than a part of the cache holds.
    pub(crate) fn read_inodes_ahead(&self, inos: impl Iterator<Item = InodeNumber>) {
        let mut inos: Vec<_> =
            inos.filter(|&ino| self.sb.check_inode("the inode number", ino).is_ok()).collect();
        inos.sort_unstable();
        let per_block = self.sb.block_size.bytes() / self.sb.inode_size;
        let (mut blocks, mut table) = (Vec::new(), None);
        for InodeNumber(ino) in inos {
            let (group, within) =
                ((ino - 1) / self.sb.inodes_per_group, (ino - 1) % self.sb.inodes_per_group);
            if table.is_none_or(|(of, _)| of != group) {
                // What is wrong with it is told when the inode is loaded.
                let Ok(desc) = self.group(GroupNumber(group)) else { continue };
                table = Some((group, desc.inode_table.0));
            }
            let block = table.map_or(0, |(_, first)| first) + u64::from(within / per_block);
            if blocks.last() != Some(&block) {
                blocks.push(block);
            }
        }
        // Tables need not lie in the order of their groups.
        blocks.sort_unstable();
        blocks.dedup();
        blocks.truncate((self.cache_blocks() / 4).max(1));
        self.read_ahead(runs_of(&blocks));
    }
}

/// Blocks so far apart are read in one request: it costs less than another one.
const MAX_GAP: u64 = 4;

/// Ascending blocks as runs, small gaps filled.
fn runs_of(blocks: &[u64]) -> Runs {
    let mut runs = Runs::new();
    for &block in blocks {
        match runs.last_mut() {
            Some(last) if block - last.end < MAX_GAP => last.end = block + 1,
            _ => runs.push(block..block + 1),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_grows_while_nothing_is_wasted_and_shrinks_when_much_is() {
        let (windows, dir) = (Windows::new(), 12);
        // The count wraps around.
        let wasted =
            [0, 0, 0, 0, 5, 6, 20, 60, (1 << 16) + 61].map(|wasted| windows.next(dir, wasted, MAX_WINDOW));
        assert_eq!(wasted, [1, 2, 4, 8, 4, 8, 4, 2, 4]);
        let widest = (0..20).map(|_| windows.next(dir, 61, MAX_WINDOW)).max();
        assert_eq!(widest, Some(MAX_WINDOW));
        // Another directory in the same slot begins anew.
        assert_eq!(windows.next(12 + SLOTS, 61, MAX_WINDOW), 1);
        assert_eq!(windows.next(dir, 61, MAX_WINDOW), 1);
    }

    #[test]
    fn blocks_that_lie_near_are_one_run() {
        assert_eq!(runs_of(&[3, 4, 8, 20, 21]), [3..9, 20..22]);
        assert_eq!(runs_of(&[]), Runs::new());
    }

    #[test]
    fn a_listing_reads_each_block_ahead_once_and_ends_with_the_directory() {
        let mut sequence = Sequence::default();
        let mut ahead = vec![false; 1000];
        ahead[0] = true;
        for at in 0..1000 {
            assert!(ahead[at as usize], "block {at} was not read ahead");
            for block in sequence.plan(LogicalBlock(at), 1000).unwrap_or_default().into_iter().flatten() {
                assert!(!std::mem::replace(&mut ahead[block as usize], true));
            }
        }
        assert_eq!(Sequence::default().plan(LogicalBlock(0), 1), None);
    }
}
