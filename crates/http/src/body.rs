//! Bodies of responses: bytes at hand and stretches of a file, within a budget of memory.
//!
//! A file is read a chunk at a time, and the next chunk only when the connection has room for it.
//! Each chunk holds a part of the [`Budget`] until its last byte is handed to the system, so that
//! any number of slow clients together cannot hold more.

use crate::exchange::Exchange;
use crate::options::Limits;
use hyper::body::{Bytes, Frame, SizeHint};
use std::collections::VecDeque;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;

/// The budget is shared out in pieces of this many bytes.
const PIECE: usize = 4 << 10;

/// Memory for bodies.
#[derive(Clone)]
pub(crate) struct Budget(Arc<Semaphore>);

/// A part of the budget.
pub(crate) struct Reserved(OwnedSemaphorePermit);

impl Budget {
    pub(crate) fn new(bytes: usize) -> Self {
        Budget(Arc::new(Semaphore::new(bytes.div_ceil(PIECE))))
    }

    /// Waits until `bytes` are free. `None` once the server has ended.
    pub(crate) async fn reserve(&self, bytes: usize) -> Option<Reserved> {
        let pieces = u32::try_from(bytes.div_ceil(PIECE)).ok()?;
        self.0.clone().acquire_many_owned(pieces).await.ok().map(Reserved)
    }

    /// Does not wait: `None` where `bytes` are not free now.
    pub(crate) fn reserve_now(&self, bytes: usize) -> Option<Reserved> {
        let pieces = u32::try_from(bytes.div_ceil(PIECE)).ok()?;
        self.0.clone().try_acquire_many_owned(pieces).ok().map(Reserved)
    }
}

impl Reserved {
    /// The bytes, which give back their part of the budget when they are dropped, and what they do
    /// not need of it now.
    pub(crate) fn hold(self, bytes: impl Into<Bytes>) -> Bytes {
        struct Held(Bytes, #[expect(dead_code, reason = "held for its end")] OwnedSemaphorePermit);
        impl AsRef<[u8]> for Held {
            fn as_ref(&self) -> &[u8] {
                &self.0
            }
        }
        let bytes = bytes.into();
        let mut permit = self.0;
        let excess = permit.num_permits().saturating_sub(bytes.len().div_ceil(PIECE));
        drop(permit.split(excess));
        Bytes::from_owner(Held(bytes, permit))
    }
}

/// A file could not be read. Why is told where it happened.
#[derive(Debug)]
pub(crate) struct Unreadable;

impl std::fmt::Display for Unreadable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the file could not be read to its end")
    }
}

impl std::error::Error for Unreadable {}

/// A file's bytes. Reading may block.
pub(crate) trait Source: Send + Sync {
    /// Its length in bytes.
    fn len(&self) -> u64;

    /// Fills `buf` from byte `offset`.
    fn fill(&self, offset: u64, buf: &mut [u8]) -> Result<(), Unreadable>;
}

/// The first bytes of `range`, at most a chunk. For these the caller has room.
pub(crate) fn first_chunk(source: &dyn Source, range: &Range<u64>) -> Result<Bytes, Unreadable> {
    let mut bytes = vec![0; chunk_len(range)];
    source.fill(range.start, &mut bytes)?;
    Ok(bytes.into())
}

fn chunk_len(range: &Range<u64>) -> usize {
    usize::try_from(range.end - range.start).map_or(Limits::CHUNK, |len| len.min(Limits::CHUNK))
}

/// What a body is put together of.
pub(crate) enum Part {
    Bytes(Bytes),
    File(Range<u64>),
}

type Reading = Pin<Box<dyn Future<Output = Result<Bytes, Unreadable>> + Send>>;

/// The body of a response.
#[derive(Default)]
pub(crate) struct Body {
    parts: VecDeque<Part>,
    /// Bytes to come.
    left: u64,
    /// Where the stretches of a file come from.
    file: Option<(Arc<dyn Source>, Budget)>,
    reading: Option<Reading>,
    /// The request that this answers, which ends with its body.
    exchange: Option<Exchange>,
}

impl Body {
    /// What is at hand.
    pub(crate) fn bytes(bytes: impl Into<Bytes>) -> Self {
        Body::of(vec![Part::Bytes(bytes.into())], None)
    }

    /// These parts, those of a file read from `file`.
    pub(crate) fn of(parts: Vec<Part>, file: Option<(Arc<dyn Source>, Budget)>) -> Self {
        let len = |part: &Part| match part {
            Part::Bytes(bytes) => bytes.len() as u64,
            Part::File(range) => range.end - range.start,
        };
        let left = parts.iter().map(len).sum();
        Body { parts: parts.into(), left, file, reading: None, exchange: None }
    }

    pub(crate) fn len(&self) -> u64 {
        self.left
    }

    /// Ties the end of the request to the end of the body.
    pub(crate) fn ends(mut self, exchange: Exchange) -> Self {
        self.exchange = Some(exchange);
        self
    }

    fn sent(&mut self, bytes: Bytes) -> Bytes {
        self.left -= bytes.len() as u64;
        if let Some(exchange) = &mut self.exchange {
            exchange.sent(bytes.len());
        }
        bytes
    }

    /// Begins to read the next chunk of `range`, if there is one.
    fn read_on(&mut self, range: Range<u64>) -> Option<()> {
        let end = range.start + chunk_len(&range) as u64;
        if end < range.end {
            self.parts.push_front(Part::File(end..range.end));
        }
        let (source, budget) = self.file.clone()?;
        self.reading = Some(Box::pin(async move {
            let chunk = range.start..end;
            let room = budget.reserve(chunk_len(&chunk)).await.ok_or(Unreadable)?;
            let read = spawn_blocking(move || first_chunk(&*source, &chunk).map(|bytes| room.hold(bytes)));
            read.await.unwrap_or(Err(Unreadable))
        }));
        Some(())
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = Unreadable;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Unreadable>>> {
        loop {
            if let Some(reading) = &mut self.reading {
                let read = ready!(reading.as_mut().poll(cx));
                self.reading = None;
                return Poll::Ready(Some(read.map(|bytes| Frame::data(self.sent(bytes)))));
            }
            match self.parts.pop_front() {
                None => return Poll::Ready(None),
                Some(Part::Bytes(bytes)) => return Poll::Ready(Some(Ok(Frame::data(self.sent(bytes))))),
                Some(Part::File(range)) if range.is_empty() => {}
                Some(Part::File(range)) => {
                    if self.read_on(range).is_none() {
                        return Poll::Ready(Some(Err(Unreadable)));
                    }
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        if let Some(exchange) = &mut self.exchange
            && self.left > 0
        {
            exchange.cut();
        }
    }
}
