//! `dentree lab`: the studies of name caches, run again on this machine.

mod loads;

use crate::args::{DbenchArgs, LabArgs, LabStudy, LoadArgs};
use crate::report::{Problem, Status, Stop};
use dentree_lab::rows::{Row, write_json_lines};
use dentree_lab::schemes::{SCHEMES, Variant};
use dentree_lab::workloads::dbench::Dbench;
use dentree_lab::workloads::study::{REFERENCE, study};
use dentree_lab::workloads::{Plan, Shape, Study, Workload};
use indicatif::{ProgressBar, ProgressStyle};
use std::fmt::Display;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

pub(super) fn run(args: &LabArgs) -> Result<(), Stop> {
    match &args.study {
        LabStudy::Dbench(args) => dbench(args),
        LabStudy::Web(args) => loads::web(args),
        LabStudy::Find(args) => loads::find(args),
        LabStudy::Build(args) => loads::build(args),
        LabStudy::Record(args) => loads::record(args),
    }
}

fn dbench(args: &DbenchArgs) -> Result<(), Stop> {
    let file = match &args.loadfile {
        Some(file) => file.clone(),
        None => Dbench::installed().map_err(failed)?,
    };
    let load = Dbench::read(&file).map_err(failed)?;
    print(&load, &args.load)
}

/// Studies a load and prints what came out.
fn print(load: &dyn Workload, args: &LoadArgs) -> Result<(), Stop> {
    let study = measure(load, &plan(args)?);
    io::stdout().write_all(study.text().as_bytes())?;
    keep(args.json.as_deref(), &study.rows)
}

fn measure(load: &dyn Workload, plan: &Plan) -> Study {
    let bar = bar(plan.slices());
    let study = study(load, plan, &|what| {
        bar.set_message(what.to_owned());
        bar.inc(1);
    });
    bar.finish_and_clear();
    study
}

fn bar(steps: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {percent:>3}%  {eta} left  {msg}");
    ProgressBar::new(steps).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn plan(args: &LoadArgs) -> Result<Plan, Stop> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let mut clients: Vec<usize> = args.clients.iter().map(|count| usize::from(*count)).collect();
    if clients.is_empty() {
        clients = vec![1, cpus.max(2), 8 * cpus];
    }
    clients.sort_unstable();
    clients.dedup();
    let shapes: Vec<_> = clients.into_iter().map(|threads| Shape { threads, cpus }).collect();
    let watched = shapes.iter().rev().find(|shape| shape.threads <= cpus.max(2)).unwrap_or(&shapes[0]);
    Ok(Plan {
        schemes: schemes(&args.scheme)?,
        watched: *watched,
        shapes,
        rounds: usize::from(args.rounds),
        slice: Duration::from_millis(u64::from(args.slice)),
        heads: args.dhash_entries,
    })
}

/// The schemes that are asked for by name, and the one that ratios are taken to.
fn schemes(asked: &[String]) -> Result<Vec<Variant>, Stop> {
    let is_asked = |scheme: &Variant| asked.iter().any(|text| scheme.name.contains(text.as_str()));
    if let Some(text) =
        asked.iter().find(|text| !SCHEMES.iter().any(|scheme| scheme.name.contains(text.as_str())))
    {
        let names: Vec<_> = SCHEMES.iter().map(|scheme| scheme.name).collect();
        return Err(Problem::usage(
            text.as_str(),
            format!("no scheme is called so; there are: {}", names.join("; ")),
        )
        .into());
    }
    let taken =
        SCHEMES.into_iter().filter(|scheme| asked.is_empty() || scheme.name == REFERENCE || is_asked(scheme));
    Ok(taken.collect())
}

fn keep(file: Option<&Path>, rows: &[Row]) -> Result<(), Stop> {
    let Some(file) = file else { return Ok(()) };
    write_json_lines(file, rows).map_err(|why| failed(format!("{}: {why}", file.display())))
}

fn failed(why: impl Display) -> Stop {
    Problem::new("lab", Status::Failed, why.to_string()).into()
}
