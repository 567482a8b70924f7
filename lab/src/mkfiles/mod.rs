//! Files made in many large directories on a slow device: the case for index read-ahead, proposed
//! in 2011.
//!
//! The source had 8,192 directories that grew to 2,000 files each, in random order. While their
//! blocks stayed in memory it made 2,000 files per second; afterwards 25, and every create waited
//! for reads of single blocks. Here there are fewer directories of the same length, and a buffer
//! cache smaller in proportion, as a share of the directories' blocks. The source does not say how
//! large its cache was, so there are several.
//!
//! - `load`: the image, the device with slow reads, and the creates;
//! - [`Results`]: creates per second by mode of read-ahead, the reads per create, and the limit of
//!   a mode's gain.
//!
//! In a file, without latency, sizes of the buffer LRU (`BH_LRU_SIZE`, 8 in the source, 16 for 8 to
//! 10% more) are compared, too.
//!
//! # Limits
//! Read-ahead does not speed up the device; it submits earlier. A create with it takes at least the
//! largest of three times, which bounds the gain:
//! - *directories*: each is waited for once;
//! - *queue*: blocks read ahead are reads, too, as many at a time as the device serves;
//! - *processor*: the time of a create that waits for nothing.

mod limit;
mod load;

use std::fmt::Write as _;
use std::time::Duration;

use dentree_ext4::{BhLruSize, DxReadAhead};

use limit::Arithmetic;
pub use load::Size;

use crate::passes::{Event, Figure, Listener, Passes};
use crate::rows::{Heading, Row, figure};
use crate::stats::{Sample, paired_ratio};
use crate::unavailable::Unavailable;
use load::{Counts, Image, Setting, run};

const NAME: &str = "mkfiles";
const RATE: &str = "creates/s";
const FIRST: &str = "first access";
const BLOCKS: &str = "blocks/directory";
/// Metrics of one create.
const READS: &str = "reads/create";
const MISSES: &str = "misses/create";
const LATE: &str = "waits for read-ahead/create";
const AHEAD: &str = "blocks ahead/create";
const USED: &str = "blocks ahead used/create";
const WASTED: &str = "blocks ahead wasted/create";
const RECENT: &str = "buffers from the LRU/create";
const COUNTS: [&str; 7] = [READS, MISSES, LATE, AHEAD, USED, WASTED, RECENT];

const OFF: &str = "off";
const MODES: [(&str, DxReadAhead); 3] =
    [(OFF, DxReadAhead::Off), ("whole", DxReadAhead::Whole), ("window", DxReadAhead::Window)];
/// Sizes of the buffer LRU, the source's first; without read-ahead, as there.
const LRU_SIZES: [usize; 3] = [8, 16, 32];

/// Options to open the image with.
#[derive(Clone, Debug, PartialEq)]
struct Variant {
    name: String,
    mode: DxReadAhead,
    lru: BhLruSize,
    /// The variant of comparison.
    reference: String,
}

/// The variants of a case.
fn variants(latency: Option<Duration>) -> Vec<Variant> {
    let variant = |name: String, mode, lru, reference: &str| Variant {
        name,
        mode,
        lru,
        reference: reference.to_owned(),
    };
    let modes = MODES.map(|(name, mode)| variant(name.to_owned(), mode, BhLruSize::OFF, OFF));
    let sizes = LRU_SIZES.iter().filter(|_| latency.is_none()).filter_map(|size| {
        let reference = if *size == LRU_SIZES[0] { OFF.to_owned() } else { lru(LRU_SIZES[0]) };
        Some(variant(lru(*size), DxReadAhead::Off, BhLruSize::new(*size)?, &reference))
    });
    modes.into_iter().chain(sizes).collect()
}

fn lru(size: usize) -> String {
    format!("off, LRU {size}")
}

/// The plan of the measurement.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The size of the load.
    pub size: Size,
    /// Latencies of a read, each a case; `None`: an image in a file.
    pub latencies: Vec<Option<Duration>>,
    /// Sizes of the buffer cache, as shares of all directories' blocks; each a case.
    pub caches: Vec<f64>,
    /// Reads that the slow device serves at a time.
    pub depth: usize,
}

impl Plan {
    /// Progress reports of one pass.
    pub fn steps(&self) -> usize {
        self.cases().map(|(latency, _)| variants(latency).len()).sum()
    }

    fn cases(&self) -> impl Iterator<Item = (Option<Duration>, f64)> {
        self.latencies.iter().flat_map(|latency| self.caches.iter().map(|cache| (*latency, *cache)))
    }
}

