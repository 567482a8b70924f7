//! The benchmark of mounts: `dentree mount`, fuse2fs and the kernel's loop mount of equal images, and a file system in memory
//! behind the same FUSE adapter, `limit`: what would be left if answering cost nothing.
//!
//! Every round gives each of them a fresh copy of one image, beginning with another each time, and lets it do all the cases of
//! `cases`. What was written is checked: `e2fsck -fn` goes over our image after every round.

mod cases;
mod contenders;

use std::path::PathBuf;
use std::process::Command;

use crate::harness::Timing;
use crate::mounts::{Unavailable, command};
use crate::outcome::{OURS, Outcome};
use crate::rows::Heading;

use cases::{CASES, Load};
use contenders::{Base, CONTENDERS, FUSE2FS, LIMIT, Programs, start};

/// A mount of ours may take this part of fuse2fs' time, …
const OF_FUSE2FS: f64 = 1.0 / 5.0;
/// … and this of the limit's.
const OF_LIMIT: f64 = 1.0 / 0.8;

/// How much work there is.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Entries of the large directory.
    pub large: usize,
    /// Look-ups in it, of names that are there and again of names that are missing.
    pub looked_up: usize,
    /// Files that are created in it, and again in 16 directories beside it.
    pub created: usize,
    /// Bytes that are streamed.
    pub streamed: usize,
    /// Seconds of dbench for each number of clients.
    pub dbench_seconds: u32,
    /// Rounds.
    pub rounds: usize,
}

/// The benchmark's size.
pub const FULL: Size = Size {
    large: 200_000,
    looked_up: 1_000,
    created: 4_000,
    streamed: 256 << 20,
    dbench_seconds: 5,
    rounds: 5,
};
/// Keeps the benchmark alive in tests.
pub const TINY: Size =
    Size { large: 300, looked_up: 160, created: 160, streamed: 1 << 20, dbench_seconds: 0, rounds: 1 };

/// Runs the benchmark with the programs in the folder `programs`, where cargo put them: `dentree`, and `examples/limit`.
///
/// # Errors
/// Needs root, `/dev/fuse`, loop devices and e2fsprogs. A rival that is missing is left out, and said so.
pub fn run(programs: PathBuf, size: Size, progress: &dyn Fn(&str)) -> Result<Outcome, Unavailable> {
    progress(&format!("making an image with a directory of {} entries", size.large));
    let programs = Programs::new(programs);
    let load = Load::new(size)?;
    let base = Base::new(&load)?;
    let mut outcome = Outcome::default();
    let present: Vec<_> = CONTENDERS
        .into_iter()
        .filter(|name| match programs.missing(name) {
            Some(why) => {
                outcome.skipped.push(format!("{name}: {why}"));
                false
            }
            None => true,
        })
        .collect();
    let mut timings: Vec<Vec<Timing>> = CASES
        .iter()
        .map(|_| present.iter().map(|&name| Timing { name, rounds: Vec::new() }).collect())
        .collect();
    for round in 0..size.rounds {
        for turn in 0..present.len() {
            let at = (round + turn) % present.len();
            progress(&format!("round {} of {}: {}", round + 1, size.rounds, present[at]));
            let mut mounted = start(present[at], &programs, &base, &load)?;
            for (case, timings) in CASES.iter().zip(&mut timings) {
                if let Some(cost) = (case.run)(&mut mounted, &load)? {
                    timings[at].rounds.push(cost);
                }
            }
            let image = mounted.end()?;
            if let Some(image) = image.filter(|_| present[at] == OURS) {
                command(Command::new("e2fsck").arg("-fn").arg(image.path()))?;
            }
        }
    }
    CASES.iter().zip(&timings).for_each(|(case, timings)| report(case, timings, &mut outcome));
    Ok(outcome)
}

fn report(case: &cases::Case, timings: &[Timing], outcome: &mut Outcome) {
    for timing in timings {
        let heading = Heading {
            case: case.name,
            variant: timing.name,
            threads: case.clients,
            metric: case.metric,
            unit: "ns",
        };
        outcome.rows.extend(timing.sample().map(|sample| heading.sampled(&sample)));
    }
    let Some(ours) = timings.iter().find(|timing| timing.name == OURS) else { return };
    for theirs in timings.iter().filter(|timing| timing.name != OURS) {
        let target = match theirs.name {
            FUSE2FS => case.against_fuse2fs.then_some(OF_FUSE2FS),
            LIMIT => Some(OF_LIMIT),
            _ => None,
        };
        outcome.compare(case.name, case.clients, ours, theirs, target);
    }
}
