//! The sources' tables, each with its counterpart from this run.
//!
//! - [`lockmeter`]: the lock tables of the study of 2002;
//! - here: its throughputs, and the measurements of the mails of 2005.

pub mod lockmeter;

use std::fmt::Write;

use super::Findings;
use super::html::{escape, time};
use crate::placement::{BEFORE, Question};
use crate::rows::{Row, figure};
use crate::workloads::study::{LockLine, REFERENCE, THROUGHPUT};
use lockmeter::{SourceLine, SourceTable, TABLES};

/// The number of clients of the source's table by CPUs.
pub const CLIENTS_BY_CPUS: usize = 12;
/// The schemes that throughput tables add to the source's two.
const SHOWN: [&str; 3] = ["8 lazy lru", "11 sequence counts", "12 dentree"];

/// Megabytes per second, by CPUs: Linux 2.5.30, and with `dcache_rcu` (4.5.1).
const BY_CPUS: [(usize, f64, f64); 4] =
    [(1, 82.405, 82.65241), (2, 141.914, 141.188), (4, 226.664, 227.287), (8, 256.064, 260.4548)];

/// The same by clients, on 8 CPUs.
const BY_CLIENTS: [(usize, f64, f64); 14] = [
    (1, 78.76, 81.43),
    (2, 139.06, 140.28),
    (4, 218.9, 227.43),
    (8, 241.64, 246.8),
    (10, 255.56, 258.34),
    (12, 255.89, 260.66),
    (16, 246.57, 252.97),
    (18, 250.82, 249.79),
    (20, 252.05, 251.59),
    (24, 243.03, 248.12),
    (32, 243.17, 244.87),
    (48, 227.09, 240.98),
    (64, 209.62, 239.52),
    (128, 59.17, 55.97),
];

/// Seconds of `time find` over 563,887 files with chains of 16: before the layout's patch, and
/// after.
const FIND: [[f64; 7]; 2] =
    [[3.077, 3.077, 3.084, 3.108, 3.061, 3.067, 3.061], [3.017, 3.018, 3.017, 3.019, 3.021, 3.022, 3.021]];

/// The prefetch mail's dbench runs, in megabytes per second: elements, mean, variance, standard
/// deviation.
const PREFETCH: [(&str, u32, f64, f64, f64); 5] = [
    ("2.6.11-rc5", 100, 862.580380, 5.973441, 2.444062),
    ("the same, dcache’s loops without prefetch", 50, 881.804980, 10.695022, 3.270325),
    ("with LSM stacking", 100, 797.654870, 7.503588, 2.739268),
    ("the same, stacking’s two loops without prefetch", 50, 846.541060, 17.095401, 4.134658),
    ("the same, no prefetch anywhere", 50, 860.823880, 47.567428, 6.896914),
];

/// The section of the page.
pub fn section(out: &mut String, findings: &Findings) {
    out.push_str(
        "<section><h2 id=\"tables\">The sources’ tables, line by line</h2><p>Each table of the sources, and the same from this run below each \
         line. Functions have the kernel’s names; where a scheme here does in one function what the kernel does in two, theirs are added up.</p>",
    );
    TABLES.iter().for_each(|table| lock_table(out, table, findings));
    by_cpus(out, findings);
    by_clients(out, findings);
    web(out, findings);
    find(out, findings);
    prefetch(out, findings);
    out.push_str("</section>");
}

fn begin(out: &mut String, place: &str, title: &str, columns: &[&str]) {
    let _ = write!(
        out,
        "<details><summary>{}: {}</summary><div class=\"wide\"><table class=\"pairs\"><thead><tr>",
        escape(place),
        escape(title)
    );
    for (at, column) in columns.iter().enumerate() {
        let class = if at == 0 { "" } else { " class=\"fig\"" };
        let _ = write!(out, "<th{class}>{}</th>", escape(column));
    }
    out.push_str("</tr></thead><tbody>");
}

