//! All schemes under one load, in turn.
//!
//! Throughput comes from [`passes`](crate::passes): each builds and fills all caches for each
//! number of clients, and each cache works for one slice, in an order that every pass shuffles (see
//! [`harness`](crate::harness) for why). Then each scheme is measured alone for two slices, one for
//! latencies, one for locks.

use std::collections::BTreeSet;
use std::time::Duration;

use dentree_lockmeter::{Figures, Report};
use serde::Serialize;

use super::{Measured, Running, Shape, Watch, Workload};
use crate::passes::{Event, Figure, Listener, Passes, shuffled};
use crate::rows::{Heading, Row, figure, seven_digits};
use crate::schemes::{Config, OwnLocks, Variant, function_at};
use crate::stats::{Sample, paired_ratio};

/// The variant that ratios refer to: the state before the study.
pub const REFERENCE: &str = "1 global lock";

/// The metric of throughput rows, in operations per second.
pub const THROUGHPUT: &str = "throughput";

/// The metric of operations per second of CPU time; ratios are of these.
pub const EFFICIENCY: &str = "efficiency";

/// How a load is studied.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The schemes.
    pub schemes: Vec<Variant>,
    /// Clients and CPUs of which every pass measures throughput; each is a case.
    pub shapes: Vec<Shape>,
    /// The length of a slice.
    pub slice: Duration,
    /// Hash chains, if the user sets them (`--dhash-entries`).
    pub heads: Option<usize>,
    /// Clients and CPUs of which latencies and locks are measured.
    pub watched: Vec<Shape>,
}

impl Plan {
    /// The load's parameters with the user's changes.
    pub fn adjust(&self, config: Config) -> Config {
        Config { heads: self.heads.unwrap_or(config.heads), ..config }
    }

    /// Progress reports of one pass.
    pub fn slices(&self) -> usize {
        self.shapes.len() * self.schemes.len()
    }

    /// Progress reports of the latencies and locks.
    pub fn watches(&self) -> usize {
        self.watched.len() * self.schemes.len()
    }
}

/// The results of a load.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Study {
    /// The load's name.
    pub load: String,
    /// All figures.
    pub rows: Vec<Row>,
    /// Lock tables, one per scheme.
    pub locks: Vec<LockTable>,
    /// What was not measured, and why.
    pub skipped: Vec<String>,
}

/// The acquisitions of each lock under one scheme.
#[derive(Clone, Debug, Serialize)]
pub struct LockTable {
    /// The scheme.
    pub variant: String,
    /// Clients.
    pub threads: usize,
    /// Operations done meanwhile.
    pub operations: u64,
    /// Each class of locks, the most acquired first.
    pub locks: Vec<LockLine>,
    /// The whole table in the sources' layout. For people, so not serialized.
    #[serde(skip)]
    pub text: String,
}

/// A line of a lock table and its sublines; times in nanoseconds, shares in percent.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "the fields are the columns of lockmeter's Figures")]
pub struct LockLine {
    pub name: String,
    #[serde(serialize_with = "seven_digits")]
    pub util: f64,
    #[serde(serialize_with = "seven_digits")]
    pub con: f64,
    #[serde(serialize_with = "seven_digits")]
    pub hold_mean: f64,
    #[serde(serialize_with = "seven_digits")]
    pub hold_max: f64,
    #[serde(serialize_with = "seven_digits")]
    pub wait_mean: f64,
    #[serde(serialize_with = "seven_digits")]
    pub wait_max: f64,
    #[serde(serialize_with = "seven_digits")]
    pub wait_cpu: f64,
    pub total: u64,
    /// By function of the scheme.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub functions: Vec<LockLine>,
}

impl LockTable {
    /// All requests, and those made by lookups.
    pub fn requests(&self) -> (u64, u64) {
        let all = self.locks.iter().map(|lock| lock.total).sum();
        let functions = self.locks.iter().flat_map(|lock| &lock.functions);
        let by_lookups = functions.filter(|line| LOOKS_UP.contains(&line.name.as_str()));
        (all, by_lookups.map(|line| line.total).sum())
    }

    /// A class of locks.
    pub fn class(&self, name: &str) -> Option<&LockLine> {
        self.locks.iter().find(|lock| lock.name == name)
    }

    /// The class that is acquired most.
    pub fn busiest(&self) -> Option<&LockLine> {
        self.locks.first()
    }

