//! The same interface where there are no bindings of io_uring: 32-bit processors.

use crate::Shape;
use dentree_sync::Arc;
use std::convert::Infallible;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicBool;

/// What is left to do when the reply is sent.
pub type Afterwards = Box<dyn FnOnce() + Send>;

/// Serves requests.
pub trait Handler: Send + Sync {
    /// Serves a request.
    fn serve(&self, entry: RingEntry) -> Option<Afterwards>;
}

/// A request that is to be replied to: there are none.
pub struct RingEntry(Infallible);

impl RingEntry {
    /// The number of the queue that it came by.
    pub fn queue(&self) -> usize {
        match self.0 {}
    }

    /// The request's header.
    pub fn header(&self) -> &[u8; 128] {
        match self.0 {}
    }

    /// The operation's part with a fixed length.
    pub fn fixed(&self) -> &[u8; 128] {
        match self.0 {}
    }

    /// The payload buffer.
    pub fn payload(&mut self) -> (&mut [u8], usize) {
        match self.0 {}
    }

    /// Replies.
    pub fn finish(self, _header: &[u8; 16], _len: usize) {
        match self.0 {}
    }
}

/// The rings of a connection: there are none.
pub struct Rings(Infallible);

impl Rings {
    /// Makes none.
    ///
    /// # Errors
    /// Always.
    pub fn prepare(_device: &Arc<OwnedFd>, _shape: &Shape) -> io::Result<Rings> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Registers entries.
    pub fn start(&self, _handler: &Arc<dyn Handler>) {
        match self.0 {}
    }

    /// Whether the kernel has refused an entry.
    pub fn is_refused(&self) -> Arc<AtomicBool> {
        match self.0 {}
    }

    /// Waits for the end of the connection.
    ///
    /// # Errors
    /// None.
    pub fn join(self) -> io::Result<()> {
        match self.0 {}
    }
}