fn row(out: &mut String, class: &str, heading: &str, cells: &[String]) {
    let _ = write!(out, "<tr class=\"{class}\"><th scope=\"row\">{}</th>", escape(heading));
    for cell in cells {
        let _ = write!(out, "<td class=\"fig\">{}</td>", escape(cell));
    }
    out.push_str("</tr>");
}

fn end(out: &mut String, why: &str) {
    let _ = write!(out, "</tbody></table></div><p>{}</p></details>", escape(why));
}

fn lock_table(out: &mut String, table: &SourceTable, findings: &Findings) {
    let columns = ["", "share", "UTIL", "CON", "HOLD mean (max)", "WAIT mean (max)", "TOTAL"];
    begin(out, table.place, table.title, &columns);
    let ours = findings.study(table.load).into_iter().flat_map(|study| &study.locks);
    let ours = ours.filter(|locks| locks.variant == table.scheme).max_by_key(|locks| locks.threads);
    let ours = ours.and_then(|locks| locks.class("dcache_lock"));
    let Some((whole, functions)) = table.lines.split_first() else { return };
    let mut groups: Vec<(String, &[&str], LockLine)> = Vec::new();
    for source in functions {
        join(&mut groups, source);
    }
    let (theirs, whole_ours) = (whole.line(), ours.map_or(0, |lock| lock.total));
    pair(out, "dcache_lock", (&theirs, theirs.total), ours.map(|line| (line, whole_ours)));
    for (name, counterparts, line) in &groups {
        let lines = ours.into_iter().flat_map(|lock| &lock.functions);
        let mut lines = lines.filter(|line| counterparts.contains(&line.name.as_str())).cloned();
        let sum = lines.next().map(|first| lines.fold(first, |sum, line| sum.with(&line)));
        pair(out, name, (line, theirs.total), sum.as_ref().map(|line| (line, whole_ours)));
    }
    let clients = findings.study(table.load).and_then(|study| study.locks.iter().map(|l| l.threads).max());
    end(out, &format!("Here: scheme {}, {} clients. {}", table.scheme, clients.unwrap_or(0), table.why));
}

/// Adds a line to those with the same function here.
fn join<'a>(groups: &mut Vec<(String, &'a [&'a str], LockLine)>, source: &'a SourceLine) {
    let same = |group: &&mut (String, &[&str], LockLine)| {
        if source.ours.is_empty() { group.0 == source.name } else { group.1 == source.ours }
    };
    match groups.iter_mut().find(same) {
        Some((name, _, line)) => {
            if !name.contains(source.name) {
                name.push_str(&format!(", {}", source.name));
            }
            *line = line.with(&source.line());
        }
        None => groups.push((source.name.to_owned(), source.ours, source.line())),
    }
}

/// A line of the source, and ours below it.
fn pair(out: &mut String, name: &str, theirs: (&LockLine, u64), ours: Option<(&LockLine, u64)>) {
    let cells = |(line, whole): (&LockLine, u64)| {
        let share = 100.0 * line.total as f64 / whole.max(1) as f64;
        let span = |mean, max| format!("{} ({})", time(mean), time(max));
        vec![
            format!("{share:.1}%"),
            format!("{}%", figure(line.util)),
            format!("{}%", figure(line.con)),
            span(line.hold_mean, line.hold_max),
            span(line.wait_mean, line.wait_max),
            line.total.to_string(),
        ]
    };
    row(out, "source", name, &cells(theirs));
    match ours {
        Some(ours) => row(out, "ours", "here", &cells(ours)),
        None => {
            out.push_str("<tr class=\"ours\"><th scope=\"row\">here: none</th><td colspan=\"6\"></td></tr>")
        }
    }
}

/// A throughput in thousands of operations per second, and its ratio to scheme 1's.
fn ours(findings: &Findings, load: &str, case: &str, threads: usize) -> Vec<String> {
    let find = |variant: &str, metric| findings.study(load)?.find(case, variant, threads, metric);
    let mut cells = vec![find(REFERENCE, THROUGHPUT).map_or("—".into(), |row| figure(row.median / 1e3))];
    for scheme in SHOWN {
        let ratio = find(&format!("{scheme}/{REFERENCE}"), "ratio");
        cells.push(ratio.map_or("—".into(), interval));
    }
    cells
}

