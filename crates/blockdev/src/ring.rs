//! Submitted reads through io_uring.
//!
//! One thread owns the ring. It takes queued jobs, keeps up to [`DEPTH`] in the kernel, and sleeps
//! until a read ends or a job is queued.
//!
//! `queue` (a leaf mutex) protects queued jobs, the sleep flag and the state of shutdown. The
//! thread owns ring and reads in flight. System calls and callbacks run without the mutex.
//!
//! # Guarantees
//! - *No lost wake-up.* Thread and submitter set and check the sleep flag under the lock. A job
//!   queued before the flag is taken; a later one wakes the thread through an eventfd.
//! - *Each job completes once.* It is queued, in the kernel, or complete. When the device is
//!   dropped, the thread waits for the kernel, fails queued jobs, and ends.
//!
//! # Performance
//! Random uncached 4 KiB reads, two busy processors: the rate of threads at a half to two thirds of
//! their CPU time (5.9 µs a read against 9.0 at depth 128, 13 against 28 at 8). A single
//! synchronous read is cheaper without a queue: 25 µs against 45. `cargo bench -p dentree-blockdev
//! --bench queue_depth`.
//!
//! # Known limits
//! Reads use the page cache; file and buffers are not registered. O_DIRECT saves up to 3 µs and
//! costs the next process a device read. Registration saves at most 0.4 µs and needs unsafe code:
//! `docs/BENCHMARKS.md`, "Reads that are not waited for".

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::thread::{self, JoinHandle};

use compio_buf::{BufResult, IntoInner, IoBuf, Slice};
use compio_driver::op::ReadAt;
use compio_driver::{Key, Proactor, PushEntry};

use crate::pool::Job;

/// Most reads in the kernel; disk queues are rarely longer.
const DEPTH: usize = 128;

type Op = ReadAt<Slice<Vec<u8>>, Arc<File>>;

/// Owns its thread.
pub(crate) struct Ring {
    shared: Arc<Shared>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    is_asleep: bool,
    is_closed: bool,
}

impl Queue {
    fn has_work(&self) -> bool {
        !self.is_closed && !self.jobs.is_empty()
    }
}

impl Ring {
    /// Reads from `file`.
    ///
    /// # Errors
    /// The kernel has no io_uring or refuses it, as in many containers.
    pub(crate) fn new(file: Arc<File>) -> io::Result<Ring> {
        let shared = Arc::new(Shared::default());
        let (sender, receiver) = sync_channel(1);
        let driver = Arc::clone(&shared);
        let run = move || match Proactor::builder().capacity(DEPTH as u32).build() {
            Ok(ring) => {
                let started = sender.send(Ok(ring.waker()));
                drop(sender);
                if started.is_ok() {
                    Driver { shared: driver, ring, file, flying: Vec::new() }.run();
                }
            }
            Err(refused) => drop(sender.send(Err(refused))),
        };
        let thread = thread::Builder::new().name("blockdev-ring".into()).spawn(run)?;
        let waker =
            receiver.recv().unwrap_or_else(|_| Err(io::Error::other("the ring's thread has ended")))?;
        Ok(Ring { shared, waker, thread: Some(thread) })
    }

