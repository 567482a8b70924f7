//! Where to listen and how much a client may ask for.

use crate::{Figure, Passwords, Tls};
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// Writes an archive of the directory at a path, which links may lead to. Tells of problems itself;
/// an error cuts the response off.
pub type WriteArchive = dyn Fn(&[u8], &mut dyn Write) -> io::Result<()> + Send + Sync;

/// How to serve.
pub struct Options {
    /// What directory pages call the root: the image's name.
    pub title: String,
    /// Where to listen for requests.
    pub listen: SocketAddr,
    /// Where to tell the figures in Prometheus' text format, under `/metrics`.
    pub metrics: Option<SocketAddr>,
    /// Figures of whatever lies below the file system, told with the server's own.
    pub figures: Box<dyn Fn() -> Vec<Figure> + Send + Sync>,
    /// Writes what `?archive=tar` gets: a directory with all that is below it.
    pub archive: Option<Box<WriteArchive>>,
    /// Admit only users with a password, if `Some`. The figures need none.
    pub passwords: Option<Passwords>,
    /// Serve over TLS, if `Some`. The figures are told without it.
    pub tls: Option<Tls>,
    /// What clients may ask for.
    pub limits: Limits,
}

impl Options {
    /// On a free port of 127.0.0.1, without figures, archives, passwords and TLS, within the
    /// default limits.
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

/// Limits for clients. One that oversteps is cut off, or waits where it says so.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Connections at a time; more wait in the system's queue.
    pub connections: usize,
    /// Bytes of a request's head; more are answered with 431. At most 32,768.
    pub head_bytes: usize,
    /// Time from a connection's beginning, or from its last response, until the next request's head
    /// is complete.
    pub head_time: Duration,
    /// Time for taking each [`CHUNK`](Limits::CHUNK) bytes of a response.
    pub write_time: Duration,
    /// Memory for the bodies of all responses together, in bytes.
    pub buffers: usize,
    /// Memory for the contents of small files that are kept, in bytes. They are answered at once.
    pub contents: usize,
    /// How long a request may wait for memory for its body before it is answered with 503.
    pub buffer_wait: Duration,
    /// Threads that read from the file system.
    pub readers: usize,
    /// Archives that are written at a time, each by a thread of its own, with memory of its own
    /// beside `buffers`; more are answered with 503.
    pub archives: usize,
    /// How long requests may take to finish once the server is stopped.
    pub grace: Duration,
}

impl Limits {
    /// Bytes that are read from a file at a time: 128 KiB.
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
