//! What named locks tell the recorder.
//!
//! `RECORDING` is the number of the recording in progress, or 0. Its accesses are relaxed: a thread
//! that sees a new value late reports late, or with an old number, which the recorder discards.
//! State here is `std`'s also under loom, as models do not depend on it.

use std::panic::Location;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::Kind;
#[cfg(debug_assertions)]
use super::order;

static RECORDING: AtomicU32 = AtomicU32::new(0);
static RECORDER: OnceLock<&'static dyn Recorder> = OnceLock::new();
static NAMES: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());

fn names() -> MutexGuard<'static, Vec<&'static str>> {
    NAMES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The name of a kind of lock, such as `dcache_lock`, or `d_lock` for one in each entry. Four
/// bytes, so that a million entries can have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Class(u32);

impl Class {
    /// The class of this name; equal names are one class. Classes stay until the process ends.
    #[must_use]
    pub fn named(name: &'static str) -> Self {
        let mut names = names();
        let at = names.iter().position(|known| *known == name).unwrap_or_else(|| {
            names.push(name);
            names.len() - 1
        });
        Self(u32::try_from(at).unwrap_or(u32::MAX))
    }

    /// The name.
    #[must_use]
    pub fn name(self) -> &'static str {
        names().get(self.index()).copied().unwrap_or("?")
    }

    /// Its number, counted from 0.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The key of statistics.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// The lock's class.
    pub class: Class,
    /// How it is taken.
    pub kind: Kind,
    /// The call. One place in the source may have several addresses.
    pub site: &'static Location<'static>,
}

/// Keeps statistics of named locks. It must take no named lock itself.
pub trait Recorder: Sync {
    /// The time, in units of the recorder's own.
    fn now(&self) -> u64;

    /// A lock was `held` for so long, and `waited` for unless it was free. Called after the
    /// release.
    fn released(&self, recording: u32, key: &Key, held: u64, waited: Option<u64>);

    /// A lock was taken, and the thread did not wait.
    fn failed(&self, recording: u32, key: &Key);
}

/// Reports to `recorder`, always the same one, as recording number `recording`, not 0.
pub fn start(recorder: &'static dyn Recorder, recording: u32) {
    RECORDER.get_or_init(|| recorder);
    RECORDING.store(recording, Relaxed);
}

/// Stops reporting, also of locks held now, unless their threads see it late.
pub fn stop() {
    RECORDING.store(0, Relaxed);
}

/// A thread's request for a lock.
#[derive(Debug)]
pub struct Request {
    key: Key,
    recording: u32,
    /// The start of the wait.
    waits_since: Option<u64>,
    #[cfg(debug_assertions)]
    address: usize,
}

fn now() -> u64 {
    RECORDER.get().map_or(0, |recorder| recorder.now())
}

impl Request {
    /// By a thread that waits if it must.
    #[inline]
    pub fn blocking<L>(class: Class, kind: Kind, lock: &L, site: &'static Location<'static>) -> Self {
        #[cfg(debug_assertions)]
        order::check(class, std::ptr::from_ref(lock).addr(), site);
        Self::attempt(class, kind, lock, site)
    }

    /// By a thread that does not wait.
    #[inline]
    pub fn attempt<L>(class: Class, kind: Kind, lock: &L, site: &'static Location<'static>) -> Self {
        let _ = lock;
        Self {
            key: Key { class, kind, site },
            recording: RECORDING.load(Relaxed),
            waits_since: None,
            #[cfg(debug_assertions)]
            address: std::ptr::from_ref(lock).addr(),
        }
    }

    /// The lock is taken; the thread waits.
    #[inline]
    pub fn waits(&mut self) {
        if self.recording != 0 && self.waits_since.is_none() {
            self.waits_since = Some(now());
        }
    }

    /// The lock is taken; the thread continues without it.
    #[inline]
    pub fn failed(self) {
        if self.recording != 0
            && let Some(recorder) = RECORDER.get()
        {
            recorder.failed(self.recording, &self.key);
        }
    }

    /// The thread has the lock.
    #[inline]
    pub fn acquired(self) -> Held {
        #[cfg(debug_assertions)]
        order::acquired(self.key.class, self.address, self.key.site);
        let since = if self.recording != 0 { now() } else { 0 };
        Held {
            waited: self.waits_since.map(|began| since.saturating_sub(began)),
            key: self.key,
            recording: self.recording,
            since,
            held: 0,
            #[cfg(debug_assertions)]
            address: self.address,
        }
    }
}

/// A lock that a thread holds. The guard drops it after the release, so that reporting does not
/// lengthen the critical section.
#[derive(Debug)]
pub struct Held {
    key: Key,
    recording: u32,
    waited: Option<u64>,
    since: u64,
    held: u64,
    #[cfg(debug_assertions)]
    address: usize,
}

impl Held {
    /// The thread is about to release it.
    #[inline]
    pub fn ends(&mut self) {
        if self.recording != 0 {
            self.held = now().saturating_sub(self.since);
        }
    }
}

impl Drop for Held {
    #[inline]
    fn drop(&mut self) {
        #[cfg(debug_assertions)]
        order::released(self.key.class, self.address);
        if self.recording != 0
            && let Some(recorder) = RECORDER.get()
        {
            recorder.released(self.recording, &self.key, self.held, self.waited);
        }
    }
}