    /// Returns the job if the ring has failed.
    pub(crate) fn submit(&self, job: Job) -> Result<(), Job> {
        let mut queue = self.shared.lock();
        if queue.is_closed {
            return Err(job);
        }
        queue.jobs.push_back(job);
        let must_wake = std::mem::take(&mut queue.is_asleep);
        drop(queue);
        if must_wake {
            self.waker.wake_by_ref();
        }
        Ok(())
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.shared.lock().is_closed = true;
        self.waker.wake_by_ref();
        // A callback may drop the last reference to the device; a thread cannot join itself.
        if let Some(thread) =
            self.thread.take().filter(|thread| thread.thread().id() != thread::current().id())
        {
            // A panicked thread leaves nothing to clean up.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Driver {
    shared: Arc<Shared>,
    ring: Proactor,
    file: Arc<File>,
    flying: Vec<Flight>,
}

/// A read in the kernel; `filled` bytes came earlier.
struct Flight {
    key: Key<Op>,
    job: Job,
    /// Of the buffer.
    len: usize,
    filled: usize,
}

impl Driver {
    fn run(&mut self) {
        loop {
            let Some(jobs) = self.take() else { return };
            for mut job in jobs {
                let buf = std::mem::take(&mut job.buf);
                self.push(job, buf, 0);
            }
            // Some may complete at once.
            if self.flying.len() < DEPTH && self.shared.lock().has_work() {
                continue;
            }
            match self.ring.poll(None) {
                Ok(()) => {}
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::Interrupted) => {}
                Err(_) => return self.fail(),
            }
            self.shared.lock().is_asleep = false;
            self.land();
        }
    }

    /// Jobs to submit; sleeps if there are none. `None`: the ring ends.
    fn take(&self) -> Option<Vec<Job>> {
        let mut queue = self.shared.lock();
        if queue.is_closed {
            return (!self.flying.is_empty()).then(Vec::new);
        }
        let room = DEPTH - self.flying.len();
        let count = room.min(queue.jobs.len());
        let jobs = queue.jobs.drain(..count).collect();
        queue.is_asleep = queue.jobs.is_empty();
        Some(jobs)
    }

    /// Submits the missing part of a job.
    fn push(&mut self, job: Job, buf: Vec<u8>, filled: usize) {
        let len = buf.len();
        let offset = job.offset + filled as u64;
        let op = ReadAt::new(Arc::clone(&self.file), offset, buf.slice(filled..len));
        match self.ring.push(op) {
            PushEntry::Pending(key) => self.flying.push(Flight { key, job, len, filled }),
            PushEntry::Ready(read) => self.end(job, filled, read),
        }
    }

    fn land(&mut self) {
        let mut ended = Vec::new();
        for Flight { key, job, len, filled } in std::mem::take(&mut self.flying) {
            match self.ring.pop(key) {
                PushEntry::Pending(key) => self.flying.push(Flight { key, job, len, filled }),
                PushEntry::Ready(read) => ended.push((job, filled, read)),
            }
        }
        for (job, filled, read) in ended {
            self.end(job, filled, read);
        }
    }

    /// Continues after a short read.
    fn end(&mut self, job: Job, filled: usize, BufResult(read, op): BufResult<usize, Op>) {
        let buf = op.into_inner().into_inner();
        match read {
            Ok(count) if filled + count == buf.len() => (job.done)(Ok(buf)),
            Ok(count) if count > 0 => self.push(job, buf, filled + count),
            Ok(_) | Err(_) => self.read_again(job, buf),
        }
    }

    /// Repeats a failed read here, and completes it: the kernel may lack memory or have cancelled
    /// it. Errors of the file show again.
    fn read_again(&self, job: Job, mut buf: Vec<u8>) {
        let read = self.file.read_exact_at(&mut buf, job.offset);
        (job.done)(read.map(|()| buf));
    }

    /// After a failure of the kernel later reads go to threads.
    fn fail(&mut self) {
        let mut queue = self.shared.lock();
        queue.is_closed = true;
        let waiting = std::mem::take(&mut queue.jobs);
        drop(queue);
        for Flight { job, len, .. } in std::mem::take(&mut self.flying) {
            // The kernel may keep the old buffer.
            self.read_again(job, vec![0; len]);
        }
        for mut job in waiting {
            let buf = std::mem::take(&mut job.buf);
            self.read_again(job, buf);
        }
    }
}

/// Also after a panic of a callback.
impl Drop for Driver {
    fn drop(&mut self) {
        let mut queue = self.shared.lock();
        queue.is_closed = true;
        let unread = std::mem::take(&mut queue.jobs);
        drop(queue);
        unread.into_iter().for_each(|job| (job.done)(Err(closed())));
    }
}

fn closed() -> io::Error {
    io::Error::other("the device was closed before the read began")
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn what_a_ring_does_not_read_is_read_without_it() {
        let Ok(ring) = Proactor::builder().capacity(DEPTH as u32).build() else {
            eprintln!("skipped: no io_uring here");
            return;
        };
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"in flightin queuefinished").unwrap();
        let (sender, results) = channel();
        let job = |offset, len| {
            let sender = sender.clone();
            Job { offset, buf: vec![0; len], done: Box::new(move |read| sender.send(read).unwrap()) }
        };
        let shared = Arc::new(Shared::default());
        let mut driver =
            Driver { shared: Arc::clone(&shared), ring, file: Arc::new(file), flying: Vec::new() };
        driver.push(job(0, 0), vec![0; 9], 0);
        shared.lock().jobs.push_back(job(9, 8));
        driver.fail();
        let cancelled = ReadAt::new(Arc::clone(&driver.file), 17, vec![0; 8].slice(0..8));
        driver.end(job(17, 0), 0, BufResult(Err(io::ErrorKind::WouldBlock.into()), cancelled));
        // Errors of the file are reported.
        let past_the_end = ReadAt::new(Arc::clone(&driver.file), 25, vec![0; 8].slice(0..8));
        driver.end(job(25, 0), 0, BufResult(Ok(0), past_the_end));
        drop(driver);

        let read: Vec<_> = results.try_iter().map(|read| read.map_err(|error| error.kind())).collect();
        let expected: [&[u8]; 3] = [b"in flight", b"in queue", b"finished"];
        let expected = expected.map(|bytes| Ok(bytes.to_vec())).into_iter();
        assert_eq!(read, expected.chain([Err(io::ErrorKind::UnexpectedEof)]).collect::<Vec<_>>());
        assert!(shared.lock().is_closed);
    }
}
