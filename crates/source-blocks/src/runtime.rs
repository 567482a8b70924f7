//! Network threads, shared by all origins.

use std::io;
use std::sync::OnceLock;
use tokio::runtime::{Builder, Runtime};

/// They only wait and copy.
const THREADS: usize = 2;

/// Started by the first call.
///
/// # Errors
/// No more threads.
pub fn runtime() -> io::Result<&'static Runtime> {
    static RUNTIME: OnceLock<Result<Runtime, String>> = OnceLock::new();
    let start =
        || Builder::new_multi_thread().worker_threads(THREADS).thread_name("network").enable_all().build();
    let started = RUNTIME.get_or_init(|| start().map_err(|error| error.to_string()));
    started.as_ref().map_err(|problem| io::Error::other(problem.clone()))
}
