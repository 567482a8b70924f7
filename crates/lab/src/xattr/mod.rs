//! The benchmark of 2016's mbcache, again: the old design against the new one, and both against whoever sets attributes on this machine.
//!
//! - [`old`]: the cache that was replaced, written from its description;
//! - [`mod@bench`]: P clients, F files, V values; the caches over blocks in memory, [`Ext4`](dentree_ext4::Ext4) called, the kernel and
//!   fuse2fs mounted.
//!
//! Runs of all variants of a cell alternate, so that what slows the machine slows them all. A run's figure is the time until its
//! last client was done; a cell's the mean of its runs, as in the source.

pub mod bench;
pub mod old;

use crate::mounts::Unavailable;
use crate::rows::{Heading, Row};
use crate::stats::Sample;
use bench::{BenchImage, Cell, InProcess, Mounted, Setter, Store, run};
use dentree_mbcache::{BYTES_PER_ENTRY, MbCache};
use old::Old;
use std::fmt::Write as _;

/// The operations of a cache of blocks that can be shared.
pub trait BlockCache: Sync {
    /// The first block with this key that `wanted` takes; it does not go while that is asked.
    fn share(&self, key: u32, wanted: &dyn Fn(u64) -> bool) -> Option<u64>;
    /// Notes a block.
    fn insert(&self, key: u32, block: u64);
    /// Notes a block no longer; waits for who is asked about it.
    fn forget(&self, key: u32, block: u64);
}

/// Which cells are measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// P.
    pub clients: Vec<usize>,
    /// F.
    pub files: Vec<usize>,
    /// V.
    pub values: Vec<usize>,
    /// How often each client sets an attribute in a run.
    pub sets: usize,
    /// Runs of each cell.
    pub runs: usize,
    /// Whether only the two caches are compared.
    pub caches_alone: bool,
}

/// What came out.
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// A row for each cell and variant.
    pub rows: Vec<Row>,
    /// What was not measured, and why.
    pub skipped: Vec<String>,
    columns: Vec<&'static str>,
    plan: Option<Plan>,
}

const METRIC: &str = "seconds";
const OLD: &str = "old";
const NEW: &str = "new";

impl Plan {
    /// Cells to measure.
    pub fn cells(&self) -> usize {
        self.clients.len() * self.files.len() * self.values.len()
    }
}

/// Measures every cell of a plan; `tell` hears of each.
pub fn measure(plan: &Plan, tell: &dyn Fn(&str)) -> Results {
    let mut results = Results { plan: Some(plan.clone()), columns: vec![OLD, NEW], ..Results::default() };
    for &values in &plan.values {
        for &files in &plan.files {
            for &clients in &plan.clients {
                let cell = Cell { clients, files, values, sets: plan.sets };
                tell(&format!("V={values} F={files} P={clients}"));
                measure_cell(plan, &cell, &mut results);
            }
        }
    }
    results
}

