//! The page: one HTML file, readable on a phone, in light and in dark, without script.

use std::fmt::Write;

use super::Findings;
use super::charts::{Axis, Ink, Series, dark_style, lines, short};
use super::claims;
use super::html::{escape, time};
use super::model::{CPUS_MAX, Law};
use super::sources;
use crate::placement::{Comparison, MISSES, Question};
use crate::rows::{Row, figure};
use crate::workloads::Study;
use crate::workloads::study::{REFERENCE, THROUGHPUT};

const STYLE: &str = include_str!("style.css");

/// The whole page.
pub fn html(findings: &Findings) -> String {
    let mut body = String::new();
    head(&mut body, findings);
    claims_table(&mut body, findings);
    sources::section(&mut body, findings);
    for study in &findings.studies {
        load(&mut body, study, findings);
    }
    for comparison in &findings.comparisons {
        placement(&mut body, comparison);
    }
    findings.mkfiles.iter().for_each(|results| large_directories(&mut body, results));
    findings.attributes.iter().for_each(|results| attributes(&mut body, results));
    memory(&mut body, findings);
    left_out(&mut body, findings);
    let dark = format!("@media (prefers-color-scheme:dark){{{}{}}}", dark_style(), chips(Ink::dark_hex));
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\"><link rel=\"icon\" href=\"data:,\">\
         <title>How name caches are locked</title><style>{STYLE}{}{dark}</style></head><body><main>{body}</main></body></html>\n",
        chips(Ink::light_hex),
    )
}

/// The classes of the chips for lines, by scheme.
fn chips(colour: fn(Ink) -> String) -> String {
    ["1", "2", "8", "11", "12", "map"]
        .map(|scheme| format!(".chip-{scheme}{{background:{}}}", colour(Ink::of(scheme))))
        .concat()
}

fn chip(scheme: &str) -> &'static str {
    match scheme.split(' ').next() {
        Some("1") => "1",
        Some("8") => "8",
        Some("11") => "11",
        Some("12") => "12",
        Some(number) if number.parse::<u32>().is_ok() => "2",
        _ => "map",
    }
}

fn head(out: &mut String, findings: &Findings) {
    let _ = write!(
        out,
        "<header><h1>How name caches are locked</h1>\
         <p class=\"lead\">The 2002 study of the directory entry cache and the mails of 2005 on its layout, run again by \
         <code>dentree-lab all</code> with today’s designs and rival crates in the same tables.</p>\
         <p>Measured on {}.</p>",
        escape(&findings.machine.text())
    );
    if let Some(caveat) = findings.machine.caveat() {
        let _ = write!(
            out,
            "<p class=\"note\"><strong>What cannot be concluded here.</strong> {}</p>",
            escape(&caveat)
        );
    }
    out.push_str(
        "<p>The figures are medians of passes, each a process of its own that builds everything and runs all variants in turn. Ratios \
         are of operations per second of the clients’ CPU time, \
         so that other users of the machine do not count; ranges in brackets are their 95% intervals over passes. The data: <a href=\"rows.jsonl\">rows.jsonl</a>, <a href=\"locks.jsonl\">locks.jsonl</a>.</p></header>",
    );
}

fn claims_table(out: &mut String, findings: &Findings) {
    out.push_str(
        "<section><h2>The sources’ findings, and ours</h2><div class=\"wide\"><table class=\"claims\"><thead><tr>\
         <th>Finding</th><th>Source</th><th>Here</th><th>What differs, and why</th></tr></thead><tbody>",
    );
    for claim in claims::all(findings) {
        let ours = claim
            .ours
            .as_deref()
            .map_or("<span class=\"dim\">not measured in this run</span>".into(), escape);
        let _ = write!(
            out,
            "<tr><td>{}<span class=\"dim\"> {}</span></td><td class=\"fig\">{}</td><td class=\"fig ours\">{ours}</td><td>{}</td></tr>",
            escape(claim.what),
            escape(claim.place),
            escape(claim.theirs),
            escape(claim.why)
        );
    }
    out.push_str("</tbody></table></div></section>");
}

