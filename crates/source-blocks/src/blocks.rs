//! The device: cached blocks of an origin, and waiting reads.
//!
//! Reads of cached blocks are copies. Others wait for their missing blocks, each fetched once, from
//! the store if possible. Missing blocks are collected briefly so that reads submitted together
//! share requests.
//!
//! # Who protects what
//! A mutex protects missing blocks, waiting reads and the planner. Fetches and callbacks run
//! without it. The cache of blocks locks itself; a block enters it before it leaves the missing
//! ones.

use crate::origin::{Fetched, Origin, Store};
use crate::plan::{BLOCK, Planner};
use crate::runtime::runtime;
use bytes::Bytes;
use dentree_blockdev::{BlockDevice, Done, Transfers, check_range};
use quick_cache::sync::Cache;
use std::collections::{BTreeSet, HashMap};
use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;

/// 32 MiB: higher caches keep the hot blocks.
const IN_MEMORY: usize = 512;
/// Concurrent requests.
const CONNECTIONS: usize = 16;
/// Longest time to collect submitted reads.
const LONGEST_PLUG: Duration = Duration::from_millis(1);

/// An origin as a read-only device.
pub struct Blocks<O, S>(Arc<Shared<O, S>>);

struct Shared<O, S> {
    origin: O,
    store: Option<S>,
    runtime: &'static Runtime,
    here: Cache<u64, Arc<Block>>,
    queue: Mutex<Queue>,
    connections: Semaphore,
    used: AtomicU64,
    cached: AtomicU64,
    waits: AtomicU64,
    waited_nanos: AtomicU64,
    ahead: AtomicU64,
}

struct Block {
    bytes: Bytes,
    /// Sixteenths that were read.
    used: AtomicU16,
}

#[derive(Default)]
struct Queue {
    /// Fetched or to be fetched, with the waiting reads.
    missing: HashMap<u64, Vec<Arc<Waiting>>>,
    /// Subset not looked up in the store.
    wanted: BTreeSet<u64>,
    /// Subset missing in the store and not requested.
    elsewhere: BTreeSet<u64>,
    planner: Planner,
}

struct Waiting {
    offset: u64,
    state: Mutex<Option<State>>,
}

struct State {
    buf: Vec<u8>,
    missing: usize,
    done: Done,
}

impl<O, S> Clone for Blocks<O, S> {
    fn clone(&self) -> Self {
        Blocks(Arc::clone(&self.0))
    }
}

impl<O: Origin, S: Store> Blocks<O, S> {
    /// A device over an origin with a `store`; `first` is the known start of the origin.
    ///
    /// # Errors
    /// Those of [`runtime`].
    pub fn new(origin: O, store: Option<S>, first: Option<Bytes>) -> io::Result<Self> {
        let shared = Shared {
            origin,
            store,
            runtime: runtime()?,
            here: Cache::new(IN_MEMORY),
            queue: Mutex::default(),
            connections: Semaphore::new(CONNECTIONS),
            used: AtomicU64::default(),
            cached: AtomicU64::default(),
            waits: AtomicU64::default(),
            waited_nanos: AtomicU64::default(),
            ahead: AtomicU64::default(),
        };
        match first {
            Some(bytes) => {
                shared.arrived(0, &bytes);
                shared.queue().planner.remember(&(0..(bytes.len() as u64).div_ceil(BLOCK)));
            }
            None => shared.queue().planner.begin(),
        }
        Ok(Blocks(Arc::new(shared)))
    }
}

impl<O: Origin, S: Store> BlockDevice for Blocks<O, S> {
    fn size(&self) -> u64 {
        self.0.origin.size()
    }

    fn identity(&self) -> Option<String> {
        self.0.origin.identity()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        check_range(offset, buf.len() as u64, self.size())?;
        if self.0.copy_here(offset, buf) {
            return Ok(());
        }
        let (began, (sender, receiver)) = (Instant::now(), channel());
        let done = Box::new(move |read| drop(sender.send(read)));
        self.0.read(offset, vec![0; buf.len()], done, Duration::ZERO);
        let read = receiver.recv().map_err(io::Error::other)?;
        self.0.waits.fetch_add(1, Relaxed);
        // Enough for 584 years.
        self.0.waited_nanos.fetch_add(began.elapsed().as_nanos() as u64, Relaxed);
        buf.copy_from_slice(&read?);
        Ok(())
    }

    fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        let mut all = vec![0; bufs.iter().map(|buf| buf.len()).sum()];
        self.read_at(offset, &mut all)?;
        let mut rest = &all[..];
        for buf in bufs {
            let (bytes, behind) = rest.split_at(buf.len());
            buf.copy_from_slice(bytes);
            rest = behind;
        }
        Ok(())
    }

    fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::ReadOnlyFilesystem, "the image was opened read only"))
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn transfers(&self) -> Option<Transfers> {
        Some(Transfers {
            cached_bytes: self.0.cached.load(Relaxed),
            used_bytes: self.0.used.load(Relaxed),
            waits: self.0.waits.load(Relaxed),
            waited: Duration::from_nanos(self.0.waited_nanos.load(Relaxed)),
            ahead: self.0.ahead.load(Relaxed),
            ..self.0.origin.transfers()
        })
    }

    fn submit(self: Arc<Self>, offset: u64, mut buf: Vec<u8>, done: Done) {
        if let Err(error) = check_range(offset, buf.len() as u64, self.size()) {
            return done(Err(error));
        }
        if self.0.copy_here(offset, &mut buf) {
            return done(Ok(buf));
        }
        self.0.ahead.fetch_add(1, Relaxed);
        let plug = self.0.queue().planner.pace.latency() / 16;
        self.0.read(offset, buf, done, plug.min(LONGEST_PLUG));
    }
}

/// Blocks of a byte range.
fn blocks(offset: u64, len: usize) -> Range<u64> {
    offset / BLOCK..(offset + len as u64).div_ceil(BLOCK)
}

impl<O: Origin, S: Store> Shared<O, S> {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self) -> u64 {
        self.origin.size().div_ceil(BLOCK)
    }

    /// `false`: a block is missing.
    fn copy_here(&self, offset: u64, buf: &mut [u8]) -> bool {
        blocks(offset, buf.len()).all(|number| match self.here.get(&number) {
            Some(block) => {
                self.copy(&block, number, offset, buf);
                true
            }
            None => false,
        })
    }

    /// Copies a block's part of `buf`, which starts at `offset`.
    fn copy(&self, block: &Block, number: u64, offset: u64, buf: &mut [u8]) {
        let start = (number * BLOCK).max(offset);
        let end = (number * BLOCK + block.bytes.len() as u64).min(offset + buf.len() as u64);
        let within = |from: u64| (start - from) as usize..(end - from) as usize;
        let range = within(number * BLOCK);
        const PART: usize = BLOCK as usize / 16;
        let parts =
            (range.start / PART..range.end.div_ceil(PART)).fold(0, |parts, part| parts | 1u16 << part);
        let new = parts & !block.used.fetch_or(parts, Relaxed);
        self.used.fetch_add(u64::from(new.count_ones()) * PART as u64, Relaxed);
        buf[within(offset)].copy_from_slice(&block.bytes[range]);
    }

    /// Reads with missing blocks. Requests are sent after `plug`.
    fn read(self: &Arc<Self>, offset: u64, buf: Vec<u8>, done: Done, plug: Duration) {
        let numbers = blocks(offset, buf.len());
        let waiting = Arc::new(Waiting { offset, state: Mutex::default() });
        let mut here = Vec::new();
        let mut queue = self.queue();
        let mut missing = 0;
        for number in numbers {
            match self.here.get(&number) {
                Some(block) => here.push((number, block)),
                None => {
                    missing += 1;
                    queue.want(number, &waiting);
                }
            }
        }
        let must_start = !queue.wanted.is_empty();
        if self.store.is_none() {
            queue.none_in_store();
        }
        // Before unlocking: arriving blocks find it.
        let mut buf = buf;
        here.iter().for_each(|(number, block)| self.copy(block, *number, offset, &mut buf));
        if missing == 0 {
            drop(queue);
            return done(Ok(buf));
        }
        waiting.set(State { buf, missing, done });
        drop(queue);
        if must_start {
            self.start(plug);
        }
    }

    fn start(self: &Arc<Self>, plug: Duration) {
        let shared = Arc::clone(self);
        self.runtime.spawn(async move {
            if !plug.is_zero() {
                tokio::time::sleep(plug).await;
            }
            shared.fetch_wanted().await;
        });
    }

    /// Takes blocks from the store and requests the others.
    async fn fetch_wanted(self: Arc<Self>) {
        if self.store.is_some() {
            let shared = Arc::clone(&self);
            // The store blocks.
            let _ = tokio::task::spawn_blocking(move || shared.take_from_store()).await;
        }
        // With a connection: blocks missed while all are busy share the next request.
        let connection = self.connections.acquire().await;
        let mut runs = self.plan().into_iter();
        let first = runs.next();
        for run in runs {
            let shared = Arc::clone(&self);
            tokio::spawn(async move {
                let _connection = shared.connections.acquire().await;
                shared.fetch(run).await;
            });
        }
        if let Some(run) = first {
            self.fetch(run).await;
        }
        drop(connection);
    }

    /// As far as the store has them.
    fn take_from_store(&self) {
        let mut wanted = std::mem::take(&mut self.queue().wanted);
        wanted.retain(|&number| match self.store.as_ref().and_then(|store| store.get(number)) {
            Some(bytes) => {
                self.cached.fetch_add(bytes.len() as u64, Relaxed);
                let block = self.keep(number, bytes.into());
                self.tell(number, &Ok(block));
                false
            }
            None => true,
        });
        self.queue().elsewhere.append(&mut wanted);
    }

    /// Requests for blocks not yet requested.
    fn plan(&self) -> Vec<Range<u64>> {
        let mut queue = self.queue();
        let wanted = std::mem::take(&mut queue.elsewhere);
        let Queue { missing, planner, .. } = &mut *queue;
        let is_here = |number| {
            self.here.peek(&number).is_some()
                || missing.contains_key(&number) && !wanted.contains(&number)
                || self.store.as_ref().is_some_and(|store| store.has(number))
        };
        let runs = planner.plan(wanted.iter().copied(), self.count(), is_here);
        for number in runs.iter().cloned().flatten() {
            missing.entry(number).or_default();
        }
        runs
    }

    /// The caller holds a connection.
    async fn fetch(self: &Arc<Self>, run: Range<u64>) {
        let range = run.start * BLOCK..(run.end * BLOCK).min(self.origin.size());
        match self.origin.fetch(range).await {
            Ok(Fetched { bytes, latency, transfer }) => {
                self.queue().planner.pace.measured(latency, transfer, bytes.len() as u64);
                let shared = Arc::clone(self);
                // The store blocks.
                tokio::task::spawn_blocking(move || shared.arrived(run.start, &bytes));
            }
            Err(_) if O::FAILS_BY_RANGE => run.for_each(|number| self.read_each_alone(number)),
            Err(error) => run.for_each(|number| self.tell(number, &Err(error.clone()))),
        }
    }

    /// Stores fetched blocks before ending reads: the program may exit then.
    fn arrived(&self, first: u64, bytes: &Bytes) {
        for (number, bytes) in (first..).zip(bytes.chunks(BLOCK as usize)) {
            if let Some(store) = &self.store {
                store.put(number, bytes);
            }
            // A slice would keep the whole request in memory.
            let block = self.keep(number, Bytes::copy_from_slice(bytes));
            self.tell(number, &Ok(block));
        }
    }

    fn keep(&self, number: u64, bytes: Bytes) -> Arc<Block> {
        let block = Arc::new(Block { bytes, used: AtomicU16::default() });
        self.here.insert(number, Arc::clone(&block));
        block
    }

    /// Passes a block or an error to its waiting reads.
    fn tell(&self, number: u64, fetched: &Result<Arc<Block>, O::Error>) {
        let waiting = self.queue().missing.remove(&number).unwrap_or_default();
        for read in waiting {
            match fetched {
                Ok(block) => read.take(|offset, buf| self.copy(block, number, offset, buf)),
                Err(error) => read.fail(error.clone()),
            }
        }
    }

    /// Repeats each waiting read for its own bytes only.
    fn read_each_alone(self: &Arc<Self>, number: u64) {
        let waiting = self.queue().missing.remove(&number).unwrap_or_default();
        for read in waiting {
            let Some(State { buf, done, .. }) = read.end() else { continue };
            let (shared, offset) = (Arc::clone(self), read.offset);
            self.runtime.spawn(async move {
                let _connection = shared.connections.acquire().await;
                let read = shared.origin.fetch(offset..offset + buf.len() as u64).await;
                done(read.map(|fetched| fetched.bytes.into()).map_err(Into::into));
            });
        }
    }
}

