//! Bodies of responses: bytes, ranges of a file, and content generated while it is sent.
//!
//! A chunk is read once the connection has room for it. It holds a part of the [`Budget`] until its
//! last byte is sent, so slow clients together cannot exceed the budget.

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

/// Unit of the budget in bytes.
const PIECE: usize = 4 << 10;

#[derive(Clone)]
pub(crate) struct Budget(Arc<Semaphore>);

pub(crate) struct Reserved(OwnedSemaphorePermit);

impl Budget {
    pub(crate) fn new(bytes: usize) -> Self {
        Budget(Arc::new(Semaphore::new(bytes.div_ceil(PIECE))))
    }

    /// Waits until `bytes` are free. `None`: the server has ended.
    pub(crate) async fn reserve(&self, bytes: usize) -> Option<Reserved> {
        let pieces = u32::try_from(bytes.div_ceil(PIECE)).ok()?;
        self.0.clone().acquire_many_owned(pieces).await.ok().map(Reserved)
    }

    /// `None`: `bytes` are not free now.
    pub(crate) fn reserve_now(&self, bytes: usize) -> Option<Reserved> {
        let pieces = u32::try_from(bytes.div_ceil(PIECE)).ok()?;
        self.0.clone().try_acquire_many_owned(pieces).ok().map(Reserved)
    }
}

impl Reserved {
    /// The bytes return their part of the budget when dropped, and the unneeded rest now.
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

/// The error was logged where it happened.
#[derive(Debug)]
pub(crate) struct Unreadable;

impl std::fmt::Display for Unreadable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("it could not be read to its end")
    }
}

impl std::error::Error for Unreadable {}

pub(crate) trait Source: Send + Sync {
    fn len(&self) -> u64;

    /// Fills `buf` from byte `offset`. May block.
    fn fill(&self, offset: u64, buf: &mut [u8]) -> Result<(), Unreadable>;
}

/// Content of unknown length. Generating it may block.
pub(crate) trait Pieces: Send {
    fn next(&mut self) -> Result<Option<Bytes>, Unreadable>;
}

/// First bytes of `range`, at most a chunk; the caller has reserved them.
pub(crate) fn first_chunk(source: &dyn Source, range: &Range<u64>) -> Result<Bytes, Unreadable> {
    let mut bytes = vec![0; chunk_len(range)];
    source.fill(range.start, &mut bytes)?;
    Ok(bytes.into())
}

fn chunk_len(range: &Range<u64>) -> usize {
    usize::try_from(range.end - range.start).map_or(Limits::CHUNK, |len| len.min(Limits::CHUNK))
}

pub(crate) enum Part {
    Bytes(Bytes),
    File(Range<u64>),
    /// Comes last.
    Pieces(Box<dyn Pieces>),
}

impl Part {
    /// The next chunk, `None` at the end, and the part after it.
    fn read(self, file: Option<Arc<dyn Source>>) -> Result<(Option<Bytes>, Option<Part>), Unreadable> {
        match self {
            Part::Bytes(bytes) => Ok((Some(bytes), None)),
            Part::File(range) => {
                let chunk = first_chunk(&*file.ok_or(Unreadable)?, &range)?;
                let rest = range.start + chunk.len() as u64..range.end;
                Ok((Some(chunk), Some(Part::File(rest))))
            }
            Part::Pieces(mut pieces) => {
                let chunk = pieces.next()?;
                let rest = chunk.is_some().then_some(Part::Pieces(pieces));
                Ok((chunk, rest))
            }
        }
    }
}

type Reading = Pin<Box<dyn Future<Output = Result<(Option<Bytes>, Option<Part>), Unreadable>> + Send>>;

pub(crate) struct Body {
    parts: VecDeque<Part>,
    /// `None`: unknown.
    left: Option<u64>,
    /// For parts that are ranges.
    file: Option<Arc<dyn Source>>,
    /// For chunks that are read.
    budget: Option<Budget>,
    reading: Option<Reading>,
    /// Ends with the body.
    exchange: Option<Exchange>,
}

impl Default for Body {
    fn default() -> Self {
        Body::of(Vec::new(), None)
    }
}

impl Body {
    pub(crate) fn bytes(bytes: impl Into<Bytes>) -> Self {
        Body::of(vec![Part::Bytes(bytes.into())], None)
    }

    /// A part that is a range is read from `file`.
    pub(crate) fn of(parts: Vec<Part>, file: Option<(Arc<dyn Source>, Budget)>) -> Self {
        let (file, budget) = file.unzip();
        let len = |part: &Part| match part {
            Part::Bytes(bytes) => Some(bytes.len() as u64),
            Part::File(range) => Some(range.end - range.start),
            Part::Pieces(_) => None,
        };
        let left = parts.iter().map(len).sum();
        Body { parts: parts.into(), left, file, budget, reading: None, exchange: None }
    }

    /// `first`, then `rest`.
    pub(crate) fn pieces(first: Bytes, rest: Box<dyn Pieces>, budget: Budget) -> Self {
        let mut body = Body::of(vec![Part::Bytes(first), Part::Pieces(rest)], None);
        body.budget = Some(budget);
        body
    }

    pub(crate) fn len(&self) -> Option<u64> {
        self.left
    }

    /// Ends the request with the body.
    pub(crate) fn ends(mut self, exchange: Exchange) -> Self {
        self.exchange = Some(exchange);
        self
    }

    fn sent(&mut self, bytes: Bytes) -> Bytes {
        self.left = self.left.map(|left| left - bytes.len() as u64);
        if let Some(exchange) = &mut self.exchange {
            exchange.sent(bytes.len());
        }
        bytes
    }

    fn read_on(&mut self, part: Part) -> Option<()> {
        let (budget, file) = (self.budget.clone()?, self.file.clone());
        let len = if let Part::File(range) = &part { chunk_len(range) } else { Limits::CHUNK };
        self.reading = Some(Box::pin(async move {
            let room = budget.reserve(len).await.ok_or(Unreadable)?;
            let read = spawn_blocking(move || {
                let (chunk, rest) = part.read(file)?;
                Ok((chunk.map(|chunk| room.hold(chunk)), rest))
            });
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
                let (chunk, rest) = match ready!(reading.as_mut().poll(cx)) {
                    Ok(read) => read,
                    Err(unreadable) => return Poll::Ready(Some(Err(unreadable))),
                };
                self.reading = None;
                if let Some(rest) = rest {
                    self.parts.push_front(rest);
                }
                match chunk {
                    Some(chunk) => return Poll::Ready(Some(Ok(Frame::data(self.sent(chunk))))),
                    None => self.left = Some(0),
                }
            }
            match self.parts.pop_front() {
                None => return Poll::Ready(None),
                Some(Part::Bytes(bytes)) => return Poll::Ready(Some(Ok(Frame::data(self.sent(bytes))))),
                Some(Part::File(range)) if range.is_empty() => {}
                Some(part) => {
                    if self.read_on(part).is_none() {
                        return Poll::Ready(Some(Err(Unreadable)));
                    }
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.left == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        if let Some(exchange) = &mut self.exchange
            && self.left != Some(0)
        {
            exchange.cut();
        }
    }
}
