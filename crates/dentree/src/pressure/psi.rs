//! The kernel's pressure stall information (PSI; kernel documentation, `accounting/psi.rst`).
//!
//! poll(2) returns when tasks have waited for memory during 15% of two seconds.
//!
//! The source of events is the first of these that can be opened:
//! 1. `$MEMORY_PRESSURE_WATCH`, which systemd sets (<https://systemd.io/MEMORY_PRESSURE>): a
//!    pressure file, or a FIFO in which any byte is an event. `/dev/null` turns this off.
//! 2. `memory.pressure` of the process's cgroup v2.
//! 3. `/proc/pressure/memory`.
//!
//! PSI decides, not the cgroup's limit: the page cache fills a cgroup up to its limit without harm.
//! The limit only names the [`cause`].

use super::{Cause, Figures, shrink};
use crate::mounts;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use dentree_ext4::Ext4;
use dentree_vfs::Vfs;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::OFlags;
use rustix::io::retry_on_intr;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, PipeReader, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Stall and window in microseconds. Unprivileged processes need a window of a multiple of 2 s. The
/// kernel overwrites the last byte: the newline.
const TRIGGER: &[u8] = b"some 300000 2000000\n";
const OF_THE_MACHINE: &str = "/proc/pressure/memory";

/// An open file that poll(2) watches.
pub(super) struct Source {
    path: PathBuf,
    file: File,
    /// A FIFO becomes readable; a pressure file has a trigger that fires (`POLLPRI`).
    is_fifo: bool,
}

impl Source {
    pub(super) fn open() -> Result<Source, String> {
        if let Some(path) = env::var_os("MEMORY_PRESSURE_WATCH").filter(|path| !path.is_empty()) {
            return Source::asked_for(path.into());
        }
        let own = Cgroup::own().map(|cgroup| cgroup.dir.join("memory.pressure"));
        own.and_then(|path| Source::pressure(path, TRIGGER).ok())
            .map_or_else(|| Source::pressure(OF_THE_MACHINE.into(), TRIGGER), Ok)
    }

    /// The source of systemd's protocol.
    fn asked_for(path: PathBuf) -> Result<Source, String> {
        if path == Path::new("/dev/null") {
            return Err("turned off by $MEMORY_PRESSURE_WATCH".to_owned());
        }
        let kind = fs::metadata(&path).map_err(|error| message(&path, &error))?.file_type();
        if kind.is_fifo() {
            // Also for writing: a FIFO without writers reports its end for ever.
            let file = open(&path)?;
            return Ok(Source { path, file, is_fifo: true });
        }
        let trigger = env::var_os("MEMORY_PRESSURE_WRITE")
            .map_or(Ok(TRIGGER.to_vec()), |text| BASE64_STANDARD.decode(text.as_encoded_bytes()));
        let trigger = trigger.map_err(|error| format!("$MEMORY_PRESSURE_WRITE: {error}"))?;
        Source::pressure(path, &trigger)
    }

    /// A pressure file with a trigger, which lasts until it is closed.
    fn pressure(path: PathBuf, trigger: &[u8]) -> Result<Source, String> {
        let mut file = open(&path)?;
        file.write_all(trigger).map_err(|error| message(&path, &error))?;
        Ok(Source { path, file, is_fifo: false })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Shrinks the caches at each event until the writer of `stopped` is dropped.
    pub(super) fn listen(mut self, stopped: &PipeReader, vfs: &Vfs<Ext4>, figures: &Figures) {
        let wanted = if self.is_fifo { PollFlags::IN } else { PollFlags::PRI };
        loop {
            let mut fds = [PollFd::new(&self.file, wanted), PollFd::new(stopped, PollFlags::IN)];
            if let Err(error) = retry_on_intr(|| poll(&mut fds, None)) {
                return self.give_up(figures, &error.into());
            }
            let [event, end] = fds.map(|fd| fd.revents());
            if event.intersects(PollFlags::ERR | PollFlags::NVAL) {
                return self.give_up(figures, &io::Error::other("its cgroup is gone"));
            }
            // Before `end` is looked at: an event that came before the end counts.
            if event.intersects(wanted) {
                if self.is_fifo {
                    let _ = self.file.read(&mut [0; 4096]);
                }
                let limits = Cgroup::own().map(|cgroup| cgroup.limits()).unwrap_or_default();
                shrink(vfs, figures, cause(&limits));
            }
            if !end.is_empty() {
                return;
            }
        }
    }

    fn give_up(&self, figures: &Figures, why: &io::Error) {
        figures.update(|shrinks| shrinks.source = Err(message(&self.path, why)));
    }
}

fn open(path: &Path) -> Result<File, String> {
    let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
    let opened = File::options().read(true).write(true).custom_flags(nonblocking).open(path);
    opened.map_err(|error| message(path, &error))
}

fn message(path: &Path, error: &io::Error) -> String {
    format!("{}: {error}", path.display())
}

/// `memory.current`, `memory.high` and `memory.max` of one cgroup, as read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Limits {
    current: String,
    high: String,
    max: String,
}