fn interval(row: &Row) -> String {
    format!("×{} [{} – {}]", figure(row.median), figure(row.low), figure(row.high))
}

const THROUGHPUTS: [&str; 8] = [
    "",
    "2.5.30, MB/s",
    "dcache_rcu, MB/s",
    "to 2.5.30",
    "here: scheme 1, 1000/s",
    "8 to 1",
    "11 to 1",
    "12 to 1",
];

const WHY_THROUGHPUT: &str = "Megabytes a second there, of which the name cache is a small part; operations on names alone here, so that every gain and \
    every loss shows whole. Ratios are of what a CPU second gets done.";

fn source_cells(base: f64, rcu: f64) -> Vec<String> {
    vec![format!("{base:.1}"), format!("{rcu:.1}"), format!("×{:.3}", rcu / base)]
}

fn by_cpus(out: &mut String, findings: &Findings) {
    begin(out, "4.5.1", "dbench, 12 clients, by CPUs", &THROUGHPUTS);
    for (cpus, base, rcu) in BY_CPUS {
        let case = if cpus == findings.machine.cpus { "dbench".into() } else { format!("dbench-cpus{cpus}") };
        let mut cells = source_cells(base, rcu);
        cells.extend(ours(findings, "dbench", &case, CLIENTS_BY_CPUS));
        row(out, "", &format!("{cpus} CPU{}", if cpus == 1 { "" } else { "s" }), &cells);
    }
    end(out, &format!("{WHY_THROUGHPUT} This machine has {} CPUs.", findings.machine.cpus));
}

fn by_clients(out: &mut String, findings: &Findings) {
    begin(out, "4.5.1", "dbench, 8 CPUs, by clients", &THROUGHPUTS);
    for (clients, base, rcu) in BY_CLIENTS {
        let mut cells = source_cells(base, rcu);
        cells.extend(ours(findings, "dbench", "dbench", clients));
        row(out, "", &format!("{clients} client{}", if clients == 1 { "" } else { "s" }), &cells);
    }
    end(
        out,
        &format!(
            "{WHY_THROUGHPUT} All {} CPUs here. The short form leaves out some of the numbers of clients; `dentree-lab dbench --clients` \
             takes any.",
            findings.machine.cpus
        ),
    );
}

fn web(out: &mut String, findings: &Findings) {
    let columns = ["", "connections", "to base", "here: 1000 requests/s", "to scheme 1"];
    begin(out, "4.4.1", "SPECweb99, throughput", &columns);
    let study = findings.study("web");
    let threads = study.and_then(|study| study.busy_threads("web", findings.machine.cpus)).unwrap_or(0);
    let lines = [
        ("2.4.17", 2258.0, REFERENCE),
        ("fastwalk", 2280.0, "4 fastwalk"),
        ("dcache_rcu", 2530.0, "8 lazy lru"),
    ];
    for (name, connections, scheme) in lines {
        let find = |variant: &str, metric| study?.find("web", variant, threads, metric);
        let cells = [
            format!("{connections}"),
            format!("×{:.2}", connections / 2258.0),
            find(scheme, THROUGHPUT).map_or("—".into(), |row| figure(row.median / 1e3)),
            find(&format!("{scheme}/{REFERENCE}"), "ratio").map_or("—".into(), interval),
        ];
        row(out, "", name, &cells);
    }
    end(
        out,
        &format!(
            "The source counts connections that a whole server keeps up with; here {threads} threads ask the bare cache for the same files as fast as \
             they can. Over real sockets: `dentree-lab web --sockets`."
        ),
    );
}

const MOMENTS: [&str; 6] = ["", "elements", "mean", "variance", "std dev", "to the first"];

