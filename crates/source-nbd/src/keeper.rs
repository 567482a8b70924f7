//! The thread that reads replies and reconnects.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::{self, BufRead, Read, Write};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use crate::connection::{Connection, End, Frame, MOST_LOSSES, send};
use crate::greeting::{self, Export};
use crate::request::Request;
use crate::stream::{Reader, Stream};
use crate::wire::{self, Command, chunk, read_u16, read_u32, read_u64, server_error, skip, violation};
use crate::write_log::Logged;

/// Replayed writes per batch of replies: the replies fit into a socket's buffers, so neither side
/// blocks the other.
const REPLAY_GROUP: usize = 64;
/// Longest error payload.
const MAX_MESSAGE: u32 = 64 << 10;
/// Between attempts to connect.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Reconnects to the export.
pub(crate) type Connect = dyn Fn() -> io::Result<(Stream, Export)> + Send;

enum Fault {
    /// Another connection may work.
    Lost(io::Error),
    /// Another connection would not help.
    Final(io::Error),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            // Protocol violation.
            io::ErrorKind::InvalidData => Fault::Final(error),
            _ => Fault::Lost(error),
        }
    }
}

struct Replies {
    from: Reader,
    /// Structured replies.
    structured: bool,
}

/// Reply header.
struct Reply {
    cookie: u64,
    body: Body,
}

enum Body {
    /// Errno or 0.
    Simple(u32),
    Chunk {
        flags: u16,
        kind: u16,
        len: u32,
    },
}

impl Connection {
    /// Reads replies until the device ends, across connections.
    pub(crate) fn keep(&self, stream: Stream, connect: Option<&Connect>) {
        let mut replies = Replies { from: stream.reader, structured: self.export.structured };
        self.publish(stream.writer, stream.socket);
        let error = loop {
            let mut last_reply = Instant::now();
            let fault = self.read_replies(&mut replies, &mut last_reply);
            let fault = match (self.retract(), fault) {
                (Some(error), Fault::Lost(_)) => Fault::Lost(error),
                (_, fault) => fault,
            };
            let lost = match (fault, connect) {
                (Fault::Lost(lost), Some(connect)) => self.lose(&lost).map(|()| (lost, connect)),
                (Fault::Lost(lost), None) => Err(self.gone(&lost, &"its server has ended")),
                (Fault::Final(error), _) => Err(error),
            };
            match lost.and_then(|(lost, connect)| self.connect_again(connect, &lost, last_reply)) {
                Ok((stream, structured)) => {
                    replies = Replies { from: stream.reader, structured };
                    self.publish(stream.writer, stream.socket);
                }
                Err(error) => break error,
            }
        };
        self.finish(End::Failed(error.kind(), error.to_string()));
    }

    /// Restarts requests after a lost connection; fails those that lost too many.
    fn lose(&self, lost: &io::Error) -> io::Result<()> {
        let mut state = self.lock();
        if let Some(end) = &state.end {
            return Err(end.error());
        }
        if let Some(change) =
            state.waiting.values().find(|request| request.changes()).filter(|_| is_stall(lost))
        {
            let message = format!(
                "the NBD server did not answer a request to {} within {:?}, and may still do it",
                change.describe(),
                self.patience.answer
            );
            return Err(io::Error::new(io::ErrorKind::TimedOut, message));
        }
        state.waiting.values_mut().for_each(Request::begin_again);
        let failed: Vec<_> =
            state.waiting.extract_if(.., |_, request| request.losses > MOST_LOSSES).collect();
        drop(state);
        for (_, request) in failed {
            let message = format!(
                "the NBD server ended {} connections instead of answering a request to {}",
                request.losses,
                request.describe()
            );
            request.fail(io::Error::new(io::ErrorKind::ConnectionAborted, message));
        }
        Ok(())
    }

