//! The rings and their threads.

use crate::entry::{Finished, Home, RingEntry};
use crate::memory::{Header, Memory};
use crate::shape::Shape;
use dentree_sync::{Arc, Mutex};
use io_uring::squeue::Entry128;
use io_uring::{IoUring, cqueue, opcode, types};
use rustix::event::{EventfdFlags, PollFlags, eventfd};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

/// `enum fuse_uring_cmd`.
const REGISTER: u32 = 1;
const COMMIT_AND_FETCH: u32 = 2;

/// The user data of the poll of [`Home::wake`].
const WAKE: u64 = u64::MAX;

/// What is left to do when the reply is sent.
pub type Afterwards = Box<dyn FnOnce() + Send>;

/// Serves requests.
pub trait Handler: Send + Sync {
    /// Serves a request on a ring's thread, which serves no other one meanwhile: what may wait
    /// belongs to another thread, to which the entry can be given. The result runs when the reply
    /// is sent.
    fn serve(&self, entry: RingEntry) -> Option<Afterwards>;
}

/// The rings of a connection, each with a thread that waits for [`start`](Rings::start).
pub struct Rings {
    threads: Vec<RingThread>,
    is_refused: Arc<AtomicBool>,
}

struct RingThread {
    start: Sender<Arc<dyn Handler>>,
    thread: JoinHandle<io::Result<()>>,
}

impl Rings {
    /// Allocates what the rings need. Call it before the kernel is told of them: it sends no
    /// request until every queue has an entry.
    ///
    /// # Errors
    /// The kernel has no io_uring with these flags, or forbids it, or has no memory for it.
    pub fn prepare(device: &Arc<OwnedFd>, shape: &Shape) -> io::Result<Rings> {
        let processors = shape.online.len();
        let is_refused = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        for (number, &processor) in shape.online.iter().enumerate() {
            let is_ours = |queue: &usize| {
                *queue == processor || !shape.online.contains(queue) && queue % processors == number
            };
            let queues = (0..shape.queues).filter(is_ours);
            let queues = queues.flat_map(|queue| std::iter::repeat_n(queue, shape.entries(queue))).collect();
            let device = device.clone();
            let payload = shape.payload;
            let new = move || Worker::new(device, processor, queues, payload);
            threads.push(RingThread::spawn(processor, new, is_refused.clone())?);
        }
        Ok(Rings { threads, is_refused })
    }

    /// Registers all entries; `handler` serves the requests that come.
    pub fn start(&self, handler: &Arc<dyn Handler>) {
        for thread in &self.threads {
            // A thread that has ended was refused.
            let _ = thread.start.send(handler.clone());
        }
    }

    /// Becomes true where the kernel refuses an entry and sends its requests to `/dev/fuse`.
    pub fn is_refused(&self) -> Arc<AtomicBool> {
        self.is_refused.clone()
    }

    /// Waits for the end of the connection.
    ///
    /// # Errors
    /// Those of a ring that was in use.
    pub fn join(self) -> io::Result<()> {
        let mut joined = Ok(());
        for RingThread { start, thread } in self.threads {
            drop(start);
            let ended =
                thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread of a ring panicked")));
            joined = joined.and(ended);
        }
        joined
    }
}

impl RingThread {
    /// Starts a thread, and waits until its ring is there.
    fn spawn(
        processor: usize,
        new: impl FnOnce() -> io::Result<Worker> + Send + 'static,
        is_refused: Arc<AtomicBool>,
    ) -> io::Result<RingThread> {
        let (start, started) = channel();
        let (ready, is_ready) = channel();
        let run = move || {
            let worker = match new() {
                Ok(worker) => worker,
                Err(error) => {
                    let _ = ready.send(Err(error));
                    return Ok(());
                }
            };
            let _ = ready.send(Ok(()));
            worker.run(&started, &is_refused)
        };
        let thread = thread::Builder::new().name(format!("fuse-ring-{processor}")).spawn(run)?;
        is_ready.recv().map_err(io::Error::other)??;
        Ok(RingThread { start, thread })
    }
}

/// A ring, for the thread that has made it.
struct Worker {
    ring: IoUring<Entry128, cqueue::Entry>,
    device: Arc<OwnedFd>,
    home: Arc<Home>,
    /// Entries that are not lost to the end of the connection.
    live: usize,
}

impl Worker {
    fn new(device: Arc<OwnedFd>, processor: usize, queues: Vec<usize>, payload: usize) -> io::Result<Worker> {
        let mut only = CpuSet::new();
        only.set(processor);
        // The reply wakes a caller on this processor. Where a container forbids it, the scheduler
        // decides.
        let _ = sched_setaffinity(None, &only);
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .build((queues.len() + 1).next_power_of_two() as u32)?;
        let home = Arc::new(Home {
            memory: Memory::new(queues.len(), payload)?,
            queues,
            finished: Mutex::new(Finished::default()),
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        });
        Ok(Worker { ring, device, live: home.queues.len(), home })
    }

