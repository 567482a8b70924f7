//! Who waited and held, counted per thread.
//!
//! ```text
//! GENERATION   0: nothing is recorded; else the number of the recording that runs
//! REGISTRY ─► tables of threads that live ─► slots: (class, kind, call site) → counters
//!          └► sums of threads that ended during the recording
//! ```
//! Who protects what: a slot's key is set once, by the owner of the table; its counters are written by the owner
//! alone, with plain loads and stores (no lock prefix), and read by [`Recording::finish`]. A table's counters
//! belong to the recording that its `generation` names: the owner clears them when it first records for a new one.
//!
//! Guarantees: counters of a recording never mix with those of another; a thread that ends leaves its figures behind;
//! a thread inside its own teardown is not recorded.

use crate::Class;
use crate::clock;
#[cfg(debug_assertions)]
use crate::order;
use crate::report::{Kind, Place, Report, Sums};
use std::collections::HashMap;
use std::panic::Location;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

/// Relaxed everywhere: a thread that sees a new value late records a little later, or for a recording whose
/// number its table no longer bears, which is then dropped.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Slots of a thread's table; a power of two.
const SLOTS: usize = 512;

/// What figures are kept by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    pub(crate) class: Class,
    pub(crate) kind: Kind,
    pub(crate) site: &'static Location<'static>,
}

impl Key {
    /// The same site, by its address: one call site may have several, which [`Report`] adds up.
    fn is(&self, other: &Self) -> bool {
        self.class == other.class && self.kind == other.kind && std::ptr::eq(self.site, other.site)
    }

    fn slot(&self) -> usize {
        let site = std::ptr::from_ref(self.site).addr() >> 3;
        (site ^ self.class.index().wrapping_mul(0x9e37_79b9) ^ self.kind as usize) % SLOTS
    }
}

/// A thread that wants a lock.
pub(crate) struct Request {
    key: Key,
    generation: u32,
    contended: bool,
    began: u64,
    #[cfg(debug_assertions)]
    address: usize,
}

impl Request {
    /// By a thread that will wait if it must.
    #[inline]
    pub(crate) fn blocking<L>(class: Class, kind: Kind, lock: &L, site: &'static Location<'static>) -> Self {
        #[cfg(debug_assertions)]
        order::check(class, std::ptr::from_ref(lock).addr(), site);
        Self::attempt(class, kind, lock, site)
    }

    /// By a thread that will take no for an answer.
    #[inline]
    pub(crate) fn attempt<L>(class: Class, kind: Kind, lock: &L, site: &'static Location<'static>) -> Self {
        let _ = lock;
        Self {
            key: Key { class, kind, site },
            generation: GENERATION.load(Ordering::Relaxed),
            contended: false,
            began: 0,
            #[cfg(debug_assertions)]
            address: std::ptr::from_ref(lock).addr(),
        }
    }

    /// The lock was found busy.
    #[inline]
    pub(crate) fn waits(&mut self) {
        if self.generation != 0 && !self.contended {
            self.contended = true;
            self.began = clock::now();
        }
    }

    /// The lock was busy, and the thread goes its way.
    #[inline]
    pub(crate) fn refused(self) {
        if self.generation != 0 {
            record(self.generation, &self.key, |counters| {
                add(&counters.total, 1);
                add(&counters.refused, 1);
            });
        }
    }

    /// The lock is the thread's.
    #[inline]
    pub(crate) fn granted(self) -> Hold {
        let since = if self.generation != 0 { clock::now() } else { 0 };
        #[cfg(debug_assertions)]
        order::took(self.key.class, self.address, self.key.site);
        Hold {
            waited: if self.contended { Some(since.saturating_sub(self.began)) } else { None },
            key: self.key,
            generation: self.generation,
            since,
            held: 0,
            #[cfg(debug_assertions)]
            address: self.address,
        }
    }
}

/// A thread that has a lock; counts itself when dropped, which guards do after they have unlocked.
#[derive(Debug)]
pub(crate) struct Hold {
    key: Key,
    generation: u32,
    waited: Option<u64>,
    since: u64,
    held: u64,
    #[cfg(debug_assertions)]
    address: usize,
}

impl Hold {
    /// The lock is about to be released.
    #[inline]
    pub(crate) fn ends(&mut self) {
        if self.generation != 0 {
            self.held = clock::now().saturating_sub(self.since);
        }
    }
}

impl Drop for Hold {
    #[inline]
    fn drop(&mut self) {
        #[cfg(debug_assertions)]
        order::released(self.key.class, self.address);
        if self.generation != 0 {
            record(self.generation, &self.key, |counters| {
                add(&counters.total, 1);
                add(&counters.held, self.held);
                raise(&counters.held_max, self.held);
                if let Some(waited) = self.waited {
                    add(&counters.waiters, 1);
                    add(&counters.waited, waited);
                    raise(&counters.waited_max, waited);
                }
            });
        }
    }
}

/// One call site's counters on one thread. Times in ticks.
#[derive(Default)]
pub(crate) struct Counters {
    total: AtomicU64,
    waiters: AtomicU64,
    refused: AtomicU64,
    held: AtomicU64,
    held_max: AtomicU64,
    waited: AtomicU64,
    waited_max: AtomicU64,
}

impl Counters {
    fn all(&self) -> [&AtomicU64; 7] {
        [
            &self.total,
            &self.waiters,
            &self.refused,
            &self.held,
            &self.held_max,
            &self.waited,
            &self.waited_max,
        ]
    }