    /// Adds acquisitions that a scheme counted itself, without hold times.
    fn add_own(&mut self, own: OwnLocks) {
        let line = |name: &str, total| LockLine { total, ..LockLine::new(name, &Figures::default()) };
        let functions = vec![line("lookup", own.lookups), line("changes", own.changes)];
        let name = "its own, by its own count";
        self.locks.insert(0, LockLine { functions, ..line(name, own.lookups + own.changes) });
        self.text += &format!("{name}: {} by lookups, {} by changes\n", own.lookups, own.changes);
    }

    /// A recording's table.
    pub fn new(variant: &str, threads: usize, operations: u64, report: &Report) -> Self {
        let name = |file: &str, line| match function_at(file, line) {
            Some((function, offset)) => format!("{function}+{offset}"),
            None => format!("{}:{line}", file.rsplit_once(['/', '\\']).map_or(file, |(_, name)| name)),
        };
        let mut locks: Vec<_> = report
            .locks
            .iter()
            .map(|lock| {
                let mut functions: Vec<LockLine> = Vec::new();
                for site in &lock.sites {
                    let function = function_at(site.file, site.line).map_or("elsewhere", |(name, _)| name);
                    let line = LockLine::new(function, &site.figures);
                    match functions.iter_mut().find(|known| known.name == function) {
                        Some(known) => *known = known.with(&line),
                        None => functions.push(line),
                    }
                }
                functions.sort_by_key(|line| std::cmp::Reverse(line.total));
                LockLine { functions, ..LockLine::new(lock.name, &lock.all) }
            })
            .collect();
        locks.sort_by_key(|lock| std::cmp::Reverse(lock.total));
        Self { variant: variant.to_owned(), threads, operations, locks, text: report.text_with(name) }
    }
}

/// The functions of all schemes that look names up.
const LOOKS_UP: [&str; 6] = ["lookup", "walk", "get_if", "find_rcu", "rcu_walk", "get_not_dead"];

impl LockLine {
    fn new(name: &str, figures: &Figures) -> Self {
        Self {
            name: name.to_owned(),
            util: figures.util,
            con: figures.con,
            hold_mean: figures.hold_mean,
            hold_max: figures.hold_max,
            wait_mean: figures.wait_mean,
            wait_max: figures.wait_max,
            wait_cpu: figures.wait_cpu,
            total: figures.total,
            functions: Vec::new(),
        }
    }

    /// The sum, under this line's name: means weighted by requests, the mean wait by waiting
    /// requests.
    pub fn with(&self, other: &Self) -> Self {
        let mean = |(a, ours): (f64, f64), (b, theirs): (f64, f64)| {
            if ours + theirs > 0.0 { (a * ours + b * theirs) / (ours + theirs) } else { 0.0 }
        };
        let requests = |line: &Self| line.total as f64;
        let waited = |line: &Self| requests(line) * line.con;
        let by = |of: fn(&Self) -> f64, weight: &dyn Fn(&Self) -> f64| {
            mean((of(self), weight(self)), (of(other), weight(other)))
        };
        Self {
            name: self.name.clone(),
            util: self.util + other.util,
            con: by(|line| line.con, &requests),
            hold_mean: by(|line| line.hold_mean, &requests),
            hold_max: self.hold_max.max(other.hold_max),
            wait_mean: by(|line| line.wait_mean, &waited),
            wait_max: self.wait_max.max(other.wait_max),
            wait_cpu: self.wait_cpu + other.wait_cpu,
            total: self.total + other.total,
            functions: Vec::new(),
        }
    }
}

/// One pass: every scheme is built, filled, warmed and measured once in each shape, in the pass's
/// order.
pub fn pass(workload: &dyn Workload, plan: &Plan, number: usize, tell: &mut Listener<'_>) {
    for shape in &plan.shapes {
        let build = |scheme: &Variant| Running::new(workload, scheme, *shape, |config| plan.adjust(config));
        for mut scheme in shuffled(&plan.schemes, number, build) {
            let name = plan.schemes[scheme.at].name;
            tell(Event::Doing(label(workload, *shape, name)));
            scheme.built.work(plan.slice / WARMING, Watch::Throughput);
            let done = scheme.built.work(plan.slice, Watch::Throughput);
            for role in done.operations.keys() {
                let case = case(workload.name(), role, *shape);
                for (metric, value) in [(THROUGHPUT, done.rate(role)), (EFFICIENCY, done.efficiency(role))] {
                    let (case, variant, metric) = (case.clone(), name.to_owned(), metric.to_owned());
                    let figure = Figure { case, variant, threads: shape.threads, metric, value };
                    tell(Event::Found(figure));
                }
            }
        }
    }
}

/// The part of a slice for warming up before the measurement: the fill leaves the caches cold.
const WARMING: u32 = 4;

