//! Waiting for another thread's read.

use dentree_sync::{Condvar, Mutex};

use crate::buffer::Buffer;
use crate::error::ReadError;

/// A read in progress.
pub(crate) struct Pending {
    state: Mutex<State>,
    ended: Condvar,
}

struct State {
    outcome: Option<Outcome>,
    /// Number of waiters. Without any, mostly after reading ahead, the wake-up and its system call
    /// are skipped.
    waiting: usize,
}

#[derive(Clone)]
pub(crate) enum Outcome {
    Read(Buffer),
    Failed(ReadError),
    /// A read ahead failed: the waiter reads the block itself.
    Retry,
}

impl Pending {
    pub(crate) fn new() -> Self {
        Pending { state: Mutex::new(State { outcome: None, waiting: 0 }), ended: Condvar::new() }
    }

    /// Waits for [`end`](Pending::end). `None`: look the block up again.
    pub(crate) fn wait(&self) -> Result<Option<Buffer>, ReadError> {
        let mut state = self.state.lock();
        loop {
            match &state.outcome {
                Some(Outcome::Read(buffer)) => return Ok(Some(buffer.clone())),
                Some(Outcome::Failed(error)) => return Err(error.clone()),
                Some(Outcome::Retry) => return Ok(None),
                None => {
                    state.waiting += 1;
                    state = self.ended.wait(state);
                    state.waiting -= 1;
                }
            }
        }
    }

    pub(crate) fn end(&self, outcome: Outcome) {
        let mut state = self.state.lock();
        state.outcome = Some(outcome);
        if state.waiting > 0 {
            self.ended.notify_all();
        }
    }
}
