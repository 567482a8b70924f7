//! Replacement policies of a buffer cache, compared on recorded traces.
//!
//! In the source blocks that were read once evicted the directories' index blocks. [`trace`]
//! records a file system's accesses to its buffer cache, [`policies`] replays them, and the table
//! shows the hit ratios of index blocks and of all blocks.

pub mod policies;
pub mod trace;

use crate::rows::{Heading, Row};
use policies::POLICIES;
use std::fmt::Write as _;
use trace::{Failure, Trace, record};

/// The size of the recorded load.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Directories.
    pub directories: usize,
    /// Files per directory.
    pub files: usize,
}

/// Cache sizes: one block in this many of a trace's distinct blocks.
pub const SHARES: [usize; 5] = [64, 32, 16, 8, 4];

/// Hit ratios.
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// A row per trace, cache size, policy, and kind of block.
    pub rows: Vec<Row>,
    text: String,
}

impl Results {
    /// The tables, one per trace.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// Records the loads of a plan and replays them; calls `tell` before each step.
///
/// # Errors
/// Those of recording.
pub fn measure(plan: &Plan, tell: &dyn Fn(&str)) -> Result<Results, Failure> {
    let mut results = Results::default();
    for trace in record(plan.directories, plan.files, tell)? {
        tell(trace.name);
        replay(&trace, &mut results);
    }
    Ok(results)
}

fn replay(trace: &Trace, results: &mut Results) {
    let distinct = trace.distinct();
    let Results { rows, text } = results;
    // Infallible for a string.
    let _ = writeln!(
        text,
        "{}: {} accesses to {distinct} blocks, {} of them index; hits in % of index accesses / of all",
        trace.name,
        trace.blocks.len(),
        trace.index.len()
    );
    let names: String = POLICIES.iter().map(|(name, _)| format!("{name:>16}")).collect();
    let _ = writeln!(text, "  cache blocks  {names}");
    for share in SHARES {
        let capacity = (distinct / share).max(2);
        let _ = write!(text, "  {capacity:>7} 1/{share:<3} ");
        for (name, make) in POLICIES {
            let mut cache = make(capacity, &trace.blocks);
            let (mut index, mut all) = (Ratio::default(), Ratio::default());
            for block in &trace.blocks {
                let hit = cache.access(*block);
                all.note(hit);
                if trace.index.contains(block) {
                    index.note(hit);
                }
            }
            let _ = write!(text, "{:>16}", format!("{:.1} / {:.1}", index.percent(), all.percent()));
            for (kind, ratio) in [("index", index), ("all", all)] {
                let case = format!("replacement-{}-1/{share}-{kind}", trace.name.replace(' ', "-"));
                let heading =
                    Heading { case: &case, variant: name, threads: 1, metric: "hit ratio", unit: "%" };
                rows.push(heading.counted(ratio.percent()));
            }
        }
        text.push('\n');
    }
}

#[derive(Clone, Copy, Default)]
struct Ratio {
    hits: u64,
    of: u64,
}

impl Ratio {
    fn note(&mut self, hit: bool) {
        self.of += 1;
        self.hits += u64::from(hit);
    }

    fn percent(self) -> f64 {
        if self.of == 0 { 0.0 } else { 100.0 * self.hits as f64 / self.of as f64 }
    }
}
