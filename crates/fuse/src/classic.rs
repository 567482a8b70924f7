//! Requests from `/dev/fuse`.
//!
//! As many threads are awake as there is work. A thread for each processor reads, and sleeps while
//! there is nothing to read. Before a request that may wait for the disk, the thread that has read
//! it lets another one read. With a single reader a lone client's request mostly wakes a processor
//! that idles: 28,000 lookups a second instead of 44,000 (two processors).
//!
//! | state | protected by |
//! |---|---|
//! | how many threads read, rest and exist | the mutex of `threads` (leaf) |
//! | a request's buffer | its thread |

use crate::abi::{self, InHeader, InitIn, OutHeader};
use crate::init::{self, MAX_WRITE};
use crate::pool::Pool;
use crate::reply::Reply;
use crate::request::fixed_len;
use crate::requests::{Afterwards, Serve, may_sleep};
use dentree_sync::{Condvar, Mutex};
use rustix::io::Errno;
use std::io;
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{self, Scope};
use zerocopy::{FromBytes, IntoBytes};

/// The kernel reads nothing into less than its longest request: data, headers and a name.
const BUFFER: usize = MAX_WRITE + 4096;

/// Reads INIT and replies to it. `None` if the mount is gone already.
pub(crate) fn handshake(
    device: &OwnedFd,
    mut agree: impl FnMut(&InitIn) -> abi::InitOut,
) -> io::Result<Option<()>> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let Some(len) = read(device, &mut buffer)? else { return Ok(None) };
        let (header, body) = InHeader::read_from_prefix(&buffer[..len]).map_err(|_| malformed())?;
        // Older kernels send less.
        let mut offered = InitIn::default();
        let given = body.len().min(size_of::<InitIn>());
        offered.as_mut_bytes()[..given].copy_from_slice(&body[..given]);
        if header.opcode != abi::INIT || offered.major < abi::KERNEL_VERSION {
            return Err(malformed());
        }
        // A kernel with a newer major version asks again for ours.
        let is_newer = offered.major > abi::KERNEL_VERSION;
        let reply = if is_newer { init::version_only() } else { agree(&offered) };
        send(device, header.unique, 0, reply.as_bytes())?;
        if !is_newer {
            return Ok(Some(()));
        }
    }
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the kernel speaks another protocol than FUSE 7")
}

