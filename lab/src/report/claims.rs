//! The sources' findings, and their counterparts here.
//!
//! The figures of the sources are copied: "Scalable Directory Entry Cache" (2002; sections are its
//! own), "place d_hash close to d_parent and d_name" and "prefetch on ppc64" (2005). Ours are
//! computed from this run.

use super::Findings;
use crate::placement::Question;
use crate::rows::figure;
use crate::workloads::study::{EFFICIENCY, LockTable, REFERENCE};

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The place in the source.
    pub place: &'static str,
    /// The quantity.
    pub what: &'static str,
    /// The source's figure.
    pub theirs: &'static str,
    /// Ours; `None` if this run has no such measurement.
    pub ours: Option<String>,
    /// The difference, and its reason.
    pub why: &'static str,
}

const FASTWALK: &str = "4 fastwalk";
const LAZY: &str = "8 lazy lru";
const OURS: &str = "12 dentree";
const GLOBAL_LOCK: &str = "dcache_lock";
const LOOKS_UP: [&str; 2] = ["lookup", "walk"];

/// All findings of the sources with a counterpart here.
pub fn all(findings: &Findings) -> Vec<Claim> {
    let mut claims = lock_users(findings);
    claims.extend(what_lazy_lru_saves(findings));
    claims.extend(web_and_throughput(findings));
    claims.extend(layout_and_prefetch(findings));
    claims
}

/// The lock table of a load and scheme, with the most clients measured.
fn table<'a>(findings: &'a Findings, load: &str, scheme: &str) -> Option<&'a LockTable> {
    let tables = findings.study(load)?.locks.iter().filter(|table| table.variant == scheme);
    tables.max_by_key(|table| table.threads)
}

/// Requests for the global lock per operation.
fn requests(findings: &Findings, load: &str, scheme: &str) -> Option<f64> {
    let table = table(findings, load, scheme)?;
    Some(table.class(GLOBAL_LOCK)?.total as f64 / table.operations.max(1) as f64)
}

fn share_of_lookups(findings: &Findings, load: &str) -> Option<String> {
    let lock = table(findings, load, REFERENCE)?.class(GLOBAL_LOCK)?;
    let functions = lock.functions.iter().filter(|line| LOOKS_UP.contains(&line.name.as_str()));
    let by_lookups: u64 = functions.map(|line| line.total).sum();
    Some(percent(by_lookups as f64 / lock.total.max(1) as f64))
}

fn percent(share: f64) -> String {
    format!("{:.1}%", 100.0 * share)
}

/// The reduction of requests from one scheme to another.
fn fewer(findings: &Findings, load: &str, scheme: &str) -> Option<String> {
    let (ours, theirs) = (requests(findings, load, scheme)?, requests(findings, load, REFERENCE)?);
    Some(format!("−{}", percent(1.0 - ours / theirs)))
}

fn from_to(
    findings: &Findings,
    load: &str,
    scheme: &str,
    of: fn(&LockTable) -> Option<String>,
) -> Option<String> {
    let (before, after) = (of(table(findings, load, REFERENCE)?)?, of(table(findings, load, scheme)?)?);
    Some(format!("{before} → {after}"))
}

fn contention(table: &LockTable) -> Option<String> {
    Some(format!("{}%", figure(table.class(GLOBAL_LOCK)?.con)))
}

fn utilisation(table: &LockTable) -> Option<String> {
    Some(format!("{}%", figure(table.class(GLOBAL_LOCK)?.util)))
}

fn mean_hold(table: &LockTable) -> Option<String> {
    Some(nanoseconds(table.class(GLOBAL_LOCK)?.hold_mean))
}

fn longest_hold(table: &LockTable) -> Option<String> {
    Some(nanoseconds(table.class(GLOBAL_LOCK)?.hold_max))
}

fn nanoseconds(value: f64) -> String {
    match value {
        _ if value < 1e3 => format!("{value:.0} ns"),
        _ if value < 1e5 => format!("{:.1} µs", value / 1e3),
        _ => format!("{:.0} µs", value / 1e3),
    }
}