    fn sums(&self) -> Sums {
        let [total, waiters, refused, held, held_max, waited, waited_max] =
            self.all().map(|counter| counter.load(Ordering::Relaxed));
        Sums { total, waiters, refused, held, held_max, waited, waited_max }
    }
}

/// Only the table's owner writes, so nothing is lost between load and store.
fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

fn raise(counter: &AtomicU64, to: u64) {
    if counter.load(Ordering::Relaxed) < to {
        counter.store(to, Ordering::Relaxed);
    }
}

#[derive(Default)]
struct Slot {
    key: OnceLock<Key>,
    counters: Counters,
}

/// One thread's counters.
struct Table {
    generation: AtomicU32,
    slots: Box<[Slot]>,
    unplaced: AtomicU64, // requests for which no slot was left
}

impl Table {
    fn new() -> Self {
        let slots = std::iter::repeat_with(Slot::default).take(SLOTS).collect();
        Self { generation: AtomicU32::new(0), slots, unplaced: AtomicU64::new(0) }
    }

    /// The counters of `key`; none if the table is full. Called by the owner alone.
    fn counters(&self, key: &Key) -> Option<&Counters> {
        let first = key.slot();
        (0..SLOTS).map(|step| &self.slots[(first + step) % SLOTS]).find_map(|slot| {
            let taken = slot.key.get_or_init(|| *key);
            taken.is(key).then_some(&slot.counters)
        })
    }

    /// Makes the table ready for `generation`, if that is the recording that runs. Called by the owner alone.
    fn belongs_to(&self, generation: u32) -> bool {
        if self.generation.load(Ordering::Relaxed) == generation {
            return true;
        }
        if GENERATION.load(Ordering::Relaxed) != generation {
            return false;
        }
        self.slots.iter().flat_map(|slot| slot.counters.all()).for_each(|c| c.store(0, Ordering::Relaxed));
        self.unplaced.store(0, Ordering::Relaxed);
        // Release: partner of the load in `Registry::gather`. If the reader sees this number, it sees cleared
        // counters or newer ones; if not, it leaves the table alone.
        self.generation.store(generation, Ordering::Release);
        true
    }
}

/// The table that the running thread owns, known to the registry while the thread lives.
struct Owned(Arc<Table>);

impl Owned {
    fn new() -> Self {
        let table = Arc::new(Table::new());
        registry().tables.push(Arc::clone(&table));
        Self(table)
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        let mut registry = registry();
        registry.tables.retain(|table| !Arc::ptr_eq(table, &self.0));
        registry.gather(&self.0);
    }
}

thread_local!(static TABLE: Owned = Owned::new());

#[cold]
fn record(generation: u32, key: &Key, count: impl FnOnce(&Counters)) {
    // A thread that is being torn down has no table any more: what it still locks is not recorded.
    let _ = TABLE.try_with(|Owned(table)| {
        if !table.belongs_to(generation) {
            return;
        }
        match table.counters(key) {
            Some(counters) => count(counters),
            None => add(&table.unplaced, 1),
        }
    });
}

/// All tables, and what threads that ended have left.
struct Registry {
    tables: Vec<Arc<Table>>,
    generation: u32,
    gathered: Option<HashMap<Place, Sums>>,
    unplaced: u64,
}

static REGISTRY: Mutex<Registry> =
    Mutex::new(Registry { tables: Vec::new(), generation: 0, gathered: None, unplaced: 0 });

fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Registry {
    /// Adds what `table` holds for the recording that runs or has just stopped.
    fn gather(&mut self, table: &Table) {
        // Acquire: partner of the store in `Table::belongs_to`.
        if self.generation == 0 || table.generation.load(Ordering::Acquire) != self.generation {
            return;
        }
        self.unplaced += table.unplaced.load(Ordering::Relaxed);
        let gathered = self.gathered.get_or_insert_default();
        for slot in &table.slots {
            let sums = slot.counters.sums();
            if let (Some(key), true) = (slot.key.get(), sums.total > 0) {
                let place = (key.class, key.kind, key.site.file(), key.site.line(), key.site.column());
                gathered.entry(place).or_default().merge(&sums);
            }
        }
    }
}

/// Locks of this process are recorded while this lives. There is one at a time.
///
/// Threads that are already inside a lock when it starts are not counted for that time.
#[derive(Debug)]
pub struct Recording {
    started: Instant,
    ticks: u64,
    _alone: MutexGuard<'static, ()>,
}

impl Recording {
    /// Starts recording; waits for another recording to end first.
    #[must_use]
    pub fn start() -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        static LAST: AtomicU32 = AtomicU32::new(0);
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let generation = LAST.load(Ordering::Relaxed).wrapping_add(1).max(1);
        LAST.store(generation, Ordering::Relaxed);
        {
            let mut registry = registry();
            registry.generation = generation;
            registry.gathered = None;
            registry.unplaced = 0;
        }
        GENERATION.store(generation, Ordering::Relaxed);
        Self { started: Instant::now(), ticks: clock::now(), _alone: alone }
    }

    /// Stops recording and adds up what all threads have counted.
    #[must_use]
    pub fn finish(self) -> Report {
        let ticks = clock::now().saturating_sub(self.ticks).max(1);
        let elapsed = self.started.elapsed();
        GENERATION.store(0, Ordering::Relaxed);
        let mut registry = registry();
        for table in registry.tables.clone() {
            registry.gather(&table);
        }
        registry.generation = 0;
        let gathered = registry.gathered.take().unwrap_or_default();
        Report::new(gathered, registry.unplaced, elapsed, ticks)
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        GENERATION.store(0, Ordering::Relaxed);
    }
}
