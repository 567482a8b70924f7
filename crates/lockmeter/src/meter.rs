//! Statistics per thread.
//!
//! ```text
//! GENERATION   0: nothing is recorded; else the number of the recording in progress
//! REGISTRY ─► tables of live threads ─► slots: (class, kind, call site) → counters
//!          └► sums of threads that ended during the recording
//! ```
//! A slot's key is set once, by the owner of the table. Its counters are written by the owner
//! alone, with plain loads and stores, and read by [`Recording::finish`]. A table's counters belong
//! to the recording that its `generation` names: the owner clears them when it first records for a
//! new one.
//!
//! Guarantees: counters of recordings never mix; a thread that ends leaves its figures behind; a
//! thread in its teardown is not recorded.

use crate::clock;
use crate::report::{Place, Report, Sums};
use dentree_sync::lockstat::{self, Key, Recorder};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

/// Relaxed everywhere: a thread that sees a new value late drops a request, or keeps it for a
/// recording that is over.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Slots of a thread's table; a power of two.
const SLOTS: usize = 512;

/// Whether two keys have one site, by its address: [`Report`] adds up sites with several.
fn is_same(one: &Key, other: &Key) -> bool {
    one.class == other.class && one.kind == other.kind && std::ptr::eq(one.site, other.site)
}

fn first_slot(key: &Key) -> usize {
    let site = std::ptr::from_ref(key.site).addr() >> 3;
    (site ^ key.class.index().wrapping_mul(0x9e37_79b9) ^ key.kind as usize) % SLOTS
}

struct Meter;

impl Recorder for Meter {
    fn now(&self) -> u64 {
        clock::now()
    }

    fn released(&self, recording: u32, key: &Key, held: u64, waited: Option<u64>) {
        record(recording, key, |counters| {
            add(&counters.total, 1);
            add(&counters.held, held);
            raise(&counters.held_max, held);
            if let Some(waited) = waited {
                add(&counters.waiters, 1);
                add(&counters.waited, waited);
                raise(&counters.waited_max, waited);
            }
        });
    }

    fn failed(&self, recording: u32, key: &Key) {
        record(recording, key, |counters| {
            add(&counters.total, 1);
            add(&counters.refused, 1);
        });
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
    unplaced: AtomicU64, // requests without a slot
}

impl Table {
    fn new() -> Self {
        let slots = std::iter::repeat_with(Slot::default).take(SLOTS).collect();
        Self { generation: AtomicU32::new(0), slots, unplaced: AtomicU64::new(0) }
    }

    /// The counters of `key`; `None` if the table is full. Called by the owner alone.
    fn counters(&self, key: &Key) -> Option<&Counters> {
        let first = first_slot(key);
        (0..SLOTS).map(|step| &self.slots[(first + step) % SLOTS]).find_map(|slot| {
            let taken = slot.key.get_or_init(|| *key);
            is_same(taken, key).then_some(&slot.counters)
        })
    }

    /// Prepares the table for `generation` if that recording is in progress. Called by the owner
    /// alone.
    fn belongs_to(&self, generation: u32) -> bool {
        if self.generation.load(Ordering::Relaxed) == generation {
            return true;
        }
        if GENERATION.load(Ordering::Relaxed) != generation {
            return false;
        }
        self.slots.iter().flat_map(|slot| slot.counters.all()).for_each(|c| c.store(0, Ordering::Relaxed));
        self.unplaced.store(0, Ordering::Relaxed);
        // Release: partner of the load in `Registry::gather`. A reader that sees this number sees
        // cleared counters or newer ones; any other reader leaves the table alone.
        self.generation.store(generation, Ordering::Release);
        true
    }
}

/// The running thread's table, in the registry while the thread lives.
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
    // A thread in its teardown has no table any more.
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

/// All tables, and the sums of ended threads.
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
    /// Adds what `table` holds for the recording in progress, or just stopped.
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

/// Named locks of this process are recorded while this lives. There is one at a time.
///
/// Locks that are held when it starts are not counted.
#[derive(Debug)]
pub struct Recording {
    started: Instant,
    ticks: u64,
    _alone: MutexGuard<'static, ()>,
}

impl Recording {
    /// Starts recording, after the end of a recording in progress.
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
        lockstat::start(&Meter, generation);
        Self { started: Instant::now(), ticks: clock::now(), _alone: alone }
    }

    /// Stops recording and adds up the counters of all threads.
    #[must_use]
    pub fn finish(self) -> Report {
        let ticks = clock::now().saturating_sub(self.ticks).max(1);
        let elapsed = self.started.elapsed();
        stop();
        let mut registry = registry();
        for table in registry.tables.clone() {
            registry.gather(&table);
        }
        registry.generation = 0;
        let gathered = registry.gathered.take().unwrap_or_default();
        Report::new(gathered, registry.unplaced, elapsed, ticks)
    }
}

fn stop() {
    lockstat::stop();
    GENERATION.store(0, Ordering::Relaxed);
}

impl Drop for Recording {
    fn drop(&mut self) {
        stop();
    }
}
