//! Blocks in use: few long runs, whatever the size.

use dentree_ext4_format::Superblock;
use std::collections::BTreeMap;
use std::ops::Range;

/// Runs neither overlap nor touch.
#[derive(Clone, Debug, Default)]
pub(super) struct UsedBlocks {
    /// First block → end.
    used: BTreeMap<u64, u64>,
}

impl UsedBlocks {
    /// `range` is free.
    pub(super) fn allocate(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let end = self.used.remove(&range.end).unwrap_or(range.end);
        match self.used.range_mut(..=range.start).next_back() {
            Some((_, before)) if *before == range.start => *before = end,
            _ => {
                self.used.insert(range.start, end);
            }
        }
    }

    /// The used parts of `range`, ascending.
    pub(super) fn used(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let first = self.used.range(..=range.start).next_back().map_or(range.start, |(start, _)| *start);
        self.used.range(first..range.end.max(first)).filter_map(move |(&start, &end)| {
            let part = start.max(range.start)..end.min(range.end);
            (!part.is_empty()).then_some(part)
        })
    }

    pub(super) fn count(&self, range: Range<u64>) -> u64 {
        self.used(range).map(|part| part.end - part.start).sum()
    }

    fn free(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut free = Vec::new();
        let mut at = range.start;
        for part in self.used(range.clone()) {
            free.push(at..part.start);
            at = part.end;
        }
        free.push(at..range.end);
        free.retain(|part| !part.is_empty());
        free
    }

    /// After `goal`, else before it; no table crosses a group's end.
    pub(super) fn allocate_in_group(&mut self, sb: &Superblock, goal: u64, len: u64) -> Option<u64> {
        let first_block = u64::from(sb.first_data_block);
        let per_group = u64::from(sb.blocks_per_group);
        let fits = |part: Range<u64>| {
            let group_end = |at: u64| first_block + ((at - first_block) / per_group + 1) * per_group;
            let starts = [part.start, group_end(part.start)];
            starts.into_iter().find(|&start| start + len <= part.end && start + len <= group_end(start))
        };
        let start = [goal..sb.blocks_count, first_block..goal]
            .into_iter()
            .find_map(|side| self.free(side).into_iter().find_map(fits))?;
        self.allocate(start..start + len);
        Some(start)
    }

    /// After `goal`, else before it; in one run if possible.
    pub(super) fn allocate_runs(&mut self, sb: &Superblock, goal: u64, len: u64) -> Option<Vec<Range<u64>>> {
        let sides = [goal..sb.blocks_count, u64::from(sb.first_data_block)..goal];
        let free: Vec<_> = sides.into_iter().flat_map(|side| self.free(side)).collect();
        let mut runs = Vec::new();
        if let Some(part) = free.iter().find(|part| part.end - part.start >= len) {
            runs.push(part.start..part.start + len);
        } else {
            let mut left = len;
            for part in free {
                let some = left.min(part.end - part.start);
                runs.push(part.start..part.start + some);
                left -= some;
                if left == 0 {
                    break;
                }
            }
            if left > 0 {
                return None;
            }
        }
        runs.retain(|run| !run.is_empty());
        runs.iter().for_each(|run| self.allocate(run.clone()));
        Some(runs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dentree_ext4_format::BlockSize;

    fn superblock() -> Superblock {
        let mut sb = Superblock::new(BlockSize::from_log_block_size(2).unwrap(), [0; 16]);
        (sb.blocks_per_group, sb.blocks_count) = (100, 300);
        sb
    }

    fn runs(space: &UsedBlocks) -> Vec<Range<u64>> {
        space.used(0..300).collect()
    }

    #[test]
    fn adjacent_runs_are_merged() {
        let mut space = UsedBlocks::default();
        for range in [10..20, 30..40, 20..30, 5..10, 50..50] {
            space.allocate(range);
        }
        assert!(runs(&space).into_iter().eq(std::iter::once(5..40)));
        assert_eq!((space.count(0..300), space.count(38..50), space.count(0..6)), (35, 2, 1));
    }

    #[test]
    fn a_run_within_a_group_is_allocated_after_the_goal_else_before_it() {
        let mut space = UsedBlocks::default();
        space.allocate(0..70);
        let sb = superblock();
        assert_eq!(space.allocate_in_group(&sb, 0, 40), Some(100), "70 to 110 lies across a border");
        assert_eq!(space.allocate_in_group(&sb, 0, 30), Some(70));
        assert_eq!(space.allocate_in_group(&sb, 280, 30), Some(140));
        assert_eq!(space.allocate_in_group(&sb, 0, 101), None);
    }

    #[test]
    fn blocks_are_allocated_in_one_run_if_there_is_one() {
        let mut space = UsedBlocks::default();
        let sb = superblock();
        space.allocate(90..110);
        let one = space.allocate_runs(&sb, 50, 60).unwrap();
        assert!(one.into_iter().eq(std::iter::once(110..170)));
        assert_eq!(space.allocate_runs(&sb, 150, 200), Some(vec![170..300, 0..70]));
        assert_eq!(space.allocate_runs(&sb, 0, 21), None);
        assert_eq!(space.allocate_runs(&sb, 0, 0), Some(vec![]));
    }
}