fn device(latency: Option<Duration>) -> String {
    latency.map_or_else(|| "file".to_owned(), |latency| format!("{}ms", latency.as_secs_f64() * 1e3))
}

fn case(latency: Option<Duration>, cache: f64) -> String {
    format!("{NAME}-{}-cache{cache}", device(latency))
}

/// One pass: an image of its own, and every mode on every device and cache, in an order that
/// changes with the pass.
///
/// # Errors
/// If there is no memory or no file for the image.
pub fn pass(plan: &Plan, number: usize, tell: &mut Listener<'_>) -> Result<(), Unavailable> {
    let mut found = |case: &str, variant: &str, metric: &str, value: f64| {
        let [case, variant, metric] = [case, variant, metric].map(str::to_owned);
        tell(Event::Found(Figure { case, variant, threads: 1, metric, value }));
    };
    let image = Image::new(plan.size, number as u64)?;
    found(NAME, "image", BLOCKS, image.blocks);
    for (latency, cache) in plan.cases() {
        let variants = variants(latency);
        for turn in 0..variants.len() {
            let Variant { name: variant, mode, lru, .. } = &variants[(number + turn) % variants.len()];
            let cache_bytes = (image.directory_bytes() * cache) as usize;
            let setting = Setting { latency, depth: plan.depth, cache_bytes, mode: *mode, lru: *lru };
            let made = run(&image, setting, number as u64)?;
            let case = case(latency, cache);
            let creates = plan.size.creates as f64;
            found(&case, variant, RATE, creates / made.time.as_secs_f64());
            found(&case, variant, FIRST, made.first.as_secs_f64() * 1e3);
            let Counts { reads, misses, late, ahead, used, wasted, recent } = made.counts;
            let counts: [u64; COUNTS.len()] = [reads, misses, late, ahead, used, wasted, recent];
            for (metric, count) in COUNTS.into_iter().zip(counts) {
                found(&case, variant, metric, count as f64 / creates);
            }
        }
    }
    Ok(())
}

/// The results.
#[derive(Clone, Debug)]
pub struct Results {
    /// All figures.
    pub rows: Vec<Row>,
    plan: Plan,
}

impl Results {
    /// The results of all passes.
    pub fn new(plan: &Plan, passes: &Passes) -> Self {
        let mut rows = Vec::new();
        let mut row = |case: &str, variant: &str, metric, unit| {
            let sample = passes.series(case, variant, 1, metric).and_then(Sample::new);
            let heading = Heading { case, variant, threads: 1, metric, unit };
            rows.extend(sample.map(|sample| heading.sampled(&sample)));
        };
        row(NAME, "image", BLOCKS, "blocks");
        for (latency, cache) in plan.cases() {
            let case = case(latency, cache);
            for Variant { name, .. } in variants(latency) {
                row(&case, &name, RATE, "creates/s");
                row(&case, &name, FIRST, "ms");
                COUNTS.into_iter().for_each(|metric| row(&case, &name, metric, "1"));
            }
        }
        for (latency, cache) in plan.cases() {
            let case = case(latency, cache);
            let rates = |variant: &str| passes.series(&case, variant, 1, RATE);
            for Variant { name, reference, .. } in variants(latency) {
                let both = rates(&name).filter(|_| name != reference).zip(rates(&reference));
                let ratio = both.and_then(|(ours, theirs)| paired_ratio(&ours, &theirs));
                let variant = format!("{name}/{reference}");
                let heading =
                    Heading { case: &case, variant: &variant, threads: 1, metric: "ratio", unit: "1" };
                rows.extend(ratio.map(|ratio| heading.ratio(&ratio)));
            }
        }
        Self { rows, plan: plan.clone() }
    }

    fn find(&self, case: &str, variant: &str, metric: &str) -> Option<&Row> {
        let is =
            |row: &&Row| (row.case.as_str(), row.variant.as_str(), row.metric) == (case, variant, metric);
        self.rows.iter().find(is)
    }

    fn median(&self, case: &str, variant: &str, metric: &str) -> Option<f64> {
        Some(self.find(case, variant, metric)?.median)
    }

