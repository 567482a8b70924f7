//! Plans requests for blocks: pure functions.
//!
//! A request costs its latency, so it fetches as much as the connection carries in that time,
//! within limits. Blocks with small gaps share a request.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

/// Unit of fetching and caching, in bytes.
pub const BLOCK: u64 = 64 << 10;
/// Blocks of the first request: superblock and group descriptors.
pub const FIRST: u64 = 4;
/// Most blocks for a single one.
const WIDEST: u64 = 4;
/// Within a request, in blocks.
const LARGEST_GAP: u64 = 16;
/// In blocks.
const LONGEST: u64 = 64;
/// Detected sequential readers.
const READERS: usize = 16;

/// Measured speed.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Pace {
    latency: f64,
    bytes_per_second: f64,
}

impl Pace {
    /// The last few requests count.
    pub(crate) fn measured(&mut self, latency: Duration, transfer: Duration, len: u64) {
        let mean = |old: f64, new: f64| if old == 0.0 { new } else { old * 0.75 + new * 0.25 };
        self.latency = mean(self.latency, latency.as_secs_f64());
        // A short transfer only measures buffers.
        if len >= BLOCK {
            let seconds = transfer.as_secs_f64().max(1e-5);
            self.bytes_per_second = mean(self.bytes_per_second, len as f64 / seconds);
        }
    }

    /// Blocks carried during the latency.
    fn blocks_per_request(&self) -> u64 {
        (self.latency * self.bytes_per_second) as u64 / BLOCK
    }

    pub(crate) fn latency(&self) -> Duration {
        Duration::from_secs_f64(self.latency)
    }
}

/// Request planner and detector of sequential readers.
#[derive(Debug, Default)]
pub(crate) struct Planner {
    pub(crate) pace: Pace,
    /// End and length of recent requests.
    ends: VecDeque<(u64, u64)>,
}

impl Planner {
    /// Requests for ascending `wanted` blocks of `count`. Blocks with `is_here` are fetched only in
    /// gaps.
    pub(crate) fn plan(
        &mut self,
        wanted: impl IntoIterator<Item = u64>,
        count: u64,
        is_here: impl Fn(u64) -> bool,
    ) -> Vec<Range<u64>> {
        let gap = self.pace.blocks_per_request().clamp(1, LARGEST_GAP);
        let mut runs: Vec<Range<u64>> = Vec::new();
        for block in wanted {
            match runs.last_mut() {
                Some(run) if block < run.end => {}
                Some(run) if block <= run.end + gap && block + 1 - run.start <= LONGEST => {
                    run.end = block + 1
                }
                _ => runs.push(self.widen(block, count, &is_here)),
            }
        }
        runs.iter().for_each(|run| self.remember(run));
        runs
    }

    /// The first read of the start includes the following blocks.
    pub(crate) fn begin(&mut self) {
        self.ends.push_back((0, FIRST / 2));
    }

    /// A reader may continue after it.
    pub(crate) fn remember(&mut self, run: &Range<u64>) {
        if self.ends.len() == READERS {
            self.ends.pop_front();
        }
        self.ends.push_back((run.end, run.end - run.start));
    }

    /// After a request that ends at the block: twice its length. Else the aligned window.
    fn widen(&mut self, block: u64, count: u64, is_here: impl Fn(u64) -> bool) -> Range<u64> {
        let before = self.ends.iter().position(|(end, _)| *end == block);
        let mut run = match before.and_then(|at| self.ends.remove(at)) {
            Some((_, len)) => block..block + (2 * len).min(LONGEST),
            None => {
                let width = self.pace.blocks_per_request().clamp(1, WIDEST).next_power_of_two();
                let start = block - block % width;
                start..start + width
            }
        };
        run.end = run.end.min(count);
        while is_here(run.start) && run.start < block {
            run.start += 1;
        }
        while run.end > block + 1 && is_here(run.end - 1) {
            run.end -= 1;
        }
        run
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planner(blocks_per_request: u64) -> Planner {
        let mut planner = Planner::default();
        let len = blocks_per_request * BLOCK * 100;
        planner.pace.measured(Duration::from_millis(10), Duration::from_secs(1), len);
        planner
    }

    #[test]
    fn neighbours_share_a_request_and_far_blocks_do_not() {
        let plan = planner(2).plan([10, 12, 15, 40], 100, |_| false);
        assert_eq!(plan, [10..16, 40..42]);
    }

    #[test]
    fn a_line_that_carries_little_in_its_latency_is_asked_for_single_blocks() {
        assert_eq!(planner(0).plan([9], 100, |_| false)[0], 9..10);
        assert_eq!(planner(100).plan([9], 100, |_| false)[0], 8..12);
    }

    #[test]
    fn a_sequential_reader_is_given_twice_as_much_each_time() {
        let mut planner = planner(0);
        let mut at = 20;
        let mut lengths = Vec::new();
        for _ in 0..9 {
            let plan = planner.plan([at], 1000, |_| false);
            lengths.push(plan[0].end - plan[0].start);
            at = plan[0].end;
        }
        assert_eq!(lengths, [1, 2, 4, 8, 16, 32, 64, 64, 64]);
    }

    #[test]
    fn the_beginning_is_read_with_what_follows() {
        let mut planner = planner(0);
        planner.begin();
        assert_eq!(planner.plan([0], 100, |_| false)[0], 0..FIRST);
        assert_eq!(planner.plan([50], 100, |_| false)[0], 50..51);
    }

    #[test]
    fn the_window_leaves_out_what_is_here_and_ends_with_the_origin() {
        let plan =
            |wanted, count, here: &[u64]| planner(8).plan([wanted], count, |block| here.contains(&block));
        assert_eq!(plan(5, 100, &[4, 7])[0], 5..7);
        assert_eq!(plan(9, 10, &[])[0], 8..10);
    }

    #[test]
    fn no_request_is_longer_than_the_limit() {
        for run in planner(8).plan(0..1000, 1000, |_| false) {
            assert!(run.end - run.start <= LONGEST);
        }
    }
}
