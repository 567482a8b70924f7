//! Runs all variants in turn, round after round.
//!
//! Neither criterion nor divan interleaves rivals: they finish one before the next, so disturbances
//! of the machine (another tenant, a clock change, moved pages) affect one side of a ratio. Here a
//! round does the same slice of work once with every variant, the next round the next slice,
//! starting with the next variant; ratios are taken within rounds. The results of each slice are
//! summed and compared with the expected ones.

use std::ops::Range;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::paths::{PathSet, Rename};
use crate::rivals::{NameCache, Tally, WALKS_PER_RENAME, Work};
use crate::stats::Sample;

/// A variant, ready to run.
pub struct Contender {
    /// Name in rows.
    pub name: &'static str,
    /// The cache, filled.
    pub cache: Box<dyn NameCache>,
}

impl std::fmt::Debug for Contender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Contender").field("name", &self.name).finish_non_exhaustive()
    }
}

/// One thread's work in one round.
#[derive(Clone, Debug)]
pub struct Share {
    /// Paths to walk.
    pub range: Range<usize>,
    /// Renames between them.
    pub renames: Vec<Rename>,
}

/// The work of all rounds: `rounds[round][thread]`.
#[derive(Clone, Debug)]
pub struct Course<'a> {
    /// The case, for rows and messages.
    pub case: &'a str,
    /// The paths that the shares' ranges index.
    pub paths: &'a PathSet,
    /// One share per thread and round.
    pub rounds: Vec<Vec<Share>>,
}

impl<'a> Course<'a> {
    /// Splits a path set into rounds of one share of `walks` paths per thread.
    /// `renames[round][thread]` are the renames of each share, possibly none, and determine the
    /// numbers of rounds and threads.
    ///
    /// # Panics
    /// If the set has too few paths.
    pub fn cut(case: &'a str, paths: &'a PathSet, walks: usize, renames: Vec<Vec<Vec<Rename>>>) -> Self {
        let mut end = 0;
        let mut share = |renames| {
            let start = end;
            end += walks;
            Share { range: start..end, renames }
        };
        let rounds = renames.into_iter().map(|round| round.into_iter().map(&mut share).collect()).collect();
        assert!(end <= paths.len(), "{case}: too few paths were drawn");
        Self { case, paths, rounds }
    }

    /// The number of renames for this many walks.
    pub fn renames_for(walks: usize) -> usize {
        walks / WALKS_PER_RENAME
    }

    fn components(&self, shares: &[Share]) -> usize {
        let walks = shares.iter().flat_map(|share| share.range.clone());
        walks.map(|at| self.paths.path(at).components().count()).sum()
    }

    fn expected(&self, cache: &dyn NameCache, share: &Share) -> Tally {
        let mut tally = Tally::default();
        share.range.clone().for_each(|at| tally.count(self.paths.target(at).map(|node| cache.token(node))));
        tally
    }
}

/// A variant's cost in every round, in nanoseconds per component as one thread sees them: two
/// threads for a second spend two seconds.
#[derive(Clone, Debug)]
pub struct Timing {
    /// The variant.
    pub name: &'static str,
    /// One figure per round.
    pub rounds: Vec<f64>,
}

impl Timing {
    /// The rounds as a sample. `None` without rounds.
    pub fn sample(&self) -> Option<Sample> {
        Sample::new(self.rounds.clone())
    }
}

/// A wrong result: the benchmark stops.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{variant} gave a wrong result in {case}: {what}")]
pub struct WrongAnswer {
    /// The variant.
    pub variant: &'static str,
    /// The case.
    pub case: String,
    /// The expected and the actual result.
    pub what: String,
}

/// Runs a course: every round with every contender, each round starting with the next one.
///
/// # Errors
/// The first wrong result.
pub fn race(course: &Course<'_>, contenders: &[Contender]) -> Result<Vec<Timing>, WrongAnswer> {
    let mut timings: Vec<Timing> = contenders
        .iter()
        .map(|c| Timing { name: c.name, rounds: Vec::with_capacity(course.rounds.len()) })
        .collect();
    for (round, shares) in course.rounds.iter().enumerate() {
        let components = course.components(shares) as f64;
        for turn in 0..contenders.len() {
            let at = (round + turn) % contenders.len();
            let time = run_slice(course, shares, &contenders[at])?;
            timings[at].rounds.push(time.as_nanos() as f64 * shares.len() as f64 / components);
        }
    }
    Ok(timings)
}

/// Walks the paths of the first round one by one, untimed, and checks every result.
///
/// # Errors
/// The first wrong result.
pub fn verify(course: &Course<'_>, contender: &Contender) -> Result<(), WrongAnswer> {
    let paths = course.rounds.first().into_iter().flatten().flat_map(|share| share.range.clone());
    for at in paths {
        let expected = course.paths.target(at).map(|node| contender.cache.token(node));
        let result = contender.cache.walk(course.paths.path(at));
        if result != expected {
            let path = String::from_utf8_lossy(course.paths.path(at).bytes());
            let what = format!("{path}: expected {expected:?}, got {result:?}");
            return Err(WrongAnswer { variant: contender.name, case: course.case.to_owned(), what });
        }
    }
    Ok(())
}

/// One contender's round: the time from the first thread's start to the last one's end.
fn run_slice(course: &Course<'_>, shares: &[Share], contender: &Contender) -> Result<Duration, WrongAnswer> {
    let cache = &*contender.cache;
    let barrier = Barrier::new(shares.len());
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = shares
            .iter()
            .enumerate()
            .map(|(thread, share)| {
                let work = Work { paths: course.paths, range: &share.range, renames: &share.renames };
                let barrier = &barrier;
                scope.spawn(move || {
                    pin_to_cpu(thread);
                    barrier.wait();
                    let start = Instant::now();
                    let tally = cache.run(work);
                    (start, Instant::now(), tally)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no variant panics")).collect()
    });
    for (share, (_, _, tally)) in shares.iter().zip(&outcomes) {
        let expected = course.expected(cache, share);
        if *tally != expected {
            let what = format!("expected {expected:?}, got {tally:?}");
            return Err(WrongAnswer { variant: contender.name, case: course.case.to_owned(), what });
        }
    }
    let start = outcomes.iter().map(|(start, _, _)| *start).min();
    let end = outcomes.iter().map(|(_, end, _)| *end).max();
    Ok(start.zip(end).map_or(Duration::ZERO, |(start, end)| end - start))
}

/// Pins the thread to one of the CPUs that the process may use, against migration in a slice. On
/// failure the figures are only noisier.
pub(crate) fn pin_to_cpu(thread: usize) {
    let Ok(allowed) = sched_getaffinity(None) else { return };
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).collect();
    if let Some(&cpu) = cpus.get(thread % cpus.len().max(1)) {
        let mut one = CpuSet::new();
        one.set(cpu);
        let _pinned = sched_setaffinity(None, &one);
    }
}
