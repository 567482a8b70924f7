//! Tasks as shell lines, done by several tools in turn.
//!
//! A variant is a shell line, so what is timed can be typed. A task's time is from the start of its
//! line to its end. After the first run of a variant a line that belongs to the task prints what
//! came out; the variants must agree.

use std::ffi::OsString;
use std::process::Command;
use std::time::Instant;

use crate::harness::Timing;
use crate::outcome::{OURS, Outcome};
use crate::rows::Heading;
use crate::unavailable::Unavailable;

pub(crate) const KERNEL: &str = "kernel";

/// A task, and the line by which each tool does it.
pub(crate) struct Task<'a> {
    pub(crate) name: &'static str,
    /// Untimed, before each run.
    pub(crate) prepare: &'static str,
    /// Tool and line, ours first.
    pub(crate) lines: &'a [(&'static str, &'static str)],
    /// Prints the result.
    pub(crate) check: &'static str,
}

/// What the lines of all tasks share. One variable is `OUT`, a directory that is empty before each
/// run.
pub(crate) struct Shell {
    /// Functions.
    pub(crate) prelude: &'static str,
    pub(crate) variables: Vec<(&'static str, OsString)>,
}

/// How often, and against what.
pub(crate) struct Race<'a> {
    /// The name in the rows.
    pub(crate) case: &'a str,
    pub(crate) rounds: usize,
    /// Of the time of a tool people use, ours is to be at most this.
    pub(crate) target: f64,
    pub(crate) progress: &'a dyn Fn(&str),
}

impl Shell {
    /// Times one task with all tools that are installed, in turn.
    ///
    /// # Panics
    /// If a variant does something else than the others.
    pub(crate) fn race(
        &self,
        task: &Task<'_>,
        race: &Race<'_>,
        outcome: &mut Outcome,
    ) -> Result<(), Unavailable> {
        let Race { case, rounds, .. } = *race;
        let (lines, missing): (Vec<_>, Vec<_>) =
            task.lines.iter().copied().partition(|(tool, _)| is_installed(tool));
        outcome.skipped.extend(missing.iter().map(|(tool, _)| format!("{case}: no {tool} here")));
        let mut timings: Vec<_> =
            lines.iter().map(|&(name, _)| Timing { name, rounds: Vec::new() }).collect();
        let mut result = None;
        for round in 0..rounds {
            for turn in 0..lines.len() {
                let at = (round + turn) % lines.len();
                let (tool, line) = lines[at];
                (race.progress)(&format!("{case}, round {} of {rounds}: {tool}", round + 1));
                timings[at].rounds.push(self.time(task, line)?);
                if round == 0 {
                    let printed = self.run(task.check)?;
                    let first = result.get_or_insert_with(|| printed.clone());
                    assert_eq!(*first, printed, "{case}: {tool} and the one before differ");
                }
            }
        }
        for timing in &timings {
            let heading = Heading { case, variant: timing.name, threads: 1, metric: "ms", unit: "ms" };
            outcome.rows.extend(timing.sample().map(|sample| heading.sampled(&sample)));
        }
        let Some((ours, theirs)) = timings.split_first() else { return Ok(()) };
        for theirs in theirs {
            let target = Some(race.target).filter(|_| theirs.name != KERNEL);
            outcome.compare(case, 1, ours, theirs, target);
        }
        Ok(())
    }

    /// Milliseconds of a run.
    pub(crate) fn time(&self, task: &Task<'_>, line: &str) -> Result<f64, Unavailable> {
        self.run(r#"rm -rf "$OUT"; mkdir "$OUT""#)?;
        self.run(task.prepare)?;
        // What earlier runs left to write is written now.
        self.run("sync")?;
        let start = Instant::now();
        self.run(line)?;
        Ok(start.elapsed().as_secs_f64() * 1e3)
    }

    /// What a line prints.
    pub(crate) fn run(&self, line: &str) -> Result<String, Unavailable> {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{}{line}", self.prelude)]).envs(self.variables.iter().cloned());
        let output = shell.output().map_err(|why| Unavailable::because("sh", why))?;
        if !output.status.success() {
            return Err(Unavailable::because(line, String::from_utf8_lossy(&output.stderr).trim()));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

fn is_installed(tool: &str) -> bool {
    let program = match tool {
        OURS | KERNEL => return true,
        "e2tools" => "e2ls",
        "download" => "curl",
        program => program,
    };
    Command::new(program).arg("-V").output().is_ok()
}
