//! Metrics in Prometheus' text format.

use dentree_vfs::{Fallback, VfsStats};
use std::fmt::{Display, Write};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counted statuses start at 100.
const STATUSES: usize = 500;

/// Kind of a metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Growth {
    /// Grows since the start.
    Counter,
    /// Current value.
    Gauge,
}

/// A metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Figure {
    /// Prometheus name, like `dentree_device_reads_total`.
    pub name: &'static str,
    /// Description in a line.
    pub help: &'static str,
    /// Counter or gauge.
    pub growth: Growth,
    /// Value.
    pub value: u64,
}

impl Figure {
    /// A metric that grows since the start.
    pub fn counter(name: &'static str, help: &'static str, value: u64) -> Self {
        Figure { name, help, growth: Growth::Counter, value }
    }

    /// A metric with the current value.
    pub fn gauge(name: &'static str, help: &'static str, value: u64) -> Self {
        Figure { name, help, growth: Growth::Gauge, value }
    }
}

/// The server's own counters.
pub(crate) struct Counters {
    statuses: [AtomicU64; STATUSES],
    pub(crate) bytes: AtomicU64,
    pub(crate) in_flight: AtomicU64,
    pub(crate) connections: AtomicU64,
    pub(crate) accepted: AtomicU64,
    pub(crate) cut: AtomicU64,
    pub(crate) late: AtomicU64,
}

impl Counters {
    pub(crate) fn new() -> Self {
        let zero = AtomicU64::default;
        Counters {
            statuses: std::array::from_fn(|_| zero()),
            bytes: zero(),
            in_flight: zero(),
            connections: zero(),
            accepted: zero(),
            cut: zero(),
            late: zero(),
        }
    }

    pub(crate) fn answered(&self, status: u16) {
        if let Some(count) = usize::from(status).checked_sub(100).and_then(|index| self.statuses.get(index)) {
            count.fetch_add(1, Relaxed);
        }
    }

    fn figures(&self) -> [Figure; 6] {
        let now = |count: &AtomicU64| count.load(Relaxed);
        [
            Figure::counter("dentree_http_response_bytes_total", "Bytes of bodies sent.", now(&self.bytes)),
            Figure::gauge("dentree_http_requests_in_flight", "Requests under way.", now(&self.in_flight)),
            Figure::gauge("dentree_http_connections", "Open connections.", now(&self.connections)),
            Figure::counter("dentree_http_connections_total", "Connections accepted.", now(&self.accepted)),
            Figure::counter(
                "dentree_http_responses_cut_total",
                "Responses that ended early.",
                now(&self.cut),
            ),
            Figure::counter(
                "dentree_http_heads_late_total",
                "Connections closed because no request came in time.",
                now(&self.late),
            ),
        ]
    }
}

pub(crate) fn text(counters: &Counters, caches: &VfsStats, more: &[Figure]) -> String {
    let mut text = String::with_capacity(8 << 10);
    let statuses =
        counters.statuses.iter().zip(100_u16..).map(|(count, status)| (status, count.load(Relaxed)));
    family(
        &mut text,
        Figure::counter("dentree_http_requests_total", "Requests answered, by status.", 0),
        "status",
        statuses.filter(|(_, count)| *count > 0),
    );
    let stops = Fallback::ALL.into_iter().map(|why| (word(why), caches.names.stopped_for(why)));
    family(
        &mut text,
        Figure::counter("dentree_names_stops_total", "Walks that left the lock-free path, by reason.", 0),
        "reason",
        stops,
    );
    for figure in counters.figures().iter().chain(&cache_figures(caches)).chain(more) {
        head(&mut text, figure);
        let _ = writeln!(text, "{} {}", figure.name, figure.value);
    }
    text
}

fn head(text: &mut String, figure: &Figure) {
    let growth = match figure.growth {
        Growth::Counter => "counter",
        Growth::Gauge => "gauge",
    };
    let _ = writeln!(text, "# HELP {0} {1}\n# TYPE {0} {growth}", figure.name, figure.help);
}

fn family(
    text: &mut String,
    figure: Figure,
    label: &str,
    members: impl Iterator<Item = (impl Display, u64)>,
) {
    head(text, &figure);
    for (value, count) in members {
        let _ = writeln!(text, "{}{{{label}=\"{value}\"}} {count}", figure.name);
    }
}

fn word(why: Fallback) -> &'static str {
    match why {
        Fallback::Miss => "miss",
        Fallback::Detached => "detached",
        Fallback::Symlink => "symlink",
        Fallback::NotADirectory => "not_a_directory",
        Fallback::Denied => "denied",
        Fallback::Floor => "floor",
        Fallback::NameTooLong => "name_too_long",
        Fallback::Busy => "busy",
    }
}

fn cache_figures(caches: &VfsStats) -> [Figure; 15] {
    let (names, inodes) = (&caches.names, &caches.inodes);
    let (counter, gauge) = (Figure::counter, Figure::gauge);
    [
        counter("dentree_names_walks_total", "Walks begun.", names.walks),
        counter("dentree_names_components_total", "Names resolved without a lock.", names.components),
        counter("dentree_names_locked_hits_total", "Names found only under a lock.", names.locked_hits),
        counter("dentree_names_found_total", "Walks that ended at an entry.", names.found),
        counter("dentree_names_negative_total", "Walks that ended at a negative entry.", names.negative),
        counter(
            "dentree_names_complete_negative_total",
            "Walks that ended at a name which a complete directory does not have.",
            names.complete_negative,
        ),
        counter("dentree_names_fills_total", "Names asked of the file system.", names.fills),
        counter("dentree_names_evicted_total", "Entries evicted.", names.evicted),
        gauge("dentree_names_entries", "Entries in memory.", names.entries),
        gauge("dentree_names_memory_bytes", "What the name cache weighs.", names.memory.used as u64),
        gauge("dentree_names_budget_bytes", "What it may weigh.", names.memory.budget as u64),
        counter("dentree_inodes_hits_total", "Inodes found in memory.", inodes.hits),
        counter("dentree_inodes_misses_total", "Inodes that had to be loaded.", inodes.misses),
        gauge("dentree_inodes_cached", "Inodes in memory.", inodes.cached),
        gauge("dentree_inodes_memory_bytes", "What they weigh.", inodes.bytes),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sample_stands_below_its_type_and_no_name_comes_twice() {
        let counters = Counters::new();
        counters.answered(200);
        counters.answered(7);
        let text = text(&counters, &VfsStats::default(), &[Figure::gauge("dentree_x", "X.", 3)]);
        assert!(
            text.contains("\ndentree_http_requests_total{status=\"200\"} 1\n")
                && text.ends_with("\ndentree_x 3\n")
        );
        let typed: Vec<&str> =
            text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
        let mut current = 0;
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                current = typed.iter().position(|name| rest.starts_with(&format!("{name} "))).unwrap();
            } else if !line.starts_with('#') {
                assert_eq!(line.split([' ', '{']).next(), Some(typed[current]), "{line}");
            }
        }
        let mut unique = typed.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), typed.len());
    }
}
