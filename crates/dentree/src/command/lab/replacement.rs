//! `dentree lab replacement`.

use super::{failed, keep};
use crate::args::ReplacementArgs;
use crate::report::Stop;
use dentree_lab::replacement::{Plan, measure};
use indicatif::ProgressBar;
use std::io::{self, Write};

pub(super) fn run(args: &ReplacementArgs) -> Result<(), Stop> {
    let plan = Plan { directories: args.directories as usize, files: args.files as usize };
    let bar = ProgressBar::new_spinner();
    let measured = measure(&plan, &|what| {
        bar.set_message(what.to_owned());
        bar.tick();
    });
    bar.finish_and_clear();
    let results = measured.map_err(failed)?;
    io::stdout().write_all(results.text().as_bytes())?;
    keep(args.json.as_deref(), &results.rows)
}
