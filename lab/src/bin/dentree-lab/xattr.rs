//! Runs `xattr`.

use crate::args::XattrArgs;
use crate::show::{bar, print, tell};
use crate::stop::{Stop, failed};
use dentree_lab::programs::Programs;
use dentree_lab::xattr::{Plan, Results, measure};

pub(crate) fn run(args: &XattrArgs) -> Result<(), Stop> {
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
        programs: if args.caches_alone { None } else { Some(Programs::beside_this().map_err(failed)?) },
    };
    let results = measured(&plan);
    print(&results.text(), &results.rows, args.json.as_deref())
}

/// The measurements for `all`.
pub(crate) fn short() -> Results {
    measured(&Plan {
        clients: vec![1, 8, 64],
        files: vec![100],
        values: vec![10, 1000],
        sets: 300,
        sets_in_memory: 3000,
        sets_in_all: 19_200,
        runs: 3,
        programs: Programs::beside_this().ok(),
    })
}

fn measured(plan: &Plan) -> Results {
    let bar = bar(plan.cells() as u64);
    let results = measure(plan, &|what| tell(&bar, what));
    bar.finish_and_clear();
    results
}
