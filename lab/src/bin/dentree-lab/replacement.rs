//! Runs `replacement`.

use crate::args::ReplacementArgs;
use crate::show::print;
use crate::stop::{Stop, failed};
use dentree_lab::replacement::{Plan, measure};
use indicatif::ProgressBar;

pub(crate) fn run(args: &ReplacementArgs) -> Result<(), Stop> {
    let plan = Plan { directories: args.directories as usize, files: args.files as usize };
    let bar = ProgressBar::new_spinner();
    let measured = measure(&plan, &|what| {
        bar.set_message(what.to_owned());
        bar.tick();
    });
    bar.finish_and_clear();
    let results = measured.map_err(failed)?;
    print(results.text(), &results.rows, args.json.as_deref())
}
