//! Requests in flight, across lost connections.
//!
//! A device has two threads. The *sender* sends queued requests; the *keeper* reads replies and
//! reconnects (`keeper.rs`). Callers only queue: replies are read even if the server takes nothing,
//! and no callback waits for the socket.
//!
//! | state                                | protected by                                |
//! |--------------------------------------|---------------------------------------------|
//! | waiting requests, queue, log, link   | `state` (a leaf)                            |
//! | reading half of a socket             | keeper only                                 |
//! | writing half of a socket             | sender only, once its link is published     |
//!
//! # Guarantees
//! - N1: each request ends once, with reply or error. It is repeated after a lost connection; after
//!   [`MOST_LOSSES`] it fails, because it may be what crashes the server.
//! - N2: after a lost connection all writes of the log are acknowledged again before other requests
//!   are sent. No read sees content older than an acknowledged write.
//! - N3: an acknowledged flush removes from the log the writes that it held when the flush was
//!   queued.
//! - N4: replies go into buffers of the requested size. A reply that is too long, of unknown kind
//!   or to an unknown request ends the device.
//! - N5: no write is repeated while the server may still execute it, which could undo a newer one.
//!   A server that closes a connection drops its requests. A silent one may not: a timeout with a
//!   write in flight ends the device.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, BufWriter, Write};
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::Patience;
use crate::greeting::Export;
use crate::request::Request;
use crate::stream::Socket;
use crate::wire::{self, Command};
use crate::write_log::WriteLog;

/// Lost connections per request.
pub(crate) const MOST_LOSSES: u32 = 10;

pub(crate) struct Connection {
    pub(crate) export: Export,
    pub(crate) patience: Patience,
    state: Mutex<State>,
    /// New requests, or the end.
    pub(crate) work: Condvar,
}

#[derive(Default)]
pub(crate) struct State {
    /// By cookie: in order of arrival.
    pub(crate) waiting: BTreeMap<u64, Request>,
    queue: VecDeque<u64>,
    next_cookie: u64,
    pub(crate) log: WriteLog,
    link: Option<Link>,
    /// Why the sender lost the link.
    send_error: Option<io::Error>,
    pub(crate) end: Option<End>,
}

/// Sending side of a connection.
#[derive(Clone)]
struct Link {
    writer: Arc<Mutex<Box<dyn Write + Send>>>,
    socket: Arc<dyn Socket>,
}

pub(crate) enum End {
    Closed,
    /// The server is gone or violates the protocol.
    Failed(io::ErrorKind, String),
}

impl End {
    pub(crate) fn error(&self) -> io::Error {
        match self {
            End::Closed => io::Error::new(io::ErrorKind::NotConnected, "the device was closed"),
            End::Failed(kind, text) => io::Error::new(*kind, text.clone()),
        }
    }
}

impl Connection {
    pub(crate) fn new(export: Export, patience: Patience) -> Self {
        Connection { export, patience, state: Mutex::default(), work: Condvar::new() }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a request, which ends by its callback.
    pub(crate) fn start(&self, mut request: Request) {
        let mut state = self.lock();
        if let Some(end) = &state.end {
            let error = end.error();
            drop(state);
            return request.fail(error);
        }
        request.covers = state.log.end();
        let cookie = state.next_cookie;
        state.next_cookie += 1;
        state.waiting.insert(cookie, request);
        state.queue.push_back(cookie);
        drop(state);
        self.work.notify_all();
    }

    /// Fails waiting and later requests.
    pub(crate) fn finish(&self, end: End) {
        let mut state = self.lock();
        let error = state.end.get_or_insert(end).error();
        let waiting = mem::take(&mut state.waiting);
        drop(state);
        self.work.notify_all();
        for request in waiting.into_values() {
            request.fail(io::Error::new(error.kind(), error.to_string()));
        }
    }

    /// Sends over a new connection from now on: at first all that waits.
    pub(crate) fn publish(&self, writer: Box<dyn Write + Send>, socket: Arc<dyn Socket>) {
        let mut state = self.lock();
        state.queue = state.waiting.keys().copied().collect();
        state.link = Some(Link { writer: Arc::new(Mutex::new(writer)), socket });
        drop(state);
        self.work.notify_all();
    }

    /// Gives up a connection. Returns the sender's error if the sender lost it.
    pub(crate) fn retract(&self) -> Option<io::Error> {
        let mut state = self.lock();
        if let Some(link) = state.link.take() {
            link.socket.shut_down();
        }
        state.send_error.take()
    }

    /// Runs until the device ends.
    pub(crate) fn send_requests(&self) {
        let mut state = self.lock();
        while state.end.is_none() {
            let Some(link) = state.link.clone().filter(|_| !state.queue.is_empty()) else {
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let queue = mem::take(&mut state.queue);
            let requests = queue.into_iter().filter_map(|cookie| Some((cookie, state.waiting.get(&cookie)?)));
            let frames: Vec<Frame> =
                requests.map(|(cookie, request)| (request.header(cookie), request.data.clone())).collect();
            drop(state);
            let sent = link.send(&frames);
            state = self.lock();
            if let Err(error) = sent
                && state.link.as_ref().is_some_and(|present| Arc::ptr_eq(&present.writer, &link.writer))
            {
                // The keeper sees the end of the socket and reconnects.
                state.send_error = Some(error);
                state.link = None;
                link.socket.shut_down();
            }
        }
        let link = state.link.take();
        drop(state);
        if let Some(link) = link {
            // Useless if the server is gone.
            let _ = link.send(&[(wire::request(Command::Disconnect, u64::MAX, 0, 0), None)]);
            link.socket.shut_down();
        }
    }
}

/// Header and payload.
pub(crate) type Frame = ([u8; 28], Option<Arc<[u8]>>);

impl Link {
    fn send(&self, frames: &[Frame]) -> io::Result<()> {
        send(&mut **self.writer.lock().unwrap_or_else(PoisonError::into_inner), frames)
    }
}

/// Gathers small requests.
pub(crate) fn send(writer: &mut dyn Write, frames: &[Frame]) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(16 << 10, writer);
    for (header, data) in frames {
        out.write_all(header)?;
        out.write_all(data.as_deref().unwrap_or_default())?;
    }
    out.flush()
}
