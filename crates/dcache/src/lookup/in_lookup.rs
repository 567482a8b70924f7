//! Names in lookup (`d_in_lookup`): of the threads that miss one name, one calls the file system,
//! the others wait.
//!
//! A change of the name *overtakes* the lookup, under the directory's lock. The result is inserted
//! under that lock, and only if the lookup was not overtaken: a result that arrives after an unlink
//! or rename cannot bring the name back.
//!
//! | field | guard |
//! |---|---|
//! | list of lookups | [in_lookups], one of 64 stripes by name; a leaf |
//! | `count` | [in_lookups] to write; read under the lock of a directory |
//! | `overtaken` | [dir lock of the lookup's directory] |
//! | `is_done` | its own lock; waiters hold nothing else |
//!
//! # Why a change need not search the list if `count` is zero
//! Most changes meet no lookup, and would write the stripe's lock for nothing. A lookup is listed,
//! searches the cache under the directory's lock, and calls the file system. A change is made in
//! the file system, takes the directory's lock, and reads `count`. *The search came first*: `count`
//! includes the lookup, unless it is done, which takes that lock too. *The change came first*: the
//! call comes after it and its result is true. The lock orders both, so the load is relaxed.

use dentree_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use dentree_sync::{Arc, Condvar, Mutex, thread_slot};

use crate::hash::name::Name;
use crate::table::id::Id;

const STRIPES: usize = if cfg!(any(loom, shuttle)) { 1 } else { 64 };

pub(crate) struct InLookups {
    stripes: Box<[Stripe]>,
}

#[derive(Default)]
struct Stripe {
    in_lookups: Mutex<Vec<Arc<InLookup>>>,
    count: AtomicUsize,
}

pub(crate) struct InLookup {
    dir: Id,
    name: Box<[u8]>,
    /// The thread that calls the file system.
    pub(crate) thread: u32,
    pub(crate) overtaken: AtomicBool,
    is_done: Mutex<bool>,
    done: Condvar,
}

/// The one lookup of a name. Dropping it wakes the waiters, also after a panic.
pub(crate) struct FillGuard<'a> {
    stripe: &'a Stripe,
    pub(crate) in_lookup: Arc<InLookup>,
}

impl InLookups {
    pub(crate) const BYTES: usize = STRIPES * size_of::<Stripe>();

    pub(crate) fn new() -> Self {
        InLookups { stripes: (0..STRIPES).map(|_| Stripe::default()).collect() }
    }

    fn stripe(&self, dir: Id, name: &Name<'_>) -> &Stripe {
        &self.stripes[(dir.0 ^ name.hash()) as usize % STRIPES]
    }

    /// Begins a lookup, or returns the one in progress.
    pub(crate) fn begin(&self, dir: Id, name: &Name<'_>) -> Result<FillGuard<'_>, Arc<InLookup>> {
        let stripe = self.stripe(dir, name);
        let mut in_lookups = stripe.in_lookups.lock();
        if let Some(in_lookup) = in_lookups.iter().find(|in_lookup| in_lookup.is_of(dir, name)) {
            return Err(in_lookup.clone());
        }
        let in_lookup = Arc::new(InLookup {
            dir,
            name: name.bytes.into(),
            thread: thread_slot::get(),
            overtaken: AtomicBool::new(false),
            is_done: Mutex::new(false),
            done: Condvar::new(),
        });
        in_lookups.push(in_lookup.clone());
        stripe.count.store(in_lookups.len(), Ordering::Relaxed);
        Ok(FillGuard { stripe, in_lookup })
    }

    /// Overtakes the lookup of this name, if any. [dir lock]
    pub(crate) fn overtake(&self, dir: Id, name: &Name<'_>) {
        let stripe = self.stripe(dir, name);
        // Module text.
        if stripe.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let in_lookups = stripe.in_lookups.lock();
        if let Some(in_lookup) = in_lookups.iter().find(|in_lookup| in_lookup.is_of(dir, name)) {
            // Relaxed: read under the same directory lock.
            in_lookup.overtaken.store(true, Ordering::Relaxed);
        }
    }
}

impl InLookup {
    fn is_of(&self, dir: Id, name: &Name<'_>) -> bool {
        self.dir == dir && *self.name == *name.bytes
    }

    pub(crate) fn wait(&self) {
        let mut is_done = self.is_done.lock();
        while !*is_done {
            is_done = self.done.wait(is_done);
        }
    }
}

impl Drop for FillGuard<'_> {
    fn drop(&mut self) {
        let mut in_lookups = self.stripe.in_lookups.lock();
        in_lookups.retain(|in_lookup| !Arc::ptr_eq(in_lookup, &self.in_lookup));
        self.stripe.count.store(in_lookups.len(), Ordering::Relaxed);
        drop(in_lookups);
        *self.in_lookup.is_done.lock() = true;
        self.in_lookup.done.notify_all();
    }
}
