//! Requests from the kernel's io_uring queues.

use crate::abi::{InHeader, OutHeader};
use crate::classic::guarded;
use crate::pool::Pool;
use crate::reply::{Find, Reply};
use crate::request::fixed_len;
use crate::requests::{Afterwards, Serve, may_sleep};
use dentree_fuse_uring::{Handler, RingEntry, Shape};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use zerocopy::{FromBytes, transmute};

/// Memory of all payloads.
pub(crate) const BUDGET: usize = 64 << 20;

/// Serves requests of rings. Those that may wait are served by the pool.
pub(crate) struct OverRings<S> {
    shared: Arc<Shared<S>>,
}

struct Shared<S> {
    server: Arc<S>,
    pool: Arc<Pool>,
    /// Of each queue.
    queues: Vec<Waiting>,
}

/// Requests that wait for other requests. Each keeps an entry of its queue: the last must stay free
/// for what they wait for.
struct Waiting {
    now: AtomicUsize,
    max: usize,
}

impl<S: Serve> OverRings<S> {
    pub(crate) fn new(server: Arc<S>, pool: Arc<Pool>, shape: &Shape) -> Self {
        let waiting = |queue| Waiting { now: AtomicUsize::new(0), max: shape.entries(queue) - 1 };
        let queues = (0..shape.queues).map(waiting).collect();
        OverRings { shared: Arc::new(Shared { server, pool, queues }) }
    }
}

impl<S: Serve> Handler for OverRings<S> {
    fn serve(&self, entry: RingEntry) -> Option<Afterwards> {
        let header = header_of(&entry);
        if !may_sleep(header.opcode) {
            return self.shared.serve(&header, entry);
        }
        let shared = self.shared.clone();
        self.shared.pool.run(Box::new(move || {
            let afterwards = shared.serve(&header, entry);
            afterwards.into_iter().for_each(|work| work());
        }));
        None
    }
}

fn header_of(entry: &RingEntry) -> InHeader {
    let (header, _) = InHeader::read_from_prefix(entry.header()).unwrap_or_default();
    header
}

impl<S: Serve> Shared<S> {
    fn serve(self: &Arc<Self>, header: &InHeader, mut entry: RingEntry) -> Option<Afterwards> {
        let fixed = *entry.fixed();
        let fixed = &fixed[..fixed_len(header.opcode)];
        let (space, len) = entry.payload();
        let (reply, afterwards) = guarded(|| self.server.serve(header, fixed, space, len));
        match reply {
            Reply::Later { find, instead } => self.wait(header.unique, entry, find, *instead),
            reply => finish(header.unique, entry, reply),
        }
        afterwards
    }

    /// Has another thread find the reply, or replies with `instead`.
    fn wait(self: &Arc<Self>, unique: u64, entry: RingEntry, find: Find, instead: Reply) {
        let number = entry.queue();
        let Waiting { now, max } = &self.queues[number];
        if now.fetch_add(1, Relaxed) >= *max {
            now.fetch_sub(1, Relaxed);
            return finish(unique, entry, instead);
        }
        let shared = self.clone();
        self.pool.run(Box::new(move || {
            let (reply, _) = guarded(|| (find(), None));
            // Before the reply, after which the caller may come again.
            shared.queues[number].now.fetch_sub(1, Relaxed);
            finish(unique, entry, reply);
        }));
    }
}

fn finish(unique: u64, mut entry: RingEntry, reply: Reply) {
    // Each request of a ring is replied to.
    let (error, len) = reply.put(entry.payload().0).unwrap_or((0, 0));
    let header = OutHeader { len: (size_of::<OutHeader>() + len) as u32, error, unique };
    entry.finish(&transmute!(header), len);
}
