//! Periodic sync, for data that no program syncs.
//!
//! Linux sends FUSE_SYNCFS to virtiofs and block devices only. syncfs(2) on our mount sends the
//! dirty pages as ordinary writes, and succeeds. So data is made durable soon after it arrives.

use crate::image::Image;
use crate::report;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Half of the promised second; the other half is for the commit.
const INTERVAL: Duration = Duration::from_millis(500);

/// Syncs an image periodically until it is dropped.
pub(super) struct WriteBack(Option<(Sender<()>, JoinHandle<()>)>);

impl WriteBack {
    /// Starts the thread. Without one, data is written when there is much, on fsync and at the end.
    pub(super) fn start(image: Arc<Image>) -> WriteBack {
        let (stop, stopped) = channel();
        let write = move || {
            while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                // An idle mount leaves its device idle: a sync flushes it.
                if image.vfs.fs().has_unsynced()
                    && let Err(error) = image.vfs.sync()
                {
                    // The next fsync fails too; another round would repeat this report.
                    return report::print_problem(&image.problem(b"", &error));
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
            let _ = thread.join();
        }
    }
}
