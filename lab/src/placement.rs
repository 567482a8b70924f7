//! The placement of an entry's fields, the length of its chains, and prefetch: the mails of 2005.
//!
//! The mails judged a layout by `find` over a hash table that is too small, and prefetch by fifty
//! to a hundred runs, with mean, variance and standard deviation. Here a warm walk looks up every
//! entry of a tree by name, directory by directory, as find does, on scheme 8; the number of heads
//! gives chains the wanted length. Each run is a pass ([`passes`](crate::passes)): the trees of all
//! variants are built and walked in turns, and compared by paired ratios.

use std::ffi::OsStr;
use std::num::NonZeroU64;

use crate::harness::pin_to_cpu;
use crate::passes::{Event, Figure, Listener, Passes, shuffled};
use crate::rows::{Heading, Row, figure};
use crate::schemes::{Config, Dentry, Inode, LAYOUTS, Scheme, Variant};
use crate::stats::{Sample, paired_ratio};
use crate::unavailable::Unavailable;
use crate::valgrind::{Counts, count_per_walk};
use crate::workloads::thread_time;

/// Files per directory.
const FAN: usize = 64;

/// The placement before the mail: hash link and key two lines apart.
pub const BEFORE: &str = "Apart, Aligned, 4 words";

/// The question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// Which placement, alignment and inline length is fastest?
    Layout,
    /// Does prefetching the next entry of a chain help?
    Prefetch,
}

impl Question {
    /// The prefix of its cases.
    pub fn name(self) -> &'static str {
        match self {
            Self::Layout => "layout",
            Self::Prefetch => "prefetch",
        }
    }
}

/// The comparison's size.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The question.
    pub question: Question,
    /// Entries of the tree.
    pub entries: usize,
    /// Mean lengths of chains; each is a case.
    pub chains: Vec<usize>,
    /// All placements, or only those of four inline words on aligned entries.
    pub all_layouts: bool,
    /// Chain lengths of which cache misses are counted, which takes seconds per placement.
    pub counted: Vec<usize>,
}

impl Plan {
    /// Progress reports of one pass.
    pub fn walks(&self) -> usize {
        self.chains.len() * self.variants().len()
    }

    /// Progress reports of the counts of misses.
    pub fn counts_to_make(&self) -> usize {
        self.counts().count() * self.counted.len()
    }

    fn case(&self, chain: usize) -> String {
        format!("{}-chain{chain}", self.question.name())
    }

    /// The placements whose misses are counted. Prefetch is not simulated: for that question the
    /// misses are what prefetch could avoid.
    fn counts(&self) -> impl Iterator<Item = Placed> {
        self.variants().into_iter().filter(|placed| self.question == Question::Layout || !placed.prefetch)
    }

    fn variants(&self) -> Vec<Placed> {
        let layouts = LAYOUTS
            .into_iter()
            .filter(|layout| self.all_layouts || layout.name.ends_with("Aligned, 4 words"));
        let prefetch: &[bool] = if self.question == Question::Layout { &[true] } else { &[false, true] };
        layouts
            .flat_map(|layout| prefetch.iter().map(move |prefetch| Placed { layout, prefetch: *prefetch }))
            .collect()
    }
}

#[derive(Clone, Copy, Debug)]
struct Placed {
    layout: Variant,
    prefetch: bool,
}

impl Placed {
    fn name(&self, question: Question) -> String {
        match question {
            Question::Layout => self.layout.name.to_owned(),
            Question::Prefetch if self.prefetch => format!("{}, prefetch", self.layout.name),
            Question::Prefetch => format!("{}, no prefetch", self.layout.name),
        }
    }

    /// The placement that the mails compare this one with.
    fn reference(&self, question: Question) -> String {
        match question {
            Question::Layout => BEFORE.to_owned(),
            Question::Prefetch => Self { prefetch: false, ..*self }.name(question),
        }
    }
}

