//! Time limits.

use std::time::Duration;

/// How long a device waits for its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// For an answer. Then the connection counts as lost.
    pub answer: Duration,
    /// For the server to come back after its last answer. Then the device fails for good.
    pub absence: Duration,
}

impl Default for Patience {
    /// Two minutes for an answer, as a flush may take long; one for an absence, as a restart may.
    fn default() -> Self {
        Patience { answer: Duration::from_secs(120), absence: Duration::from_secs(60) }
    }
}
