//! Shrinks an image's caches while the machine or the process's cgroup is short of memory.
//!
//! One thread waits for events of the kernel (`psi`). Each event shrinks names, inodes and blocks
//! to [`KEPT_PERCENT`] of their memory. Only Linux reports them.
//!
//! # Limits
//!
//! - Inodes and names of more than 32 bytes return to the system as far as whole pages of the heap
//!   become free. Slots of the name cache are kept for later names.
//! - Inodes that the kernel has looked up stay until it forgets them.
//! - Blocks that are held, changed and not written, or being read stay, as do the per-thread copies
//!   of the blocks that are read most.

#[cfg(not(target_os = "linux"))]
mod no_psi;
#[cfg(target_os = "linux")]
mod psi;

#[cfg(not(target_os = "linux"))]
use self::no_psi as psi;
use self::psi::Source;
use dentree_ext4::Ext4;
use dentree_sync::Mutex;
use dentree_vfs::Vfs;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

/// The part of the memory of names, inodes and blocks that a shrink leaves.
pub(crate) const KEPT_PERCENT: u8 = 75;

/// Why the caches were shrunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cause {
    /// Tasks waited for memory.
    Stalls,
    /// Tasks waited for memory in a cgroup that had `used` bytes of its `limit`.
    Limit { used: u64, limit: u64 },
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Cause::Stalls => f.write_str("tasks waited for memory"),
            Cause::Limit { used, limit } => write!(f, "the cgroup had {used} of {limit} bytes"),
        }
    }
}

/// Source and figures of the watch on one image.
#[derive(Clone, Debug)]
pub(crate) struct Shrinks {
    /// The file that reports events, or why there is none.
    pub(crate) source: Result<PathBuf, String>,
    pub(crate) count: u64,
    pub(crate) names: u64,
    pub(crate) inodes: u64,
    pub(crate) blocks: u64,
    pub(crate) last: Option<Cause>,
}

/// The figures of a watch; `None` before its start.
#[derive(Default)]
pub(crate) struct Figures(Mutex<Option<Shrinks>>);

impl Figures {
    pub(crate) fn get(&self) -> Option<Shrinks> {
        self.0.lock().clone()
    }

    fn begin(&self, source: Result<PathBuf, String>) {
        *self.0.lock() = Some(Shrinks { source, count: 0, names: 0, inodes: 0, blocks: 0, last: None });
    }

    fn update(&self, change: impl FnOnce(&mut Shrinks)) {
        self.0.lock().as_mut().map(change);
    }
}

/// Listens for memory pressure until it is dropped.
pub(crate) struct Watch(Option<(io::PipeWriter, JoinHandle<()>)>);

impl Watch {
    /// Starts the thread. Where there is no source of events, [`Shrinks::source`] says why.
    pub(crate) fn start(vfs: Arc<Vfs<Ext4>>, figures: Arc<Figures>) -> Watch {
        let started = Source::open().and_then(|source| {
            figures.begin(Ok(source.path().to_owned()));
            let (stopped, stop) = io::pipe().map_err(|error| error.to_string())?;
            let counted = figures.clone();
            let listen = move || source.listen(&stopped, &vfs, &counted);
            let thread = thread::Builder::new().name("pressure".into()).spawn(listen);
            Ok((stop, thread.map_err(|error| error.to_string())?))
        });
        Watch(started.map_err(|why| figures.begin(Err(why))).ok())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.0.take() {
            drop(stop);
            // A panic leaves nothing to clean up.
            let _ = thread.join();
        }
    }
}

fn shrink(vfs: &Vfs<Ext4>, figures: &Figures, cause: Cause) {
    let before = vfs.stats();
    // Before the names, which return the heap's free pages to the system.
    let blocks = vfs.fs().shrink_buffers(KEPT_PERCENT);
    vfs.shrink(KEPT_PERCENT);
    let after = vfs.stats();
    figures.update(|shrinks| {
        shrinks.count += 1;
        shrinks.names += after.names.evicted - before.names.evicted;
        shrinks.inodes += before.inodes.cached.saturating_sub(after.inodes.cached);
        shrinks.blocks += blocks as u64;
        shrinks.last = Some(cause);
    });
}
