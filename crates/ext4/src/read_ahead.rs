//! Read-ahead of directories and inode tables. A listing reads in order, behind a growing window
//! ([`Sequence`]). A lookup that misses a leaf ([`DxReadAhead`]) or inode table block reads its
//! neighbours in the same request. `ls -l`, `find` and `du` name the inodes they will need
//! (`FileSystem::prefetch_inodes`).

use crate::Ext4;
use crate::inode::Snapshot;
use crate::map::Mapping;
use dentree_bufcache::{AheadOutcome, First, Runs};
use dentree_ext4_format::{
    BlockNumber, GroupDesc, GroupFlags, GroupNumber, InodeFlags, InodeNumber, LogicalBlock,
};
use dentree_vfs::FileType;
use std::ops::{ControlFlow, Range};
use std::str::FromStr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// What a lookup in an htree reads ahead on a miss, except on a directory's first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DxReadAhead {
    /// Nothing.
    Off,
    /// The whole directory.
    Whole,
    /// Blocks on both sides: twice as many at each miss, half as many if more of them are wasted
    /// than used. Directories learn from each other.
    #[default]
    Window,
}

impl DxReadAhead {
    /// Names of the values, for users.
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

/// Log2 of all blocks of a directory of 100,000 names.
const WIDEST: u32 = 10;
/// Log2 of what one request reads from adjacent blocks.
const WIDEST_FIRST: u32 = 5;

/// The kernel's default of `inode_readahead_blks`.
const WIDEST_OF_INODES: u32 = 32;

/// Slots by a hash of the inode number; for inode tables, of their first inode. Relaxed: races lose
/// only an estimate.
pub(crate) struct Windows {
    slots: Box<[AtomicU64]>,
    /// Width of the last miss in any directory.
    recent_width: AtomicU32,
}

const SLOTS: u32 = 1 << 14;

/// State at a directory's last miss.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Window {
    dir: u32,
    /// Counts of all directories at that time: the lowest [`COUNT_BITS`] bits.
    used: u32,
    wasted: u32,
    /// Log2 of the number of blocks.
    width: u32,
}

const COUNT_BITS: u32 = 14;
const COUNT_MASK: u32 = (1 << COUNT_BITS) - 1;

impl Window {
    fn pack(self) -> u64 {
        let low = self.used << (COUNT_BITS + 4) | self.wasted << 4 | self.width;
        u64::from(self.dir) << 32 | u64::from(low)
    }

    fn unpack(slot: u64) -> Window {
        let low = slot as u32;
        Window {
            dir: (slot >> 32) as u32,
            used: low >> (COUNT_BITS + 4),
            wasted: low >> 4 & COUNT_MASK,
            width: low & 15,
        }
    }
}

impl Windows {
    pub(crate) fn new() -> Windows {
        Windows { slots: (0..SLOTS).map(|_| AtomicU64::new(0)).collect(), recent_width: AtomicU32::new(0) }
    }

    /// Includes the missing block.
    fn next(&self, dir: InodeNumber, outcome: AheadOutcome) -> u32 {
        // Numbers of directories agree in many low bits.
        let slot = &self.slots[(dir.0.wrapping_mul(0x9E37_79B9) >> (u32::BITS - SLOTS.ilog2())) as usize];
        let (used, wasted) = (outcome.used as u32 & COUNT_MASK, outcome.wasted as u32 & COUNT_MASK);
        let last = Window::unpack(slot.load(Relaxed));
        let since = |now: u32, then: u32| now.wrapping_sub(then) & COUNT_MASK;
        let recent_width = self.recent_width.load(Relaxed);
        let width = if last.dir != dir.0 {
            recent_width.min(WIDEST_FIRST)
        } else {
            let is_wasted = since(wasted, last.wasted) > since(used, last.used);
            let width = if is_wasted {
                last.width.min(recent_width).saturating_sub(1)
            } else {
                last.width.max(recent_width) + 1
            };
            let width = width.min(WIDEST);
            self.recent_width.store(width, Relaxed);
            width
        };
        slot.store(Window { dir: dir.0, used, wasted, width }.pack(), Relaxed);
        1 << width
    }
}

/// State of a listing.
#[derive(Default)]
pub(crate) struct Sequence {
    next: u32,
    width: u32,
}

const MAX_STRIDE: u32 = 128;