/// Studies a load: rows from the passes, then locks and latencies of the shapes in `plan.watched`.
/// `progress` is called before every slice.
pub fn study(
    workload: &dyn Workload,
    plan: &Plan,
    passes: &Passes,
    progress: &(dyn Fn(&str) + Sync),
) -> Study {
    let mut study = Study { load: workload.name().to_owned(), ..Study::default() };
    for shape in &plan.shapes {
        study.rows.extend(throughput(workload, plan, *shape, passes));
    }
    for shape in &plan.watched {
        // One at a time: locks are recorded for the whole process, and scheme 9 has a thread of its
        // own.
        for scheme in &plan.schemes {
            progress(&label(workload, *shape, scheme.name));
            study.watch(workload, plan, scheme, *shape);
        }
    }
    study
}

fn label(workload: &dyn Workload, shape: Shape, scheme: &str) -> String {
    format!("{}, {} clients on {} CPUs: {scheme}", workload.name(), shape.threads, shape.cpus)
}

/// The `case` of rows: the load, the role, and the number of CPUs unless it is all.
pub fn case(load: &str, role: &str, shape: Shape) -> String {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let role = if role.is_empty() { String::new() } else { format!("-{role}") };
    let on = if shape.cpus == cpus { String::new() } else { format!("-cpus{}", shape.cpus) };
    format!("{load}{role}{on}")
}

fn throughput(workload: &dyn Workload, plan: &Plan, shape: Shape, passes: &Passes) -> Vec<Row> {
    let roles: BTreeSet<&str> =
        (0..shape.threads).map(|number| workload.client(number, shape.threads).role()).collect();
    let threads = shape.threads;
    let mut rows = Vec::new();
    for role in roles {
        let case = case(workload.name(), role, shape);
        let heading = |variant, metric, unit| Heading { case: &case, variant, threads, metric, unit };
        let series = |variant, metric| passes.series(&case, variant, threads, metric);
        let reference = series(REFERENCE, EFFICIENCY);
        for scheme in &plan.schemes {
            for (metric, unit) in [(THROUGHPUT, "operations/s"), (EFFICIENCY, "operations/CPU s")] {
                let sample = series(scheme.name, metric).and_then(Sample::new);
                rows.extend(sample.map(|sample| heading(scheme.name, metric, unit).sampled(&sample)));
            }
            let ours = series(scheme.name, EFFICIENCY).filter(|_| scheme.name != REFERENCE);
            let ratio = ours.zip(reference.as_ref()).and_then(|(ours, base)| paired_ratio(&ours, base));
            if let Some(ratio) = ratio {
                let variant = format!("{}/{REFERENCE}", scheme.name);
                let heading = Heading { case: &case, variant: &variant, threads, metric: "ratio", unit: "1" };
                rows.push(heading.ratio(&ratio));
            }
        }
    }
    rows
}

