//! `dentree lab xattr`.

use super::{bar, failed, keep, tell};
use crate::args::XattrLabArgs;
use crate::report::Stop;
use dentree_lab::xattr::{Plan, Results, measure};
use std::io::{self, Write};
use std::path::PathBuf;

pub(super) fn run(args: &XattrLabArgs) -> Result<(), Stop> {
    if [&args.clients, &args.files].iter().any(|counts| counts.contains(&0)) || args.values.contains(&0) {
        return Err(failed("clients, files and values are at least 1"));
    }
    let plan = Plan {
        clients: args.clients.iter().map(|count| usize::from(*count)).collect(),
        files: args.files.iter().map(|count| usize::from(*count)).collect(),
        values: args.values.iter().map(|count| *count as usize).collect(),
        sets: args.sets as usize,
        runs: usize::from(args.runs),
        sets_in_memory: args.sets_in_memory as usize,
        sets_in_all: args.sets_in_all as usize,
        program: if args.caches_alone { None } else { Some(this_program()?) },
    };
    let results = measured(&plan);
    io::stdout().write_all(results.text().as_bytes())?;
    keep(args.json.as_deref(), &results.rows)
}

/// What `lab all` shows of it.
pub(super) fn short() -> Results {
    measured(&Plan {
        clients: vec![1, 8, 64],
        files: vec![100],
        values: vec![10, 1000],
        sets: 300,
        sets_in_memory: 3000,
        sets_in_all: 19_200,
        runs: 3,
        program: this_program().ok(),
    })
}

/// Its processes are the clients of mounts, and one of the mounts.
fn this_program() -> Result<PathBuf, Stop> {
    std::env::current_exe().map_err(|why| failed(format!("this program's own file: {why}")))
}

fn measured(plan: &Plan) -> Results {
    let bar = bar(plan.cells() as u64);
    let results = measure(plan, &|what| tell(&bar, what));
    bar.finish_and_clear();
    results
}