impl Sequence {
    /// Plans read-ahead when block `at` of `end` is missing or first used.
    pub(crate) fn plan(&mut self, at: LogicalBlock, end: u32) -> Option<Vec<Range<u32>>> {
        let LogicalBlock(at) = at;
        // Enough blocks are in flight.
        if at + self.width / 2 < self.next {
            return None;
        }
        self.width = (self.width * 4).clamp(4, MAX_STRIDE);
        let start = self.next.max(at + 1);
        self.next = start.saturating_add(self.width).min(end);
        (start < self.next).then(|| std::iter::once(start..self.next).collect())
    }
}

impl Ext4 {
    /// Planned when a lookup misses leaf `block`.
    pub(crate) fn leaf_neighbours(
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
        if self.dx_read_ahead == DxReadAhead::Off {
            return None;
        }
        let width = self.windows.next(dir.ino, self.ahead_outcome());
        let range = match self.dx_read_ahead {
            DxReadAhead::Whole if width > 1 => 0..blocks,
            DxReadAhead::Window if width > 1 => {
                let start = block.saturating_sub(width / 2).min(blocks.saturating_sub(width));
                start..start.saturating_add(width).min(blocks)
            }
            _ => return None,
        };
        let around = [range.start..block, block + 1..range.end];
        let around: Vec<_> = around.into_iter().filter(|range| !range.is_empty()).collect();
        (!around.is_empty()).then_some(around)
    }

    /// Planned when `block`, which contains inode `ino`, is missing.
    pub(crate) fn inode_table_neighbours(
        &self,
        ino: InodeNumber,
        block: BlockNumber,
        first: First,
    ) -> Option<Runs> {
        if first == First::Use {
            return None;
        }
        let in_group = (ino.0 - 1) % self.sb.inodes_per_group;
        let in_block = self.sb.block_size.bytes() / self.sb.inode_size;
        let table = block.0.saturating_sub(u64::from(in_group / in_block));
        let end = table + u64::from(self.sb.inodes_per_group.div_ceil(in_block));
        let width = self.table_windows.next(InodeNumber(ino.0 - in_group), self.ahead_outcome());
        let width = u64::from(width.min(WIDEST_OF_INODES));
        // Aligned: two misses never request the same block.
        let start = block.0 - (block.0 - table) % width;
        let behind = start.saturating_add(width).min(end);
        let around: Runs =
            [start..block.0, block.0 + 1..behind].into_iter().filter(|run| !run.is_empty()).collect();
        (!around.is_empty()).then_some(around)
    }

    /// Errors show when a block is used.
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

/// Index blocks to prefetch: those of some 700,000 names with blocks of 4 KiB.
const FIRST_OF_INDEX: usize = 16;

impl Ext4 {
    /// Reads the root and the first index blocks, one by one. A concurrent lookup waits only for
    /// what it needs.
    pub(crate) fn prefetch_index(&self, dir: &Snapshot) {
        let reads = self.dx_read_ahead != DxReadAhead::Off && self.is_indexed(dir);
        if !reads || dir.kind != FileType::Directory || dir.has(InodeFlags::INLINE_DATA) {
            return;
        }
        for block in self.first_index_blocks(dir, FIRST_OF_INDEX).unwrap_or_default() {
            let _ = self.index_frame(dir, block);
        }
    }

    /// Reads in device order; near blocks share a request. Limited to a part of the cache.
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
                let Ok(desc) = self.group(GroupNumber(group)) else { continue };
                table = Some((group, desc.inode_table.0));
            }
            let block = table.map_or(0, |(_, first)| first) + u64::from(within / per_block);
            if blocks.last() != Some(&block) {
                blocks.push(block);
            }
        }
        // Tables may be in another order than groups.
        blocks.sort_unstable();
        blocks.dedup();
        blocks.truncate((self.cache_blocks() / 4).max(1));
        self.read_ahead(merge_runs(blocks.into_iter().map(|block| block..block + 1), MAX_GAP));
    }

    /// Reads the first blocks, in device order, once the inodes are read. Limited to a part of the
    /// cache.
    pub(crate) fn prefetch_directories(&self, inos: impl Iterator<Item = InodeNumber> + Clone) {
        self.read_inodes_ahead(inos.clone());
        let (mut runs, mut left) = (Runs::new(), (self.cache_blocks() / 8) as u64);
        for ino in inos {
            let Ok(dir) = self.read_inode(ino) else { continue };
            if dir.kind != FileType::Directory || dir.has(InodeFlags::INLINE_DATA) {
                continue;
            }
            let Ok(blocks) = self.dir_blocks(&dir) else { continue };
            let begin = std::iter::once(0..blocks.min(FIRST_BLOCKS)).collect::<Vec<_>>();
            runs.extend(self.on_device(&dir, &begin));
            left = left.saturating_sub(u64::from(FIRST_BLOCKS.min(blocks)));
            if left == 0 {
                break;
            }
        }
        runs.sort_unstable_by_key(|run| run.start);
        self.read_ahead(merge_runs(runs, 0));
    }
}

