//! Many reads in flight: requests with buffers of their own go in, completions come out in any order.
//!
//! [`SerialQueue`] needs nothing of a device. [`ReaderPool`] serves devices whose only read is a blocking one
//! with a few threads.
//!
//! Who protects what, in the pool: `state` holds the jobs that no thread has taken and the thread counts;
//! a thread waits on `work` with `state` released. Each queue receives its completions over a channel of its own,
//! which outlives the pool's interest in it: a queue that is dropped early costs only the reads under way.
//! There is one lock, and no read is made with it held.

use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crate::BlockDevice;

/// One read to be made.
#[derive(Debug)]
pub struct Request {
    /// Comes back with the completion; the queue gives it no meaning.
    pub tag: u64,
    /// Where to read, in bytes.
    pub offset: u64,
    /// What to fill, whole. Its length is the length of the read.
    pub buf: Vec<u8>,
}

/// One read that has ended.
#[derive(Debug)]
pub struct Completion {
    /// The tag of the request.
    pub tag: u64,
    /// The request's buffer, filled, or why it is not.
    pub result: io::Result<Vec<u8>>,
}

/// Reads in flight on a device, see [`BlockDevice::queue`].
///
/// Dropping a queue forgets its reads.
pub trait ReadQueue: Send {
    /// Hands in a read. Waits for another one only where as many are in flight as the queue is deep.
    fn submit(&mut self, request: Request);

    /// Waits for a read to end, in no particular order. `None` when every read handed in has been answered.
    fn complete(&mut self) -> Option<Completion>;
}

/// A queue for any device: keeps requests until they are asked for.
pub(crate) struct SerialQueue<D: ?Sized> {
    device: Arc<D>,
    waiting: VecDeque<Request>,
}

impl<D: BlockDevice + ?Sized> SerialQueue<D> {
    pub(crate) fn new(device: Arc<D>) -> Self {
        SerialQueue { device, waiting: VecDeque::new() }
    }
}

impl<D: BlockDevice + ?Sized> ReadQueue for SerialQueue<D> {
    fn submit(&mut self, request: Request) {
        self.waiting.push_back(request);
    }

    fn complete(&mut self) -> Option<Completion> {
        let request = self.waiting.pop_front()?;
        Some(serve(request, |offset, buf| self.device.read_at(offset, buf)))
    }
}

fn serve(mut request: Request, read: impl FnOnce(u64, &mut [u8]) -> io::Result<()>) -> Completion {
    let result = read(request.offset, &mut request.buf);
    Completion { tag: request.tag, result: result.map(|()| request.buf) }
}

/// The blocking read that a pool's threads make.
pub(crate) type ReadAt = dyn Fn(u64, &mut [u8]) -> io::Result<()> + Send + Sync;

/// Threads that make blocking reads for any number of queues. They start when first needed, and end with the pool.
pub(crate) struct ReaderPool {
    shared: Arc<PoolShared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct PoolShared {
    read: Box<ReadAt>,
    state: Mutex<PoolState>,
    work: Condvar,
}

#[derive(Default)]
struct PoolState {
    jobs: VecDeque<(Request, Sender<Completion>)>,
    /// Threads that wait for a job.
    idle: usize,
    threads: usize,
    closed: bool,
}

/// More threads than this gain nothing on the devices a pool is for; deeper queues wait for the first to end.
const MAX_READERS: usize = 32;

impl ReaderPool {
    pub(crate) fn new(read: Box<ReadAt>) -> Self {
        let shared = PoolShared { read, state: Mutex::default(), work: Condvar::new() };
        ReaderPool { shared: Arc::new(shared), threads: Mutex::default() }
    }

    /// Queues a read, and starts a thread where none is free to take it.
    ///
    /// With no thread at all and none to be had, the read is made here: slower, never lost.
    fn push(&self, request: Request, done: &Sender<Completion>) {
        let mut state = self.shared.lock();
        state.jobs.push_back((request, done.clone()));
        if state.jobs.len() <= state.idle || state.threads == MAX_READERS {
            drop(state);
            self.shared.work.notify_one();
            return;
        }
        state.threads += 1;
        drop(state);
        let shared = Arc::clone(&self.shared);
        match std::thread::Builder::new().name("blockdev-read".into()).spawn(move || shared.run()) {
            Ok(thread) => self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread),
            Err(_) => self.shared.serve_one_here(),
        }
    }
}

impl PoolShared {
    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut state = self.lock();
        loop {
            if let Some((request, done)) = state.jobs.pop_front() {
                drop(state);
                // The queue may be gone; then nobody wants the answer.
                let _ = done.send(serve(request, &self.read));
                state = self.lock();
            } else if state.closed {
                return;
            } else {
                state.idle += 1;
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
            }
        }
    }

    fn serve_one_here(&self) {
        let mut state = self.lock();
        state.threads -= 1;
        let job = state.jobs.pop_front();
        drop(state);
        if let Some((request, done)) = job {
            let _ = done.send(serve(request, &self.read));
        }
    }
}

