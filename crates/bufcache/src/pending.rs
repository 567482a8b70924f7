//! Where threads wait for a read that another thread is making.

use dentree_sync::{Condvar, Mutex};

use crate::buffer::Buffer;
use crate::error::ReadError;

/// A read under way.
pub(crate) struct Pending {
    state: Mutex<State>,
    ended: Condvar,
}

struct State {
    outcome: Option<Outcome>,
    /// How many wait for it: to wake nobody is a system call, too, and most of what is read ahead nobody waits for.
    waiting: usize,
}

/// How a read ended.
#[derive(Clone)]
pub(crate) enum Outcome {
    Read(Buffer),
    Failed(ReadError),
    /// It was made ahead, and failed: who wants the block reads it.
    Forgotten,
}

impl Pending {
    pub(crate) fn new() -> Self {
        Pending { state: Mutex::new(State { outcome: None, waiting: 0 }), ended: Condvar::new() }
    }

    /// Waits until [`end`](Pending::end) has been called. `None` where one has to look for the block again.
    pub(crate) fn wait(&self) -> Result<Option<Buffer>, ReadError> {
        let mut state = self.state.lock();
        loop {
            match &state.outcome {
                Some(Outcome::Read(buffer)) => return Ok(Some(buffer.clone())),
                Some(Outcome::Failed(error)) => return Err(error.clone()),
                Some(Outcome::Forgotten) => return Ok(None),
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
