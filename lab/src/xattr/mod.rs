//! The benchmark of 2016's mbcache repeated: the old design against the new one, and both against
//! the file systems of this machine.
//!
//! - [`old`]: the replaced cache, written from its description; [`store`]: blocks in memory that
//!   the two caches share;
//! - [`mod@bench`]: P clients, F files, V values; [`Ext4`](dentree_ext4::Ext4) called by threads;
//! - [`mounted`]: processes that call `setxattr(2)` through mounts of the kernel, of Dentree, of
//!   fuse2fs, and of a file system whose operations cost nothing.
//!
//! Runs of all variants of a cell alternate, so that other load affects all. A run's figure is the
//! time until its last client is done; a cell's is the mean of its runs, as in the source. After
//! the runs of a cell every block of the two caches has as many users as it counts, and e2fsck
//! finds our images clean.

pub mod bench;
pub mod mounted;
pub mod old;
pub mod store;

use crate::programs::Programs;
use crate::rows::{Heading, Row};
use crate::stats::Sample;
use crate::unavailable::Unavailable;
use bench::{BenchImage, Cell, InProcess, run};
use dentree_mbcache::{BYTES_PER_ENTRY, MbCache};
use mounted::{By, Mounted};
use old::Old;
use std::fmt::Write as _;
use store::Store;

/// The operations of a cache of blocks that can be shared.
pub trait BlockCache: Sync {
    /// The first block with this key that `join` accepts; it is not freed meanwhile.
    fn share(&self, key: u32, join: &dyn Fn(u64) -> Joined) -> Option<u64>;
    /// Adds a block.
    fn insert(&self, key: u32, block: u64);
    /// Ends one use of a block. Returns whether that was the last one and freed the block.
    fn leave(&self, key: u32, block: u64, uses: &dyn Uses) -> bool;
}

/// The result of an attempt to share a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Joined {
    /// The block has another value, no space for another user, or no users.
    No,
    /// Joined, and the block has space for more.
    WithRoom,
    /// Joined, and the block is full.
    Last,
}

/// The result of the end of a use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Left {
    /// Unchanged: the caller is the only user.
    Alone,
    /// Done, and the block, which was full, has space again.
    Full,
    /// Done.
    Others,
}

/// The users of a block.
pub trait Uses {
    /// Removes a user; does nothing if the caller is the only one.
    fn one_less(&self) -> Left;
    /// Frees the block. Returns `false`, without effect, unless the caller is the only user.
    fn end(&self) -> bool;
}

/// The cells to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// P.
    pub clients: Vec<usize>,
    /// F.
    pub files: Vec<usize>,
    /// V.
    pub values: Vec<usize>,
    /// Sets per client and run.
    pub sets: usize,
    /// Sets per client and run of the two caches over blocks in memory, which take a hundredth of
    /// the time.
    pub sets_in_memory: usize,
    /// The most sets of all clients together through FUSE. A longer run is cut short, and its time
    /// scaled.
    pub sets_in_all: usize,
    /// Runs of each cell.
    pub runs: usize,
    /// `dentree`, which mounts, and `dentree-lab`, which runs as the clients. Without them only the
    /// two caches are compared.
    pub programs: Option<Programs>,
}

/// The results.
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// A row per cell and variant.
    pub rows: Vec<Row>,
    /// What was not measured, and why.
    pub skipped: Vec<String>,
    plan: Option<Plan>,
}

