//! The operations that each contender is measured by.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use rustix::fs::{AtFlags, Mode, OFlags, openat, statat, syncfs};
use rustix::io::Errno;

use super::contenders::Mounted;
use super::load::{DIRECTORIES, Load, SEED, entry, failed, open};
use crate::mounts::command;
use crate::unavailable::Unavailable;

const MIB: usize = 1 << 20;
/// Paths of Debian's packages.
const LOADFILE: &str = "/usr/share/dbench/client.txt";
const BONNIE: &str = "/usr/sbin/bonnie++";

/// One kind of operation, and its cost.
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) clients: usize,
    pub(super) metric: &'static str,
    /// Whether there is a target against fuse2fs.
    pub(super) against_fuse2fs: bool,
    /// Nanoseconds per unit of the metric. `None` if it is impossible at this size or on this
    /// machine.
    pub(super) run: fn(&mut Mounted<'_>, &Load) -> Result<Option<f64>, Unavailable>,
}

const fn case(
    name: &'static str,
    metric: &'static str,
    against_fuse2fs: bool,
    run: fn(&mut Mounted<'_>, &Load) -> Result<Option<f64>, Unavailable>,
) -> Case {
    Case { name, clients: 1, metric, against_fuse2fs, run }
}

const fn dbench(
    clients: usize,
    run: fn(&mut Mounted<'_>, &Load) -> Result<Option<f64>, Unavailable>,
) -> Case {
    Case { name: "mount-dbench", clients, metric: "ns/MB", against_fuse2fs: true, run }
}

/// In order: later cases use the files of earlier ones.
pub(super) const CASES: [Case; 15] = [
    case("mount-find-cold", "ns/entry", true, |mounted, load| {
        mounted.make_cold()?;
        find(mounted, load)
    }),
    case("mount-find-warm", "ns/entry", true, find),
    case("mount-first-lookup", "ns/lookup", true, |mounted, load| {
        mounted.make_cold()?;
        stat(mounted, load, 1, true)
    }),
    case("mount-stat-existing", "ns/lookup", true, |mounted, load| {
        stat(mounted, load, load.size.looked_up, true)
    }),
    case("mount-stat-missing", "ns/lookup", true, |mounted, load| {
        stat(mounted, load, load.size.looked_up, false)
    }),
    case("mount-create-one", "ns/file", true, |mounted, load| create(mounted, load, load.size.created, 1)),
    case("mount-create-many", "ns/file", false, |mounted, load| {
        create(mounted, load, load.size.created_each * DIRECTORIES, DIRECTORIES)
    }),
    case("mount-write", "ns/MiB", false, write),
    case("mount-read", "ns/MiB", false, read),
    case("mount-untar", "ns/entry", false, untar),
    case("mount-bonnie", "ns/run", false, bonnie),
    dbench(1, |mounted, load| run_dbench(mounted, load, 1)),
    dbench(2, |mounted, load| run_dbench(mounted, load, 2)),
    dbench(8, |mounted, load| run_dbench(mounted, load, 8)),
    dbench(32, |mounted, load| run_dbench(mounted, load, 32)),
];

/// The nanoseconds of `work`, per unit.
fn timed(units: usize, work: impl FnOnce() -> Result<(), Unavailable>) -> Result<Option<f64>, Unavailable> {
    let start = Instant::now();
    work()?;
    Ok(Some(start.elapsed().as_nanos() as f64 / units as f64))
}

/// find(1) over the tree, with a predicate that needs every inode.
fn find(mounted: &mut Mounted<'_>, load: &Load) -> Result<Option<f64>, Unavailable> {
    let mut find = Command::new("find");
    find.arg(mounted.root().join("tree")).args(["-size", "+1M"]);
    timed(load.tree.len(), || command(&mut find))
}

/// Random names in the large directory; the missing ones differ from existing ones in their last
/// byte.
fn stat(
    mounted: &mut Mounted<'_>,
    load: &Load,
    count: usize,
    there: bool,
) -> Result<Option<f64>, Unavailable> {
    let large = open(&mounted.root().join("large"))?;
    let count = mounted.part_of(count, load.size.fuse2fs_part);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(SEED);
    let names: Vec<String> = (0..count)
        .map(|_| entry(random.random_range(0..load.size.large)) + if there { "" } else { "-" })
        .collect();
    timed(count, || {
        for name in &names {
            match statat(&large, name.as_str(), AtFlags::SYMLINK_NOFOLLOW) {
                Ok(_) if there => {}
                Err(Errno::NOENT) if !there => {}
                other => return Err(Unavailable::because(name, format!("{other:?}"))),
            }
        }
        Ok(())
    })
}

/// Creates `count` files by turns in the large directory or in this many new ones.
fn create(
    mounted: &mut Mounted<'_>,
    load: &Load,
    count: usize,
    directories: usize,
) -> Result<Option<f64>, Unavailable> {
    let count = mounted.part_of(count, load.size.fuse2fs_part);
    let paths: Vec<PathBuf> = match directories {
        1 => vec![mounted.root().join("large")],
        _ => (0..directories).map(|number| mounted.root().join(format!("many/{number}"))).collect(),
    };
    let mut open_directories = Vec::new();
    for path in &paths {
        if directories > 1 {
            std::fs::create_dir(path).map_err(failed("mkdir"))?;
        }
        open_directories.push(open(path)?);
    }
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    timed(count, || {
        for number in 0..count {
            let directory = &open_directories[number % directories];
            openat(directory, format!("created-{number:06}"), flags, Mode::RUSR).map_err(failed("create"))?;
        }
        Ok(())
    })
}

/// One file, synced.
fn write(mounted: &mut Mounted<'_>, load: &Load) -> Result<Option<f64>, Unavailable> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(SEED);
    let mut chunk = vec![0; MIB];
    random.fill(&mut chunk[..]);
    let path = mounted.root().join("streamed");
    timed(load.size.streamed / MIB, || {
        let mut file = File::create(path).map_err(failed("write"))?;
        for _ in 0..load.size.streamed / MIB {
            file.write_all(&chunk).map_err(failed("write"))?;
        }
        file.sync_all().map_err(failed("write"))
    })
}

/// The same file, uncached.
fn read(mounted: &mut Mounted<'_>, load: &Load) -> Result<Option<f64>, Unavailable> {
    if !mounted.root().join("streamed").exists() {
        write(mounted, load)?;
    }
    mounted.make_cold()?;
    let path = mounted.root().join("streamed");
    let mut chunk = vec![0; MIB];
    timed(load.size.streamed / MIB, || {
        let mut file = File::open(path).map_err(failed("read"))?;
        for _ in 0..load.size.streamed / MIB {
            file.read_exact(&mut chunk).map_err(failed("read"))?;
        }
        Ok(())
    })
}

fn untar(mounted: &mut Mounted<'_>, load: &Load) -> Result<Option<f64>, Unavailable> {
    let root = mounted.root().join("untar");
    let mut tar = Command::new("tar");
    tar.arg("-xf").arg(&load.archive).arg("-C").arg(&root);
    timed(load.archived, || {
        command(&mut tar)?;
        syncfs(open(&root)?).map_err(failed("syncfs"))
    })
}

/// bonnie++: 32 MiB by blocks, and 1,024 small files, created, read and removed in two orders.
fn bonnie(mounted: &mut Mounted<'_>, load: &Load) -> Result<Option<f64>, Unavailable> {
    if load.size.dbench_seconds == 0 || !Path::new(BONNIE).exists() {
        return Ok(None);
    }
    let mut bonnie = Command::new(BONNIE);
    bonnie
        .args(["-q", "-f", "-u", "root", "-s", "32", "-r", "16", "-n", "1", "-d"])
        .arg(mounted.root().join("untar"));
    timed(1, || command(&mut bonnie))
}

/// The real dbench with its own loadfile; it reports its throughput in MB/s.
fn run_dbench(mounted: &mut Mounted<'_>, load: &Load, clients: usize) -> Result<Option<f64>, Unavailable> {
    if load.size.dbench_seconds == 0 || !Path::new(LOADFILE).exists() {
        return Ok(None);
    }
    let output = Command::new("dbench")
        .args(["-c", LOADFILE, "-t", &load.size.dbench_seconds.to_string(), "-D"])
        .arg(mounted.root().join("dbench"))
        .arg(clients.to_string())
        .stderr(Stdio::null())
        .output()
        .map_err(failed("dbench"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let throughput = text
        .lines()
        .find_map(|line| line.strip_prefix("Throughput "))
        .and_then(|rest| rest.split(' ').next()?.parse::<f64>().ok())
        .filter(|&throughput| output.status.success() && throughput > 0.0);
    match throughput {
        Some(throughput) => Ok(Some(1e9 / throughput)),
        None => Err(Unavailable::because("dbench", text.trim())),
    }
}
