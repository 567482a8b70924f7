//! Repeated measurements, each on newly built structures: the basis of intervals.
//!
//! Repeats on structures that were built once share the accidents of that building: their placement
//! by the allocator and the kernel, their cache sets, the seeds of hash tables. On a quiet machine
//! that is most of the difference between two runs, and intervals without it are several times too
//! narrow. So a measurement is a number of *passes*. A pass builds everything, in a shuffled order
//! with unused memory of random size in between, measures every variant once, and returns one
//! [`Figure`] for each.
//!
//! Passes run one after the other, each in its own process ([`in_processes`]; in tests
//! [`Passes::here`]), and each goes through all cases, so that those of one case are spread over
//! the whole measurement. Variants are compared by ratios within a pass; the interval is over
//! passes ([`paired_ratio`](crate::stats::paired_ratio)).

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};

use crate::unavailable::Unavailable;

/// One figure of one pass.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// As in [`Row`](crate::rows::Row).
    pub case: String,
    /// As in [`Row`](crate::rows::Row).
    pub variant: String,
    /// As in [`Row`](crate::rows::Row).
    pub threads: usize,
    /// As in [`Row`](crate::rows::Row).
    pub metric: String,
    /// The value.
    pub value: f64,
}

/// A message of a pass.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// The start of a step.
    Doing(String),
    /// A figure.
    Found(Figure),
}

/// The receiver of a pass's messages.
pub type Listener<'a> = dyn FnMut(Event) + 'a;

type Key = (String, String, usize, String);

/// All passes of a measurement.
#[derive(Clone, Debug, Default)]
pub struct Passes(Vec<HashMap<Key, f64>>);

impl Passes {
    /// Runs `count` passes in this process; `pass` gets its number. They share the process's memory
    /// layout.
    pub fn here(count: usize, mut pass: impl FnMut(usize, &mut Listener<'_>)) -> Self {
        let mut passes = Self::default();
        for number in 0..count {
            let mut found = HashMap::new();
            pass(number, &mut |event| note(&mut found, event, &|_| ()));
            passes.0.push(found);
        }
        passes
    }

    /// One figure of each pass, in the order of passes; `None` without passes, or if one lacks the
    /// figure.
    pub fn series(&self, case: &str, variant: &str, threads: usize, metric: &str) -> Option<Vec<f64>> {
        let key = (case.to_owned(), variant.to_owned(), threads, metric.to_owned());
        let found: Option<Vec<f64>> = self.0.iter().map(|pass| pass.get(&key).copied()).collect();
        found.filter(|found| !found.is_empty())
    }
}

fn note(found: &mut HashMap<Key, f64>, event: Event, progress: &dyn Fn(&str)) {
    match event {
        Event::Doing(what) => progress(&what),
        Event::Found(Figure { case, variant, threads, metric, value }) => {
            found.insert((case, variant, threads, metric), value);
        }
    }
}

/// A process that is killed on drop.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // Both fail if it has exited.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs `count` passes, each in a process that `command` makes for its number and that [`send`]s
/// its events.
///
/// # Errors
/// If a process cannot be started, fails, or sends anything else.
pub fn in_processes(
    count: usize,
    command: impl Fn(usize) -> Command,
    progress: &dyn Fn(&str),
) -> Result<Passes, Unavailable> {
    let mut passes = Passes::default();
    for number in 0..count {
        let why = |why: &dyn std::fmt::Display| Unavailable::because(&format!("pass {number}"), why);
        let child = command(number).stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut child = Ended(child.map_err(|error| why(&error))?);
        let mut found = HashMap::new();
        for line in child.0.stdout.take().into_iter().flat_map(|out| BufReader::new(out).lines()) {
            let line = line.map_err(|error| why(&error))?;
            note(&mut found, serde_json::from_str(&line).map_err(|error| why(&error))?, progress);
        }
        let status = child.0.wait().map_err(|error| why(&error))?;
        if !status.success() {
            return Err(why(&status));
        }
        passes.0.push(found);
    }
    Ok(passes)
}

/// Sends an event to the parent process, as a line of JSON.
///
/// # Errors
/// Those of `out`: the parent is gone.
pub fn send(out: &mut impl Write, event: &Event) -> std::io::Result<()> {
    serde_json::to_writer(&mut *out, event)?;
    out.write_all(b"\n")
}

/// Builds each of `plans` in the shuffled order of a pass, and returns the results with their index
/// in `plans`. Memory of random size lies between them, allocated as long as they are.
pub fn shuffled<P, T>(plans: &[P], pass: usize, mut build: impl FnMut(&P) -> T) -> Vec<Shuffled<T>> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(pass as u64);
    let mut order: Vec<usize> = (0..plans.len()).collect();
    order.shuffle(&mut random);
    let one = |at: usize| Shuffled {
        _between: vec![0; random.random_range(64..PAD_MAX)],
        at,
        built: build(&plans[at]),
    };
    order.into_iter().map(one).collect()
}

/// Below the size that allocators map separately: the padding must move its neighbours.
const PAD_MAX: usize = 64 << 10;

/// Something built, with the padding that moved it.
#[derive(Debug)]
pub struct Shuffled<T> {
    _between: Vec<u8>,
    /// The index of its plan.
    pub at: usize,
    /// The result of `build`.
    pub built: T,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(case: &str, value: f64) -> Figure {
        Figure { case: case.into(), variant: "v".into(), threads: 1, metric: "m".into(), value }
    }

    #[test]
    fn a_figure_that_every_pass_found_has_a_series_in_their_order() {
        let passes = Passes::here(3, |number, tell| {
            tell(Event::Doing("it".into()));
            tell(Event::Found(figure("always", number as f64)));
            if number != 1 {
                tell(Event::Found(figure("mostly", 1.0)));
            }
        });
        assert_eq!(passes.series("always", "v", 1, "m"), Some(vec![0.0, 1.0, 2.0]));
        assert_eq!(passes.series("mostly", "v", 1, "m"), None);
        assert_eq!(Passes::default().series("always", "v", 1, "m"), None);
    }

    #[test]
    fn processes_are_heard_and_their_failures_too() {
        let mut line = Vec::new();
        send(&mut line, &Event::Found(figure("x", 0.5))).unwrap();
        let line = String::from_utf8(line).unwrap().trim_end().to_owned();
        let shell = |script: String| {
            move |_| {
                let mut shell = Command::new("sh");
                shell.args(["-c", &script]);
                shell
            }
        };
        let passes = in_processes(2, shell(format!("echo '{line}'")), &|_| ()).unwrap();
        assert_eq!(passes.series("x", "v", 1, "m"), Some(vec![0.5; 2]));
        assert!(in_processes(1, shell("exit 3".into()), &|_| ()).is_err());
        assert!(in_processes(1, shell("echo nonsense".into()), &|_| ()).is_err());
    }

    #[test]
    fn every_plan_is_built_once_in_an_order_that_passes_change() {
        let orders: Vec<Vec<usize>> = (0..4)
            .map(|pass| shuffled(&[5, 6, 7, 8, 9], pass, |plan| plan * 10))
            .map(|all| all.iter().map(|one| one.built / 10 - 5).collect())
            .collect();
        for order in &orders {
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2, 3, 4]);
        }
        assert!(orders.iter().any(|order| *order != orders[0]));
    }
}
