//! `dentree lab`: the studies of name caches, run again on this machine.

mod agenda;
mod loads;
mod mkfiles;
mod replacement;
mod xattr;

use crate::args::{
    AllArgs, BuildArgs, CompareArgs, DbenchArgs, FindLabArgs, LabArgs, LabStudy, LoadArgs, MkfilesArgs,
    PlacementArgs, WebArgs,
};
use crate::report::{self, Problem, Status, Stop};
use agenda::{Agenda, Measured};
use dentree_lab::placement::{self, Question};
use dentree_lab::report::compare::agreement;
use dentree_lab::report::machine::Machine;
use dentree_lab::report::sources::CLIENTS_BY_CPUS;
use dentree_lab::report::{Findings, write};
use dentree_lab::rows::{Row, write_json_lines};
use dentree_lab::schemes::{SCHEMES, Variant};
use dentree_lab::tree;
use dentree_lab::workloads::build::Build;
use dentree_lab::workloads::change::Change;
use dentree_lab::workloads::dbench::Dbench;
use dentree_lab::workloads::find::Find;
use dentree_lab::workloads::study::REFERENCE;
use dentree_lab::workloads::web::Web;
use dentree_lab::workloads::{Plan, Shape, Workload};
use dentree_lab::xattr::bench::Cell;
use dentree_lab::xattr::mounted::be_client;
use indicatif::{ProgressBar, ProgressStyle};
use std::fmt::Display;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

/// Passes of the short form, and how long a slice is: with 16 schemes a pass takes ten to fifteen seconds.
const SHORT_PASSES: usize = 8;
const SHORT_SLICE: Duration = Duration::from_millis(15);
/// Clients of the short form's dbench: some of the source's table, which goes to 128.
const SHORT_CLIENTS: [usize; 6] = [1, 2, 8, CLIENTS_BY_CPUS, 32, 128];
/// Requests a second of the short form's httperf: a few percent of the global lock's time.
const SHORT_RATE: f64 = 20_000.0;
const SHORT_ENTRIES: usize = 16_384;
/// Connections of the short form's web server: about as many as the study's reached.
const SHORT_CONNECTIONS: usize = 2000;
/// The mean length of chains in the short form's find, as in the mail.
const SHORT_CHAIN: usize = 16;

pub(super) fn run(args: &LabArgs) -> Result<(), Stop> {
    if let Some(number) = args.pass {
        return agenda(&args.study)?.pass(number);
    }
    match &args.study {
        LabStudy::All(args) => all(args),
        LabStudy::Dbench(DbenchArgs { load, .. }) => print(&args.study, load),
        LabStudy::Churn(load) | LabStudy::Invalidate(load) => print(&args.study, load),
        LabStudy::Build(BuildArgs { load, .. }) => print(&args.study, load),
        LabStudy::Layout(placement) | LabStudy::Prefetch(placement) => {
            print_placement(&args.study, placement)
        }
        LabStudy::Locks(DbenchArgs { load, .. }) => print_locks(&args.study, load),
        LabStudy::Replacement(args) => replacement::run(args),
        LabStudy::Compare(args) => compare(args),
        LabStudy::Once { layout, chain, look_ups } => {
            placement::once(layout, *chain, *look_ups).map_err(failed)
        }
        LabStudy::Xattr(args) => xattr::run(args),
        LabStudy::XattrClient { mount, client, files, values, sets, round } => {
            let cell = Cell { clients: client + 1, files: *files, values: *values, sets: *sets };
            be_client(mount, &cell, *client, *round).map_err(failed)
        }
        LabStudy::Web(web) if web.sockets => loads::web_sockets(web),
        LabStudy::Web(WebArgs { load, .. }) => print(&args.study, load),
        LabStudy::Find(find) if find.kernel => loads::find_beside_kernel(find),
        LabStudy::Find(FindLabArgs { load, .. }) => print(&args.study, load),
        LabStudy::Record(args) => loads::record(args),
        LabStudy::Mkfiles(mkfiles) => print_mkfiles(&args.study, mkfiles),
    }
}

/// What a study measures in passes.
fn agenda(study: &LabStudy) -> Result<Agenda, Stop> {
    let one = |load: Box<dyn Workload>, args: &LoadArgs| {
        let passes = usize::from(args.rounds);
        Ok(Agenda { loads: vec![(load, plan(args)?)], passes, ..Agenda::default() })
    };
    match study {
        LabStudy::All(args) => short_agenda(args),
        LabStudy::Dbench(args) | LabStudy::Locks(args) => {
            one(Box::new(dbench(args.loadfile.as_deref())?), &args.load)
        }
        LabStudy::Churn(args) => one(Box::new(Change::Churn), args),
        LabStudy::Invalidate(args) => one(Box::new(Change::Invalidate), args),
        LabStudy::Web(args) => one(Box::new(loads::web(args)), &args.load),
        LabStudy::Find(args) => one(Box::new(loads::find(args)), &args.load),
        LabStudy::Build(args) => one(Box::new(loads::build(args)?), &args.load),
        LabStudy::Layout(args) => Ok(placement_agenda(Question::Layout, args)),
        LabStudy::Prefetch(args) => Ok(placement_agenda(Question::Prefetch, args)),
        LabStudy::Mkfiles(args) => Ok(mkfiles::agenda(args)),
        LabStudy::Record(_)
        | LabStudy::Compare(_)
        | LabStudy::Once { .. }
        | LabStudy::Xattr(_)
        | LabStudy::XattrClient { .. }
        | LabStudy::Replacement(_) => Err(Problem::usage("--pass", "this study has no passes").into()),
    }
}

