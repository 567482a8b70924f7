//! Threads that make submitted reads for blocking devices.
//!
//! `state` (a leaf mutex) protects queued jobs and thread counts. Reads and callbacks run without
//! it.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use crate::Done;

pub(crate) type ReadAt = dyn Fn(u64, &mut [u8]) -> io::Result<()> + Send + Sync;

/// Threads start on demand and end with the pool.
pub(crate) struct ReaderPool {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Shared {
    read: Box<ReadAt>,
    /// Thread limit.
    most: usize,
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    idle: usize,
    threads: usize,
    closed: bool,
}

pub(crate) struct Job {
    pub(crate) offset: u64,
    pub(crate) buf: Vec<u8>,
    pub(crate) done: Done,
}

/// More threads gain nothing.
pub(crate) const MAX_READERS: usize = 32;

impl ReaderPool {
    pub(crate) fn new(read: Box<ReadAt>) -> Self {
        ReaderPool::with_readers(MAX_READERS, read)
    }

    /// At most `most` threads, at least one.
    pub(crate) fn with_readers(most: usize, read: Box<ReadAt>) -> Self {
        let shared = Shared { read, most: most.max(1), state: Mutex::default(), work: Condvar::new() };
        ReaderPool { shared: Arc::new(shared), threads: Mutex::default() }
    }

    /// Starts a thread if none is idle.
    ///
    /// Reads here if no thread can start.
    pub(crate) fn submit(&self, job: Job) {
        let mut state = self.shared.lock();
        state.jobs.push_back(job);
        if state.jobs.len() <= state.idle || state.threads == self.shared.most {
            // Saves a system call without waiters.
            let is_awaited = state.idle > 0;
            drop(state);
            if is_awaited {
                self.shared.work.notify_one();
            }
            return;
        }
        state.threads += 1;
        drop(state);
        let shared = Arc::clone(&self.shared);
        match thread::Builder::new().name("blockdev-read".into()).spawn(move || shared.run()) {
            Ok(thread) => self.lock_threads().push(thread),
            Err(_) => self.shared.serve_one_here(),
        }
    }

    fn lock_threads(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                self.serve(job);
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

    fn serve(&self, Job { offset, mut buf, done }: Job) {
        let result = (self.read)(offset, &mut buf);
        done(result.map(|()| buf));
    }

    fn serve_one_here(&self) {
        let mut state = self.lock();
        state.threads -= 1;
        let job = state.jobs.pop_front();
        drop(state);
        if let Some(job) = job {
            self.serve(job);
        }
    }
}

impl Drop for ReaderPool {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.closed = true;
        let unread = std::mem::take(&mut state.jobs);
        drop(state);
        self.shared.work.notify_all();
        for job in unread {
            (job.done)(Err(io::Error::other("the device was closed before the read began")));
        }
        let me = thread::current().id();
        for thread in self.lock_threads().drain(..) {
            // A callback may drop the last reference to the device; a thread cannot join itself.
            if thread.thread().id() != me {
                // A panicked thread leaves nothing to clean up.
                let _ = thread.join();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn as_many_reads_are_in_flight_as_there_may_be_threads() {
        // All reads start before one ends.
        let barrier = Barrier::new(MAX_READERS);
        let pool = ReaderPool::new(Box::new(move |offset, buf| {
            barrier.wait();
            buf.fill(offset as u8);
            Ok(())
        }));
        let (sender, receiver) = channel();
        for offset in 0..3 * MAX_READERS as u64 {
            let sender = sender.clone();
            let done = move |result: io::Result<Vec<u8>>| sender.send((offset, result.unwrap())).unwrap();
            pool.submit(Job { offset, buf: vec![0], done: Box::new(done) });
        }
        drop(sender);
        let mut results: Vec<_> = receiver.iter().take(3 * MAX_READERS).collect();
        results.sort_unstable();
        assert_eq!(results, (0..3 * MAX_READERS as u64).map(|at| (at, vec![at as u8])).collect::<Vec<_>>());
    }

    #[test]
    fn a_failed_read_harms_no_other() {
        let pool =
            ReaderPool::new(Box::new(
                |offset, _| {
                    if offset == 1 { Err(io::Error::other("bad sector")) } else { Ok(()) }
                },
            ));
        let (sender, receiver) = channel();
        for offset in 0..3 {
            let sender = sender.clone();
            let done = move |result: io::Result<_>| sender.send((offset, result.is_ok())).unwrap();
            pool.submit(Job { offset, buf: vec![0], done: Box::new(done) });
        }
        let mut results: Vec<_> = receiver.iter().take(3).collect();
        results.sort_unstable();
        assert_eq!(results, [(0, true), (1, false), (2, true)]);
    }

    #[test]
    fn the_last_holder_of_a_pool_may_be_one_of_its_threads() {
        let pool = Arc::new(ReaderPool::new(Box::new(|_, _| Ok(()))));
        let (dropped, receiver) = channel();
        let (begin, begun) = channel::<()>();
        let held = Arc::clone(&pool);
        let done = move |_| {
            begun.recv().unwrap();
            drop(held);
            dropped.send(()).unwrap();
        };
        pool.submit(Job { offset: 0, buf: vec![0], done: Box::new(done) });
        drop(pool);
        begin.send(()).unwrap();
        receiver.recv().unwrap();
    }
}
