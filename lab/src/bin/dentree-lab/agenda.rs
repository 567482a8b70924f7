//! The measurements of a study. The process that gathers the results and its children, one per
//! pass, make the same list.

use crate::show::{bar, tell};
use crate::stop::{Stop, failed};
use dentree_lab::mkfiles;
use dentree_lab::passes::{Listener, in_processes, send};
use dentree_lab::placement::{self, Comparison};
use dentree_lab::workloads::{Plan, Study, Workload, study};
use std::io;
use std::path::Path;
use std::process::Command;

/// Loads, placements and large directories, each with its plan.
#[derive(Default)]
pub(crate) struct Agenda {
    pub(crate) loads: Vec<(Box<dyn Workload>, Plan)>,
    pub(crate) placements: Vec<placement::Plan>,
    pub(crate) mkfiles: Option<mkfiles::Plan>,
    pub(crate) passes: usize,
    /// What is not measured, and why.
    pub(crate) skipped: Vec<String>,
}

/// The results of an agenda.
pub(crate) struct Measured {
    pub(crate) studies: Vec<Study>,
    pub(crate) comparisons: Vec<Comparison>,
    pub(crate) mkfiles: Option<mkfiles::Results>,
}

impl Agenda {
    /// One pass, reported on standard output.
    pub(crate) fn pass(&self, number: usize) -> Result<(), Stop> {
        let mut out = io::stdout().lock();
        let mut sent = Ok(());
        let tell: &mut Listener<'_> = &mut |event| {
            if sent.is_ok() {
                sent = send(&mut out, &event);
            }
        };
        for (load, plan) in &self.loads {
            dentree_lab::workloads::study::pass(&**load, plan, number, tell);
        }
        for plan in &self.placements {
            placement::pass(plan, number, tell);
        }
        if let Some(plan) = &self.mkfiles {
            mkfiles::pass(plan, number, tell).map_err(failed)?;
        }
        Ok(sent?)
    }

    /// All measurements: passes in child processes, the rest in this one.
    pub(crate) fn measure(&self) -> Result<Measured, Stop> {
        let program = std::env::current_exe().map_err(failed)?;
        let again = |number: usize| {
            let mut command = Command::new(&program);
            command.args(std::env::args_os().skip(1)).args(["--pass", &number.to_string()]);
            command
        };
        let bar = bar(self.steps());
        let progress = |what: &str| tell(&bar, what);
        let passes = in_processes(self.passes, again, &progress).map_err(failed)?;
        let studies = self.loads.iter().map(|(load, plan)| study(&**load, plan, &passes, &progress));
        let studies = studies.collect();
        let program = Some(Path::as_os_str(&program));
        let compare = |plan| placement::compare(plan, &passes, program, &progress);
        let comparisons = self.placements.iter().map(compare).collect();
        let mkfiles = self.mkfiles.as_ref().map(|plan| mkfiles::Results::new(plan, &passes));
        bar.finish_and_clear();
        Ok(Measured { studies, comparisons, mkfiles })
    }

    fn steps(&self) -> u64 {
        let slices: usize = self.loads.iter().map(|(_, plan)| plan.slices()).sum();
        let walks: usize = self.placements.iter().map(placement::Plan::walks).sum();
        let watches: usize = self.loads.iter().map(|(_, plan)| plan.watches()).sum();
        let counts: usize = self.placements.iter().map(placement::Plan::counts_to_make).sum();
        let makes = self.mkfiles.as_ref().map_or(0, mkfiles::Plan::steps);
        ((slices + walks + makes) * self.passes + watches + counts) as u64
    }
}