fn dbench(loadfile: Option<&Path>) -> Result<Dbench, Stop> {
    let file = match loadfile {
        Some(file) => file.to_owned(),
        None => Dbench::installed().map_err(failed)?,
    };
    Dbench::read(&file).map_err(failed)
}

/// Studies a load and prints what came out.
fn print(study: &LabStudy, args: &LoadArgs) -> Result<(), Stop> {
    for study in agenda(study)?.measure()?.studies {
        io::stdout().write_all(study.text().as_bytes())?;
        keep(args.json.as_deref(), &study.rows)?;
    }
    Ok(())
}

fn print_locks(study: &LabStudy, args: &LoadArgs) -> Result<(), Stop> {
    let measured = Agenda { passes: 0, ..agenda(study)? }.measure()?;
    let mut out = io::stdout().lock();
    for study in measured.studies {
        for table in &study.locks {
            writeln!(
                out,
                "{}, {} clients, {} operations\n{}",
                table.variant, table.threads, table.operations, table.text
            )?;
        }
        keep(args.json.as_deref(), &study.rows)?;
    }
    Ok(())
}

fn print_placement(study: &LabStudy, args: &PlacementArgs) -> Result<(), Stop> {
    for comparison in agenda(study)?.measure()?.comparisons {
        io::stdout().write_all(comparison.text().as_bytes())?;
        keep(args.json.as_deref(), &comparison.rows)?;
    }
    Ok(())
}

fn print_mkfiles(study: &LabStudy, args: &MkfilesArgs) -> Result<(), Stop> {
    let Some(results) = agenda(study)?.measure()?.mkfiles else { return Ok(()) };
    io::stdout().write_all(results.text().as_bytes())?;
    keep(args.json.as_deref(), &results.rows)
}

fn placement_agenda(question: Question, args: &PlacementArgs) -> Agenda {
    let entries = args.entries as usize;
    let chains = match args.dhash_entries {
        Some(heads) => vec![(entries / heads.next_power_of_two() as usize).max(1)],
        None => vec![1, 4, 16, 64],
    };
    let counted = chains.clone();
    let plan = placement::Plan { question, entries, counted, chains, all_layouts: args.all };
    Agenda { placements: vec![plan], passes: usize::from(args.runs), ..Agenda::default() }
}

