//! The same work again, each time from nothing: what an interval is made of.
//!
//! Repeats on structures that were built once share what that building happened to give: where the allocator and the kernel put
//! them, which of them share cache sets, the seeds of hash tables. On a quiet machine that is most of what differs between two runs, and intervals
//! that do not have it in them are several times too narrow. So a measurement is a number of *passes*. A pass builds everything anew, in
//! a shuffled order with unused memory of random size between, measures every variant once, and hands back one [`Figure`] for each.
//! Passes run one after the other, each in a process of its own ([`in_processes`]; in tests [`Passes::here`]), and each goes through
//! all cases, so that those of one case lie as far apart in time as the whole measurement is long. Variants are compared by
//! ratios within a pass; the interval is over passes ([`paired_ratio`](crate::stats::paired_ratio)).

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
    /// What came out.
    pub value: f64,
}

/// What a pass says while it runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Told {
    /// What it begins.
    Doing(String),
    /// What it has found.
    Found(Figure),
}

/// Whoever listens to a pass.
pub type Listener<'a> = dyn FnMut(Told) + 'a;

type Key = (String, String, usize, String);

/// All passes of a measurement.
#[derive(Clone, Debug, Default)]
pub struct Passes(Vec<HashMap<Key, f64>>);

impl Passes {
    /// Runs so many passes in this process; `pass` is told its number. Memory is where this process has it.
    pub fn here(count: usize, mut pass: impl FnMut(usize, &mut Listener<'_>)) -> Self {
        let mut passes = Self::default();
        for number in 0..count {
            let mut found = HashMap::new();
            pass(number, &mut |told| note(&mut found, told, &|_| ()));
            passes.0.push(found);
        }
        passes
    }

    /// One figure as each pass found it, in the order of passes; `None` if there is no pass, or one has no such figure.
    pub fn series(&self, case: &str, variant: &str, threads: usize, metric: &str) -> Option<Vec<f64>> {
        let key = (case.to_owned(), variant.to_owned(), threads, metric.to_owned());
        let found: Option<Vec<f64>> = self.0.iter().map(|pass| pass.get(&key).copied()).collect();
        found.filter(|found| !found.is_empty())
    }
}

fn note(found: &mut HashMap<Key, f64>, told: Told, progress: &dyn Fn(&str)) {
    match told {
        Told::Doing(what) => progress(&what),
        Told::Found(Figure { case, variant, threads, metric, value }) => {
            found.insert((case, variant, threads, metric), value);
        }
    }
}

/// Ends a process that nobody listens to any more.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // Both fail where it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs so many passes, each in a process that `command` makes for its number and that [`say`]s what it does.
///
/// # Errors
/// Where a process cannot be started, fails, or says something else.
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

/// Says something to the process that started this one, as a line of JSON.
///
/// # Errors
/// Those of `out`: nobody listens any more.
pub fn say(out: &mut impl Write, told: &Told) -> std::io::Result<()> {
    serde_json::to_writer(&mut *out, told)?;
    out.write_all(b"\n")
}

/// Builds what `build` makes of each of `plans`, in the shuffled order of a pass, and hands it back with its place in `plans`. Memory of random
/// size lies between, kept as long as they are.
pub fn strewn<P, T>(plans: &[P], pass: usize, mut build: impl FnMut(&P) -> T) -> Vec<Strewn<T>> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(pass as u64);
    let mut order: Vec<usize> = (0..plans.len()).collect();
    order.shuffle(&mut random);
    let one = |at: usize| Strewn {
        _between: vec![0; random.random_range(64..PAD_MAX)],
        at,
        built: build(&plans[at]),
    };
    order.into_iter().map(one).collect()
}

/// Below the size from which allocators give pages of their own: the memory around must move.
const PAD_MAX: usize = 64 << 10;

/// Something built, and the memory that moved it.
#[derive(Debug)]
pub struct Strewn<T> {
    _between: Vec<u8>,
    /// Which of the plans it was.
    pub at: usize,
    /// What was built.
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
            tell(Told::Doing("it".into()));
            tell(Told::Found(figure("always", number as f64)));
            if number != 1 {
                tell(Told::Found(figure("mostly", 1.0)));
            }
        });
        assert_eq!(passes.series("always", "v", 1, "m"), Some(vec![0.0, 1.0, 2.0]));
        assert_eq!(passes.series("mostly", "v", 1, "m"), None);
        assert_eq!(Passes::default().series("always", "v", 1, "m"), None);
    }

    #[test]
    fn processes_are_heard_and_their_failures_too() {
        let mut line = Vec::new();
        say(&mut line, &Told::Found(figure("x", 0.5))).unwrap();
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
            .map(|pass| strewn(&[5, 6, 7, 8, 9], pass, |plan| plan * 10))
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
