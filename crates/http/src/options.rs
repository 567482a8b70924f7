//! Options of a server.

use crate::{Figure, Passwords, Tls};
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// Writes an archive of the directory at a path, which may be a symlink. Logs problems itself; an
/// error cuts the response off.
pub type WriteArchive = dyn Fn(&[u8], &mut dyn Write) -> io::Result<()> + Send + Sync;

/// Options of a server.
pub struct Options {
    /// Name of the root on pages: the image's name.
    pub title: String,
    /// Address for requests.
    pub listen: SocketAddr,
    /// Address for metrics, under `/metrics`.
    pub metrics: Option<SocketAddr>,
    /// Metrics of the layers below the file system.
    pub figures: Box<dyn Fn() -> Vec<Figure> + Send + Sync>,
    /// Writes the tree of a directory for `?archive=tar`.
    pub archive: Option<Box<WriteArchive>>,
    /// Users with access; `None` admits everyone. Metrics need no password.
    pub passwords: Option<Passwords>,
    /// Serve over TLS. Metrics are plain.
    pub tls: Option<Tls>,
    /// Limits for clients.
    pub limits: Limits,
}

impl Options {
    /// A free port of 127.0.0.1, no metrics, archives, passwords or TLS, default limits.
    pub fn new(title: impl Into<String>) -> Self {
        Options {
            title: title.into(),
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            metrics: None,
            figures: Box::new(Vec::new),
            archive: None,
            passwords: None,
            tls: None,
            limits: Limits::default(),
        }
    }
}

/// Limits for clients. A client beyond a limit is cut off unless the limit says that it waits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Most connections; more wait in the system's queue.
    pub connections: usize,
    /// Bytes of a request's head, at most 32,768; a longer one gets 431.
    pub head_bytes: usize,
    /// Time until the head is complete, from connection or last response.
    pub head_time: Duration,
    /// Time to take each [`CHUNK`](Limits::CHUNK) bytes.
    pub write_time: Duration,
    /// Bytes for the bodies of all responses.
    pub buffers: usize,
    /// Bytes for cached contents of small files.
    pub contents: usize,
    /// Longest wait for memory for a body before a 503.
    pub buffer_wait: Duration,
    /// Threads that read the file system.
    pub readers: usize,
    /// Most archives at a time, each with a thread and memory beside `buffers`; more get 503.
    pub archives: usize,
    /// Time for requests to finish after a stop.
    pub grace: Duration,
}

impl Limits {
    /// Unit of file reads: 128 KiB.
    pub const CHUNK: usize = 128 << 10;
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: 16_384,
            head_bytes: 16 << 10,
            head_time: Duration::from_secs(30),
            write_time: Duration::from_secs(30),
            buffers: 64 << 20,
            contents: 64 << 20,
            buffer_wait: Duration::from_secs(10),
            readers: 32,
            archives: 16,
            grace: Duration::from_secs(10),
        }
    }
}