fn lock_users(findings: &Findings) -> Vec<Claim> {
    vec![
        Claim {
            place: "2.2",
            what: "dbench, one global lock: acquisitions that are d_lookup's",
            theirs: "84%",
            ours: share_of_lookups(findings, "dbench"),
            why: "The same load, replayed as operations on names alone: no reads or writes lie between them, so the lock is busier, \
                  but that does not change which functions take it.",
        },
        Claim {
            place: "2.1",
            what: "web (SPECweb99), one global lock: acquisitions that are d_lookup's",
            theirs: "85%",
            ours: share_of_lookups(findings, "web"),
            why: "4,433,721 of 5,215,460 there. Here paths are longer by a component, so lookups are more.",
        },
        Claim {
            place: "2.3",
            what: "web (httperf), one global lock: acquisitions that are d_lookup's",
            theirs: "74%",
            ours: share_of_lookups(findings, "httperf"),
            why: "The source's kernel takes the lock once more for each path in link_path_walk, which the scheme here does not need; of the \
                  rest 92% were d_lookup's there.",
        },
        Claim {
            place: "3.4.1",
            what: "dbench, RCU with a separate LRU lock: gain over RCU with the LRU under the global lock",
            theirs: "“practically no gain at all”",
            ours: ratio(findings, "dbench", "6 rcu, lru lock", "5 rcu, lru under global lock"),
            why: "The source has a sentence and no figure. Ours is what a CPU second gets done, scheme 6 by scheme 5.",
        },
    ]
}

fn what_lazy_lru_saves(findings: &Findings) -> Vec<Claim> {
    let ours = table(findings, "dbench", OURS).map(|table| {
        let (_, by_lookups) = table.requests();
        format!("{by_lookups} in {} operations", table.operations)
    });
    vec![
        Claim {
            place: "4.3.1",
            what: "dbench, lazy LRU: acquisitions of dcache_lock",
            theirs: "−84.5%",
            ours: fewer(findings, "dbench", LAZY),
            why: "The source's is 2,330,127 of 15,069,563. What is left here as there is dput, creation and deletion. Each lookup \
                  takes the entry's own d_lock instead, which the source's tables leave out and ours below show.",
        },
        Claim {
            place: "4.3.1",
            what: "dbench, lazy LRU: contention of dcache_lock",
            theirs: "16.5% → 0.95%",
            ours: from_to(findings, "dbench", LAZY, contention),
            why: "8 CPUs there; fewer here, but with nothing to do between two lookups.",
        },
        Claim {
            place: "4.3.1",
            what: "dbench, lazy LRU: utilisation of dcache_lock",
            theirs: "5.3% → 0.89%",
            ours: from_to(findings, "dbench", LAZY, utilisation),
            why: "As above: the source's clients also read and write.",
        },
        Claim {
            place: "4.3.1",
            what: "longest hold of dcache_lock while subtrees are invalidated",
            theirs: "2787 µs → 6516 µs",
            ours: from_to(findings, "invalidate", LAZY, longest_hold),
            why: "The source's are select_parent's and prune_dcache's under dbench; ours come from a load made of them. On a busy \
                  machine the longest hold is that of a thread that lost its CPU.",
        },
        Claim {
            place: "—",
            what: "dbench, Dentree: acquisitions by lookups whose answer is cached",
            theirs: "—",
            ours,
            why: "A walk that hits takes no lock. What is counted are names met for the first time.",
        },
    ]
}

fn web_and_throughput(findings: &Findings) -> Vec<Claim> {
    vec![
        Claim {
            place: "4.4.2",
            what: "web (SPECweb99), fastwalk: acquisitions of dcache_lock",
            theirs: "−69.2%",
            ours: fewer(findings, "web", FASTWALK),
            why: "The source's text says 69.9%; its tables, 1,608,566 of 5,215,460, give 69.2%.",
        },
        Claim {
            place: "4.4.2",
            what: "web (SPECweb99), fastwalk: mean hold of dcache_lock",
            theirs: "2.1 µs → 7.0 µs",
            ours: from_to(findings, "web", FASTWALK, mean_hold),
            why: "The lock is held over the whole path. Today's processors do it in a tenth of the time.",
        },
        Claim {
            place: "4.4.2",
            what: "web (SPECweb99), lazy LRU: acquisitions of dcache_lock",
            theirs: "−87.4%",
            ours: fewer(findings, "web", LAZY),
            why: "657,152 of 5,215,460 there.",
        },
        Claim {
            place: "4.4.1",
            what: "web (SPECweb99), lazy LRU: throughput",
            theirs: "+12%",
            ours: ratio(findings, "web", LAZY, REFERENCE),
            why: "A whole web server on 8 CPUs there; here the name cache alone on as many CPUs as there are, so a gain is larger \
                  and a loss is not hidden by the server's other work.",
        },
        Claim {
            place: "4.5.1",
            what: "dbench, lazy LRU: throughput",
            theirs: "−0.5% (2 CPUs) to +1.7% (8 CPUs)",
            ours: ratio(findings, "dbench", LAZY, REFERENCE),
            why: "The source's clients also read and write files: of their time the name cache is a small part. Here it is all, so \
                  what d_lock costs a single client shows as well.",
        },
    ]
}

