//! Where threads wait for a read that another thread is making.

use crate::claim::Buffer;
use crate::error::ReadError;
use crate::sync::{Condvar, Mutex, lock, wait};

/// A read under way.
pub(crate) struct Pending {
    outcome: Mutex<Option<Outcome>>,
    ended: Condvar,
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
        Pending { outcome: Mutex::new(None), ended: Condvar::new() }
    }

    /// Waits until [`end`](Pending::end) has been called. `None` where one has to look for the block again.
    pub(crate) fn wait(&self) -> Result<Option<Buffer>, ReadError> {
        let mut outcome = lock(&self.outcome);
        loop {
            match &*outcome {
                Some(Outcome::Read(buffer)) => return Ok(Some(buffer.clone())),
                Some(Outcome::Failed(error)) => return Err(error.clone()),
                Some(Outcome::Forgotten) => return Ok(None),
                None => outcome = wait(&self.ended, outcome),
            }
        }
    }

    pub(crate) fn end(&self, outcome: Outcome) {
        *lock(&self.outcome) = Some(outcome);
        self.ended.notify_all();
    }
}