/// The results.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The question.
    pub question: Question,
    /// All figures.
    pub rows: Vec<Row>,
    /// Each case's variants, in order.
    pub cases: Vec<Case>,
    /// What was not counted, and why.
    pub skipped: Vec<String>,
}

/// One chain length.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its name in rows.
    pub name: String,
    /// The mean length of a chain.
    pub chain: usize,
    /// Each variant's nanoseconds per lookup.
    pub variants: Vec<(String, Sample)>,
}

impl Comparison {
    /// A row of a case.
    pub fn find(&self, case: &str, variant: &str, metric: &str) -> Option<&Row> {
        self.rows
            .iter()
            .find(|row| (row.case.as_str(), row.variant.as_str(), row.metric) == (case, variant, metric))
    }

    /// The ratio of a variant to its reference.
    pub fn ratio(&self, case: &str, variant: &str) -> Option<&Row> {
        let reference = match self.question {
            Question::Layout => BEFORE.to_owned(),
            Question::Prefetch => variant.replace(", prefetch", ", no prefetch"),
        };
        self.find(case, &format!("{variant}/{reference}"), "ratio")
    }

    /// The mails' output, and the ratio with its interval.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for case in &self.cases {
            text.push_str(&format!(
                "{}, chains of {} on average: ns a lookup\n",
                self.question.name(),
                case.chain
            ));
            for (variant, sample) in &case.variants {
                text.push_str(&format!(
                    "  {variant:38} # elements: {}, mean {:.6}, variance {:.6}, std dev {:.6}",
                    sample.n(),
                    sample.mean(),
                    sample.variance(),
                    sample.std_dev()
                ));
                if let Some(ratio) = self.ratio(&case.name, variant) {
                    let [median, low, high] =
                        [ratio.median, ratio.low, ratio.high].map(|value| format!("{value:.4}"));
                    text.push_str(&format!("  ratio {median} [{low} .. {high}]"));
                }
                if let Some(misses) = self.find(&case.name, variant, MISSES) {
                    text.push_str(&format!("  misses {}", figure(misses.median)));
                }
                text.push('\n');
            }
            text.push('\n');
        }
        self.skipped.iter().for_each(|skipped| text.push_str(&format!("not measured: {skipped}\n")));
        text
    }
}

/// The metric of counted misses: lines per lookup that were not in the last-level cache.
pub const MISSES: &str = "misses/lookup";

/// A tree in a cache, and the names to look up.
struct Warm {
    cache: Box<dyn Scheme>,
    directories: Vec<Dentry>,
    entries: usize,
}

/// The name of a directory's file `number`: lengths as in source trees, some of them longer than 16
/// bytes.
fn file(number: usize) -> String {
    let tails = ["Makefile", "inode.c", "super_operations.h", "Kconfig", "transaction.rs", "README"];
    format!("{number}-{}", tails[number % tails.len()])
}

impl Warm {
    fn new(placed: Placed, entries: usize, chain: usize) -> Self {
        let config =
            Config { entries: entries + 2, heads: (entries / chain).max(1), prefetch: placed.prefetch };
        let cache = (placed.layout.build)(config);
        let inode = |number: usize| NonZeroU64::new(number as u64 + 2).map(Inode);
        let mut warm = Self { cache, directories: Vec::new(), entries: 0 };
        while warm.entries + FAN < entries {
            let name = format!("directory{}", warm.directories.len());
            let directory = warm.cache.add(Dentry::ROOT, name.as_bytes(), inode(warm.entries)).expect("room");
            for number in 0..FAN {
                let made = warm.cache.add(directory, file(number).as_bytes(), inode(warm.entries + number));
                warm.cache.dput(made.expect("room"));
            }
            warm.directories.push(directory);
            warm.entries += FAN + 1;
        }
        warm
    }

