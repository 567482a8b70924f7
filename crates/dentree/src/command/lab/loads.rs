//! `dentree lab web`, `find`, `build` and `record`.

use super::{bar, failed, keep, schemes, tell};
use crate::args::{BuildArgs, FindLabArgs, RecordArgs, WebArgs};
use crate::report::{self, Problem, Status, Stop};
use dentree_lab::rows;
use dentree_lab::workloads::build::{Build, Recording, record as trace};
use dentree_lab::workloads::find::{Find, against_kernel};
use dentree_lab::workloads::web::{Web, sockets};
use std::io::{self, Write};
use std::path::Path;

pub(super) fn web(args: &WebArgs) -> Web {
    let connections = usize::from(args.connections);
    match args.rate {
        Some(rate) => Web::at_rate(connections, f64::from(rate)),
        None => Web::new(connections),
    }
}

pub(super) fn web_sockets(args: &WebArgs) -> Result<(), Stop> {
    let plan = sockets::Plan {
        dentree: std::env::current_exe().map_err(failed)?,
        connections: usize::from(args.connections),
        rate: args.rate.unwrap_or(2000),
        rounds: usize::from(args.load.rounds),
        seconds: u32::from(args.seconds),
    };
    // Both servers, both generators, and the image.
    let bar = bar(4 * u64::from(args.load.rounds) + 1);
    let compared = sockets::compare(&plan, &|what| tell(&bar, what));
    bar.finish_and_clear();
    let compared = compared.map_err(failed)?;
    show(&compared.rows)?;
    for skipped in &compared.skipped {
        report::say(format_args!("dentree: not measured: {skipped}"));
    }
    keep(args.load.json.as_deref(), &compared.rows)
}

pub(super) fn find(args: &FindLabArgs) -> Find {
    Find::new(dentree_lab::tree::WARM, usize::from(args.chain))
}

pub(super) fn find_beside_kernel(args: &FindLabArgs) -> Result<(), Stop> {
    let (load, schemes, rounds) = (find(args), schemes(&args.load.scheme)?, usize::from(args.load.rounds));
    let bar = bar(((schemes.len() + 1) * rounds) as u64);
    let rows = against_kernel(&load, &schemes, rounds, &|what| tell(&bar, what));
    bar.finish_and_clear();
    let rows = rows.map_err(failed)?;
    show(&rows)?;
    keep(args.load.json.as_deref(), &rows)
}

pub(super) fn build(args: &BuildArgs) -> Result<Build, Stop> {
    let Some(file) = &args.recording else { return Ok(Build::sample()) };
    let at = |why: &dyn std::fmt::Display| failed(format!("{}: {why}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|why| at(&why))?;
    let load = Build::new(Recording::parse(&text).map_err(|why| at(&why))?);
    if load.operations() == 0 {
        return Err(at(&"no operation on a name in it"));
    }
    Ok(load)
}

pub(super) fn record(args: &RecordArgs) -> Result<(), Stop> {
    let (recording, status) = trace(&args.command, Path::new(".")).map_err(failed)?;
    let program = args.command.first().map(|program| Path::new(program).file_name().unwrap_or(program));
    let title = program.unwrap_or_default().to_string_lossy();
    std::fs::write(&args.out, recording.text(&title))
        .map_err(|why| failed(format!("{}: {why}", args.out.display())))?;
    report::say(format_args!(
        "dentree: {} operations on {} names are in {}; replay them with: dentree lab build --recording {}",
        recording.operations().len(),
        recording.paths(),
        args.out.display(),
        args.out.display()
    ));
    if status.success() {
        return Ok(());
    }
    Err(Problem::new(title, Status::Failed, format!("the command ended with {status}")).into())
}

/// Tables of rows, one for each case and metric.
fn show(all: &[rows::Row]) -> io::Result<()> {
    let mut shown: Vec<(&str, &str)> = Vec::new();
    for row in all {
        let heading = (row.case.as_str(), row.metric);
        if shown.contains(&heading) {
            continue;
        }
        shown.push(heading);
        let same: Vec<_> =
            all.iter().filter(|other| (other.case.as_str(), other.metric) == heading).collect();
        writeln!(io::stdout(), "{}", rows::table(&same, &same[0].variant))?;
    }
    Ok(())
}