impl Queue {
    /// Adds a read to a block's waiters.
    fn want(&mut self, number: u64, read: &Arc<Waiting>) {
        let waiting = self.missing.entry(number).or_insert_with(|| {
            self.wanted.insert(number);
            Vec::new()
        });
        waiting.push(Arc::clone(read));
    }

    /// Treats all blocks as missing in the store.
    fn none_in_store(&mut self) {
        self.elsewhere.append(&mut self.wanted);
    }
}

impl Waiting {
    fn state(&self) -> MutexGuard<'_, Option<State>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, state: State) {
        *self.state() = Some(state);
    }

    fn take(&self, copy: impl FnOnce(u64, &mut [u8])) {
        let mut slot = self.state();
        let Some(state) = slot.as_mut() else { return };
        copy(self.offset, &mut state.buf);
        state.missing -= 1;
        if state.missing > 0 {
            return;
        }
        let ended = slot.take();
        drop(slot);
        if let Some(State { buf, done, .. }) = ended {
            done(Ok(buf));
        }
    }

    /// Fails the read; later blocks are ignored.
    fn fail(&self, error: impl Into<io::Error>) {
        if let Some(State { done, .. }) = self.end() {
            done(Err(error.into()));
        }
    }

    fn end(&self) -> Option<State> {
        self.state().take()
    }
}