fn load(out: &mut String, study: &Study, findings: &Findings) {
    let _ =
        write!(out, "<section><h2 id=\"{0}\">{0}</h2><p>{1}</p>", escape(&study.load), about(&study.load));
    let cases = study.cases();
    if !cases.is_empty() {
        legend(out);
    }
    for case in cases.iter().filter(|case| study.cpus_of(case).is_none()) {
        let _ = write!(out, "<h3>{}: throughput</h3>", escape(case));
        throughput_chart(out, study, case);
        throughput_table(out, study, case, findings.machine.cpus);
    }
    by_cpus(out, study, findings.machine.cpus);
    latencies(out, study);
    locks(out, study);
    model(out, study, findings);
    for skipped in &study.skipped {
        let _ = write!(out, "<p class=\"note\">Not measured: {}</p>", escape(skipped));
    }
    out.push_str("</section>");
}

/// A load's description, for readers.
fn about(load: &str) -> &'static str {
    match load {
        "dbench" => {
            "dbench’s own loadfile, line by line, as operations on names: opens, stats, creations, renames, deletions. Each client \
             works in a directory of its own, on a thread of its own."
        }
        "web" => {
            "SPECweb99’s file set and mix: directories by Zipf’s law, four classes of nine files, each request one path."
        }
        "httperf" => {
            "The same requests at a fixed rate, as httperf sends them: throughput is fixed, so what counts is how busy \
             the locks are."
        }
        "find" => {
            "A warm walk that looks up every entry of a tree by name, through a hash table made too small."
        }
        "build" => {
            "What a compiler does to a name cache, recorded from a build: include paths, most of them negative."
        }
        "churn" => {
            "One client creates, renames and deletes files in the directories that all others look up in."
        }
        "invalidate" => {
            "One client frees all unused entries below one directory after another, and prunes, while the others look up: \
             readers’ throughput, and how long locks are held for it."
        }
        _ => "",
    }
}

fn legend(out: &mut String) {
    out.push_str("<p class=\"legend\">");
    let known = [
        ("1", "1 global lock"),
        ("8", "8 lazy LRU, the study’s choice"),
        ("11", "11 today’s kernel"),
        ("12", "12 Dentree"),
        ("map", "crates’ maps"),
        ("2", "the study’s others"),
    ];
    for (class, name) in known {
        let _ = write!(out, "<span><i class=\"chip chip-{class}\"></i>{name}</span>");
    }
    out.push_str("</p>");
}

fn figure_of(out: &mut String, svg: Option<String>, caption: &str) {
    if let Some(svg) = svg {
        let _ =
            write!(out, "<figure><div class=\"wide\">{svg}</div><figcaption>{caption}</figcaption></figure>");
    }
}

fn throughput_chart(out: &mut String, study: &Study, case: &str) {
    let series = study.schemes(case).into_iter().map(|scheme| {
        let rate = |threads| Some((threads as f64, study.find(case, scheme, threads, THROUGHPUT)?.median));
        Series { ink: Ink::of(scheme), points: study.threads(case).into_iter().filter_map(rate).collect() }
    });
    let series: Vec<_> = series.collect();
    figure_of(
        out,
        lines(&Axis::numbers("clients"), "operations a second", &series, true),
        "More is better. Both axes count in powers.",
    );
}

fn throughput_table(out: &mut String, study: &Study, case: &str, cpus: usize) {
    let threads = study.threads(case);
    let busy = study.busy_threads(case, cpus).unwrap_or(1);
    out.push_str("<div class=\"wide\"><table><thead><tr><th>Scheme</th>");
    for count in &threads {
        let _ = write!(out, "<th class=\"fig\">{count} client{}</th>", if *count == 1 { "" } else { "s" });
    }
    let _ = write!(
        out,
        "<th class=\"fig\">to scheme 1, {busy} client{}</th></tr></thead><tbody>",
        if busy == 1 { "" } else { "s" }
    );
    for scheme in study.schemes(case) {
        let _ = write!(out, "<tr>{}", name(scheme));
        for count in &threads {
            let rate = study.find(case, scheme, *count, THROUGHPUT).map(|row| short(row.median));
            let _ = write!(out, "<td class=\"fig\">{}</td>", rate.unwrap_or_default());
        }
        let ratio = study.find(case, &format!("{scheme}/{REFERENCE}"), busy, "ratio");
        let _ = write!(out, "<td class=\"fig\">{}</td></tr>", ratio.map(interval).unwrap_or_default());
    }
    out.push_str("</tbody></table></div>");
}

