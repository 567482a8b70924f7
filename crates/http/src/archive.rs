//! Directories as archives, written while they are sent.
//!
//! Each archive has a thread. It waits while [`AHEAD`] chunks are unsent; its next write fails once
//! the client is gone.

use crate::body::{Pieces, Unreadable};
use crate::options::{Limits, WriteArchive};
use hyper::body::Bytes;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use tokio::sync::Semaphore;

/// Chunks written ahead of the client.
const AHEAD: usize = 2;

type Next = Result<Option<Bytes>, Unreadable>;

pub(crate) struct Archives {
    write: Arc<WriteArchive>,
    room: Arc<Semaphore>,
}

impl Archives {
    pub(crate) fn new(write: Box<WriteArchive>, most: usize) -> Self {
        Archives { write: write.into(), room: Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS))) }
    }

    /// `None`: too many archives are in progress.
    pub(crate) fn start(&self, path: Vec<u8>) -> Option<Box<dyn Pieces>> {
        let place = self.room.clone().try_acquire_owned().ok()?;
        let (sender, receiver) = sync_channel(AHEAD);
        let write = self.write.clone();
        let run = move || {
            let mut to = Chunks { sender, chunk: Vec::with_capacity(Limits::CHUNK) };
            let written = write(&path, &mut to).and_then(|()| to.flush());
            // Fails when the client is gone.
            let _ = to.sender.send(written.map(|()| None).map_err(|_| Unreadable));
            drop(place);
        };
        thread::Builder::new().name("archive".into()).spawn(run).ok()?;
        Some(Box::new(Archive(receiver)))
    }
}

struct Chunks {
    sender: SyncSender<Next>,
    chunk: Vec<u8>,
}

impl Write for Chunks {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let len = buf.len().min(Limits::CHUNK - self.chunk.len());
        self.chunk.extend_from_slice(&buf[..len]);
        if self.chunk.len() == Limits::CHUNK {
            self.flush()?;
        }
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.chunk.is_empty() {
            return Ok(());
        }
        let chunk = std::mem::replace(&mut self.chunk, Vec::with_capacity(Limits::CHUNK));
        self.sender.send(Ok(Some(chunk.into()))).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

struct Archive(Receiver<Next>);

impl Pieces for Archive {
    fn next(&mut self) -> Next {
        // No end mark: the thread failed.
        self.0.recv().unwrap_or(Err(Unreadable))
    }
}