    fn run(mut self, started: &Receiver<Arc<dyn Handler>>, is_refused: &AtomicBool) -> io::Result<()> {
        // Else the connection has ended before.
        let Ok(handler) = started.recv() else { return Ok(()) };
        self.register()?;
        self.await_wake()?;
        let mut afterwards: Vec<Afterwards> = Vec::new();
        while self.live > 0 {
            if !afterwards.is_empty() {
                self.commit(false)?;
                retry(|| self.ring.submit())?;
                afterwards.drain(..).for_each(|work| work());
            }
            self.commit(true)?;
            retry(|| self.ring.submit_and_wait(1))?;
            self.home.finished.lock().is_asleep = false;
            let completed: Vec<_> =
                self.ring.completion().map(|done| (done.user_data(), done.result())).collect();
            for (user_data, result) in completed {
                if user_data == WAKE {
                    // It fails only if another completion has read it.
                    let _ = rustix::io::read(&self.home.wake, &mut [0; 8]);
                    self.await_wake()?;
                } else if result < 0 {
                    self.live -= 1;
                    if !is_end(result) {
                        is_refused.store(true, Relaxed);
                    }
                } else {
                    let entry = RingEntry::new(self.home.clone(), user_data as usize);
                    afterwards.extend(handler.serve(entry));
                }
            }
        }
        Ok(())
    }

    /// Gives all entries to the kernel for the first time.
    fn register(&mut self) -> io::Result<()> {
        let memory = &self.home.memory;
        let parts: Vec<[IoVec; 2]> = (0..self.home.queues.len())
            .map(|slot| {
                let (header, payload) = (memory.header(slot), memory.payload(slot));
                let header = IoVec { start: header.as_ptr().cast(), len: size_of::<Header>() };
                [header, IoVec { start: payload.as_ptr(), len: memory.payload_size() }]
            })
            .collect();
        for (slot, parts) in parts.iter().enumerate() {
            let mut entry =
                command(&self.device, REGISTER, 0, self.home.queues[slot], slot, parts.as_ptr() as u64);
            set_len(&mut entry, parts.len() as u32);
            // SAFETY: the kernel reads `parts` during the submission below. The memory of the
            // entry, which is the kernel's from here on, outlives the ring (U2).
            unsafe { self.push(&entry)? };
        }
        retry(|| self.ring.submit()).map(drop)
    }

    /// Queues the replies of all finished entries. `sleeps`: the thread will wait without looking
    /// for others.
    fn commit(&mut self, sleeps: bool) -> io::Result<()> {
        let mut finished = self.home.finished.lock();
        let entries = std::mem::take(&mut finished.entries);
        finished.is_asleep = sleeps;
        drop(finished);
        for slot in entries {
            // SAFETY: no `RingEntry` is left for this one, so its memory is this thread's (U1).
            let commit_id = unsafe { (*self.home.memory.header(slot).as_ptr()).commit_id };
            let entry = command(&self.device, COMMIT_AND_FETCH, commit_id, self.home.queues[slot], slot, 0);
            // SAFETY: the memory of the entry is the kernel's from here on, and outlives the ring
            // (U2).
            unsafe { self.push(&entry)? };
        }
        Ok(())
    }

    /// Has the ring complete when [`Home::wake`] is written to.
    fn await_wake(&mut self) -> io::Result<()> {
        let readable = PollFlags::IN.bits().into();
        let wake = types::Fd(self.home.wake.as_raw_fd());
        let poll = opcode::PollAdd::new(wake, readable).build().user_data(WAKE);
        // SAFETY: it refers to no memory.
        unsafe { self.push(&poll.into()) }
    }

    /// # Safety
    /// What `entry` refers to outlives the kernel's use of it.
    unsafe fn push(&mut self, entry: &Entry128) -> io::Result<()> {
        // SAFETY: the caller's promise. The queue has room for each entry of memory once, and for
        // the poll of the eventfd.
        unsafe { self.ring.submission().push(entry) }.map_err(io::Error::other)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if self.live > 0 {
            // After an error the kernel may still write to an entry: its memory stays (U2).
            std::mem::forget(self.home.clone());
        }
    }
}

/// `struct iovec`.
#[repr(C)]
struct IoVec {
    start: *mut u8,
    len: usize,
}

/// A command of the kernel's FUSE with a `struct fuse_uring_cmd_req`.
fn command(device: &OwnedFd, number: u32, commit_id: u64, queue: usize, slot: usize, addr: u64) -> Entry128 {
    let mut request = [0; 80];
    request[8..16].copy_from_slice(&commit_id.to_ne_bytes());
    request[16..18].copy_from_slice(&(queue as u16).to_ne_bytes());
    let command = opcode::UringCmd80::new(types::Fd(device.as_raw_fd()), number);
    command.cmd(request).addr((addr != 0).then_some(addr)).build().user_data(slot as u64)
}

/// Sets the number of parts that a command's address leads to, for which the builder has no method.
fn set_len(entry: &mut Entry128, len: u32) {
    const LEN_AT: usize = 24;
    const _: () = assert!(size_of::<Entry128>() == 128);
    // SAFETY: an `Entry128` is the 128 bytes of the kernel's `struct io_uring_sqe`, in which a
    // 32-bit `len` lies at byte 24.
    unsafe { (&raw mut *entry).cast::<u8>().add(LEN_AT).cast::<u32>().write(len) }
}

/// Repeats a call that a signal has interrupted.
fn retry(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            outcome => return outcome,
        }
    }
}

/// Whether an entry comes back because the connection has ended.
fn is_end(result: i32) -> bool {
    const ENODEV: i32 = -19;
    const ECONNABORTED: i32 = -103;
    const ENOTCONN: i32 = -107;
    matches!(result, ENODEV | ECONNABORTED | ENOTCONN)
}