/// Blocks per directory.
const FIRST_BLOCKS: u32 = 4;

const BITMAP_GROUPS: usize = 8;

impl Ext4 {
    /// Bitmaps of `group`, whose lock the caller has, and of the next: allocation goes from group
    /// to group, and with `flex_bg` most bitmaps are adjacent.
    pub(crate) fn bitmaps_ahead(&self, group: GroupNumber, desc: &GroupDesc) -> Runs {
        let Some(writer) = &self.writer else { return Runs::new() };
        let mut blocks = Vec::new();
        let mut add = |desc: &GroupDesc| {
            let is_there = |flag| !self.sb.has_group_checksums() || !desc.flags.has(flag);
            if desc.free_blocks > 0 && is_there(GroupFlags::BLOCK_UNINIT) {
                blocks.push(desc.block_bitmap.0);
            }
            if desc.free_inodes > 0 && is_there(GroupFlags::INODE_UNINIT) {
                blocks.push(desc.inode_bitmap.0);
            }
        };
        add(desc);
        let behind = (group.0 + 1..self.sb.groups).chain(0..group.0);
        for next in behind.take(BITMAP_GROUPS).map(GroupNumber) {
            // A thread with another group's lock may wait for this one.
            if let Some(desc) = writer.try_group(next) {
                add(&desc);
            }
        }
        blocks.sort_unstable();
        merge_runs(blocks.into_iter().map(|block| block..block + 1), 0)
    }
}

/// Unneeded blocks to read between needed ones: cheaper than another request.
const MAX_GAP: u64 = 3;

pub(crate) fn merge_runs<B>(runs: impl IntoIterator<Item = Range<B>>, gap: u64) -> Vec<Range<B>>
where
    B: Copy + Ord + Into<u64>,
{
    let mut all = Vec::<Range<B>>::new();
    for run in runs {
        match all.last_mut() {
            Some(last) if run.start.into() <= last.end.into().saturating_add(gap) => {
                last.end = last.end.max(run.end)
            }
            _ => all.push(run),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(used: u64, wasted: u64) -> AheadOutcome {
        AheadOutcome { used, wasted }
    }

    #[test]
    fn a_window_grows_while_more_is_used_than_wasted_and_shrinks_when_less_is() {
        let (windows, dir) = (Windows::new(), InodeNumber(12));
        // The counts wrap around.
        let end = 1 << COUNT_BITS;
        let steps = [(0, 0), (0, 0), (1, 0), (9, 4), (9, 5), (9, 20), (end + 9, 21), (end + 8, end + 22)];
        let widths = steps.map(|(used, wasted)| windows.next(dir, outcome(used, wasted)));
        assert_eq!(widths, [1, 2, 4, 8, 4, 2, 1, 2]);
        let widest = (0..20).map(|_| windows.next(dir, outcome(8, 22))).max();
        assert_eq!(widest, Some(1 << WIDEST));
    }

    #[test]
    fn directories_learn_from_each_other() {
        let windows = Windows::new();
        assert_eq!([1, 2, 3].map(|dir| windows.next(InodeNumber(dir), outcome(0, 0))), [1; 3]);
        for _ in 0..20 {
            windows.next(InodeNumber(1), outcome(0, 0));
        }
        assert_eq!(windows.next(InodeNumber(4), outcome(0, 0)), 1 << WIDEST_FIRST);
        // It continues with the shared width.
        assert_eq!(windows.next(InodeNumber(2), outcome(0, 0)), 1 << WIDEST);
        assert_eq!(windows.next(InodeNumber(3), outcome(0, 1)), 1);
        assert_eq!(windows.next(InodeNumber(5), outcome(0, 1)), 1);
    }

    #[test]
    fn a_window_is_kept_whole() {
        let window = Window { dir: u32::MAX, used: COUNT_MASK, wasted: 1, width: WIDEST };
        assert_eq!(Window::unpack(window.pack()), window);
    }

    #[test]
    fn runs_that_lie_near_are_one() {
        let runs = [3_u64..5, 5..6, 5..6, 9..10, 21..22, 22..23];
        assert_eq!(merge_runs(runs.clone(), 0), [3..6, 9..10, 21..23]);
        assert_eq!(merge_runs(runs, MAX_GAP), [3..10, 21..23]);
        assert_eq!(merge_runs([3_u32..5, 9..10], MAX_GAP), [3..5, 9..10]);
        assert_eq!(merge_runs(Runs::new(), MAX_GAP), Runs::new());
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