const METRIC: &str = "seconds";
/// Sleeps of the old cache's clients on a held entry, per thousand sets.
const WAITS: &str = "waits/1000";
const OLD: &str = "old";
const NEW: &str = "new";
const DENTREE: &str = "dentree";
const KERNEL: &str = "kernel";
const MOUNTED: &str = "mounted";
const FUSE2FS: &str = "fuse2fs";
const LIMIT: &str = "limit";
/// Each table's columns and title.
const TABLES: [(&[&str], &str); 4] = [
    (&[OLD, NEW], "the caches alone, over blocks in memory; clients are threads"),
    (&[KERNEL, DENTREE], "setxattr(2) on the kernel's loop mount by processes, Ext4 called by threads"),
    (&[FUSE2FS, MOUNTED], "setxattr(2) by processes, through the mounts of fuse2fs and of dentree"),
    (
        &[FUSE2FS, LIMIT],
        "and of a file system in memory behind our FUSE: the bound of a server whose operations cost nothing",
    ),
];

impl Plan {
    /// Cells to measure.
    pub fn cells(&self) -> usize {
        self.clients.len() * self.files.len() * self.values.len()
    }
}

/// Measures every cell of a plan; calls `tell` before each.
pub fn measure(plan: &Plan, tell: &dyn Fn(&str)) -> Results {
    let mut results = Results { plan: Some(plan.clone()), ..Results::default() };
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

/// A setter of attributes, with its image.
enum Rival {
    // The image is deleted after its file system is closed.
    InProcess(Box<InProcess>, BenchImage),
    Mounted(By, Mounted, BenchImage),
    Limit(Mounted),
}

/// A rival and its runs.
struct Contender {
    name: &'static str,
    rival: Rival,
    runs: Vec<f64>,
}

impl Contender {
    fn new(name: &'static str, cell: &Cell, programs: &Programs) -> Result<Self, Unavailable> {
        let by = match name {
            KERNEL => Some(By::Kernel),
            FUSE2FS => Some(By::Fuse2fs),
            MOUNTED => Some(By::Dentree),
            _ => None,
        };
        let image = || BenchImage::new(cell.clients, cell.files);
        let rival = match by {
            Some(by) => {
                let image = image()?;
                let mounted = Mounted::new(&image, by, programs)?;
                Rival::Mounted(by, mounted, image)
            }
            None if name == LIMIT => Rival::Limit(Mounted::limit(cell, programs)?),
            None => {
                let image = image()?;
                let setter = InProcess::new(&image, cell.clients, cell.files)?;
                Rival::InProcess(Box::new(setter), image)
            }
        };
        Ok(Contender { name, rival, runs: Vec::new() })
    }

    fn run(&mut self, plan: &Plan, cell: &Cell, round: u64) -> Result<(), Unavailable> {
        let in_all = plan.sets_in_all / cell.clients;
        let short = Cell { sets: in_all.clamp(1, cell.sets), ..*cell };
        let took = match &self.rival {
            Rival::InProcess(setter, _) => run(&**setter, cell, round).as_secs_f64(),
            Rival::Mounted(By::Kernel, mounted, _) => mounted.run(cell, round)?.as_secs_f64(),
            Rival::Mounted(_, mounted, _) | Rival::Limit(mounted) => {
                mounted.run(&short, round)?.as_secs_f64() * cell.sets as f64 / short.sets as f64
            }
        };
        self.runs.push(took);
        Ok(())
    }

    /// The runs, after a check of the image if Dentree wrote it.
    fn end(self) -> Result<Vec<f64>, Unavailable> {
        match self.rival {
            Rival::InProcess(setter, image) => {
                setter.end()?;
                image.check()?;
            }
            Rival::Mounted(by, mounted, image) => {
                mounted.end()?;
                if by == By::Dentree {
                    image.check()?;
                }
            }
            Rival::Limit(mounted) => mounted.end()?,
        }
        Ok(self.runs)
    }
}

fn measure_cell(plan: &Plan, cell: &Cell, results: &mut Results) {
    let mut contenders = Vec::new();
    if let Some(programs) = &plan.programs {
        for name in [DENTREE, KERNEL, MOUNTED, FUSE2FS, LIMIT] {
            match Contender::new(name, cell, programs) {
                Ok(contender) => contenders.push(contender),
                Err(why) => results.skip(name, &why),
            }
        }
    }
    let in_memory = Cell { sets: plan.sets_in_memory, ..*cell };
    let (mut old, mut new, mut waits) = (Vec::new(), Vec::new(), 0);
    for round in 0..plan.runs as u64 {
        let entries = cell.clients * (cell.files + 1);
        let store = Store::new(cell, Old::new(entries));
        old.push(seconds(&store, &in_memory, round));
        waits += store.cache().waits();
        let store = Store::new(cell, MbCache::new(entries * BYTES_PER_ENTRY));
        new.push(seconds(&store, &in_memory, round));
        for contender in std::mem::take(&mut contenders) {
            let mut contender: Contender = contender;
            match contender.run(plan, cell, round) {
                Ok(()) => contenders.push(contender),
                Err(why) => results.skip(contender.name, &why),
            }
        }
    }
    results.note(cell, OLD, old);
    results.note(cell, NEW, new);
    let sets = plan.runs * cell.clients * plan.sets_in_memory;
    let case = case_of(cell);
    let heading = Heading { case: &case, variant: OLD, threads: cell.clients, metric: WAITS, unit: "1" };
    results.rows.push(heading.counted(waits as f64 * 1000.0 / sets as f64));
    for contender in contenders {
        let name = contender.name;
        match contender.end() {
            Ok(runs) => results.note(cell, name, runs),
            Err(why) => results.skip(name, &why),
        }
    }
}

/// The time of a cell's clients. Afterwards every block must count its users right.
fn seconds(store: &Store<impl BlockCache>, cell: &Cell, round: u64) -> f64 {
    let took = run(store, cell, round);
    assert!(store.is_sound(), "a block has other users than files");
    took.as_secs_f64()
}

fn case_of(cell: &Cell) -> String {
    format!("V={},F={}", cell.values, cell.files)
}

impl Results {
    fn skip(&mut self, name: &str, why: &Unavailable) {
        let skipped = format!("{name}: {why}");
        if !self.skipped.contains(&skipped) {
            self.skipped.push(skipped);
        }
    }

    fn note(&mut self, cell: &Cell, variant: &str, runs: Vec<f64>) {
        let case = case_of(cell);
        let heading = Heading { case: &case, variant, threads: cell.clients, metric: METRIC, unit: "s" };
        if let Some(sample) = Sample::new(runs) {
            let mean = sample.mean();
            self.rows.push(Row { median: mean, ..heading.sampled(&sample) });
        }
    }

    /// The tables of the source, with a title each.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let Some(plan) = &self.plan else { return text };
        for (number, (columns, what)) in TABLES.into_iter().enumerate() {
            // The last column is ours.
            if !self.rows.iter().any(|row| columns.last() == Some(&row.variant.as_str())) {
                continue;
            }
            let sets = if number == 0 { plan.sets_in_memory } else { plan.sets };
            // Runs of the first two tables are never cut short.
            let scaled = match number {
                0 | 1 => String::new(),
                _ => format!("; scaled, beyond {} sets of all clients together", plan.sets_in_all),
            };
            let _ = writeln!(
                text,
                "{}: seconds for {sets} sets a client, mean of {} runs; {what}{scaled}",
                columns.join(","),
                plan.runs
            );
            self.table(&mut text, plan, columns);
        }
        self.verdicts(&mut text);
        let waits = self.rows.iter().filter(|row| row.metric == WAITS);
        if let Some(row) = waits.max_by(|one, other| one.median.total_cmp(&other.median)) {
            let cpus = std::thread::available_parallelism().map_or(1, usize::from);
            let _ = writeln!(
                text,
                "{OLD}: at most {:.1} of 1000 sets had to wait for an entry that was held ({},P={}), on {cpus} CPUs",
                row.median, row.case, row.threads
            );
        }
        let (old, new) = (size_of::<old::Entry<1>>(), BYTES_PER_ENTRY);
        let _ = writeln!(
            text,
            "Bytes for each entry: old {old} ({} words) and its places in two tables, new {new} (3 words), all included",
            old / 8
        );
        for skipped in &self.skipped {
            let _ = writeln!(text, "not measured: {skipped}");
        }
        text
    }

    fn table(&self, text: &mut String, plan: &Plan, columns: &[&str]) {
        for values in &plan.values {
            let _ = write!(text, "\nV={values}\nF\\P");
            let clients: Vec<String> = plan.clients.iter().map(|clients| format!(" {clients}")).collect();
            let _ = writeln!(text, "{}", clients.concat());
            for files in &plan.files {
                let case = format!("V={values},F={files}");
                let _ = write!(text, "{files}");
                for &clients in &plan.clients {
                    let show = |row: Option<&Row>| row.map_or("---".to_owned(), |row| show(row.median));
                    let of = |variant: &&str| show(self.row(&case, variant, clients));
                    let cell: Vec<String> = columns.iter().map(of).collect();
                    let _ = write!(text, " {}", cell.join(","));
                }
                text.push('\n');
            }
        }
        text.push('\n');
    }

    /// Compares the columns of each table: the best and the worst cell, and the number of cells in
    /// which the second is slower beyond noise, that is, in all of its runs.
    fn verdicts(&self, text: &mut String) {
        for ([theirs, ours], _) in TABLES.map(|(columns, what)| ([columns[0], columns[1]], what)) {
            let mut ratios: Vec<(f64, &Row, bool)> = Vec::new();
            for row in self.seconds().filter(|row| row.variant == ours) {
                if let Some(other) = self.row(&row.case, theirs, row.threads) {
                    ratios.push((other.median / row.median, row, row.low > other.high));
                }
            }
            ratios.sort_by(|one, other| one.0.total_cmp(&other.0));
            let (Some(worst), Some(best)) = (ratios.first(), ratios.last()) else { continue };
            let slower = ratios.iter().filter(|(_, _, is_slower)| *is_slower).count();
            let cell = |of: &(f64, &Row, bool)| format!("{:.2} ({},P={})", of.0, of.1.case, of.1.threads);
            let _ = writeln!(
                text,
                "{theirs}/{ours}: {} .. {}; {ours} is slower in {slower} of {} cells",
                cell(worst),
                cell(best),
                ratios.len()
            );
        }
    }

    fn seconds(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| row.metric == METRIC)
    }

    fn row(&self, case: &str, variant: &str, clients: usize) -> Option<&Row> {
        self.seconds().find(|row| row.case == case && row.variant == variant && row.threads == clients)
    }
}

/// Seconds as in the source; three digits of short times.
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
    fn both_caches_share_all_that_can_be_shared_and_keep_the_counts() {
        let cell = Cell { clients: 4, files: 20, values: 5, sets: 3000 };
        seconds(&Store::new(&cell, Old::new(200)), &cell, 1);
        seconds(&Store::new(&cell, MbCache::new(200 * BYTES_PER_ENTRY)), &cell, 1);
    }

    #[test]
    fn the_table_has_the_layout_of_the_source() {
        let plan = Plan {
            clients: vec![1, 2],
            files: vec![10],
            values: vec![10],
            sets: 50,
            sets_in_memory: 50,
            sets_in_all: 50,
            runs: 2,
            programs: None,
        };
        let results = measure(&plan, &|_| {});
        let text = results.text();
        let mut lines = text.lines().skip(2);
        assert_eq!(lines.next(), Some("V=10"));
        assert_eq!(lines.next(), Some("F\\P 1 2"));
        let cells: Vec<&str> = lines.next().unwrap().split(' ').collect();
        assert_eq!((cells[0], cells.len()), ("10", 3));
        assert!(cells[1].split(',').count() == 2, "{text}");
        assert_eq!(results.seconds().count(), 4);
    }
}