    /// Looks up `lookups` names; nanoseconds of this thread's CPU time for one, which excludes
    /// other processes.
    fn timed_walk(&self, names: &[String], lookups: usize) -> f64 {
        let start = thread_time();
        self.walk(names, lookups);
        thread_time().saturating_sub(start).as_nanos() as f64 / lookups as f64
    }

    /// Looks up `lookups` names. Reads no clock: under valgrind, whose clock is not the kernel's,
    /// that can end the program.
    fn walk(&self, names: &[String], lookups: usize) {
        let mut left = lookups;
        for directory in self.directories.iter().cycle() {
            for name in names.iter().take(left) {
                let found = self.cache.lookup(*directory, name.as_bytes());
                self.cache.dput(found.expect("everything is cached"));
            }
            left = left.saturating_sub(names.len());
            if left == 0 {
                break;
            }
        }
    }
}

fn names() -> Vec<String> {
    (0..FAN).map(file).collect()
}

/// Warm walks per pass, of which it takes the mean.
const WALKS: u32 = 3;

/// The metric of times.
const TIME: &str = "ns/lookup";

/// One pass: for each chain length, the trees of all variants are built in the pass's order, and
/// walked in turns.
pub fn pass(plan: &Plan, number: usize, tell: &mut Listener<'_>) {
    let (names, variants) = (names(), plan.variants());
    for chain in &plan.chains {
        let trees = shuffled(&variants, number, |placed| Warm::new(*placed, plan.entries, *chain));
        let mut times = vec![0.0; variants.len()];
        // On one CPU: a migration would move a ratio. The pin ends with this thread.
        std::thread::scope(|scope| {
            let (names, times) = (&names, &mut times);
            scope.spawn(|| {
                pin_to_cpu(0);
                trees.iter().for_each(|tree| tree.built.walk(names, plan.entries));
                for _ in 0..WALKS {
                    for tree in &trees {
                        times[tree.at] += tree.built.timed_walk(names, plan.entries) / f64::from(WALKS);
                    }
                }
            });
        });
        for (placed, value) in variants.iter().zip(times) {
            let (case, variant) = (plan.case(*chain), placed.name(plan.question));
            tell(Event::Doing(format!("{case}: {variant}")));
            tell(Event::Found(Figure { case, variant, threads: 1, metric: TIME.to_owned(), value }));
        }
    }
}

/// Compares the passes' figures. `progress` is called before every count of misses. `program`, run
/// with `once` and its arguments, does what [`once`] does: it runs under valgrind.
pub fn compare(
    plan: &Plan,
    passes: &Passes,
    program: Option<&OsStr>,
    progress: &(dyn Fn(&str) + Sync),
) -> Comparison {
    let mut out =
        Comparison { question: plan.question, rows: Vec::new(), cases: Vec::new(), skipped: Vec::new() };
    for chain in &plan.chains {
        time(plan, *chain, passes, &mut out);
    }
    for chain in &plan.counted {
        count(plan, *chain, program, &mut out, progress);
    }
    out
}

fn time(plan: &Plan, chain: usize, passes: &Passes, out: &mut Comparison) {
    let case = plan.case(chain);
    let series = |variant: &str| passes.series(&case, variant, 1, TIME);
    let against = |variant: &str, reference: &str| {
        let ratio = paired_ratio(&series(variant)?, &series(reference)?)?;
        let variant = format!("{variant}/{reference}");
        let heading = Heading { case: &case, variant: &variant, threads: 1, metric: "ratio", unit: "1" };
        Some(heading.ratio(&ratio))
    };
    let mut samples = Vec::new();
    for placed in plan.variants() {
        let variant = placed.name(plan.question);
        let Some(sample) = series(&variant).and_then(Sample::new) else { continue };
        let heading = |metric| Heading { case: &case, variant: &variant, threads: 1, metric, unit: "ns" };
        out.rows.push(heading(TIME).sampled(&sample));
        out.rows.extend(
            [("mean", sample.mean()), ("std dev", sample.std_dev())].map(|(m, v)| heading(m).counted(v)),
        );
        out.rows.push(Heading { unit: "ns²", ..heading("variance") }.counted(sample.variance()));
        let reference = placed.reference(plan.question);
        if reference != variant {
            out.rows.extend(against(&variant, &reference));
        }
        samples.push((variant, sample));
    }
    if plan.question == Question::Layout {
        // The mail's closing question: the gain of aligned entries, everything else equal.
        let aligned = LAYOUTS.iter().map(|layout| layout.name).filter(|name| name.contains("Aligned"));
        out.rows.extend(aligned.filter_map(|name| against(name, &name.replace("Aligned", "Dense"))));
    }
    out.cases.push(Case { name: case, chain, variants: samples });
}