/// The ratio of two schemes' throughputs, with the most clients that do not exceed the CPUs.
fn ratio(findings: &Findings, load: &str, scheme: &str, to: &str) -> Option<String> {
    let study = findings.study(load)?;
    let case = study.cases().into_iter().next()?;
    let threads = study.busy_threads(&case, findings.machine.cpus)?;
    let row = |variant: &str, metric| study.find(&case, variant, threads, metric);
    if to == REFERENCE {
        let row = row(&format!("{scheme}/{REFERENCE}"), "ratio")?;
        return Some(format!("×{} [{} – {}]", figure(row.median), figure(row.low), figure(row.high)));
    }
    let rate = |variant| Some(row(variant, EFFICIENCY)?.median);
    Some(format!("×{}", figure(rate(scheme)? / rate(to)?)))
}

fn aligned(findings: &Findings) -> Option<String> {
    let comparison = findings.comparisons.iter().find(|found| found.question == Question::Layout)?;
    let variant = "Together, Aligned, 4 words/Together, Dense, 4 words";
    let row = comparison.find("layout-chain16", variant, "ratio")?;
    Some(format!("×{:.3} [{:.3} – {:.3}]", row.median, row.low, row.high))
}

fn layout_and_prefetch(findings: &Findings) -> Vec<Claim> {
    let of = |question: Question, case: &str, variant: &str| {
        let comparison = findings.comparisons.iter().find(|found| found.question == question)?;
        let row = comparison.ratio(case, variant)?;
        Some(format!("×{:.3} [{:.3} – {:.3}]", row.median, row.low, row.high))
    };
    vec![
        Claim {
            place: "layout mail",
            what: "chains of 16: time with hash link, parent and name on one line, to two lines",
            theirs: "×0.98 of a whole find",
            ours: of(Question::Layout, "layout-chain16", "Together, Aligned, 4 words"),
            why: "Ours is the time of lookups alone, so an effect is not thinned by the rest of find; lines are of 64 bytes, not 32, and \
                  nine in ten of the chain's entries fail on the hash, which lies where the mail moved it to.",
        },
        Claim {
            place: "layout mail, its closing question",
            what: "chains of 16: time with entries on lines of their own (128 bytes), to packed ones (112)",
            theirs: "“would even give better results”, not tried",
            ours: aligned(findings),
            why: "A size that divides the line against one that does not; fields and inline names are the same.",
        },
        Claim {
            place: "prefetch mail",
            what: "chains of 1: time with prefetch, to without",
            theirs: "×1.02 (dbench on ppc64, by throughput)",
            ours: of(Question::Prefetch, "prefetch-chain1", "Together, Aligned, 4 words, prefetch"),
            why: "Another processor: the mail itself expected other results on x86.",
        },
        Claim {
            place: "prefetch mail",
            what: "chains of 16: time with prefetch, to without",
            theirs: "—",
            ours: of(Question::Prefetch, "prefetch-chain16", "Together, Aligned, 4 words, prefetch"),
            why: "Not in the mail; where chains are long prefetch has most to do.",
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_measurements_every_claim_still_stands_with_its_source() {
        let claims = all(&Findings::default());
        assert!(claims.len() > 12);
        assert!(claims.iter().all(|claim| claim.ours.is_none() && !claim.why.is_empty()));
    }
}
