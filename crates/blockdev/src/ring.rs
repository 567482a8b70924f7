//! Reads that are not waited for, by the kernel's own queue: io_uring.
//!
//! One thread owns the ring. It takes jobs from a queue, hands them to the kernel, up to [`DEPTH`] at a time, and sleeps in
//! the kernel until a read ends or somebody has queued another.
//!
//! Who protects what: `queue` holds the jobs that the thread has not taken, whether it sleeps, and how the ring ends. The ring and the reads in flight
//! are the thread's own. One lock, held over no system call; nobody is called with it held.
//!
//! *No job waits for a thread that sleeps.* The thread says that it is going to sleep, and who queues a job looks, both under the lock. Either the
//! job was there before the thread said so, and was taken; or the job comes later, sees it and wakes the thread, whose sleep is a
//! look at an eventfd that stays readable.
//!
//! *Each job is answered once.* A job is in the queue, with the kernel, or answered. When the device is dropped the thread
//! waits for those with the kernel, answers those in the queue with an error, and ends.
//!
//! # Performance
//! On a busy machine with two processors, random reads of 4 KiB that are not in memory: as many a second as by threads, within the scatter, for
//! a third to a half less of the processor's time (5.9 µs a read against 9.0 with 128 in flight, 13 against 28 with 8). A read that is waited for at
//! once is cheaper without a queue: 25 µs against 45. `cargo run --release -p dentree-blockdev --example queue_depth`.
//!
//! # Known limits
//! The file is read through the system's page cache, and its descriptor and the buffers are not registered with the ring. To go past the cache saves up to 3 µs a
//! read, and costs the next process a read of the device; to register saves 0.4 µs at best, and compio-driver has no safe call for
//! it: `docs/BENCHMARKS.md`, "Reads that are not waited for".

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

/// Most reads that the kernel has at a time. Others wait: a disk's own queue is rarely longer.
const DEPTH: usize = 128;

type Op = ReadAt<Slice<Vec<u8>>, Arc<File>>;

/// A ring and its thread, which ends with it.
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
    /// A ring that reads `file`.
    ///
    /// # Errors
    /// Where the kernel has no io_uring, or refuses it to this process: containers often do.
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

    /// Queues a read, or gives it back where the ring has failed.
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
        // Who is called with a read may have been the last to hold the device: the thread then ends by itself.
        if let Some(thread) =
            self.thread.take().filter(|thread| thread.thread().id() != thread::current().id())
        {
            // A thread that panicked has nothing left to end.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the thread has.
struct Driver {
    shared: Arc<Shared>,
    ring: Proactor,
    file: Arc<File>,
    flying: Vec<Flight>,
}

/// A read that the kernel has: the first `filled` bytes of the job's buffer were read before.
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
            // Some were answered at once.
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

    /// The jobs to begin now. With none the thread counts as asleep. `None` when the ring ends.
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

    /// Asks the kernel for what of a job's bytes is not there yet.
    fn push(&mut self, job: Job, buf: Vec<u8>, filled: usize) {
        let len = buf.len();
        let offset = job.offset + filled as u64;
        let op = ReadAt::new(Arc::clone(&self.file), offset, buf.slice(filled..len));
        match self.ring.push(op) {
            PushEntry::Pending(key) => self.flying.push(Flight { key, job, len, filled }),
            PushEntry::Ready(read) => self.end(job, filled, read),
        }
    }

    /// Answers the reads that have ended.
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

    /// Answers a job, or goes on with it where only a part came.
    fn end(&mut self, job: Job, filled: usize, BufResult(read, op): BufResult<usize, Op>) {
        let buf = op.into_inner().into_inner();
        match read {
            Ok(count) if filled + count == buf.len() => (job.done)(Ok(buf)),
            Ok(count) if count > 0 => self.push(job, buf, filled + count),
            Ok(_) | Err(_) => self.read_again(job, buf),
        }
    }

    /// Makes a read here that the ring did not make, and answers it. A ring fails for reasons of its own, which are none of the file's: the kernel
    /// has no thread or no memory for it just then, or has cancelled it. What is wrong with the file, the file itself says.
    fn read_again(&self, job: Job, mut buf: Vec<u8>) {
        let read = self.file.read_exact_at(&mut buf, job.offset);
        (job.done)(read.map(|()| buf));
    }

    /// Gives up: the kernel no longer takes or answers anything. Reads from now on are made by threads.
    fn fail(&mut self) {
        let mut queue = self.shared.lock();
        queue.is_closed = true;
        let waiting = std::mem::take(&mut queue.jobs);
        drop(queue);
        for Flight { job, len, .. } in std::mem::take(&mut self.flying) {
            // The kernel may have the flight's own buffer for good.
            self.read_again(job, vec![0; len]);
        }
        for mut job in waiting {
            let buf = std::mem::take(&mut job.buf);
            self.read_again(job, buf);
        }
    }
}

/// However the thread ends, also by a panic of who is called, nobody waits for it.
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
        let (sender, answers) = channel();
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
        // What is wrong with the file is told.
        let past_the_end = ReadAt::new(Arc::clone(&driver.file), 25, vec![0; 8].slice(0..8));
        driver.end(job(25, 0), 0, BufResult(Ok(0), past_the_end));
        drop(driver);

        let read: Vec<_> = answers.try_iter().map(|read| read.map_err(|error| error.kind())).collect();
        let expected: [&[u8]; 3] = [b"in flight", b"in queue", b"finished"];
        let expected = expected.map(|bytes| Ok(bytes.to_vec())).into_iter();
        assert_eq!(read, expected.chain([Err(io::ErrorKind::UnexpectedEof)]).collect::<Vec<_>>());
        assert!(shared.lock().is_closed);
    }
}