fn measure_cell(plan: &Plan, cell: &Cell, results: &mut Results) {
    let mut seconds: Vec<(&'static str, Vec<f64>)> = Vec::new();
    let mut note = |variant, took: std::time::Duration| {
        let took = took.as_secs_f64();
        match seconds.iter_mut().find(|(known, _)| *known == variant) {
            Some((_, runs)) => runs.push(took),
            None => seconds.push((variant, vec![took])),
        }
    };
    for round in 0..plan.runs as u64 {
        let entries = cell.clients * (cell.files + 1);
        let store = Store::new(cell, Old::new(entries));
        note(OLD, run(&store, cell, round));
        assert!(store.is_sound(), "a block has other users than files");
        let store = Store::new(cell, MbCache::new(entries * BYTES_PER_ENTRY));
        note(NEW, run(&store, cell, round));
        assert!(store.is_sound(), "a block has other users than files");
    }
    if !plan.caches_alone {
        let others: [(&'static str, Option<&[&str]>); 3] = [
            ("dentree", None),
            ("kernel", Some(&["mount", "-o", "loop"])),
            ("fuse2fs", Some(&["fuse2fs", "-o", "fakeroot"])),
        ];
        for (variant, by) in others {
            let measured = measure_image(plan, cell, by, &mut |took| note(variant, took));
            if let Err(why) = measured {
                let told = format!("{variant}: {why}");
                if !results.skipped.contains(&told) {
                    results.skipped.push(told);
                }
            }
        }
    }
    let case = format!("V={},F={}", cell.values, cell.files);
    for (variant, runs) in seconds {
        if !results.columns.contains(&variant) {
            results.columns.push(variant);
        }
        let heading = Heading { case: &case, variant, threads: cell.clients, metric: METRIC, unit: "s" };
        if let Some(sample) = Sample::new(runs) {
            let mean = sample.mean();
            results.rows.push(Row { median: mean, ..heading.sampled(&sample) });
        }
    }
}

/// All runs of who works on an image: in this process, or `by` a mount.
fn measure_image(
    plan: &Plan,
    cell: &Cell,
    by: Option<&[&str]>,
    note: &mut dyn FnMut(std::time::Duration),
) -> Result<(), Unavailable> {
    let image = BenchImage::new(cell.clients, cell.files)?;
    let setter: Box<dyn Setter> = match by {
        None => Box::new(InProcess::new(&image, cell.clients, cell.files)?),
        Some(by) => Box::new(Mounted::new(&image, by)?),
    };
    (0..plan.runs as u64).for_each(|round| note(run(&*setter, cell, round)));
    Ok(())
}

impl Results {
    /// The tables of the source, with what each column is.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let Some(plan) = &self.plan else { return text };
        let _ =
            writeln!(text, "Seconds, mean of {} runs; in each cell: {}", plan.runs, self.columns.join(","));
        for values in &plan.values {
            let _ = write!(text, "\nV={values}\nF\\P");
            let clients: Vec<String> = plan.clients.iter().map(|clients| format!(" {clients}")).collect();
            let _ = writeln!(text, "{}", clients.concat());
            for files in &plan.files {
                let case = format!("V={values},F={files}");
                let _ = write!(text, "{files}");
                for &clients in &plan.clients {
                    let of = |variant: &&str| self.seconds(&case, variant, clients);
                    let cell: Vec<String> = self.columns.iter().map(of).collect();
                    let _ = write!(text, " {}", cell.join(","));
                }
                text.push('\n');
            }
        }
        let (old, new) = (size_of::<old::Entry>(), BYTES_PER_ENTRY);
        let _ = writeln!(
            text,
            "\nBytes for each entry: old {old} ({} words) and its places in two tables, new {new} (3 words), all included",
            old / 8
        );
        for skipped in &self.skipped {
            let _ = writeln!(text, "not measured: {skipped}");
        }
        text
    }

    fn seconds(&self, case: &str, variant: &str, clients: usize) -> String {
        let found =
            self.rows.iter().find(|row| row.case == case && row.variant == variant && row.threads == clients);
        found.map_or("---".to_owned(), |row| show(row.median))
    }
}

/// Seconds as the source has them, and of short times three digits.
fn show(seconds: f64) -> String {
    let digits = match seconds {
        0.1.. => 3,
        0.01.. => 4,
        0.001.. => 5,
        _ => 6,
    };
    format!("{seconds:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_of_the_old_cache_has_thirteen_words() {
        assert_eq!(size_of::<old::Entry>(), 13 * 8);
    }

    #[test]
    fn both_caches_share_all_that_can_be_shared_and_keep_the_counts() {
        let cell = Cell { clients: 4, files: 20, values: 5, sets: 3000 };
        let old = Store::new(&cell, Old::new(200));
        run(&old, &cell, 1);
        assert!(old.is_sound());
        let new = Store::new(&cell, MbCache::new(200 * BYTES_PER_ENTRY));
        run(&new, &cell, 1);
        assert!(new.is_sound());
    }

    #[test]
    fn the_table_has_the_layout_of_the_source() {
        let plan = Plan {
            clients: vec![1, 2],
            files: vec![10],
            values: vec![10],
            sets: 50,
            runs: 2,
            caches_alone: true,
        };
        let results = measure(&plan, &|_| {});
        let text = results.text();
        let mut lines = text.lines().skip(2);
        assert_eq!(lines.next(), Some("V=10"));
        assert_eq!(lines.next(), Some("F\\P 1 2"));
        let cells: Vec<&str> = lines.next().unwrap().split(' ').collect();
        assert_eq!((cells[0], cells.len()), ("10", 3));
        assert!(cells[1].split(',').count() == 2, "{text}");
        assert_eq!(results.rows.len(), 4);
    }
}