impl Drop for ReaderPool {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.closed = true;
        state.jobs.clear();
        drop(state);
        self.shared.work.notify_all();
        for thread in self.threads.get_mut().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // A thread that panicked has nothing left to end.
            let _ = thread.join();
        }
    }
}

/// A queue on a device that has a pool; `device` keeps the pool alive.
pub(crate) struct PoolQueue<D> {
    device: Arc<D>,
    depth: usize,
    in_flight: usize,
    /// Ended while `submit` made room, not yet asked for.
    ready: VecDeque<Completion>,
    sender: Sender<Completion>,
    receiver: Receiver<Completion>,
}

impl<D: AsRef<ReaderPool>> PoolQueue<D> {
    pub(crate) fn new(device: Arc<D>, depth: usize) -> Self {
        let (sender, receiver) = channel();
        PoolQueue { device, depth: depth.max(1), in_flight: 0, ready: VecDeque::new(), sender, receiver }
    }

    fn receive(&mut self) -> Option<Completion> {
        if self.in_flight == 0 {
            return None;
        }
        self.in_flight -= 1;
        // `sender` is alive in self: this waits for a thread, and cannot find the channel closed.
        self.receiver.recv().ok()
    }
}

impl<D: AsRef<ReaderPool> + Send + Sync> ReadQueue for PoolQueue<D> {
    fn submit(&mut self, request: Request) {
        if self.in_flight == self.depth {
            let done = self.receive();
            self.ready.extend(done);
        }
        self.in_flight += 1;
        (*self.device).as_ref().push(request, &self.sender);
    }

    fn complete(&mut self) -> Option<Completion> {
        self.ready.pop_front().or_else(|| self.receive())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;
    use crate::MemoryDevice;

    impl AsRef<ReaderPool> for ReaderPool {
        fn as_ref(&self) -> &ReaderPool {
            self
        }
    }

    fn request(tag: u64, offset: u64, len: usize) -> Request {
        Request { tag, offset, buf: vec![0; len] }
    }

    #[test]
    fn a_serial_queue_answers_every_request_and_then_none() {
        let device = Arc::new(MemoryDevice::from((0..=255).collect::<Vec<u8>>()));
        let mut queue = device.queue(1);
        for tag in 0..10 {
            queue.submit(request(tag, tag * 10, 5));
        }
        for tag in 0..10u8 {
            let done = queue.complete().unwrap();
            let first = tag * 10;
            assert_eq!(done.tag, u64::from(tag));
            assert_eq!(done.result.unwrap(), [first, first + 1, first + 2, first + 3, first + 4]);
        }
        assert!(queue.complete().is_none());
    }

    #[test]
    fn a_pool_has_as_many_reads_in_flight_as_the_queue_is_deep() {
        const DEPTH: usize = 8;
        // No read ends before eight have begun.
        let barrier = Barrier::new(DEPTH);
        let pool = Arc::new(ReaderPool::new(Box::new(move |offset, buf| {
            barrier.wait();
            buf.fill(offset as u8);
            Ok(())
        })));
        let mut queue = PoolQueue::new(pool, DEPTH);
        for tag in 0..3 * DEPTH as u64 {
            queue.submit(request(tag, tag, 1));
        }
        let mut tags: Vec<u64> = std::iter::from_fn(|| queue.complete())
            .map(|done| {
                assert_eq!(done.result.unwrap(), [done.tag as u8]);
                done.tag
            })
            .collect();
        tags.sort_unstable();
        assert_eq!(tags, (0..3 * DEPTH as u64).collect::<Vec<_>>());
    }

    #[test]
    fn a_failed_read_carries_its_tag_and_harms_no_other() {
        let pool = Arc::new(ReaderPool::new(Box::new(|offset, _| {
            if offset == 1 { Err(io::Error::other("bad sector")) } else { Ok(()) }
        })));
        let mut queue = PoolQueue::new(pool, 2);
        (0..3).for_each(|tag| queue.submit(request(tag, tag, 1)));
        let failed: Vec<u64> = std::iter::from_fn(|| queue.complete())
            .filter(|done| done.result.is_err())
            .map(|d| d.tag)
            .collect();
        assert_eq!(failed, [1]);
    }

    #[test]
    fn a_queue_dropped_with_reads_in_flight_leaves_the_pool_working() {
        let pool = Arc::new(ReaderPool::new(Box::new(|_, _| Ok(()))));
        let mut early = PoolQueue::new(Arc::clone(&pool), 4);
        (0..4).for_each(|tag| early.submit(request(tag, 0, 1)));
        drop(early);
        let mut queue = PoolQueue::new(pool, 4);
        queue.submit(request(9, 0, 1));
        assert_eq!(queue.complete().unwrap().tag, 9);
    }
}
