//! One question per miss: of the threads that miss the same name, one asks the file system, the others wait.
//!
//! A question in progress is a *flight*. Whoever changes the name meanwhile *overtakes* it, under the lock of the
//! directory; the answer is entered under the same lock, and only if the flight was not overtaken. So an answer
//! that arrives after an unlink or rename cannot bring the name back.
//!
//! | field | guard |
//! |---|---|
//! | list of flights | [flights], one of 64 stripes by name; a leaf |
//! | how many they are | [flights] to write; read under the lock of a directory |
//! | `overtaken` | [dir lock of the flight's directory] |
//! | `landed` | its own lock; waiters hold nothing else |
//!
//! # Why who overtakes need not look where there are no flights
//! Most changes meet none, and would write the stripe's lock for nothing. Who asks has boarded, then holds the directory's lock for a look at the
//! cache, and asks after that. Who changes a name has changed it in the file system, then holds the directory's lock, and reads the number of flights in it.
//! Was the look first, the number has that flight, unless it has landed, which it does under that lock, too. Was the change first, the question comes
//! after it, and so is not too late. The directory's lock orders both, so the number is read relaxed.

use super::{Core, Id, name::Name, record::Flags, tree::Aftermath, tree::Entry};
use crate::sync::{Arc, AtomicBool, AtomicUsize, Condvar, Mutex, Ordering, lock, thread_number};
use crate::{Child, Fill, Handle};
use std::sync::PoisonError;

const STRIPES: usize = if cfg!(any(loom, shuttle)) { 1 } else { 64 };

/// See the module's text.
pub(crate) struct Flights {
    stripes: Box<[Stripe]>,
}

#[derive(Default)]
struct Stripe {
    flights: Mutex<Vec<Arc<Flight>>>,
    /// How many they are.
    count: AtomicUsize,
}

pub(crate) struct Flight {
    dir: Id,
    name: Box<[u8]>,
    /// The thread that asks.
    asker: u32,
    overtaken: AtomicBool,
    landed: Mutex<bool>,
    landing: Condvar,
}

/// The right to ask, and the duty to let the others know: dropping it does, also in a panic.
pub(crate) struct Boarded<'a> {
    stripe: &'a Stripe,
    flight: Arc<Flight>,
}

impl Flights {
    /// What they weigh without questions.
    pub(crate) const BYTES: usize = STRIPES * size_of::<Stripe>();

    pub(crate) fn new() -> Self {
        Flights { stripes: (0..STRIPES).map(|_| Stripe::default()).collect() }
    }

    fn stripe(&self, dir: Id, name: &Name<'_>) -> &Stripe {
        &self.stripes[(dir.0 ^ name.hash()) as usize % STRIPES]
    }

    /// Begins a question, or answers the flight on which the same one is under way.
    fn board(&self, dir: Id, name: &Name<'_>) -> Result<Boarded<'_>, Arc<Flight>> {
        let stripe = self.stripe(dir, name);
        let mut flights = lock(&stripe.flights);
        if let Some(flight) = flights.iter().find(|flight| flight.asks(dir, name)) {
            return Err(flight.clone());
        }
        let flight = Arc::new(Flight {
            dir,
            name: name.bytes.into(),
            asker: thread_number::get(),
            overtaken: AtomicBool::new(false),
            landed: Mutex::new(false),
            landing: Condvar::new(),
        });
        flights.push(flight.clone());
        stripe.count.store(flights.len(), Ordering::Relaxed);
        Ok(Boarded { stripe, flight })
    }

    /// Makes the answer to a question about this name, if one is under way, too late. [dir lock]
    pub(crate) fn overtake(&self, dir: Id, name: &Name<'_>) {
        let stripe = self.stripe(dir, name);
        // See the module's text.
        if stripe.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let flights = lock(&stripe.flights);
        if let Some(flight) = flights.iter().find(|flight| flight.asks(dir, name)) {
            // Relaxed: read under the same directory lock.
            flight.overtaken.store(true, Ordering::Relaxed);
        }
    }
}

impl Flight {
    fn asks(&self, dir: Id, name: &Name<'_>) -> bool {
        self.dir == dir && *self.name == *name.bytes
    }

