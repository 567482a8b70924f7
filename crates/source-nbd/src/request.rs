//! A request in flight.

use std::io;
use std::sync::Arc;

use dentree_blockdev::Done;

use crate::wire::{self, Command};

pub(crate) struct Request {
    pub(crate) command: Command,
    pub(crate) offset: u64,
    /// Of a trim; others have a buffer.
    len: u32,
    /// To write.
    pub(crate) data: Option<Arc<[u8]>>,
    /// To read into.
    pub(crate) buf: Vec<u8>,
    /// Received bytes of `buf`.
    pub(crate) received: usize,
    /// Reported by the server.
    pub(crate) error: Option<io::Error>,
    /// For a flush: end of the log at queueing.
    pub(crate) covers: u64,
    /// Lost connections so far.
    pub(crate) losses: u32,
    done: Done,
}

impl Request {
    fn new(command: Command, offset: u64, done: Done) -> Self {
        let (data, buf) = (None, Vec::new());
        Request { command, offset, len: 0, data, buf, received: 0, error: None, covers: 0, losses: 0, done }
    }

    pub(crate) fn read(offset: u64, buf: Vec<u8>, done: Done) -> Self {
        Request { buf, ..Self::new(Command::Read, offset, done) }
    }

    pub(crate) fn write(offset: u64, data: Arc<[u8]>, done: Done) -> Self {
        Request { data: Some(data), ..Self::new(Command::Write, offset, done) }
    }

    pub(crate) fn trim(offset: u64, len: u32, done: Done) -> Self {
        Request { len, ..Self::new(Command::Trim, offset, done) }
    }

    pub(crate) fn flush(done: Done) -> Self {
        Self::new(Command::Flush, 0, done)
    }

    pub(crate) fn len(&self) -> usize {
        self.buf.len() + self.data.as_ref().map_or(self.len as usize, |data| data.len())
    }

    pub(crate) fn header(&self, cookie: u64) -> [u8; 28] {
        // Callers split long requests.
        let len = u32::try_from(self.len()).unwrap_or(u32::MAX);
        wire::request(self.command, cookie, self.offset, len)
    }

    /// Whether the export changes.
    pub(crate) fn changes(&self) -> bool {
        matches!(self.command, Command::Write | Command::Trim)
    }

    pub(crate) fn describe(&self) -> String {
        match self.command {
            Command::Read => format!("read {} bytes at {}", self.len(), self.offset),
            Command::Write => format!("write {} bytes at {}", self.len(), self.offset),
            Command::Trim => format!("trim {} bytes at {}", self.len(), self.offset),
            Command::Flush => "flush".to_owned(),
            Command::Disconnect => "disconnect".to_owned(),
        }
    }

    /// Forgets partial replies.
    pub(crate) fn begin_again(&mut self) {
        (self.received, self.error) = (0, None);
        self.losses += 1;
    }

    /// Ends with the reply.
    pub(crate) fn end(self) {
        (self.done)(self.error.map_or(Ok(self.buf), Err));
    }

    /// Ends without a reply.
    pub(crate) fn fail(self, error: io::Error) {
        (self.done)(Err(error));
    }
}