/// The next request; `None` at the end of the connection.
fn read(device: &OwnedFd, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    loop {
        match rustix::io::read(device, &mut *buffer) {
            Ok(len) => return Ok(Some(len)),
            // Interrupted, or the request was before it was read.
            Err(Errno::INTR | Errno::NOENT | Errno::AGAIN) => {}
            Err(Errno::NODEV) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Sends a reply that lies nowhere in particular.
fn send(device: &OwnedFd, unique: u64, error: i32, body: &[u8]) -> io::Result<()> {
    let header = OutHeader { len: (size_of::<OutHeader>() + body.len()) as u32, error, unique };
    rustix::io::write(device, &[header.as_bytes(), body].concat()).map(drop).map_err(io::Error::from)
}

/// Serves the requests of a connection.
pub(crate) struct Classic<S> {
    device: Arc<OwnedFd>,
    server: Arc<S>,
    pool: Arc<Pool>,
    readers: usize,
    threads_max: usize,
    threads: Mutex<Threads>,
    /// Notified when another thread should read, and at the end.
    may_read: Condvar,
}

#[derive(Default)]
struct Threads {
    reading: usize,
    resting: usize,
    all: usize,
    ended: Option<io::Result<()>>,
}

impl<S: Serve> Classic<S> {
    pub(crate) fn new(device: Arc<OwnedFd>, server: Arc<S>, pool: Arc<Pool>, threads_max: usize) -> Self {
        let threads = Mutex::new(Threads { all: 1, ..Threads::default() });
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        let readers = processors.min(threads_max);
        Classic { device, server, pool, readers, threads_max, threads, may_read: Condvar::new() }
    }

    /// Serves until the connection ends.
    pub(crate) fn run(&self) -> io::Result<()> {
        thread::scope(|scope| {
            (1..self.readers).for_each(|_| self.start_thread(scope));
            self.work(scope);
        });
        self.threads.lock().ended.take().unwrap_or(Ok(()))
    }

    fn work<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        let mut buffer = vec![0; BUFFER];
        while self.becomes_reader() {
            loop {
                let len = match read(&self.device, &mut buffer) {
                    Ok(Some(len)) => len,
                    ended => return self.end(ended.map(drop)),
                };
                let Ok((header, _)) = InHeader::read_from_prefix(&buffer[..len]) else {
                    return self.end(Err(malformed()));
                };
                let sleeps = may_sleep(header.opcode);
                if sleeps {
                    self.let_another_read(scope);
                }
                self.serve(&header, &mut buffer, len);
                if sleeps {
                    break;
                }
            }
        }
    }

    /// Waits until a thread is needed that reads. Returns false at the end.
    fn becomes_reader(&self) -> bool {
        let mut threads = self.threads.lock();
        loop {
            if threads.ended.is_some() {
                return false;
            }
            if threads.reading < self.readers {
                threads.reading += 1;
                return true;
            }
            threads.resting += 1;
            threads = self.may_read.wait(threads);
            threads.resting -= 1;
        }
    }

    fn let_another_read<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        let mut threads = self.threads.lock();
        threads.reading -= 1;
        let rests = threads.resting > 0;
        drop(threads);
        if rests { self.may_read.notify_one() } else { self.start_thread(scope) }
    }

    /// Starts a thread, unless there are enough or none can be had: those that are there serve on.
    fn start_thread<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        let mut threads = self.threads.lock();
        if threads.all == self.threads_max {
            return;
        }
        threads.all += 1;
        drop(threads);
        let thread = thread::Builder::new().name("fuse".into());
        if thread.spawn_scoped(scope, move || self.work(scope)).is_err() {
            self.threads.lock().all -= 1;
        }
    }

    fn end(&self, how: io::Result<()>) {
        let mut threads = self.threads.lock();
        threads.reading -= 1;
        threads.ended.get_or_insert(how);
        drop(threads);
        self.may_read.notify_all();
    }

    /// Serves the request in the first `len` bytes of `buffer`.
    fn serve(&self, header: &InHeader, buffer: &mut [u8], len: usize) {
        const FIXED_MAX: usize = size_of::<abi::SetattrIn>();
        let body = size_of::<InHeader>();
        let fixed = fixed_len(header.opcode).min(len - body);
        let mut copy = [0; FIXED_MAX];
        copy[..fixed].copy_from_slice(&buffer[body..body + fixed]);
        let (reply, afterwards) = {
            let space = &mut buffer[body + fixed..];
            guarded(|| self.server.serve(header, &copy[..fixed], space, len - body - fixed))
        };
        match reply {
            Reply::Later { find, .. } => {
                let (device, unique) = (self.device.clone(), header.unique);
                self.pool.run(Box::new(move || {
                    let (reply, _) = guarded(|| (find(), None));
                    let mut space = vec![0; 4096];
                    let (error, len) = reply.put(&mut space).unwrap_or((0, 0));
                    // The caller may be gone.
                    let _ = send(&device, unique, error, &space[..len]);
                }));
            }
            reply => {
                // The reply's header lies right before its body, over the request's.
                if let Some((error, len)) = reply.put(&mut buffer[body + fixed..]) {
                    let start = body + fixed - size_of::<OutHeader>();
                    let whole = size_of::<OutHeader>() + len;
                    let header = OutHeader { len: whole as u32, error, unique: header.unique };
                    buffer[start..body + fixed].copy_from_slice(header.as_bytes());
                    // The caller may be gone.
                    let _ = rustix::io::write(&self.device, &buffer[start..start + whole]);
                }
            }
        }
        afterwards.into_iter().for_each(|work| work());
    }
}

/// Serves a request; a panic, of which the thread has told, is an I/O error to the caller.
pub(crate) fn guarded(serve: impl FnOnce() -> (Reply, Option<Afterwards>)) -> (Reply, Option<Afterwards>) {
    catch_unwind(AssertUnwindSafe(serve)).unwrap_or((Reply::Error(Errno::IO), None))
}
