//! The threads that do the network's work, for all objects of the process.

use crate::Error;
use std::sync::OnceLock;
use tokio::runtime::{Builder, Runtime};

/// They wait for sockets, and copy what comes.
const THREADS: usize = 2;

/// Starts the threads at the first call.
pub(crate) fn runtime() -> Result<&'static Runtime, Error> {
    static RUNTIME: OnceLock<Result<Runtime, String>> = OnceLock::new();
    let start = || {
        // Another part of the program may have chosen the same already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder =
            Builder::new_multi_thread().worker_threads(THREADS).thread_name("network").enable_all().build();
        builder.map_err(|error| error.to_string())
    };
    RUNTIME.get_or_init(start).as_ref().map_err(|problem| Error::Threads { problem: problem.clone() })
}
