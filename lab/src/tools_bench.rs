//! The benchmark of whole tasks with an image against the tools people use for them: fuse2fs with
//! find, tar and cp, debugfs, e2tools and mke2fs; the kernel's mount, which needs root, beside
//! them.
//!
//! A variant is a shell line, so what is timed can be typed. A task's time is from the start of its
//! line to its end, mount and unmount included. After the first run of a variant a line that
//! belongs to the task prints what came out; the variants must agree. fuse2fs is waited for after
//! its unmount, as its image is complete only then.

use std::fs::{create_dir_all, write};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use tempfile::TempDir;

use crate::harness::Timing;
use crate::leftovers::folder;
use crate::mounts::command;
use crate::outcome::{OURS, Outcome};
use crate::rows::Heading;
use crate::unavailable::Unavailable;

/// Of the time of a tool people use, ours is to be at most this.
const TARGET: f64 = 0.5;
const KERNEL: &str = "kernel";

/// Functions that the lines use.
const PRELUDE: &str = r#"
set -e
with_fuse2fs() {
    fuse2fs -f "$@" "$MNT" >/dev/null 2>&1 &
    until mountpoint -q "$MNT"; do sleep 0.005; done
}
without_fuse2fs() { fusermount3 -u "$MNT"; wait; }
with_kernel() { mount -o loop "$@" "$MNT"; }
without_kernel() { umount "$MNT"; }
"#;

/// A task, and the line by which each tool does it.
struct Task {
    name: &'static str,
    /// No page of the large image is in memory before a run; the programs are.
    cold: bool,
    /// Untimed, before each run.
    prepare: &'static str,
    /// Tool and line, ours first.
    lines: &'static [(&'static str, &'static str)],
    /// Prints the result.
    check: &'static str,
}