    fn wait(&self) {
        let mut landed = lock(&self.landed);
        while !*landed {
            landed = self.landing.wait(landed).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Boarded<'_> {
    fn drop(&mut self) {
        let mut flights = lock(&self.stripe.flights);
        flights.retain(|flight| !Arc::ptr_eq(flight, &self.flight));
        self.stripe.count.store(flights.len(), Ordering::Relaxed);
        drop(flights);
        *lock(&self.flight.landed) = true;
        self.flight.landing.notify_all();
    }
}

/// What the cache says of one name.
pub(crate) enum Known {
    /// The entry, held.
    Positive(Id),
    Negative,
    Unknown,
}

impl<H: Handle> Core<H> {
    /// Looks a name up, asking `fill` if it is not cached. Answers the entry, held.
    pub(crate) fn lookup_or_fill<E>(
        &self,
        dir: Id,
        bytes: &[u8],
        fill: impl FnOnce() -> Result<Fill<H>, E>,
    ) -> Result<Option<Id>, E> {
        let Some(name) = self.name_in(dir, bytes) else {
            let answer = fill()?;
            return Ok(self.answer_only(dir, answer));
        };
        let boarded = loop {
            match self.look(dir, &name) {
                Known::Positive(id) => return Ok(Some(id)),
                Known::Negative => return Ok(None),
                Known::Unknown => {}
            }
            match self.flights.board(dir, &name) {
                Ok(boarded) => break boarded,
                Err(flight) => {
                    let asker = flight.asker;
                    debug_assert_ne!(
                        asker,
                        thread_number::get(),
                        "`fill` looks up the name that it was asked for"
                    );
                    self.epoch.thread_slot().counters.fill_waits.add(1);
                    flight.wait();
                }
            }
        };
        // Another flight may have landed between the look and the boarding.
        match self.look_locked(dir, &name) {
            Known::Positive(id) => return Ok(Some(id)),
            Known::Negative => return Ok(None),
            Known::Unknown => {}
        }
        let asked = self.expiry.ask();
        self.epoch.thread_slot().counters.fills.add(1);
        let entry = match fill()? {
            Fill::Positive(child) => Entry::positive(child, asked),
            Fill::Negative { ttl } => Entry::negative(ttl, asked),
            Fill::NotCached(answer) => return Ok(answer.map(|child| self.make_detached(dir, child))),
        };
        Ok(self.enter(dir, &name, entry, &boarded.flight))
    }

    fn answer_only(&self, dir: Id, answer: Fill<H>) -> Option<Id> {
        match answer {
            Fill::Positive(child) | Fill::NotCached(Some(child)) => Some(self.make_detached(dir, child)),
            Fill::Negative { .. } | Fill::NotCached(None) => None,
        }
    }

    pub(crate) fn make_detached(&self, dir: Id, child: Child<H>) -> Id {
        let id = self.allocate(0);
        self.link_detached(dir, id, child);
        id
    }

    /// What is known of a name, under the lock: the last word.
    fn look_locked(&self, dir: Id, name: &Name<'_>) -> Known {
        let _dir = self.lock_dir(dir);
        match self.find_locked(dir, name) {
            Some(id) if !self.has_expired(dir, id) => {
                self.epoch.thread_slot().counters.locked_hits.add(1);
                self.known_locked(id)
            }
            _ => Known::Unknown,
        }
    }

    /// [dir lock]
    fn known_locked(&self, id: Id) -> Known {
        let record = self.record(id);
        self.used(id).touch();
        // A positive entry below a locked directory is alive.
        if !record.flags().is_negative() && self.hold(id) { Known::Positive(id) } else { Known::Negative }
    }

    /// Whether a linked entry is no longer to be believed. [dir lock]
    pub(crate) fn has_expired(&self, dir: Id, id: Id) -> bool {
        !self.is_in_tree(dir) || self.is_past_deadline(id)
    }

    /// Whether the deadline of an entry is over.
    pub(super) fn is_past_deadline(&self, id: Id) -> bool {
        let deadline = self.record(id).deadline();
        deadline != 0 && self.expiry.is_past(deadline)
    }

    /// Enters the file system's answer; answers the entry that the name has then, held.
    fn enter(&self, dir: Id, name: &Name<'_>, entry: Entry<H>, flight: &Flight) -> Option<Id> {
        let id = self.allocate(name.bytes.len());
        let is_positive = entry.child.is_some();
        let (known, unused) = match self.enter_locked(dir, name, id, entry, flight) {
            Ok(aftermath) => {
                self.settle(aftermath);
                return is_positive.then_some(id);
            }
            Err(instead) => instead,
        };
        self.cancel(id, name.bytes.len());
        match known {
            Known::Positive(other) => Some(other),
            Known::Negative => None,
            // True when it was asked for; the caller gets it, the cache does not.
            Known::Unknown => unused.into_child().map(|child| self.make_detached(dir, child)),
        }
    }

    /// Links the entry in slot `id`, or says what stands in its place and returns it: what it owns is dropped
    /// outside of the lock (G7).
    fn enter_locked(
        &self,
        dir: Id,
        name: &Name<'_>,
        id: Id,
        entry: Entry<H>,
        flight: &Flight,
    ) -> Result<Aftermath, (Known, Entry<H>)> {
        let _dir = self.lock_dir(dir);
        if !self.is_in_tree(dir) {
            return Err((Known::Unknown, entry));
        }
        let old = self.find_locked(dir, name);
        // Relaxed: written under the same lock.
        if flight.overtaken.load(Ordering::Relaxed) {
            self.epoch.thread_slot().counters.fills_overtaken.add(1);
            return Err((old.map_or(Known::Unknown, |newer| self.known_locked(newer)), entry));
        }
        // What a scan has entered meanwhile is as new as the answer.
        if let Some(old) = old.filter(|&old| !self.has_expired(dir, old) || self.renew(dir, old, &entry)) {
            return Err((self.known_locked(old), entry));
        }
        Ok(self.link_instead(dir, name, old, id, entry))
    }

    /// Believes a cached entry again where it is what the file system has just answered, so that an expired
    /// directory keeps what is below it. What has not expired keeps its search hint: what closes a directory is told.
    /// [dir lock]
    pub(crate) fn renew(&self, dir: Id, id: Id, entry: &Entry<H>) -> bool {
        let Some((kind, handle, search)) = &entry.child else { return false };
        let record = self.record(id);
        // SAFETY: positive, as its kind says, and linked below a locked directory.
        if record.flags().kind() != Some(*kind) || unsafe { self.dentry(id).handle() } != handle {
            return false;
        }
        let has_expired = self.has_expired(dir, id);
        let opens = has_expired && *search && self.expiry.may_open(entry.asked);
        let set = if entry.ttl.is_some() { Flags::TIMED } else { 0 } | if opens { Flags::SEARCH } else { 0 };
        let clear = Flags::TIMED | if has_expired { Flags::COMPLETE | Flags::SEARCH } else { 0 };
        if record.flags() != record.flags().without(clear).with(set) {
            self.rewrite(id).change_flags(set, clear);
        }
        record.set_deadline(self.expiry.deadline(entry.ttl));
        true
    }
}
