//! Where threads wait for a read that another thread is making.

use crate::claim::Buffer;
use crate::error::ReadError;
use crate::sync::{Condvar, Mutex, lock, wait};

/// The outcome of a read under way.
pub(crate) struct Pending {
    outcome: Mutex<Option<Result<Buffer, ReadError>>>,
    ended: Condvar,
}

impl Pending {
    pub(crate) fn new() -> Self {
        Pending { outcome: Mutex::new(None), ended: Condvar::new() }
    }

    /// Waits until [`end`](Pending::end) has been called.
    pub(crate) fn wait(&self) -> Result<Buffer, ReadError> {
        let mut outcome = lock(&self.outcome);
        loop {
            match &*outcome {
                Some(outcome) => return outcome.clone(),
                None => outcome = wait(&self.ended, outcome),
            }
        }
    }

    pub(crate) fn end(&self, outcome: Result<Buffer, ReadError>) {
        *lock(&self.outcome) = Some(outcome);
        self.ended.notify_all();
    }
}
