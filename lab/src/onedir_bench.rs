//! The benchmark of threads that fill one directory: the library in one process, the kernel's loop
//! mount, and fuse2fs, each on its own image, in turn.
//!
//! Each thread makes its share of empty files with names of its own; the time is from the first
//! one's start to the last one's end. fuse2fs needs a millisecond per file and makes fewer
//! ([`Size::fuse2fs_part`]); the times per file are compared. A further run of ours is metered: its
//! table shows which locks of a directory had waiters.

use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use dentree_blockdev::{Access, FileDevice};
use dentree_ext4::{Ext4, Options};
use dentree_lockmeter::Recording;
use dentree_vfs::{Identity, NewKind, Vfs};
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, openat};

use crate::harness::Timing;
use crate::mounts::{HiddenMount, Image, OpenMount, command};
use crate::outcome::{OURS, Outcome};
use crate::rows::Heading;
use crate::unavailable::Unavailable;

const KERNEL: &str = "kernel";
const FUSE2FS: &str = "fuse2fs";
const CASE: &str = "create-one-directory";
const THREADS: [usize; 4] = [1, 2, 4, 8];

/// The size of the work.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Files of one run, over all threads.
    pub files: usize,
    /// fuse2fs makes one file per this many of the others'.
    pub fuse2fs_part: usize,
    /// Runs of each variant with each number of threads.
    pub rounds: usize,
}

/// The benchmark's size.
pub const FULL: Size = Size { files: 60_000, fuse2fs_part: 30, rounds: 5 };
/// The smallest size, for tests.
pub const TINY: Size = Size { files: 400, fuse2fs_part: 4, rounds: 2 };

/// Runs the benchmark; returns the figures, and the lock tables of ours.
///
/// # Errors
/// Needs root, `mke2fs`, `e2fsck` and loop devices. A missing fuse2fs is reported and left out.
pub fn run(size: Size, progress: &dyn Fn(&str)) -> Result<(Outcome, String), Unavailable> {
    let mut outcome = Outcome::default();
    let mut tables = String::new();
    let has_fuse2fs = Command::new(FUSE2FS).arg("--version").output().is_ok();
    if !has_fuse2fs {
        outcome.skipped.push(format!("{FUSE2FS}: it is not installed"));
    }
    let variants: Vec<_> =
        [OURS, KERNEL, FUSE2FS].into_iter().filter(|&name| has_fuse2fs || name != FUSE2FS).collect();
    for threads in THREADS {
        let mut timings: Vec<_> = variants.iter().map(|&name| Timing { name, rounds: Vec::new() }).collect();
        for round in 0..size.rounds {
            for turn in 0..variants.len() {
                let at = (round + turn) % variants.len();
                progress(&format!(
                    "{threads} threads, round {} of {}: {}",
                    round + 1,
                    size.rounds,
                    variants[at]
                ));
                let part = if variants[at] == FUSE2FS { size.fuse2fs_part } else { 1 };
                timings[at].rounds.push(fill(variants[at], threads, size.files / part)?);
            }
        }
        report(threads, &timings, &mut outcome);
        let recording = Recording::start();
        fill(OURS, threads, size.files)?;
        tables
            .push_str(&format!("Locks of one directory, {threads} threads\n{}\n", recording.finish().text()));
    }
    Ok((outcome, tables))
}

fn report(threads: usize, timings: &[Timing], outcome: &mut Outcome) {
    for timing in timings {
        let heading = Heading { case: CASE, variant: timing.name, threads, metric: "ns/file", unit: "ns" };
        outcome.rows.extend(timing.sample().map(|sample| heading.sampled(&sample)));
    }
    let Some((ours, theirs)) = timings.split_first() else { return };
    theirs.iter().for_each(|theirs| outcome.compare(CASE, threads, ours, theirs, None));
}

/// One run on a new image, which is checked afterwards: nanoseconds per file.
fn fill(variant: &str, threads: usize, files: usize) -> Result<f64, Unavailable> {
    let image = Image::ext4(files * 5 / 4 + 100)?;
    let time = match variant {
        OURS => ours(image.path(), threads, files),
        KERNEL => {
            let mount = HiddenMount::image(image.path(), "rw")?;
            Ok(on_mount(&mount.working_folder(), threads, files))
        }
        _ => {
            let mount = OpenMount::served(Command::new(FUSE2FS).arg("-f").arg(image.path()))?;
            let time = on_mount(mount.root(), threads, files);
            mount.end().map(|()| time)
        }
    }?;
    command(Command::new("e2fsck").arg("-fn").arg(image.path()))?;
    Ok(time.as_nanos() as f64 / files as f64)
}

fn ours(image: &Path, threads: usize, files: usize) -> Result<Duration, Unavailable> {
    let failed = |why: &dyn std::fmt::Display| Unavailable::because(OURS, why);
    let device = FileDevice::open(image, Access::ReadWrite).map_err(|why| failed(&why))?;
    let options = Options { writable: true, ..Options::default() };
    let fs = Ext4::open(Arc::new(device), options).map_err(|why| failed(&why))?;
    let vfs = Vfs::new(fs).map_err(|why| failed(&why))?;
    let user = Identity::Superuser;
    let dir = vfs.create(&user, vfs.root(), b"dir", NewKind::Directory, 0o755).map_err(|why| failed(&why))?;
    let time = together(threads, files, |name| {
        vfs.create(&user, &dir, name.as_bytes(), NewKind::Regular, 0o644).is_ok()
    });
    drop(dir);
    let fs = vfs.into_fs().ok_or_else(|| failed(&"an inode is still held"))?;
    fs.close().map_err(|why| failed(&why))?;
    Ok(time)
}

fn on_mount(root: &Path, threads: usize, files: usize) -> Duration {
    let path = root.join("dir");
    std::fs::create_dir(&path).expect("the mount is writable");
    let dir = openat(CWD, &path, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).expect("it was just made");
    together(threads, files, |name| {
        mknodat(dir.as_fd(), name, FileType::RegularFile, Mode::from_raw_mode(0o644), 0).is_ok()
    })
}

/// Makes the files with all threads at once.
fn together(threads: usize, files: usize, make: impl Fn(&str) -> bool + Sync) -> Duration {
    let barrier = Barrier::new(threads);
    let times: Vec<(Instant, Instant)> = std::thread::scope(|scope| {
        let work = |thread| {
            let (barrier, make) = (&barrier, &make);
            scope.spawn(move || {
                barrier.wait();
                let start = Instant::now();
                for number in (thread..files).step_by(threads) {
                    assert!(make(&format!("a file of one directory {number:07}")), "file {number}");
                }
                (start, Instant::now())
            })
        };
        let all: Vec<_> = (0..threads).map(work).collect();
        all.into_iter().map(|thread| thread.join().expect("no thread panics")).collect()
    });
    let start = times.iter().map(|&(start, _)| start).min();
    let end = times.iter().map(|&(_, end)| end).max();
    start.zip(end).map_or(Duration::ZERO, |(start, end)| end - start)
}
