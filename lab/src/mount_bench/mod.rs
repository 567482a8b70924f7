//! The benchmark of mounts: `dentree mount`, fuse2fs and the kernel's loop mount of equal images,
//! and `limit`, a file system in memory behind the same FUSE adapter: the lower bound of a mount's
//! cost. Ours and the limit run on both channels: `/dev/fuse`, and io_uring where the kernel has
//! it.
//!
//! Every round gives each of them a copy of one image, starting with another one each time, and
//! runs all cases. The result is checked: `e2fsck -fn` runs on our image after every round. Each
//! figure is reported at once, and the ratios of a round at its end, so that an interrupted run is
//! not lost.
//!
//! Lookups and creations in the large directory cost fuse2fs milliseconds each: it does a part of
//! them ([`Size::fuse2fs_part`]), and the times per operation are compared.

mod cases;
mod contenders;
mod load;

use std::process::Command;

use crate::harness::Timing;
use crate::mounts::command;
use crate::outcome::{OURS, Outcome};
use crate::programs::Programs;
use crate::rows::Heading;
use crate::unavailable::Unavailable;

use cases::{CASES, Case};
use contenders::{Base, CONTENDERS, FUSE2FS, LIMIT, LIMIT_RING, RING, missing, start};
use load::Load;

/// The target of our mount's time relative to fuse2fs', …
const OF_FUSE2FS: f64 = 1.0 / 5.0;
/// … and relative to the limit's.
const OF_LIMIT: f64 = 1.0 / 0.8;

/// The size of the work.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Entries of the large directory.
    pub large: usize,
    /// Lookups in it, of existing names and again of missing ones.
    pub looked_up: usize,
    /// Files created in it.
    pub created: usize,
    /// Files created in each of 16 directories next to it.
    pub created_each: usize,
    /// fuse2fs looks up and creates one per this many of the others'.
    pub fuse2fs_part: usize,
    /// Bytes streamed.
    pub streamed: usize,
    /// Seconds of dbench per number of clients.
    pub dbench_seconds: u32,
    /// Rounds.
    pub rounds: usize,
}

/// The benchmark's size.
pub const FULL: Size = Size {
    large: 200_000,
    looked_up: 50_000,
    created: 200_000,
    created_each: 20_000,
    fuse2fs_part: 100,
    streamed: 256 << 20,
    dbench_seconds: 3,
    rounds: 3,
};
/// The smallest size, for tests.
pub const TINY: Size = Size {
    large: 300,
    looked_up: 160,
    created: 160,
    created_each: 10,
    fuse2fs_part: 10,
    streamed: 1 << 20,
    dbench_seconds: 0,
    rounds: 1,
};

/// Runs the benchmark. With `only`, runs the cases whose name and number of clients contain it, as
/// "dbench 1".
///
/// # Errors
/// Needs root, `/dev/fuse`, loop devices and e2fsprogs. A missing rival is reported and left out.
pub fn run(size: Size, only: Option<&str>, progress: &dyn Fn(&str)) -> Result<Outcome, Unavailable> {
    progress(&format!("making an image with a directory of {} entries", size.large));
    let programs = Programs::beside_this()?;
    let load = Load::new(size)?;
    let base = Base::new(&load)?;
    let mut outcome = Outcome::default();
    let present: Vec<_> = CONTENDERS
        .into_iter()
        .filter(|name| match missing(name, &programs) {
            Some(why) => {
                outcome.skipped.push(format!("{name}: {why}"));
                false
            }
            None => true,
        })
        .collect();
    let cases: Vec<&Case> = CASES
        .iter()
        .filter(|case| only.is_none_or(|only| format!("{} {}", case.name, case.clients).contains(only)))
        .collect();
    let mut timings: Vec<Vec<Timing>> = cases
        .iter()
        .map(|_| present.iter().map(|&name| Timing { name, rounds: Vec::new() }).collect())
        .collect();
    for round in 0..size.rounds {
        for turn in 0..present.len() {
            let at = (round + turn) % present.len();
            let mut mounted = start(present[at], &programs, &base, &load)?;
            for (case, timings) in cases.iter().zip(&mut timings) {
                if let Some(cost) = (case.run)(&mut mounted, &load)? {
                    timings[at].rounds.push(cost);
                    let (name, clients, metric) = (case.name, case.clients, case.metric);
                    let (round, rounds, contender) = (round + 1, size.rounds, present[at]);
                    progress(&format!(
                        "round {round} of {rounds}, {contender}: {name} {clients}: {cost:.0} {metric}"
                    ));
                }
            }
            let image = mounted.end()?;
            if let Some(image) = image.filter(|_| [OURS, RING].contains(&present[at])) {
                command(Command::new("e2fsck").arg("-fn").arg(image.path()))?;
            }
        }
        cases.iter().zip(&timings).for_each(|(case, timings)| progress(&ratios(case, timings)));
    }
    cases.iter().zip(&timings).for_each(|(case, timings)| report(case, timings, &mut outcome));
    Ok(outcome)
}

/// The others' times relative to ours in the last round.
fn ratios(case: &Case, timings: &[Timing]) -> String {
    let last = |name| timings.iter().find(|timing| timing.name == name)?.rounds.last();
    let mut text = format!("{} {}: of our time", case.name, case.clients);
    for theirs in timings.iter().filter(|timing| timing.name != OURS) {
        if let (Some(ours), Some(cost)) = (last(OURS), theirs.rounds.last()) {
            text.push_str(&format!(", {} {:.2}", theirs.name, cost / ours));
        }
    }
    text
}

fn report(case: &Case, timings: &[Timing], outcome: &mut Outcome) {
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
    let of = |name| timings.iter().find(move |timing| timing.name == name);
    if let (Some(ours), Some(limit)) = (of(RING), of(LIMIT_RING)) {
        outcome.compare(case.name, case.clients, ours, limit, Some(OF_LIMIT));
    }
    let Some(ours) = of(OURS) else { return };
    for theirs in timings.iter().filter(|timing| ![OURS, LIMIT_RING].contains(&timing.name)) {
        let target = match theirs.name {
            FUSE2FS => case.against_fuse2fs.then_some(OF_FUSE2FS),
            LIMIT => Some(OF_LIMIT),
            _ => None,
        };
        outcome.compare(case.name, case.clients, ours, theirs, target);
    }
}
