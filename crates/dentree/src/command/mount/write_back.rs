//! Everything is written by the clock, also what nobody syncs.
//!
//! The kernel sends FUSE_SYNCFS to virtiofs and to block devices alone. A syncfs(2) of our mount sends what
//! the kernel has gathered, as ordinary writes, and succeeds. So what arrives is made durable soon.

use crate::image::Image;
use crate::report;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Half of the second that is promised: the other half is for the commit.
const INTERVAL: Duration = Duration::from_millis(500);

/// Writes an image back now and then, until it is dropped.
pub(super) struct WriteBack(Option<(Sender<()>, JoinHandle<()>)>);

impl WriteBack {
    /// Begins. Where no thread can be had, what is in memory is written when it is much, when it is synced and in the end.
    pub(super) fn start(image: Arc<Image>) -> WriteBack {
        let (stop, stopped) = channel();
        let write = move || {
            while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                // A mount at rest leaves its device at rest, too: a sync flushes it.
                if image.vfs.fs().has_unsynced()
                    && let Err(error) = image.vfs.sync()
                {
                    // The next fsync is told, too; and with each round this would be told again.
                    return report::tell(&image.problem(b"", &error));
                }
            }
        };
        WriteBack(thread::Builder::new().name("write-back".into()).spawn(write).ok().map(|it| (stop, it)))
    }
}

impl Drop for WriteBack {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.0.take() {
            drop(stop);
            // One that panicked has nothing left to write.
            let _ = thread.join();
        }
    }
}
