//! Loads, schemes, and numbers of clients and CPUs, from the command line.

use crate::agenda::Agenda;
use crate::args::{AllArgs, BuildArgs, FindArgs, LoadArgs, PlacementArgs, Study, WebArgs};
use crate::mkfiles;
use crate::stop::{Stop, failed, usage};
use dentree_lab::placement::{self, Question};
use dentree_lab::report::sources::CLIENTS_BY_CPUS;
use dentree_lab::schemes::{SCHEMES, Variant};
use dentree_lab::tree;
use dentree_lab::workloads::build::{Build, Recording};
use dentree_lab::workloads::change::Change;
use dentree_lab::workloads::dbench::Dbench;
use dentree_lab::workloads::find::Find;
use dentree_lab::workloads::study::REFERENCE;
use dentree_lab::workloads::web::Web;
use dentree_lab::workloads::{Plan, Shape, Workload};
use std::path::Path;
use std::time::Duration;

/// Passes of the short form, and the length of a slice: with 16 schemes a pass takes ten to fifteen
/// seconds.
const SHORT_PASSES: usize = 8;
const SHORT_SLICE: Duration = Duration::from_millis(15);
/// Clients of the short form's dbench: part of the source's table, which goes to 128.
const SHORT_CLIENTS: [usize; 6] = [1, 2, 8, CLIENTS_BY_CPUS, 32, 128];
/// Requests per second of the short form's httperf: a few percent of the global lock's time.
const SHORT_RATE: f64 = 20_000.0;
const SHORT_ENTRIES: usize = 16_384;
/// Connections of the short form's web server: about as many as the study reached.
const SHORT_CONNECTIONS: usize = 2000;
/// The mean length of chains in the short form's find, as in the mail.
const SHORT_CHAIN: usize = 16;

/// The measurements of a study.
pub(crate) fn agenda(study: &Study) -> Result<Agenda, Stop> {
    let one = |load: Box<dyn Workload>, args: &LoadArgs| {
        let passes = usize::from(args.rounds);
        Ok(Agenda { loads: vec![(load, plan(args)?)], passes, ..Agenda::default() })
    };
    match study {
        Study::All(args) => short_agenda(args),
        Study::Dbench(args) | Study::Locks(args) => {
            one(Box::new(dbench(args.loadfile.as_deref())?), &args.load)
        }
        Study::Churn(args) => one(Box::new(Change::Churn), args),
        Study::Invalidate(args) => one(Box::new(Change::Invalidate), args),
        Study::Web(args) => one(Box::new(web(args)), &args.load),
        Study::Find(args) => one(Box::new(find(args)), &args.load),
        Study::Build(args) => one(Box::new(build(args)?), &args.load),
        Study::Layout(args) => Ok(placement_agenda(Question::Layout, args)),
        Study::Prefetch(args) => Ok(placement_agenda(Question::Prefetch, args)),
        Study::Mkfiles(args) => Ok(mkfiles::agenda(args)),
        Study::Record(_)
        | Study::Compare(_)
        | Study::Once { .. }
        | Study::Xattr(_)
        | Study::XattrClient { .. }
        | Study::Replacement(_) => Err(usage("--pass", "this study has no passes")),
    }
}

fn dbench(loadfile: Option<&Path>) -> Result<Dbench, Stop> {
    let file = match loadfile {
        Some(file) => file.to_owned(),
        None => Dbench::installed().map_err(failed)?,
    };
    Dbench::read(&file).map_err(failed)
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

fn plan(args: &LoadArgs) -> Result<Plan, Stop> {
    let clients = args.clients.iter().map(|count| usize::from(*count)).collect();
    Ok(Plan {
        schemes: schemes(&args.scheme)?,
        slice: Duration::from_millis(u64::from(args.slice)),
        heads: args.dhash_entries,
        ..shapes(clients, &cpus(&args.cpus)?)
    })
}

/// The numbers of CPUs requested; all by default.
fn cpus(asked: &[u16]) -> Result<Vec<usize>, Stop> {
    let all = all_cpus();
    if asked.is_empty() {
        return Ok(vec![all]);
    }
    if let Some(more) = asked.iter().find(|count| usize::from(**count) > all) {
        return Err(usage(more.to_string(), format!("this process may use {all} CPUs")));
    }
    Ok(asked.iter().map(|count| usize::from(*count)).collect())
}

fn all_cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The short form's plan for numbers of clients and CPUs. The default clients are 1, as many as
/// CPUs, and eight times that. Latencies and locks are measured with one client and with the most
/// that need not share a CPU.
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

/// The schemes requested by name, and the reference of ratios.
pub(crate) fn schemes(asked: &[String]) -> Result<Vec<Variant>, Stop> {
    let is_called = |text: &String| SCHEMES.iter().any(|scheme| scheme.name.contains(text.as_str()));
    if let Some(text) = asked.iter().find(|text| !is_called(text)) {
        let names: Vec<_> = SCHEMES.iter().map(|scheme| scheme.name).collect();
        let message = format!("no scheme is called so; there are: {}", names.join("; "));
        return Err(usage(text.as_str(), message));
    }
    let is_asked = |scheme: &Variant| asked.iter().any(|text| scheme.name.contains(text.as_str()));
    let taken =
        SCHEMES.into_iter().filter(|scheme| asked.is_empty() || scheme.name == REFERENCE || is_asked(scheme));
    Ok(taken.collect())
}

/// A load's plan in the short form.
fn short(load: &str) -> Plan {
    let all = all_cpus();
    match load {
        "dbench" => {
            let mut plan = shapes([SHORT_CLIENTS.as_slice(), &[all.max(2)]].concat(), &[all]);
            let fewer = std::iter::successors(Some(1), |cpus| Some(cpus * 2)).take_while(|cpus| *cpus < all);
            plan.shapes.extend(fewer.map(|cpus| Shape { threads: CLIENTS_BY_CPUS, cpus }));
            plan
        }
        // At a fixed rate throughput is constant: the result is the use of the locks.
        "httperf" => Plan { shapes: Vec::new(), ..shapes(vec![all.max(2)], &[all]) },
        _ => shapes(Vec::new(), &[all]),
    }
}

/// All studies in the short form.
pub(crate) fn short_agenda(args: &AllArgs) -> Result<Agenda, Stop> {
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

fn web(args: &WebArgs) -> Web {
    let connections = usize::from(args.connections);
    match args.rate {
        Some(rate) => Web::at_rate(connections, f64::from(rate)),
        None => Web::new(connections),
    }
}

pub(crate) fn find(args: &FindArgs) -> Find {
    Find::new(tree::WARM, usize::from(args.chain))
}

fn build(args: &BuildArgs) -> Result<Build, Stop> {
    let Some(file) = &args.recording else { return Ok(Build::sample()) };
    let at = |why: &dyn std::fmt::Display| failed(format!("{}: {why}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|why| at(&why))?;
    let load = Build::new(Recording::parse(&text).map_err(|why| at(&why))?);
    if load.operations() == 0 {
        return Err(at(&"no operation on a name in it"));
    }
    Ok(load)
}
