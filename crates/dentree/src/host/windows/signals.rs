//! Ctrl-C and the end of the console, by flags: there are no signals to wait for.

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag::register_usize;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

/// Signals that end a command in an orderly way.
pub(crate) const SIGNALS: &[i32] = &[SIGINT, SIGTERM];

/// How often the flag is looked at.
const MOMENT: Duration = Duration::from_millis(50);

/// Signals to wait for, with the interface of `signal_hook::iterator::Signals`.
pub(crate) struct Signals {
    /// The last one; 0 for none.
    came: Arc<AtomicUsize>,
    closed: Handle,
}

#[derive(Clone)]
pub(crate) struct Handle(Arc<AtomicBool>);

impl Handle {
    /// Ends the waiting.
    pub(crate) fn close(&self) {
        self.0.store(true, Relaxed);
    }
}

impl Signals {
    pub(crate) fn new(signals: &[i32]) -> io::Result<Signals> {
        let came = Arc::new(AtomicUsize::new(0));
        for &signal in signals {
            register_usize(signal, came.clone(), usize::try_from(signal).unwrap_or(0))?;
        }
        Ok(Signals { came, closed: Handle(Arc::default()) })
    }

    pub(crate) fn handle(&self) -> Handle {
        self.closed.clone()
    }

    /// Signals as they come, until the handle is closed.
    pub(crate) fn forever(&mut self) -> impl Iterator<Item = i32> {
        std::iter::from_fn(|| {
            while !self.closed.0.load(Relaxed) {
                match self.came.swap(0, Relaxed) {
                    0 => thread::sleep(MOMENT),
                    signal => return i32::try_from(signal).ok(),
                }
            }
            None
        })
    }
}