    /// Retries until the server has all writes of the log, or the time limit.
    fn connect_again(
        &self,
        connect: &Connect,
        lost: &io::Error,
        last_reply: Instant,
    ) -> io::Result<(Stream, bool)> {
        let mut pause = FIRST_PAUSE;
        loop {
            let error = match self.connect_and_replay(connect) {
                Ok(connected) => return Ok(connected),
                Err(Fault::Final(error)) => return Err(self.gone(lost, &error)),
                Err(Fault::Lost(error)) => error,
            };
            if last_reply.elapsed() > self.patience.absence {
                return Err(self.gone(lost, &error));
            }
            let waited = self.work.wait_timeout_while(self.lock(), pause, |state| state.end.is_none());
            let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            if let Some(end) = &state.end {
                return Err(end.error());
            }
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
    }

    /// Error of a permanently lost connection.
    fn gone(&self, lost: &io::Error, why: &dyn Display) -> io::Error {
        let unflushed = match self.lock().log.len() {
            0 => String::new(),
            writes => format!("; {writes} writes since the last flush may be lost"),
        };
        let message =
            format!("the connection to the NBD server was lost for good ({lost}; {why}){unflushed}");
        io::Error::new(io::ErrorKind::NotConnected, message)
    }

    /// A connection on which the log is replayed.
    fn connect_and_replay(&self, connect: &Connect) -> Result<(Stream, bool), Fault> {
        let (mut stream, export) = connect()?;
        if !greeting::is_same(&self.export, &export) {
            return Err(Fault::Final(violation(
                "it came back with another size, or cannot do what it could",
            )));
        }
        let mut replies = Replies { from: stream.reader, structured: export.structured };
        // No replies are read: the log is constant.
        let groups = self.lock().log.groups(REPLAY_GROUP);
        for group in groups {
            replay(&mut stream.writer, &mut replies, &group).map_err(|fault| match fault {
                Fault::Lost(error) if is_stall(&error) => Fault::Final(error),
                fault => fault,
            })?;
        }
        stream.reader = replies.from;
        Ok((stream, export.structured))
    }

    /// Until the connection ends; sets `last_reply`.
    fn read_replies(&self, replies: &mut Replies, last_reply: &mut Instant) -> Fault {
        loop {
            match self.read_reply(replies) {
                Ok(()) => *last_reply = Instant::now(),
                Err(fault) => return fault,
            }
        }
    }

    fn read_reply(&self, replies: &mut Replies) -> Result<(), Fault> {
        self.wait_for_reply(replies)?;
        let reply = replies.header()?;
        let taken = self.lock().waiting.remove(&reply.cookie);
        let Some(mut request) = taken else {
            // The device may have ended.
            return Err(violation(format_args!("a reply to no request ({})", reply.cookie)).into());
        };
        let body = replies.body(&reply.body, &mut request);
        let mut state = self.lock();
        if !matches!(body, Ok(true)) {
            state.waiting.insert(reply.cookie, request);
            return body.map(|_| ());
        }
        match (request.command, &request.data, &request.error) {
            (Command::Write, Some(data), None) => state.log.push(request.offset, data.clone()),
            (Command::Flush, _, None) => state.log.flushed(request.covers),
            _ => {}
        }
        drop(state);
        request.end();
        Ok(())
    }

    /// Waits for a reply. Silence is a fault if a request has waited for all of it.
    fn wait_for_reply(&self, replies: &mut Replies) -> io::Result<()> {
        let mut oldest_before = None;
        loop {
            match replies.from.fill_buf() {
                Ok([]) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "closed by the server")),
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let oldest = self.lock().waiting.keys().next().copied();
                    if oldest.is_some() && oldest == oldest_before {
                        return Err(io::Error::new(error.kind(), "no answer"));
                    }
                    oldest_before = oldest;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// Whether the server was silent without closing.
fn is_stall(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// Sends writes that do not overlap, and awaits the replies.
fn replay(writer: &mut dyn Write, replies: &mut Replies, group: &[Logged]) -> Result<(), Fault> {
    let request = |write: &Logged| Request::write(write.offset, write.data.clone(), Box::new(drop));
    let mut missing: BTreeMap<u64, Request> = (0..).zip(group.iter().map(request)).collect();
    let frames: Vec<Frame> =
        missing.iter().map(|(&cookie, request)| (request.header(cookie), request.data.clone())).collect();
    send(writer, &frames)?;
    while !missing.is_empty() {
        let reply = replies.header()?;
        let request = missing.get_mut(&reply.cookie).ok_or_else(|| violation("a reply to no request"))?;
        let is_last = replies.body(&reply.body, request)?;
        if let Some(error) = request.error.take() {
            let message = format!("an acknowledged write could not be made again: {error}");
            return Err(Fault::Final(io::Error::new(error.kind(), message)));
        }
        if is_last {
            missing.remove(&reply.cookie);
        }
    }
    Ok(())
}

impl Replies {
    fn header(&mut self) -> io::Result<Reply> {
        let from = &mut self.from;
        match read_u32(from)? {
            wire::SIMPLE_REPLY => {
                let error = read_u32(from)?;
                Ok(Reply { cookie: read_u64(from)?, body: Body::Simple(error) })
            }
            wire::STRUCTURED_REPLY if self.structured => {
                let (flags, kind) = (read_u16(from)?, read_u16(from)?);
                let cookie = read_u64(from)?;
                Ok(Reply { cookie, body: Body::Chunk { flags, kind, len: read_u32(from)? } })
            }
            magic => Err(violation(format_args!("a reply that begins with {magic:#x}"))),
        }
    }

    fn body(&mut self, body: &Body, request: &mut Request) -> Result<bool, Fault> {
        match *body {
            Body::Simple(_) if self.structured && request.command == Command::Read => {
                Err(violation("a read that is answered without chunks").into())
            }
            Body::Simple(0) => {
                self.from.read_exact(&mut request.buf)?;
                Ok(true)
            }
            Body::Simple(number) => report(number, request).map(|()| true),
            Body::Chunk { flags, kind, len } => {
                self.chunk(kind, len, request)?;
                let is_last = flags & chunk::DONE != 0;
                if is_last && request.error.is_none() && request.received != request.buf.len() {
                    let (came, wanted) = (request.received, request.buf.len());
                    return Err(violation(format_args!("{came} of {wanted} bytes that were read")).into());
                }
                Ok(is_last)
            }
        }
    }

    /// Overlapping chunks are accepted: a lying server could as well send wrong bytes.
    fn chunk(&mut self, kind: u16, len: u32, request: &mut Request) -> Result<(), Fault> {
        let from = &mut self.from;
        match kind {
            chunk::NONE if len == 0 => {}
            chunk::DATA if len > 8 => {
                let at = read_u64(from)?;
                let into = place(request, at, u64::from(len) - 8)?;
                from.read_exact(into)?;
            }
            chunk::HOLE if len == 12 => {
                let at = read_u64(from)?;
                let hole = u64::from(read_u32(from)?);
                place(request, at, hole)?.fill(0);
            }
            kind if kind & chunk::ERROR != 0 && (6..=MAX_MESSAGE).contains(&len) => {
                let number = read_u32(from)?;
                skip(from, u64::from(len) - 4)?;
                report(number, request)?;
            }
            _ => return Err(violation(format_args!("a chunk of kind {kind} with {len} bytes")).into()),
        }
        Ok(())
    }
}

/// Stores a server's error.
fn report(number: u32, request: &mut Request) -> Result<(), Fault> {
    match number {
        0 => Err(violation("an error without a number").into()),
        wire::SHUTDOWN => Err(Fault::Lost(server_error(number, request.describe()))),
        _ => {
            request.error = Some(server_error(number, request.describe()));
            Ok(())
        }
    }
}

/// Maps a range of the export to the read's buffer.
fn place(request: &mut Request, at: u64, len: u64) -> io::Result<&mut [u8]> {
    let start = at.checked_sub(request.offset).and_then(|start| usize::try_from(start).ok());
    let range = start.and_then(|start| Some(start..start.checked_add(usize::try_from(len).ok()?)?));
    let missing = request.buf.len() - request.received;
    match range.and_then(|range| request.buf.get_mut(range)) {
        Some(into) if len > 0 && into.len() <= missing => {
            request.received += into.len();
            Ok(into)
        }
        _ => Err(violation(format_args!("{len} bytes at {at}, which were not asked for"))),
    }
}