fn bar(steps: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {percent:>3}%  {eta} left  {msg}");
    ProgressBar::new(steps).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn tell(bar: &ProgressBar, what: &str) {
    bar.set_message(what.to_owned());
    bar.inc(1);
}

fn plan(args: &LoadArgs) -> Result<Plan, Stop> {
    let clients = args.clients.iter().map(|count| usize::from(*count)).collect();
    Ok(Plan {
        schemes: schemes(&args.scheme)?,
        slice: Duration::from_millis(u64::from(args.slice)),
        heads: args.dhash_entries,
        ..shapes(clients, &cpus(&args.cpus)?)
    })
}

/// The numbers of CPUs that are asked for; all where none are.
fn cpus(asked: &[u16]) -> Result<Vec<usize>, Stop> {
    let all = all_cpus();
    if asked.is_empty() {
        return Ok(vec![all]);
    }
    if let Some(more) = asked.iter().find(|count| usize::from(**count) > all) {
        return Err(Problem::usage(more.to_string(), format!("this process may use {all} CPUs")).into());
    }
    Ok(asked.iter().map(|count| usize::from(*count)).collect())
}

fn all_cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The short form's plan for numbers of clients and CPUs; clients: 1, as many as CPUs and eight times that where there are none. Watched are one
/// client, and the most that need not share a CPU.
fn shapes(mut clients: Vec<usize>, cpus: &[usize]) -> Plan {
    let all = all_cpus();
    if clients.is_empty() {
        clients = vec![1, all.max(2), 8 * all];
    }
    clients.sort_unstable();
    clients.dedup();
    let most = clients.iter().copied().filter(|count| *count <= all.max(2)).max();
    let on = |cpus: &usize| clients.iter().map(|threads| Shape { threads: *threads, cpus: *cpus }).collect();
    let shapes: Vec<Shape> = cpus.iter().flat_map(|cpus| -> Vec<Shape> { on(cpus) }).collect();
    let watched = shapes
        .iter()
        .copied()
        .filter(|shape| shape.cpus == all && (shape.threads == 1 || Some(shape.threads) == most));
    Plan { schemes: SCHEMES.to_vec(), watched: watched.collect(), shapes, slice: SHORT_SLICE, heads: None }
}

/// The schemes that are asked for by name, and the one that ratios are taken to.
fn schemes(asked: &[String]) -> Result<Vec<Variant>, Stop> {
    let is_called = |text: &String| SCHEMES.iter().any(|scheme| scheme.name.contains(text.as_str()));
    if let Some(text) = asked.iter().find(|text| !is_called(text)) {
        let names: Vec<_> = SCHEMES.iter().map(|scheme| scheme.name).collect();
        let message = format!("no scheme is called so; there are: {}", names.join("; "));
        return Err(Problem::usage(text.as_str(), message).into());
    }
    let is_asked = |scheme: &Variant| asked.iter().any(|text| scheme.name.contains(text.as_str()));
    let taken =
        SCHEMES.into_iter().filter(|scheme| asked.is_empty() || scheme.name == REFERENCE || is_asked(scheme));
    Ok(taken.collect())
}

/// How a load is studied in short.
fn short(load: &str) -> Plan {
    let all = all_cpus();
    match load {
        "dbench" => {
            let mut plan = shapes([SHORT_CLIENTS.as_slice(), &[all.max(2)]].concat(), &[all]);
            let fewer = std::iter::successors(Some(1), |cpus| Some(cpus * 2)).take_while(|cpus| *cpus < all);
            plan.shapes.extend(fewer.map(|cpus| Shape { threads: CLIENTS_BY_CPUS, cpus }));
            plan
        }
        // At a fixed rate nobody is faster: what counts is how busy the locks are.
        "httperf" => Plan { shapes: Vec::new(), ..shapes(vec![all.max(2)], &[all]) },
        _ => shapes(Vec::new(), &[all]),
    }
}

/// Everything in short.
fn short_agenda(args: &AllArgs) -> Result<Agenda, Stop> {
    let mut agenda = Agenda { passes: SHORT_PASSES, ..Agenda::default() };
    let mut loads: Vec<Box<dyn Workload>> = Vec::new();
    let file = args.loadfile.clone().map_or_else(Dbench::installed, Ok);
    match file {
        Ok(file) => loads.push(Box::new(Dbench::read(&file).map_err(failed)?)),
        Err(why) => agenda.skipped.push(why.to_string()),
    }
    loads.push(Box::new(Web::new(SHORT_CONNECTIONS)));
    loads.push(Box::new(Web::at_rate(SHORT_CONNECTIONS, SHORT_RATE)));
    loads.push(Box::new(Build::sample()));
    loads.extend([Box::new(Change::Churn) as Box<dyn Workload>, Box::new(Change::Invalidate)]);
    loads.push(Box::new(Find::new(tree::WARM, SHORT_CHAIN)));
    let with_plan = |load: Box<dyn Workload>| {
        let plan = short(load.name());
        (load, plan)
    };
    agenda.loads = loads.into_iter().map(with_plan).collect();
    agenda.placements = [Question::Layout, Question::Prefetch]
        .map(|question| placement::Plan {
            question,
            entries: SHORT_ENTRIES,
            chains: vec![1, SHORT_CHAIN, 64],
            counted: vec![SHORT_CHAIN],
            all_layouts: question == Question::Layout,
        })
        .to_vec();
    agenda.mkfiles = Some(mkfiles::short());
    Ok(agenda)
}

/// Everything in short, as a page.
fn all(args: &AllArgs) -> Result<(), Stop> {
    let agenda = short_agenda(args)?;
    report::say(format_args!(
        "dentree lab: loads, layouts, prefetch and large directories, in {} passes",
        agenda.passes
    ));
    let Measured { studies, comparisons, mkfiles } = agenda.measure()?;
    report::say(format_args!("dentree lab: xattr"));
    let findings = Findings {
        machine: Machine::this(),
        studies,
        comparisons,
        mkfiles,
        attributes: Some(xattr::short()),
        skipped: agenda.skipped,
    };
    let page = write(&args.out, &findings).map_err(|why| failed(format!("{}: {why}", args.out.display())))?;
    let mut out = io::stdout().lock();
    findings.skipped.iter().try_for_each(|skipped| writeln!(out, "not measured: {skipped}"))?;
    writeln!(out, "{}", page.display())?;
    Ok(())
}

fn compare(args: &CompareArgs) -> Result<(), Stop> {
    let found = agreement(&args.one, &args.other).map_err(failed)?;
    io::stdout().write_all(found.text().as_bytes())?;
    if found.is_good() { Ok(()) } else { Err(failed("the two runs differ by more than their intervals")) }
}

fn keep(file: Option<&Path>, rows: &[Row]) -> Result<(), Stop> {
    let Some(file) = file else { return Ok(()) };
    write_json_lines(file, rows).map_err(|why| failed(format!("{}: {why}", file.display())))
}

fn failed(why: impl Display) -> Stop {
    Problem::new("lab", Status::Failed, why.to_string()).into()
}