    /// The limit of `variant`'s gain.
    fn arithmetic(&self, latency: Option<Duration>, cache: f64, variant: &str) -> Option<Arithmetic> {
        let latency_ms = latency?.as_secs_f64() * 1e3;
        let case_name = case(latency, cache);
        let at = |variant, metric| self.median(&case_name, variant, metric);
        let size = self.plan.size;
        Some(Arithmetic {
            latency_ms,
            depth: self.plan.depth,
            waits_off: at(OFF, MISSES)? + at(OFF, LATE)?,
            requests: at(variant, READS)?,
            waits: at(variant, MISSES)? + at(variant, LATE)?,
            directories: size.directories.min(size.creates) as f64 / size.creates as f64,
            processor_ms: 1e3 / self.median(&case(None, cache), OFF, RATE)?,
        })
    }

    /// One table per case.
    pub fn text(&self) -> String {
        let size = self.plan.size;
        let blocks = self.median(NAME, "image", BLOCKS).unwrap_or(0.0);
        let mut text = format!(
            "{NAME}: {} directories of {} names ({blocks:.1} blocks each{}), {} files made in directories drawn at random.\n\
             Reads, and blocks read ahead, are for one create. A slow device takes {} reads at a time.\n",
            size.directories,
            size.files,
            if size.laid_out { ", in a row" } else { "" },
            size.creates,
            self.plan.depth
        );
        for (latency, cache) in self.plan.cases() {
            let case = case(latency, cache);
            let _ = writeln!(
                text,
                "\n{case}: {}, cache for {cache} of the directories' blocks\n  {:12}{:>10}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>14}",
                latency.map_or_else(
                    || "an image in a file".to_owned(),
                    |_| format!("a read takes {}", device(latency))
                ),
                "",
                RATE,
                "reads",
                "missed",
                "late",
                "ahead",
                "used",
                "wasted",
                "LRU",
                "first access",
            );
            for variant in variants(latency) {
                self.line(&mut text, latency, cache, &variant);
            }
        }
        text
    }

    fn line(&self, text: &mut String, latency: Option<Duration>, cache: f64, variant: &Variant) {
        let Variant { name: variant, reference, .. } = variant;
        let case = case(latency, cache);
        let Some(rate) = self.median(&case, variant, RATE) else { return };
        let _ = write!(text, "  {variant:12}{:>10}", figure(rate));
        for metric in COUNTS {
            let _ = write!(text, "{:>9}", figure(self.median(&case, variant, metric).unwrap_or(0.0)));
        }
        let first = self.median(&case, variant, FIRST).unwrap_or(0.0);
        let _ = write!(text, "{:>11} ms", figure(first));
        if let Some(ratio) = self.find(&case, &format!("{variant}/{reference}"), "ratio") {
            let [middle, low, high] = [ratio.median, ratio.low, ratio.high].map(figure);
            let _ = write!(text, "  ×{middle} [{low} .. {high}] of {reference}");
        }
        text.push('\n');
        if let Some(arithmetic) = self.arithmetic(latency, cache, variant).filter(|_| variant != OFF) {
            let _ = writeln!(text, "               {arithmetic}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        let size = Size { directories: 4, files: 1500, creates: 40, laid_out: false };
        Plan { size, latencies: vec![None, Some(Duration::from_millis(1))], caches: vec![4.0], depth: 32 }
    }

    #[test]
    fn every_mode_makes_the_files_and_read_ahead_is_counted() {
        let plan = plan();
        let passes = Passes::here(2, |number, tell| pass(&plan, number, tell).expect("an image in memory"));
        let results = Results::new(&plan, &passes);
        let at = |variant, metric| results.median("mkfiles-1ms-cache4", variant, metric).expect(metric);
        // Bitmaps and inode tables are read ahead in every mode.
        let beside = at(OFF, AHEAD);
        assert!(at("whole", AHEAD) > beside && at("window", AHEAD) > beside, "{}", results.text());
        assert!(at("whole", MISSES) + at("whole", LATE) < at(OFF, MISSES), "{}", results.text());
        assert!(at("whole", USED) > 0.0 && at(OFF, FIRST) >= 1.0);
        assert!(results.find("mkfiles-1ms-cache4", "whole/off", "ratio").is_some());
        let slow = Some(Duration::from_millis(1));
        let (bound, _) = results.arithmetic(slow, 4.0, "whole").expect("a slow device has a limit").bound();
        assert!(bound >= 1.0, "{bound}");
        assert!(results.arithmetic(None, 4.0, "whole").is_none());
        let recent = |size| results.median("mkfiles-file-cache4", &lru(size), RECENT).expect("a size");
        assert!(recent(16) > 0.0, "{}", results.text());
        assert!(results.find("mkfiles-file-cache4", "off, LRU 16/off, LRU 8", "ratio").is_some());
        assert!(results.text().contains(": at most ×"), "{}", results.text());
    }
}
