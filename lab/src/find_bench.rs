//! The benchmark of `dentree find IMAGE:/` against find(1) on the kernel's loop mount of the same
//! image.
//!
//! Both are whole processes, from start to exit, with their output discarded. `find-names` only
//! lists; `find-inodes` tests every file's size, so each inode must be read. Warm: a run right
//! before has filled the caches. Cold: the kernel's page cache, dentries and inodes are dropped
//! before every run of either.
//!
//! Rivals: `kernel-find` is find(1) on an existing mount; `kernel-mount-find` also mounts and
//! unmounts, as a search of an image must.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::harness::Timing;
use crate::mounts::{HiddenMount, Image};
use crate::outcome::{OURS, Outcome};
use crate::rivals::create_below;
use crate::rows::Heading;
use crate::tree::{Shape, Tree};
use crate::unavailable::Unavailable;

const ROUNDS: usize = 7;
const SEED: u64 = 20_05;
const VARIANTS: [&str; 3] = [OURS, "kernel-find", "kernel-mount-find"];
/// Case, and the predicates for both programs.
const CASES: [(&str, &[&str]); 2] = [("find-names", &[]), ("find-inodes", &["-size", "+1M"])];

/// Why there are no figures.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// A prerequisite is missing: root, a loop device, mke2fs, find, the program.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// The results differ: a find that omits entries is not fast.
    #[error("dentree find and find(1) do not find the same: {0}")]
    Differ(String),
}

/// Runs the benchmark with the given `dentree` program on a tree of the given shape.
///
/// # Errors
/// See [`Failure`].
pub fn run(dentree: &Path, shape: Shape, progress: &dyn Fn(&str)) -> Result<Outcome, Failure> {
    progress(&format!("making an image of {} entries", shape.entries()));
    let tree = Tree::generate(shape, SEED);
    let image = Image::ext4(tree.len() * 5 / 4)?;
    create_below(&HiddenMount::image(image.path(), "rw")?, &tree)?;
    let bench = Bench {
        dentree: dentree.to_owned(),
        image: image.path().to_owned(),
        mount: HiddenMount::image(image.path(), "ro")?,
        entries: tree.len(),
    };
    bench.compare_results()?;
    let mut outcome = Outcome::default();
    for (case, tests) in CASES {
        for cold in [false, true] {
            let case = format!("{case}-{}", if cold { "cold" } else { "warm" });
            progress(&case);
            bench.race(&case, tests, cold, &mut outcome)?;
        }
    }
    Ok(outcome)
}

struct Bench {
    dentree: PathBuf,
    image: PathBuf,
    mount: HiddenMount,
    entries: usize,
}

impl Bench {
    fn race(&self, case: &str, tests: &[&str], cold: bool, outcome: &mut Outcome) -> Result<(), Unavailable> {
        let mut timings = VARIANTS.map(|name| Timing { name, rounds: Vec::new() });
        for round in 0..ROUNDS {
            for turn in 0..VARIANTS.len() {
                let at = (round + turn) % VARIANTS.len();
                if cold {
                    drop_caches()?;
                } else {
                    self.find(VARIANTS[at], tests)?;
                }
                let start = Instant::now();
                self.find(VARIANTS[at], tests)?;
                timings[at].rounds.push(start.elapsed().as_nanos() as f64 / self.entries as f64);
            }
        }
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        for timing in &timings {
            let heading = Heading { case, variant: timing.name, threads, metric: "ns/entry", unit: "ns" };
            outcome.rows.extend(timing.sample().map(|sample| heading.sampled(&sample)));
        }
        let [ours, theirs @ ..] = &timings;
        theirs.iter().for_each(|theirs| outcome.compare(case, threads, ours, theirs, Some(1.0)));
        Ok(())
    }

    fn find(&self, variant: &str, tests: &[&str]) -> Result<(), Unavailable> {
        match variant {
            OURS => finish(self.ours(tests).stdout(Stdio::null())),
            "kernel-find" => finish(theirs(&self.mount, tests).stdout(Stdio::null())),
            _ => finish(theirs(&HiddenMount::image(&self.image, "ro")?, tests).stdout(Stdio::null())),
        }
    }

    fn ours(&self, tests: &[&str]) -> Command {
        let mut place = self.image.clone().into_os_string();
        place.push(":/");
        let mut command = Command::new(&self.dentree);
        command.arg("find").arg(place).args(tests);
        command
    }

    /// Both programs must find the same paths.
    fn compare_results(&self) -> Result<(), Failure> {
        let ours = paths(&mut self.ours(&[]), "/")?;
        let theirs = paths(&mut theirs(&self.mount, &[]), "./")?;
        if ours == theirs && ours.len() > self.entries {
            return Ok(());
        }
        let odd =
            ours.symmetric_difference(&theirs).next().map(|path| String::from_utf8_lossy(path).into_owned());
        let why = format!("{} paths and {}; only one of them has {odd:?}", ours.len(), theirs.len());
        Err(Failure::Differ(why))
    }
}

fn theirs(mount: &HiddenMount, tests: &[&str]) -> Command {
    let mut command = Command::new("find");
    command.current_dir(mount.working_folder()).arg(".").args(tests);
    command
}

/// The lines of a find's output below its start, relative to the start.
fn paths(command: &mut Command, place: &str) -> Result<BTreeSet<Vec<u8>>, Unavailable> {
    let output = command.output().map_err(|why| Unavailable::because(&name(command), why))?;
    let lines = output.stdout.split(|&byte| byte == b'\n');
    let below = lines.filter_map(|line| line.strip_prefix(place.as_bytes()));
    Ok(below.filter(|line| !line.is_empty()).map(<[u8]>::to_vec).collect())
}

fn finish(command: &mut Command) -> Result<(), Unavailable> {
    let status = command.status().map_err(|why| Unavailable::because(&name(command), why))?;
    if status.success() { Ok(()) } else { Err(Unavailable::because(&name(command), status)) }
}

fn name(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}

/// Empties the kernel's page cache and its caches of dentries and inodes.
fn drop_caches() -> Result<(), Unavailable> {
    rustix::fs::sync();
    std::fs::write("/proc/sys/vm/drop_caches", "3")
        .map_err(|why| Unavailable::because("cannot drop the kernel's caches (needs root)", why))
}