/// Entries of the tree whose misses are counted: twice the simulated last-level cache.
const COUNTED_ENTRIES: usize = 16_384;
const COUNTED_LOOKUPS: usize = 20_000;

fn count(
    plan: &Plan,
    chain: usize,
    program: Option<&OsStr>,
    out: &mut Comparison,
    progress: &(dyn Fn(&str) + Sync),
) {
    let Some(program) = program else { return };
    let case = plan.case(chain);
    for placed in plan.counts() {
        let variant = placed.name(plan.question);
        progress(&format!("{case}, misses: {variant}"));
        match count_one(program, placed.layout.name, chain) {
            Ok(counts) => {
                let heading =
                    Heading { case: &case, variant: &variant, threads: 1, metric: MISSES, unit: "lines" };
                out.rows.push(heading.counted(counts.last_level_misses));
            }
            Err(why) => {
                out.skipped.push(format!("{case}, cache misses: {why}"));
                return;
            }
        }
    }
}

fn count_one(program: &OsStr, layout: &str, chain: usize) -> Result<Counts, Unavailable> {
    count_per_walk(program, &["once", layout, &chain.to_string()], COUNTED_LOOKUPS)
}

/// The program under valgrind: `lookups` lookups in a tree of one layout and chain length.
///
/// # Errors
/// If there is no such layout.
pub fn once(layout: &str, chain: usize, lookups: usize) -> Result<(), Unavailable> {
    let found = LAYOUTS.into_iter().find(|known| known.name == layout);
    let layout = found.ok_or_else(|| Unavailable::because(layout, "no such layout"))?;
    let warm = Warm::new(Placed { layout, prefetch: false }, COUNTED_ENTRIES, chain.max(1));
    warm.walk(&names(), lookups);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(question: Question) -> Plan {
        Plan { question, entries: 600, chains: vec![1, 16], all_layouts: false, counted: Vec::new() }
    }

    fn compared(plan: &Plan) -> Comparison {
        compare(plan, &Passes::here(3, |number, tell| pass(plan, number, tell)), None, &|_| ())
    }

    #[test]
    fn layouts_are_compared_with_the_one_before_the_mail() {
        let out = compared(&plan(Question::Layout));

        assert_eq!(out.cases.len(), 2);
        assert!(out.ratio("layout-chain16", "Together, Aligned, 4 words").is_some());
        assert!(out.ratio("layout-chain16", BEFORE).is_none(), "it is the reference");
        assert!(out.text().contains("# elements: 3, mean "), "{}", out.text());
    }

    #[test]
    fn prefetch_is_compared_with_the_same_layout_without() {
        let out = compared(&plan(Question::Prefetch));
        let ratio = out.ratio("prefetch-chain1", "Apart, Aligned, 4 words, prefetch").expect("a ratio");
        assert_eq!(ratio.variant, "Apart, Aligned, 4 words, prefetch/Apart, Aligned, 4 words, no prefetch");
    }

    #[test]
    fn an_unknown_layout_is_refused() {
        assert!(once("Upside down", 1, 10).is_err());
        assert!(once(BEFORE, 16, 10).is_ok());
    }
}
