//! `dentree demo`: shows the main commands on an image of its own.

mod make;

use crate::fanout::{self, Order};
use crate::host::{self, os_str};
use crate::image::{Image, SUPERUSER, Session};
use crate::path::join;
use crate::report::{Problem, Status, Stop};
use crate::tree::Tree;
use dentree_vfs::{FileType, Ino, WalkOptions};
use std::fs;
use std::hint::black_box;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Duration of each measurement.
const MEASURE: Duration = Duration::from_millis(300);

pub(crate) fn run(session: &Session) -> Result<(), Stop> {
    let failed = |error: io::Error| Problem::new("demo", Status::Failed, error.to_string());
    let dir = tempfile::Builder::new().prefix("dentree-demo-").tempdir().map_err(failed)?;
    let file = dir.path().join("demo.img");
    let began = Instant::now();
    let things = make::make(&file).map_err(failed)?;
    let made = began.elapsed();
    let image = session.open(file.as_os_str())?;
    let mut out = io::stdout().lock();
    writeln!(out, "An ext4 image of {} MiB in {}\n", make::MIB, file.display())?;
    writeln!(out, "  made    a file system with {things} files and directories in {:.1} ms", millis(made))?;

    let began = Instant::now();
    let paths = paths(session, &image);
    let reads = image.device.counts();
    writeln!(out, "  found   {} files and directories in {:.1} ms", paths.len(), millis(began.elapsed()))?;
    writeln!(
        out,
        "          with {} reads of the image, {} KiB\n",
        reads.total_reads(),
        reads.read_bytes >> 10
    )?;
    out.flush()?;

    let began = Instant::now();
    let walked = look_up_all(&image, &paths)?;
    let cold = began.elapsed().as_nanos() as f64 / walked as f64;
    let warm = measure(|| look_up_all(&image, &paths))?;
    let kernel = kernel_stat(dir.path(), &file, &paths);
    writeln!(out, "  looking all of them up, one after the other, from the root:\n")?;
    row(&mut out, "dentree, first time", cold)?;
    row(&mut out, "dentree, again", warm)?;
    match kernel {
        Ok(kernel) => {
            row(&mut out, "the kernel's stat(2), again", kernel)?;
            writeln!(out, "\n  dentree takes {:.2} of the kernel's time", warm / kernel)?;
        }
        Err(why) => writeln!(out, "  {:<28} not measured: {why}", "the kernel's stat(2)")?,
    }
    writeln!(out, "\n{NEXT}")?;
    Ok(out.flush()?)
}

const NEXT: &str = "\
Now with an image of your own:

  dentree info disk.img                        what is it?
  dentree tree -L 2 disk.img                   what is in it?
  dentree find disk.img -name '*.conf' -size +1k
  dentree cat disk.img:/etc/hosts
  dentree cp -a disk.img:/home ./home          take it out, as it is
  dentree cp -a ./home disk.img:/              put it in, as it is
  dentree mount disk.img mnt                   and work in it
  dentree --help                               all the rest";

fn paths(session: &Session, image: &Image) -> Vec<Vec<u8>> {
    let tree = Tree::new(image, &session.report);
    let mut paths = Vec::new();
    let roots: Vec<(Vec<u8>, Ino)> = vec![(b"/".to_vec(), image.vfs.root().ino())];
    fanout::run(
        fanout::threads(),
        Order::Stable,
        roots,
        |(path, ino), emit| {
            let Some(node) = tree.inode(ino, &path) else { return };
            let mut listing = tree.list(&node, &path);
            listing.sort_by_name();
            for entry in listing.iter() {
                let path = join(&path, entry.name);
                emit.put(path.clone());
                if entry.kind == Some(FileType::Directory) {
                    emit.spawn((path, entry.ino));
                }
            }
        },
        |path| {
            paths.push(path);
            ControlFlow::Continue(())
        },
    );
    paths
}

/// Looks up every path; returns the number.
fn look_up_all(image: &Image, paths: &[Vec<u8>]) -> Result<usize, Stop> {
    for path in paths {
        let node = image.vfs.walk(SUPERUSER, image.vfs.root(), path, WalkOptions::KEEP_LINK);
        black_box(node.map_err(|error| image.problem(path, &error))?.attr().size);
    }
    Ok(paths.len())
}

/// Nanoseconds per lookup in the best round that fits the time, after one that fills the caches.
fn measure<E>(mut round: impl FnMut() -> Result<usize, E>) -> Result<f64, E> {
    round()?;
    let began = Instant::now();
    let mut best = f64::INFINITY;
    while began.elapsed() < MEASURE {
        let round_began = Instant::now();
        let lookups = round()?;
        best = best.min(round_began.elapsed().as_nanos() as f64 / lookups as f64);
    }
    Ok(best)
}

/// The same through the kernel: a loop mount and `lstat(2)`. Fails with the reason where that is
/// impossible.
fn kernel_stat(dir: &Path, image: &Path, paths: &[Vec<u8>]) -> Result<f64, String> {
    if !host::is_superuser() {
        return Err("only root can mount the image".into());
    }
    let mount = Mount::new(image, dir.join("mnt"))?;
    let paths: Vec<PathBuf> =
        paths.iter().map(|path| mount.at.join(os_str(path.strip_prefix(b"/").unwrap_or(path)))).collect();
    measure(|| {
        for path in &paths {
            let found = path.symlink_metadata().map_err(|error| format!("{}: {error}", path.display()))?;
            black_box(found.len());
        }
        Ok(paths.len())
    })
}

/// A loop mount, ended on drop.
struct Mount {
    at: PathBuf,
}

impl Mount {
    fn new(image: &Path, at: PathBuf) -> Result<Self, String> {
        fs::create_dir(&at).map_err(|error| error.to_string())?;
        let mounted = Command::new("mount")
            .args(["-o", "loop,ro"])
            .args([image, &at])
            .stderr(Stdio::null())
            .status()
            .map_err(|error| format!("mount: {error}"))?;
        if mounted.success() {
            Ok(Mount { at })
        } else {
            Err("this system does not let us mount the image".into())
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.at).status();
    }
}

fn row(out: &mut impl Write, label: &str, nanos: f64) -> io::Result<()> {
    writeln!(out, "  {label:<28} {:>6.2} million lookups/s  {nanos:>7.0} ns each", 1000.0 / nanos)
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