/// The same number of clients on 1, 2, 4, … CPUs, if it was measured.
fn by_cpus(out: &mut String, study: &Study, all: usize) {
    let cases = study.cases();
    let mut fewer: Vec<_> = cases.iter().filter_map(|case| Some((study.cpus_of(case)?, case))).collect();
    let Some(threads) = fewer.first().and_then(|(_, case)| study.threads(case).into_iter().max()) else {
        return;
    };
    let whole = cases.iter().find(|case| study.cpus_of(case).is_none());
    fewer.extend(whole.map(|case| (all, case)));
    fewer.sort_unstable();
    let _ = write!(
        out,
        "<h3>{}: throughput of {threads} clients by CPUs</h3><div class=\"wide\"><table><thead><tr><th>Scheme</th>",
        escape(&study.load)
    );
    for (cpus, _) in &fewer {
        let _ = write!(out, "<th class=\"fig\">{cpus} CPU{}</th>", if *cpus == 1 { "" } else { "s" });
    }
    out.push_str("</tr></thead><tbody>");
    for scheme in whole.map(|case| study.schemes(case)).unwrap_or_default() {
        let _ = write!(out, "<tr>{}", name(scheme));
        for (_, case) in &fewer {
            let rate = study.find(case, scheme, threads, THROUGHPUT).map(|row| short(row.median));
            let _ = write!(out, "<td class=\"fig\">{}</td>", rate.unwrap_or_default());
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></div>");
}

fn name(scheme: &str) -> String {
    format!("<th scope=\"row\"><i class=\"chip chip-{}\"></i>{}</th>", chip(scheme), escape(scheme))
}

fn interval(row: &Row) -> String {
    format!("×{} <span class=\"dim\">[{} – {}]</span>", figure(row.median), figure(row.low), figure(row.high))
}

const PERCENTILES: [&str; 5] = ["p50", "p90", "p99", "p99.9", "max"];

fn latencies(out: &mut String, study: &Study) {
    for case in study.cases() {
        let watched = |row: &&Row| row.case == case && row.metric == "p50";
        let Some(threads) = study.rows.iter().filter(watched).map(|row| row.threads).max() else { continue };
        let schemes = study.schemes(&case);
        let series: Vec<_> = schemes
            .iter()
            .map(|scheme| {
                let points = PERCENTILES.iter().zip(0..).filter_map(|(metric, at)| {
                    Some((f64::from(at), study.find(&case, scheme, threads, metric)?.median))
                });
                Series { ink: Ink::of(scheme), points: points.collect() }
            })
            .collect();
        let _ = write!(out, "<h3>{}: latency, {threads} clients</h3>", escape(&case));
        let axis = Axis { title: "percentile of operations".into(), words: PERCENTILES.to_vec() };
        figure_of(
            out,
            lines(&axis, "nanoseconds", &series, true),
            "Less is better. Each operation timed, the clock’s own 20 to 50 ns included.",
        );
        out.push_str("<details><summary>Latencies in figures</summary><div class=\"wide\"><table><thead><tr><th>Scheme</th>");
        for metric in PERCENTILES {
            let _ = write!(out, "<th class=\"fig\">{metric}</th>");
        }
        out.push_str("</tr></thead><tbody>");
        for scheme in schemes {
            let _ = write!(out, "<tr>{}", name(scheme));
            for metric in PERCENTILES {
                let value = study.find(&case, scheme, threads, metric).map(|row| time(row.median));
                let _ = write!(out, "<td class=\"fig\">{}</td>", value.unwrap_or_default());
            }
            out.push_str("</tr>");
        }
        out.push_str("</tbody></table></div></details>");
    }
}

fn locks(out: &mut String, study: &Study) {
    let Some(threads) = study.locks.iter().map(|table| table.threads).max() else { return };
    let _ = write!(
        out,
        "<h3>{}: locks, {threads} clients</h3><p>Requests per operation, and the class that each scheme takes most: all columns are \
         lockmeter’s. Below, each scheme’s whole table in the sources’ layout.</p><div class=\"wide\"><table><thead><tr><th>Scheme</th>\
         <th class=\"fig\">requests</th><th class=\"fig\">by lookups</th><th>most taken</th><th class=\"fig\">UTIL</th>\
         <th class=\"fig\">CON</th><th class=\"fig\">HOLD mean (max)</th><th class=\"fig\">WAIT mean (max)</th></tr></thead><tbody>",
        escape(&study.load)
    );
    let watched = || study.locks.iter().filter(|table| table.threads == threads);
    for table in watched() {
        let (all, by_lookups) = table.requests();
        let a = |count: u64| figure(count as f64 / table.operations.max(1) as f64);
        let _ = write!(
            out,
            "<tr>{}<td class=\"fig\">{}</td><td class=\"fig\">{}</td>",
            name(&table.variant),
            a(all),
            a(by_lookups)
        );
        match table.busiest() {
            Some(lock) if lock.hold_max > 0.0 => {
                let _ = write!(
                    out,
                    "<td>{}</td><td class=\"fig\">{}%</td><td class=\"fig\">{}%</td><td class=\"fig\">{} ({})</td><td class=\"fig\">{} ({})</td></tr>",
                    escape(&lock.name),
                    figure(lock.util),
                    figure(lock.con),
                    time(lock.hold_mean),
                    time(lock.hold_max),
                    time(lock.wait_mean),
                    time(lock.wait_max)
                );
            }
            Some(lock) => {
                let _ = write!(out, "<td colspan=\"5\">{}</td></tr>", escape(&lock.name));
            }
            None => out.push_str("<td colspan=\"5\">none</td></tr>"),
        }
    }
    out.push_str("</tbody></table></div>");
    for table in watched() {
        let _ = write!(
            out,
            "<details><summary>{}</summary><pre>{}</pre></details>",
            escape(&table.variant),
            escape(table.text.trim_end())
        );
    }
}

fn model(out: &mut String, study: &Study, findings: &Findings) {
    let Some(case) = study.cases().into_iter().next() else { return };
    let laws: Vec<_> = study
        .schemes(&case)
        .into_iter()
        .filter_map(|scheme| Some((scheme, Law::of(study, scheme, findings.machine.cpus)?)))
        .collect();
    if laws.is_empty() {
        return;
    }
    let steps =
        || std::iter::successors(Some(1.0_f64), |n| Some(n * 2.0)).take_while(|n| *n <= CPUS_MAX as f64);
    let series: Vec<_> = laws
        .iter()
        .map(|(scheme, law)| Series {
            ink: Ink::of(scheme),
            points: steps().map(|n| (n, law.throughput(n))).collect(),
        })
        .collect();
    let _ = write!(
        out,
        "<div class=\"model\"><h3>{}: a model of larger machines</h3><p><strong>This is not a measurement.</strong> The universal \
         scalability law with the serial share σ measured (the share of a lone client’s time in which it holds a lock that exists once) and the cost \
         of company κ fitted to what clients get done on this machine’s {} CPUs; with two, κ rests on one point and everything beyond on κ. Locks of single entries and buckets count as free, so \
         curves of schemes that lock entries flatter them.</p>",
        escape(&study.load),
        findings.machine.cpus
    );
    figure_of(
        out,
        lines(&Axis::numbers("CPUs (model)"), "operations a second (model)", &series, false),
        "Model, not measured.",
    );
    out.push_str(
        "<div class=\"wide\"><table><thead><tr><th>Scheme</th><th class=\"fig\">σ</th><th class=\"fig\">κ</th>\
         <th class=\"fig\">128 CPUs to one (model)</th></tr></thead><tbody>",
    );
    for (scheme, law) in laws {
        let _ = write!(
            out,
            "<tr>{}<td class=\"fig\">{:.4}</td><td class=\"fig\">{:.4}</td><td class=\"fig\">×{}</td></tr>",
            name(scheme),
            law.sigma,
            law.kappa,
            figure(law.throughput(CPUS_MAX as f64) / law.lambda)
        );
    }
    out.push_str("</tbody></table></div></div>");
}

fn attributes(out: &mut String, results: &crate::xattr::Results) {
    let _ = write!(
        out,
        "<section><h2 id=\"xattr\">xattr</h2><p>P clients set an attribute of F files each, to one of V values: the cache of attribute \
         blocks of before 2016, ours, and the file systems of this machine.</p><div class=\"wide\"><pre>{}</pre></div></section>",
        escape(&results.text())
    );
}

fn large_directories(out: &mut String, results: &crate::mkfiles::Results) {
    let _ = write!(
        out,
        "<section><h2 id=\"mkfiles\">mkfiles</h2><p>Files made in many large directories, with blocks of their indexes read ahead and not, as \
         a patch of 2011 proposed for a load that fell from 2,000 creates a second to 25.</p><div class=\"wide\"><pre>{}</pre></div></section>",
        escape(&results.text())
    );
}

fn placement(out: &mut String, comparison: &Comparison) {
    let (title, text) = match comparison.question {
        Question::Layout => (
            "layout",
            "Scheme 8 with its entries’ fields in different places: hash link a line away from parent and name (“Apart”, before the mail), \
             beside them (“Together”, after it), or what is read and what is written in two arrays (“Split”); entries on lines of their own \
             (“Aligned”) or packed (“Dense”); 2, 4 or 8 words of name inline. A warm walk that looks up every entry by name.",
        ),
        Question::Prefetch => (
            "prefetch",
            "The same walk with and without fetching the next entry of a chain while one is compared.",
        ),
    };
    let _ = write!(out, "<section><h2 id=\"{title}\">{title}</h2><p>{text}</p>");
    for case in &comparison.cases {
        let _ = write!(
            out,
            "<h3>Chains of {} on average</h3><div class=\"wide\"><table><thead><tr><th>Variant</th><th class=\"fig\">elements</th>\
             <th class=\"fig\">mean, ns</th><th class=\"fig\">variance</th><th class=\"fig\">std dev</th>\
             <th class=\"fig\">time to reference</th><th class=\"fig\">lines missed</th></tr></thead><tbody>",
            case.chain
        );
        for (variant, sample) in &case.variants {
            let ratio = comparison.ratio(&case.name, variant).map(|row| {
                format!("×{:.3} <span class=\"dim\">[{:.3} – {:.3}]</span>", row.median, row.low, row.high)
            });
            let misses = comparison.find(&case.name, variant, MISSES).map(|row| figure(row.median));
            let _ = write!(
                out,
                "<tr><th scope=\"row\">{}</th><td class=\"fig\">{}</td><td class=\"fig\">{:.2}</td><td class=\"fig\">{:.3}</td>\
                 <td class=\"fig\">{:.3}</td><td class=\"fig\">{}</td><td class=\"fig\">{}</td></tr>",
                escape(variant),
                sample.n(),
                sample.mean(),
                sample.variance(),
                sample.std_dev(),
                ratio.unwrap_or_else(|| "reference".into()),
                misses.unwrap_or_default()
            );
        }
        out.push_str("</tbody></table></div>");
    }
    for skipped in &comparison.skipped {
        let _ = write!(out, "<p class=\"note\">Not measured: {}</p>", escape(skipped));
    }
    out.push_str("</section>");
}

fn memory(out: &mut String, findings: &Findings) {
    let of = |row: &&Row| row.metric == "bytes/entry";
    let mut seen: Vec<&str> = Vec::new();
    let mut lines = String::new();
    for row in findings.studies.iter().flat_map(|study| &study.rows).filter(of) {
        if !seen.contains(&row.variant.as_str()) {
            seen.push(&row.variant);
            let _ =
                write!(lines, "<tr>{}<td class=\"fig\">{}</td></tr>", name(&row.variant), figure(row.median));
        }
    }
    if !lines.is_empty() {
        let _ = write!(
            out,
            "<section><h2>Memory per entry</h2><p>Bytes of an entry, without names that do not fit it. The schemes’ is their entry, to which \
             a chain’s head of 4 bytes comes, or the map’s own storage; Dentree’s is all that its cache uses, by the entries in it.</p>\
             <div class=\"wide\"><table><thead><tr><th>Scheme</th><th class=\"fig\">bytes</th></tr></thead><tbody>{lines}</tbody></table></div></section>"
        );
    }
}

fn left_out(out: &mut String, findings: &Findings) {
    if findings.skipped.is_empty() {
        return;
    }
    out.push_str("<section><h2>Not measured</h2><ul>");
    for skipped in &findings.skipped {
        let _ = write!(out, "<li>{}</li>", escape(skipped));
    }
    out.push_str("</ul></section>");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_nothing_still_says_what_the_sources_found() {
        let page = html(&Findings::default());
        assert!(page.starts_with("<!doctype html>") && page.contains("84%"));
        assert!(!page.contains("<script") && !page.contains("src="), "it needs nothing else");
    }

    #[test]
    fn names_cannot_end_the_markup() {
        let findings = Findings { skipped: vec!["<b>&\"".into()], ..Findings::default() };
        assert!(html(&findings).contains("<li>&lt;b&gt;&amp;&quot;</li>"));
    }
}