fn find(out: &mut String, findings: &Findings) {
    begin(
        out,
        "layout mail",
        "find with chains of 16: hash link away from, and beside, parent and name",
        &MOMENTS,
    );
    let names = ["before, seconds", "after, seconds"];
    let first = FIND[0].iter().sum::<f64>() / 7.0;
    for (name, runs) in names.into_iter().zip(FIND) {
        let mean = runs.iter().sum::<f64>() / 7.0;
        let variance = runs.iter().map(|run| (run - mean).powi(2)).sum::<f64>() / 6.0;
        row(
            out,
            "source",
            name,
            &moments(7, mean, variance, variance.sqrt(), format!("×{:.3}", mean / first)),
        );
    }
    let variants = [BEFORE, "Together, Aligned, 4 words"];
    compared(out, findings, Question::Layout, "layout-chain16", &variants);
    end(
        out,
        "Nanoseconds a lookup here, from the walk alone; a whole find there, of which lookups in the kernel are a part. The mail’s other figure, the \
         build of a kernel (742 → 729 s), has no counterpart: the build load replays what a build asks of names, not the compiler.",
    );
}

fn prefetch(out: &mut String, findings: &Findings) {
    begin(out, "prefetch mail", "dbench on ppc64, with and without prefetch", &MOMENTS);
    let mut first = PREFETCH[0].2;
    for (at, (name, elements, mean, variance, deviation)) in PREFETCH.into_iter().enumerate() {
        // The third is the first of the stacking kernels.
        first = if at == 2 { mean } else { first };
        row(
            out,
            "source",
            &format!("{name}, MB/s"),
            &moments(elements as usize, mean, variance, deviation, format!("×{:.3}", mean / first)),
        );
    }
    for chain in [1, 16, 64] {
        let variants = ["Together, Aligned, 4 words, no prefetch", "Together, Aligned, 4 words, prefetch"];
        compared(out, findings, Question::Prefetch, &format!("prefetch-chain{chain}"), &variants);
    }
    end(
        out,
        "There more is better, and prefetch cost 2% of dbench; here nanoseconds a lookup, so less is better, and the ratio is with prefetch to \
         without. Another processor: the mail itself found that prefetch helped on x86.",
    );
}

/// Lines of one of our comparisons.
fn compared(out: &mut String, findings: &Findings, question: Question, case: &str, variants: &[&str]) {
    let found = findings.comparisons.iter().find(|comparison| comparison.question == question);
    let Some(comparison) = found else { return };
    for case in comparison.cases.iter().filter(|known| known.name == case) {
        for (variant, sample) in case.variants.iter().filter(|(name, _)| variants.contains(&name.as_str())) {
            let ratio = comparison
                .ratio(&case.name, variant)
                .map_or("×1".into(), |row| format!("×{:.3} [{:.3} – {:.3}]", row.median, row.low, row.high));
            row(
                out,
                "ours",
                &format!("here, chains of {}: {variant}, ns", case.chain),
                &moments(sample.n(), sample.mean(), sample.variance(), sample.std_dev(), ratio),
            );
        }
    }
}

fn moments(elements: usize, mean: f64, variance: f64, deviation: f64, ratio: String) -> Vec<String> {
    vec![
        elements.to_string(),
        format!("{mean:.4}"),
        format!("{variance:.6}"),
        format!("{deviation:.6}"),
        ratio,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_of_the_sources_is_there_and_says_why() {
        let mut page = String::new();
        section(&mut page, &Findings::default());
        assert_eq!(page.matches("<details>").count(), TABLES.len() + 5);
        assert_eq!(page.matches("</details>").count(), TABLES.len() + 5);
        for figure in ["4433721", "84.4%", "12725262", "256.1", "×0.981", "862.5804", "2530"] {
            assert!(page.contains(figure), "{figure}");
        }
    }

    #[test]
    fn lines_that_one_function_does_here_are_added_up() {
        let mut groups = Vec::new();
        TABLES[1].lines[1..].iter().for_each(|line| join(&mut groups, line));
        let (name, _, line) =
            groups.iter().find(|(name, ..)| name.starts_with("d_delete")).expect("deletions");
        assert_eq!((name.as_str(), line.total), ("d_delete, d_unhash", 233_290 + 5_050 + 1_680));
        assert!((line.util - 0.04).abs() < 1e-9 && line.hold_max == 42_000.0);
    }
}
