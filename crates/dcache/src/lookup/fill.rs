//! One fill per miss (`in_lookup.rs`), and what happens to the result.

use crate::core::Core;
use crate::hash::name::Name;
use crate::lookup::in_lookup::InLookup;
use crate::mutate::tree::Cleanup;
use crate::mutate::tree::Entry;
use crate::table::id::Id;
use crate::{Child, Fill, Handle};
use dentree_sync::atomic::Ordering;
use dentree_sync::thread_slot;

/// Result of a lookup in the cache.
pub(crate) enum Lookup {
    /// Held.
    Positive(Id),
    Negative,
    NotCached,
}

impl<H: Handle> Core<H> {
    /// Looks a name up, calling `fill` if it is not cached. Returns the entry, held.
    pub(crate) fn lookup_or_fill<E>(
        &self,
        dir: Id,
        bytes: &[u8],
        fill: impl FnOnce() -> Result<Fill<H>, E>,
    ) -> Result<Option<Id>, E> {
        let Some(name) = self.name_in(dir, bytes) else {
            let result = fill()?;
            return Ok(self.uncached(dir, result));
        };
        let guard = loop {
            match self.try_lookup(dir, &name) {
                Some(Lookup::Positive(id)) => return Ok(Some(id)),
                Some(Lookup::Negative) => return Ok(None),
                Some(Lookup::NotCached) | None => {}
            }
            match self.in_lookups.begin(dir, &name) {
                Ok(guard) => break guard,
                Err(in_lookup) => {
                    let thread = in_lookup.thread;
                    debug_assert_ne!(
                        thread,
                        thread_slot::get(),
                        "`fill` looks up the name that it was called for"
                    );
                    self.epoch.thread_slot().counters.fill_waits.add(1);
                    in_lookup.wait();
                }
            }
        };
        // Another fill may have completed between the lookup and `begin`.
        match self.lookup_locked(dir, &name) {
            Lookup::Positive(id) => return Ok(Some(id)),
            Lookup::Negative => return Ok(None),
            Lookup::NotCached => {}
        }
        let revocations = self.validity.revocations();
        self.epoch.thread_slot().counters.fills.add(1);
        let entry = match fill()? {
            Fill::Positive(child) => Entry::positive(child, revocations),
            Fill::Negative => Entry::negative(revocations),
            Fill::NotCached(result) => return Ok(result.map(|child| self.make_detached(dir, child))),
        };
        Ok(self.enter(dir, &name, entry, &guard.in_lookup))
    }

    fn uncached(&self, dir: Id, result: Fill<H>) -> Option<Id> {
        match result {
            Fill::Positive(child) | Fill::NotCached(Some(child)) => Some(self.make_detached(dir, child)),
            Fill::Negative | Fill::NotCached(None) => None,
        }
    }

    pub(crate) fn make_detached(&self, dir: Id, child: Child<H>) -> Id {
        let id = self.allocate(0);
        self.link_detached(dir, id, child);
        id
    }

    /// Final, as under the lock.
    pub(crate) fn lookup_locked(&self, dir: Id, name: &Name<'_>) -> Lookup {
        let _dir = self.lock_dir(dir);
        match self.find_locked(dir, name) {
            Some(id) if self.is_in_tree(dir) => {
                self.epoch.thread_slot().counters.locked_hits.add(1);
                self.result_locked(id)
            }
            _ => Lookup::NotCached,
        }
    }

    /// [dir lock]
    fn result_locked(&self, id: Id) -> Lookup {
        let record = self.record(id);
        self.mark(id).touch();
        // A positive entry below a locked directory is alive.
        if !record.flags().is_negative() && self.hold(id) { Lookup::Positive(id) } else { Lookup::Negative }
    }

    /// Inserts a fill's result. Returns the name's entry, held.
    fn enter(&self, dir: Id, name: &Name<'_>, entry: Entry<H>, in_lookup: &InLookup) -> Option<Id> {
        let id = self.allocate(name.bytes.len());
        let is_positive = entry.child.is_some();
        let (found, unused) = match self.enter_locked(dir, name, id, entry, in_lookup) {
            Ok(cleanup) => {
                self.clean_up(cleanup);
                return is_positive.then_some(id);
            }
            Err(instead) => instead,
        };
        self.cancel(id, name.bytes.len());
        match found {
            Lookup::Positive(other) => Some(other),
            Lookup::Negative => None,
            // The result was true when it was read: the caller gets it, the cache does not.
            Lookup::NotCached => unused.child.map(|child| self.make_detached(dir, child)),
        }
    }

    /// Links the entry in slot `id`, or returns what has the name instead, and the entry, to be
    /// dropped outside of the lock (G7).
    fn enter_locked(
        &self,
        dir: Id,
        name: &Name<'_>,
        id: Id,
        entry: Entry<H>,
        in_lookup: &InLookup,
    ) -> Result<Cleanup, (Lookup, Entry<H>)> {
        let _dir = self.lock_dir(dir);
        if !self.is_in_tree(dir) {
            return Err((Lookup::NotCached, entry));
        }
        let old = self.find_locked(dir, name);
        // Relaxed: written under the same lock.
        if in_lookup.overtaken.load(Ordering::Relaxed) {
            self.epoch.thread_slot().counters.fills_overtaken.add(1);
            return Err((old.map_or(Lookup::NotCached, |newer| self.result_locked(newer)), entry));
        }
        // An entry that a scan inserted meanwhile is as new as the result.
        match old {
            Some(old) => Err((self.result_locked(old), entry)),
            None => Ok(self.link_instead(dir, name, None, id, entry)),
        }
    }
}
