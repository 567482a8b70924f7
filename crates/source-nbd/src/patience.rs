//! Time limits.

use std::time::Duration;

/// Time limits of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// For a reply; then the connection is lost.
    pub answer: Duration,
    /// For the server's return since its last reply; then the device fails.
    pub absence: Duration,
}

impl Default for Patience {
    /// Two minutes for a reply (a slow flush), one for an absence (a restart).
    fn default() -> Self {
        Patience { answer: Duration::from_secs(120), absence: Duration::from_secs(60) }
    }
}
