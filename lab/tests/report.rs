//! The lab's page from a short run, in a browser: light, dark, on a phone, without console output.

#[path = "../../crates/http/tests/chromium/mod.rs"]
#[allow(dead_code, reason = "this page has nothing to type into")]
mod chromium;

use std::time::Duration;

use chromium::Browser;
use dentree_lab::passes::Passes;
use dentree_lab::placement::{self, Question};
use dentree_lab::report::compare::agreement;
use dentree_lab::report::machine::Machine;
use dentree_lab::report::{Findings, write};
use dentree_lab::schemes::SCHEMES;
use dentree_lab::workloads::change::Change;
use dentree_lab::workloads::study::pass;
use dentree_lab::workloads::{Plan, Shape, study};

/// Everything that a page can show, in about a second.
fn findings() -> Findings {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let shapes: Vec<_> = [1, 2, 3].map(|threads| Shape { threads, cpus }).to_vec();
    let plan = Plan {
        schemes: SCHEMES.to_vec(),
        watched: shapes[..2].to_vec(),
        shapes,
        slice: Duration::from_millis(2),
        heads: None,
    };
    let placed = |question| {
        let plan = placement::Plan {
            question,
            entries: 300,
            chains: vec![1, 16],
            all_layouts: true,
            counted: Vec::new(),
        };
        placement::compare(
            &plan,
            &Passes::here(3, |number, tell| placement::pass(&plan, number, tell)),
            None,
            &|_| (),
        )
    };
    let passes = Passes::here(2, |number, tell| pass(&Change::Churn, &plan, number, tell));
    Findings {
        machine: Machine::this(),
        studies: vec![study(&Change::Churn, &plan, &passes, &|_| ())],
        comparisons: vec![placed(Question::Layout), placed(Question::Prefetch)],
        mkfiles: None,
        attributes: None,
        skipped: vec!["dbench: its loadfile".to_owned()],
    }
}

/// The least contrast, by WCAG, of any text against its background.
const CONTRAST: &str = r#"
    (() => {
        const parse = (color) => color.match(/[\d.]+/g).map(Number);
        const light = (color) => {
            const [r, g, b] = parse(color).map((v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
        };
        const ground = (node) => {
            const color = getComputedStyle(node).backgroundColor;
            return parse(color)[3] === 0 && node.parentElement ? ground(node.parentElement) : color;
        };
        const least = (nodes, ink) => Math.min(...[...document.querySelectorAll(nodes)].map((node) => {
            const [a, b] = [light(getComputedStyle(node)[ink]), light(ground(node))].sort((a, b) => b - a);
            return (a + 0.05) / (b + 0.05);
        }));
        return Math.min(least("h1, h2, h3, a, p, th, td, span, li, summary, pre, figcaption", "color"), least("svg text", "fill"));
    })()"#;

#[test]
fn the_page_is_readable_and_quiet_in_a_browser() {
    let folder = tempfile::tempdir().expect("a folder");
    let findings = findings();
    let page = write(folder.path(), &findings).expect("written");
    let found = agreement(folder.path(), folder.path()).expect("rows");
    assert!(found.compared > 50 && found.apart.is_empty(), "a run agrees with itself: {}", found.text());
    // Regression: the lock of scheme 9's timer was in every other scheme's table, too.
    let ours = findings.studies[0].locks.iter().filter(|table| table.variant == "12 dentree");
    assert!(
        ours.into_iter().all(|table| table.class("dcache_lock").is_none()),
        "a lock that it does not have"
    );
    let locks = std::fs::read_to_string(folder.path().join("locks.jsonl")).expect("lock tables");
    assert_eq!(locks.lines().count(), 2 * SCHEMES.len());

    let Some(mut browser) = Browser::start() else { return };
    let mut grounds = Vec::new();
    for (scheme, width) in [("light", 1100), ("dark", 1100), ("light", 360), ("dark", 360)] {
        browser.show(scheme, width);
        browser.open(&format!("file://{}", page.display()));
        browser.picture(&format!("report-{scheme}-{width}"));
        browser.evaluate("document.querySelector('svg').scrollIntoView()");
        browser.picture(&format!("report-charts-{scheme}-{width}"));
        browser.evaluate("document.querySelectorAll('details').forEach(node => node.open = true)");
        let contrast = browser.evaluate(CONTRAST).as_f64().expect("a number");
        assert!(contrast >= 4.5, "{scheme}: {contrast}");
        let overflow = browser.evaluate("document.documentElement.scrollWidth - innerWidth");
        assert_eq!(overflow, 0, "the page scrolls sideways at {width}");
        grounds.push(browser.evaluate("getComputedStyle(document.body).backgroundColor"));
    }
    assert_ne!(grounds[0], grounds[1], "dark is light");
    // Throughput and latencies of two roles, and the model.
    assert_eq!(browser.evaluate("document.querySelectorAll('svg').length"), 5);
    assert_eq!(browser.complaints, [""; 0]);
}