const TASKS: [Task; 8] = [
    Task {
        name: "find-name",
        cold: false,
        prepare: "",
        lines: &[
            (OURS, r#""$DENTREE" find "$IMAGE:/" -name '*77*' > "$OUT/list""#),
            (
                "fuse2fs",
                r#"with_fuse2fs -o ro "$IMAGE"; find "$MNT" -name '*77*' > "$OUT/list"; without_fuse2fs"#,
            ),
            (KERNEL, r#"with_kernel -o ro "$IMAGE"; find "$MNT" -name '*77*' > "$OUT/list"; without_kernel"#),
        ],
        check: r#"wc -l < "$OUT/list""#,
    },
    Task {
        name: "find-size",
        cold: false,
        prepare: "",
        lines: &[
            (OURS, r#""$DENTREE" find "$IMAGE:/" -type f -size +4k > "$OUT/list""#),
            (
                "fuse2fs",
                r#"with_fuse2fs -o ro "$IMAGE"; find "$MNT" -type f -size +4k > "$OUT/list"; without_fuse2fs"#,
            ),
            (
                KERNEL,
                r#"with_kernel -o ro "$IMAGE"; find "$MNT" -type f -size +4k > "$OUT/list"; without_kernel"#,
            ),
        ],
        check: r#"wc -l < "$OUT/list""#,
    },
    Task {
        name: "tar",
        cold: false,
        prepare: "",
        lines: &[
            (OURS, r#""$DENTREE" tar c "$IMAGE:/" > "$OUT/tar""#),
            ("fuse2fs", r#"with_fuse2fs -o ro "$IMAGE"; tar -C "$MNT" -cf "$OUT/tar" .; without_fuse2fs"#),
            (KERNEL, r#"with_kernel -o ro "$IMAGE"; tar -C "$MNT" -cf "$OUT/tar" .; without_kernel"#),
        ],
        check: r#"mkdir "$OUT/x"; tar -C "$OUT/x" -xf "$OUT/tar"
            find "$OUT/x" -type f | wc -l; cat "$OUT/x/small/d0"/* "$OUT/x/large" | cksum"#,
    },
    Task {
        name: "copy-out",
        cold: false,
        prepare: "",
        lines: &[
            (OURS, r#""$DENTREE" cp -a "$IMAGE:/small" "$IMAGE:/large" "$OUT""#),
            ("debugfs", r#"debugfs -R "rdump /small /large $OUT" "$IMAGE" >/dev/null 2>&1"#),
            (
                "fuse2fs",
                r#"with_fuse2fs -o ro "$IMAGE"; cp -a "$MNT/small" "$MNT/large" "$OUT"; without_fuse2fs"#,
            ),
            (KERNEL, r#"with_kernel -o ro "$IMAGE"; cp -a "$MNT/small" "$MNT/large" "$OUT"; without_kernel"#),
        ],
        check: r#"find "$OUT" -type f | wc -l; cat "$OUT/small/d0"/* "$OUT/large" | cksum"#,
    },
    Task {
        name: "copy-in",
        cold: false,
        prepare: r#"rm -f "$NEW"; truncate -s 2G "$NEW"; mke2fs -q -F -t ext4 -N 65536 "$NEW""#,
        lines: &[
            (OURS, r#""$DENTREE" cp -a "$TREE/small" "$TREE/large" "$NEW:/""#),
            ("fuse2fs", r#"with_fuse2fs "$NEW"; cp -a "$TREE/small" "$TREE/large" "$MNT"; without_fuse2fs"#),
            (KERNEL, r#"with_kernel "$NEW"; cp -a "$TREE/small" "$TREE/large" "$MNT"; without_kernel"#),
        ],
        check: r#"e2fsck -fn "$NEW" >/dev/null 2>&1
            "$DENTREE" find "$NEW:/" -type f | wc -l; "$DENTREE" cat "$NEW:/large" | cksum"#,
    },
    Task {
        name: "mkfs-from",
        cold: false,
        prepare: r#"rm -f "$NEW""#,
        lines: &[
            (OURS, r#""$DENTREE" mkfs -q --size 1G --from "$MANY" "$NEW""#),
            ("mke2fs", r#"mke2fs -q -F -t ext4 -N 131072 -d "$MANY" "$NEW" 1G"#),
        ],
        check: r#"e2fsck -fn "$NEW" >/dev/null 2>&1
            "$DENTREE" find "$NEW:/" -type f | wc -l; "$DENTREE" cat "$NEW:/d0/77" | cksum"#,
    },
    Task {
        name: "list-one-cold",
        cold: true,
        prepare: "",
        lines: &[
            (OURS, r#""$DENTREE" ls -l "$HUGE:/small/d3/33" > "$OUT/list""#),
            ("e2tools", r#"e2ls -l "$HUGE:/small/d3/33" > "$OUT/list""#),
            ("debugfs", r#"debugfs -R "ls -l /small/d3" "$HUGE" > "$OUT/list" 2>/dev/null"#),
            (
                "fuse2fs",
                r#"with_fuse2fs -o ro "$HUGE"; ls -l "$MNT/small/d3/33" > "$OUT/list"; without_fuse2fs"#,
            ),
            (KERNEL, r#"with_kernel -o ro "$HUGE"; ls -l "$MNT/small/d3/33" > "$OUT/list"; without_kernel"#),
        ],
        check: r#"grep -c '33$' "$OUT/list" | sed 's/[1-9][0-9]*/found/'"#,
    },
    Task {
        name: "copy-one-cold",
        cold: true,
        prepare: "",
        lines: &[
            (OURS, r#""$DENTREE" cp "$HUGE:/small/d3/33" "$OUT/file""#),
            ("e2tools", r#"e2cp "$HUGE:/small/d3/33" "$OUT/file""#),
            ("debugfs", r#"debugfs -R "dump /small/d3/33 $OUT/file" "$HUGE" 2>/dev/null"#),
            ("fuse2fs", r#"with_fuse2fs -o ro "$HUGE"; cp "$MNT/small/d3/33" "$OUT/file"; without_fuse2fs"#),
            (KERNEL, r#"with_kernel -o ro "$HUGE"; cp "$MNT/small/d3/33" "$OUT/file"; without_kernel"#),
        ],
        check: r#"cksum < "$OUT/file""#,
    },
];

/// The size of the work.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Directories of a hundred small files in the tree that is copied.
    pub small: usize,
    /// Bytes of its large file.
    pub large: usize,
    /// Directories of a hundred small files in the tree that a file system is made from.
    pub many: usize,
    /// Runs of each variant.
    pub rounds: usize,
}

/// 40,000 small files and one of 700 MB; 100,000 small files.
pub const FULL: Size = Size { small: 400, large: 700_000_000, many: 1000, rounds: 5 };
/// For tests.
pub const TINY: Size = Size { small: 4, large: 1_000_000, many: 5, rounds: 2 };

/// Runs the benchmark with the given `dentree` program.
///
/// # Errors
/// Needs root, loop devices, FUSE and e2fsprogs. A missing tool is reported and left out.
///
/// # Panics
/// If a variant does something else than the others.
pub fn run(dentree: &Path, size: Size, progress: &dyn Fn(&str)) -> Result<Outcome, Unavailable> {
    progress("making trees and images");
    let bench = Bench::new(dentree, size)?;
    let mut outcome = Outcome::default();
    for task in &TASKS {
        bench.race(task, size.rounds, progress, &mut outcome)?;
    }
    Ok(outcome)
}

struct Bench {
    dentree: PathBuf,
    folder: TempDir,
}

impl Bench {
    fn new(dentree: &Path, size: Size) -> Result<Self, Unavailable> {
        let bench = Self { dentree: dentree.to_owned(), folder: folder()? };
        let at = |name: &str| bench.folder.path().join(name);
        bench.fill(size).map_err(|why| Unavailable::because("cannot make the trees", why))?;
        for (image, size) in [("image", "2G"), ("huge", "10G")] {
            let mut mke2fs = Command::new("mke2fs");
            mke2fs.args(["-q", "-F", "-t", "ext4", "-d"]).arg(at("tree")).arg(at(image)).arg(size);
            command(&mut mke2fs)?;
        }
        Ok(bench)
    }

    fn fill(&self, size: Size) -> io::Result<()> {
        let at = |name: &str| self.folder.path().join(name);
        small_files(&at("tree/small"), size.small)?;
        write(at("tree/large"), content(size.large))?;
        small_files(&at("many"), size.many)?;
        ["out", "mount"].into_iter().try_for_each(|name| create_dir_all(at(name)))
    }

    /// Times one task with all tools that are installed, in turn.
    fn race(
        &self,
        task: &Task,
        rounds: usize,
        progress: &dyn Fn(&str),
        outcome: &mut Outcome,
    ) -> Result<(), Unavailable> {
        let (lines, missing): (Vec<_>, Vec<_>) =
            task.lines.iter().copied().partition(|(tool, _)| is_installed(tool));
        outcome.skipped.extend(missing.iter().map(|(tool, _)| format!("{}: no {tool} here", task.name)));
        let mut timings: Vec<_> =
            lines.iter().map(|&(name, _)| Timing { name, rounds: Vec::new() }).collect();
        let mut result = None;
        for round in 0..rounds {
            for turn in 0..lines.len() {
                let at = (round + turn) % lines.len();
                let (tool, line) = lines[at];
                progress(&format!("{}, round {} of {rounds}: {tool}", task.name, round + 1));
                timings[at].rounds.push(self.time(task, line)?);
                if round == 0 {
                    let printed = self.shell(task.check)?;
                    let first = result.get_or_insert_with(|| printed.clone());
                    assert_eq!(*first, printed, "{}: {tool} and the one before differ", task.name);
                }
            }
        }
        for timing in &timings {
            let heading =
                Heading { case: task.name, variant: timing.name, threads: 1, metric: "ms", unit: "ms" };
            outcome.rows.extend(timing.sample().map(|sample| heading.sampled(&sample)));
        }
        let Some((ours, theirs)) = timings.split_first() else { return Ok(()) };
        for theirs in theirs {
            let target = Some(TARGET).filter(|_| theirs.name != KERNEL);
            outcome.compare(task.name, 1, ours, theirs, target);
        }
        Ok(())
    }

    /// Milliseconds of a run.
    fn time(&self, task: &Task, line: &str) -> Result<f64, Unavailable> {
        self.shell(r#"rm -rf "$OUT"; mkdir "$OUT""#)?;
        self.shell(task.prepare)?;
        // What earlier runs left to write is written now.
        self.shell(if task.cold {
            r#"sync; dd if="$HUGE" iflag=nocache count=0 status=none"#
        } else {
            "sync"
        })?;
        let start = Instant::now();
        self.shell(line)?;
        Ok(start.elapsed().as_secs_f64() * 1e3)
    }

    fn shell(&self, line: &str) -> Result<String, Unavailable> {
        let at = |name: &str| self.folder.path().join(name);
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{PRELUDE}{line}")]);
        shell.env("DENTREE", &self.dentree).env("TREE", at("tree")).env("MANY", at("many"));
        shell.env("IMAGE", at("image")).env("HUGE", at("huge")).env("NEW", at("new"));
        shell.env("OUT", at("out")).env("MNT", at("mount"));
        let output = shell.output().map_err(|why| Unavailable::because("sh", why))?;
        if !output.status.success() {
            return Err(Unavailable::because(line, String::from_utf8_lossy(&output.stderr).trim()));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// Directories `d0`, `d1`, … of a hundred files of up to 8 KiB, some empty.
fn small_files(at: &Path, directories: usize) -> io::Result<()> {
    for directory in 0..directories {
        let at = at.join(format!("d{directory}"));
        create_dir_all(&at)?;
        (0..100).try_for_each(|file| write(at.join(file.to_string()), content(file * 83 % 8192)))?;
    }
    Ok(())
}

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8).collect()
}

fn is_installed(tool: &str) -> bool {
    let program = match tool {
        OURS | KERNEL => return true,
        "e2tools" => "e2ls",
        program => program,
    };
    Command::new(program).arg("-V").output().is_ok()
}