/// The nearest cgroup that uses 15/16 of its limit, else plain stalls.
fn cause(limits: &[Limits]) -> Cause {
    // `max` means no limit.
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let at_limit = |cgroup: &Limits| {
        let used = number(&cgroup.current)?;
        let limit = [&cgroup.high, &cgroup.max].into_iter().filter_map(|text| number(text)).min()?;
        (used >= limit - limit / 16).then_some(Cause::Limit { used, limit })
    };
    limits.iter().find_map(at_limit).unwrap_or(Cause::Stalls)
}

/// The process's cgroup v2.
#[derive(PartialEq, Eq, Debug)]
struct Cgroup {
    dir: PathBuf,
    /// The mount point of the hierarchy.
    top: PathBuf,
}

impl Cgroup {
    fn own() -> Option<Cgroup> {
        Cgroup::new(&fs::read("/proc/self/cgroup").ok()?, mounts::cgroup2()?)
    }

    /// The cgroup in the text of `/proc/self/cgroup`, below a mount of `root` at `top`.
    fn new(cgroups: &[u8], (top, root): (PathBuf, OsString)) -> Option<Cgroup> {
        let path = cgroups.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(b"0::"))?;
        let path = Path::new(OsStr::from_bytes(path)).strip_prefix(root).ok()?;
        let dir = top.join(path);
        Some(Cgroup { dir, top })
    }

    /// The limits of this cgroup and its ancestors.
    fn limits(&self) -> Vec<Limits> {
        let here = self.dir.ancestors().take_while(|dir| dir.starts_with(&self.top));
        let limits = here.map(|dir| {
            let [current, high, max] = ["memory.current", "memory.high", "memory.max"]
                .map(|name| fs::read_to_string(dir.join(name)).unwrap_or_default());
            Limits { current, high, max }
        });
        limits.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(current: &str, high: &str, max: &str) -> Limits {
        Limits { current: current.into(), high: high.into(), max: max.into() }
    }

    #[test]
    fn the_cause_is_the_nearest_cgroup_at_its_limit() {
        let of = |all: &[Limits]| cause(all);
        assert_eq!(of(&[]), Cause::Stalls);
        assert_eq!(of(&[limits("", "", "")]), Cause::Stalls);
        assert_eq!(of(&[limits("9000\n", "max\n", "max\n")]), Cause::Stalls);
        assert_eq!(of(&[limits("1499\n", "max\n", "1600\n")]), Cause::Stalls);
        assert_eq!(of(&[limits("1500\n", "max\n", "1600\n")]), Cause::Limit { used: 1500, limit: 1600 });
        let both = limits("1500", "1600", "2000");
        assert_eq!(of(std::slice::from_ref(&both)), Cause::Limit { used: 1500, limit: 1600 });
        assert_eq!(of(&[limits("10", "max", "1600"), both]), Cause::Limit { used: 1500, limit: 1600 });
        assert_eq!(of(&[limits("0", "max", "0")]), Cause::Limit { used: 0, limit: 0 });
    }

    #[test]
    fn a_process_finds_its_cgroup_below_the_mount() {
        let found = |root: &str, text: &str| {
            let cgroup = Cgroup::new(text.as_bytes(), ("/sys/fs/cgroup".into(), root.into()))?;
            Some(cgroup.dir.to_str()?.trim_end_matches('/').to_owned())
        };
        let some = |path: &str| Some(path.to_owned());
        assert_eq!(found("/", "0::/user.slice/x\n"), some("/sys/fs/cgroup/user.slice/x"));
        assert_eq!(found("/", "4:memory:/a\n0::/\n"), some("/sys/fs/cgroup"));
        assert_eq!(found("/pod/a", "0::/pod/a/b\n"), some("/sys/fs/cgroup/b"));
        assert_eq!(found("/pod/a", "0::/other\n"), None);
        assert_eq!(found("/", "4:memory:/a\n"), None);
    }
}
