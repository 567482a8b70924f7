//! A mounted image of the benchmark, and the processes that set attributes through the mount; and a
//! file system in memory behind our FUSE adapter, the lower bound of a mount's cost.

use super::bench::{BenchImage, Cell, name_of, sets_of, text_of};
use crate::mounts::OpenMount;
use crate::programs::Programs;
use crate::unavailable::Unavailable;
use rustix::fs::XattrFlags;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// The file system that mounts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    /// The kernel, through a loop device.
    Kernel,
    /// fuse2fs.
    Fuse2fs,
    /// `dentree mount`.
    Dentree,
}

/// A mounted image. Unmounted on drop.
pub struct Mounted {
    mount: OpenMount,
    /// The client program.
    client: PathBuf,
}

impl Mounted {
    /// Mounts an image; clients are processes of `dentree-lab`.
    ///
    /// # Errors
    /// Needs root, and the program that mounts.
    pub fn new(image: &BenchImage, by: By, programs: &Programs) -> Result<Self, Unavailable> {
        let image = image.path();
        let mount = match by {
            By::Kernel => OpenMount::kernel(&image)?,
            By::Fuse2fs => {
                OpenMount::served(Command::new("fuse2fs").args(["-f", "-o", "fakeroot"]).arg(image))?
            }
            By::Dentree => OpenMount::served(Command::new(programs.dentree()?).arg("mount").arg(image))?,
        };
        Ok(Mounted { mount, client: programs.lab()? })
    }

    /// Mounts the example `limit`, a file system in memory, and makes a cell's files.
    ///
    /// # Errors
    /// Needs that example, and FUSE.
    pub fn limit(cell: &Cell, programs: &Programs) -> Result<Self, Unavailable> {
        let mount = OpenMount::served(&mut Command::new(programs.limit()?))?;
        let made = (0..cell.clients).try_for_each(|client| {
            std::fs::create_dir(mount.root().join(client.to_string()))?;
            (0..cell.files).try_for_each(|file| std::fs::write(mount.root().join(name_of(client, file)), ""))
        });
        made.map_err(|why| Unavailable::because("cannot make its files", why))?;
        Ok(Mounted { mount, client: programs.lab()? })
    }

    /// The time from the common start until the last of a cell's clients is done.
    ///
    /// # Errors
    /// If a client fails.
    pub fn run(&self, cell: &Cell, round: u64) -> Result<Duration, Unavailable> {
        let failed = |why: std::io::Error| Unavailable::because("a client", why);
        // All clients read the same end; closing the other starts them.
        let (closed, start) = std::io::pipe().map_err(failed)?;
        let mut clients = Clients(Vec::new());
        for client in 0..cell.clients {
            let numbers = [client, cell.files, cell.values, cell.sets].map(|number| number.to_string());
            let mut process = Command::new(&self.client);
            process.arg("xattr-client").arg(self.mount.root()).args(numbers).arg(round.to_string());
            let stdin = closed.try_clone().map_err(failed)?;
            let child = process.stdin(stdin).stdout(Stdio::piped()).spawn();
            clients.0.push(child.map_err(failed)?);
        }
        let mut outputs: Vec<ChildStdout> =
            clients.0.iter_mut().filter_map(|client| client.stdout.take()).collect();
        let mut all = || {
            let mut byte = [0];
            outputs.iter_mut().try_for_each(|client| client.read_exact(&mut byte)).map_err(failed)
        };
        all()?;
        let begin = Instant::now();
        drop(start);
        all()?;
        Ok(begin.elapsed())
    }

    /// Unmounts, which completes the image.
    ///
    /// # Errors
    /// If the mount is busy, or its server failed.
    pub fn end(self) -> Result<(), Unavailable> {
        self.mount.end()
    }
}

/// Client processes; killed with the run.
struct Clients(Vec<Child>);

impl Drop for Clients {
    fn drop(&mut self) {
        for client in &mut self.0 {
            let _ = client.kill();
            let _ = client.wait();
        }
    }
}

/// A client process: reports that it is ready, waits for the end of standard input, sets
/// attributes, and reports that it is done.
///
/// # Errors
/// If an attribute cannot be set.
pub fn be_client(mount: &Path, cell: &Cell, client: usize, round: u64) -> std::io::Result<()> {
    let paths: Vec<PathBuf> = (0..cell.files).map(|file| mount.join(name_of(client, file))).collect();
    let sets: Vec<_> =
        sets_of(cell, client, round).map(|(file, value)| (&paths[file], text_of(value))).collect();
    let mut out = std::io::stdout();
    let mut tell = || out.write_all(b".").and_then(|()| out.flush());
    tell()?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    for (path, value) in &sets {
        rustix::fs::setxattr(*path, super::bench::NAME, value, XattrFlags::empty())?;
    }
    tell()
}