fn latencies(workload: &dyn Workload, scheme: &str, shape: Shape, measured: &Measured) -> Vec<Row> {
    let mut rows = Vec::new();
    for (role, all) in measured.latencies.iter().filter(|(_, all)| !all.is_empty()) {
        let case = case(workload.name(), role, shape);
        let percentiles = [("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("p99.9", 99.9), ("max", 100.0)];
        rows.extend(percentiles.map(|(metric, percent)| {
            let heading =
                Heading { case: &case, variant: scheme, threads: shape.threads, metric, unit: "ns" };
            heading.counted(all.value_at_percentile(percent) as f64)
        }));
    }
    rows
}

fn memory(workload: &dyn Workload, scheme: &str, shape: Shape, running: &Running<'_>) -> Row {
    let case = case(workload.name(), "", shape);
    let heading = Heading {
        case: &case,
        variant: scheme,
        threads: shape.threads,
        metric: "bytes/entry",
        unit: "bytes",
    };
    heading.counted(running.usage().entry_bytes as f64)
}

impl Study {
    /// One scheme alone: a slice for warming up, one for latencies, one for locks.
    fn watch(&mut self, workload: &dyn Workload, plan: &Plan, scheme: &Variant, shape: Shape) {
        let mut running = Running::new(workload, scheme, shape, |config| plan.adjust(config));
        running.work(plan.slice, Watch::Throughput);
        let timed = running.work(plan.slice, Watch::Latency);
        self.rows.extend(latencies(workload, scheme.name, shape, &timed));
        let before = running.own_locks();
        let measured = running.work(plan.slice, Watch::Locks);
        self.rows.push(memory(workload, scheme.name, shape, &running));
        let Some(report) = &measured.locks else { return };
        let done = measured.operations.values().sum();
        let mut table = LockTable::new(scheme.name, shape.threads, done, report);
        let own = running.own_locks().zip(before).map(|(now, before)| OwnLocks {
            lookups: now.lookups - before.lookups,
            changes: now.changes - before.changes,
        });
        own.into_iter().for_each(|own| table.add_own(own));
        self.locks.push(table);
    }

    /// Tables for a terminal: throughput, ratios and latencies by scheme, then the locks.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for case in self.cases() {
            text.push_str(&self.throughput_text(&case));
            text.push('\n');
        }
        if !self.locks.is_empty() {
            text.push_str(&self.locks_text());
        }
        for skipped in &self.skipped {
            text.push_str(&format!("not measured: {skipped}\n"));
        }
        text
    }

    /// The cases of this study, in the order of their measurement.
    pub fn cases(&self) -> Vec<String> {
        let mut cases: Vec<String> = Vec::new();
        for row in self.rows.iter().filter(|row| row.metric == THROUGHPUT) {
            if !cases.contains(&row.case) {
                cases.push(row.case.clone());
            }
        }
        cases
    }

    /// A row, if there is one.
    pub fn find(&self, case: &str, variant: &str, threads: usize, metric: &str) -> Option<&Row> {
        let is = |row: &&Row| {
            (row.case.as_str(), row.variant.as_str(), row.threads, row.metric)
                == (case, variant, threads, metric)
        };
        self.rows.iter().find(is)
    }

    /// The numbers of clients of a case.
    pub fn threads(&self, case: &str) -> Vec<usize> {
        let rows = self.rows.iter().filter(|row| row.case == case && row.metric == THROUGHPUT);
        rows.map(|row| row.threads).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// The number of CPUs of a case unless it is all: see [`case`].
    pub fn cpus_of(&self, case: &str) -> Option<usize> {
        case.rsplit_once("-cpus")?.1.parse().ok()
    }

    /// The largest number of clients of a case that need not share `cpus` CPUs, but at least two:
    /// the ones to compare.
    pub fn busy_threads(&self, case: &str, cpus: usize) -> Option<usize> {
        self.threads(case).into_iter().filter(|count| *count <= cpus.max(2)).max()
    }

    /// The schemes of a case, in the order of the plan.
    pub fn schemes(&self, case: &str) -> Vec<&str> {
        let mut schemes: Vec<&str> = Vec::new();
        for row in self.rows.iter().filter(|row| row.case == case && row.metric == THROUGHPUT) {
            if !schemes.contains(&row.variant.as_str()) {
                schemes.push(&row.variant);
            }
        }
        schemes
    }

    fn throughput_text(&self, case: &str) -> String {
        let threads = self.threads(case);
        let mut text = format!("{case}: thousand operations a second, by clients\n  {:30}", "");
        threads.iter().for_each(|count| text.push_str(&format!("{count:>9}")));
        let last = threads.last().copied().unwrap_or(1);
        text.push_str(&format!("   to scheme 1 at {last}, a CPU second each\n"));
        for scheme in self.schemes(case) {
            text.push_str(&format!("  {scheme:30}"));
            for count in &threads {
                let rate = self.find(case, scheme, *count, THROUGHPUT).map_or(0.0, |row| row.median / 1e3);
                text.push_str(&format!("{:>9}", figure(rate)));
            }
            if let Some(ratio) = self.find(case, &format!("{scheme}/{REFERENCE}"), last, "ratio") {
                let [median, low, high] = [ratio.median, ratio.low, ratio.high].map(figure);
                text.push_str(&format!("   {median} [{low} .. {high}]"));
            }
            text.push('\n');
        }
        text
    }

    fn locks_text(&self) -> String {
        let mut text = format!(
            "{}, {} clients: locks, all classes together, by operation\n  {:30}{:>9}{:>12}  {:20}{:>8}{:>8}{:>11}\n",
            self.load,
            self.locks.last().map_or(0, |table| table.threads),
            "",
            "requests",
            "by lookups",
            "most taken",
            "UTIL",
            "CON",
            "HOLD mean"
        );
        for table in self
            .locks
            .iter()
            .filter(|table| Some(table.threads) == self.locks.last().map(|last| last.threads))
        {
            let (all, by_lookups) = table.requests();
            let a = |count: u64| figure(count as f64 / table.operations.max(1) as f64);
            text.push_str(&format!("  {:30}{:>9}{:>12}", table.variant, a(all), a(by_lookups)));
            if let Some(lock) = table.busiest() {
                let (util, con, hold) = (figure(lock.util), figure(lock.con), figure(lock.hold_mean));
                text.push_str(&format!("  {:20}{util:>7}%{con:>7}%{hold:>8} ns", lock.name));
            }
            text.push('\n');
        }
        text
    }
}
