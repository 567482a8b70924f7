//! One step: a name in a directory that the caller holds, as FUSE needs.
//!
//! It reads two dependent cache lines, bucket and record; the dentry is touched for the reference
//! alone. The entry was linked from the load of its sequence count until the comparison (G1). A
//! miss is valid only if the bucket is unchanged, as a split may have moved the entry. In a
//! complete directory, whose record is unchanged too, the name then does not exist (G2). Nothing
//! waits (G3).

use crate::core::Core;
use crate::hash::name::Name;
use crate::lookup::fill::Lookup;
use crate::lookup::walk::{ATTEMPTS, End, Found};
use crate::reclaim::epoch::Pin;
use crate::table::id::Id;
use crate::table::record::{Flags, order_reads};
use crate::{Handle, Seen};

impl<H: Handle> Core<H> {
    /// Looks one name up without a lock, or under the directory's where writers were faster at
    /// every attempt. Returns the entry held.
    pub(crate) fn lookup(&self, dir: Id, name: &Name<'_>) -> Lookup {
        self.try_lookup(dir, name).unwrap_or_else(|| self.lookup_locked(dir, name))
    }

    /// Looks one name up without a lock. Returns the entry held, or `None` where writers were
    /// faster at every attempt.
    pub(crate) fn try_lookup(&self, dir: Id, name: &Name<'_>) -> Option<Lookup> {
        let pin = self.epoch.enter();
        for _ in 0..ATTEMPTS {
            if let Some(found) = self.try_step(dir, name) {
                let counters = pin.counters();
                counters.components.add(u64::from(!matches!(found, Lookup::NotCached)));
                return Some(found);
            }
            pin.counters().retries.add(1);
        }
        None
    }

    /// Looks one plain name up by value, without a read set. `None` leaves it to a walk. [epoch]
    #[inline(always)]
    pub(crate) fn see_step(&self, pin: &Pin<'_>, dir: Id, name: &Name<'_>) -> Option<Option<Seen<H>>> {
        let above = self.record(dir);
        let above_seq = above.begin();
        if !above.flags().is_open_directory() || !self.is_surely_in_tree(dir) {
            return None;
        }
        let Found { id, record, seq, flags } = self.find_short(self.index.extent(), dir, name)?;
        let is_negative = flags.is_negative();
        if !is_negative && !flags.is_plain_end() {
            return None;
        }
        self.mark(id).touch();
        // SAFETY: found linked inside the pin, and positive; the counts are compared below.
        let seen = (!is_negative).then(|| unsafe { self.see_record(id, record, flags) });
        order_reads();
        if (above_seq | seq) & 1 != 0 || !above.is_unchanged(above_seq) || !record.is_unchanged(seq) {
            return None;
        }
        self.count_walk(pin, &End::new(id, is_negative), 1);
        Some(seen)
    }

    /// One attempt; `None` if something was rewritten meanwhile. [epoch]
    #[inline]
    fn try_step(&self, dir: Id, name: &Name<'_>) -> Option<Lookup> {
        if !self.is_surely_in_tree(dir) {
            return (self.reach(dir) == Some(false)).then_some(Lookup::NotCached);
        }
        let above = self.record(dir);
        let seq = above.begin();
        match self.find(self.index.extent(), dir, name) {
            Ok(found) => self.take_step(&found),
            Err(miss) => {
                let is_complete = above.flags().has(Flags::COMPLETE);
                order_reads();
                let is_valid = self.index.still_misses(miss);
                match is_complete {
                    false => is_valid.then_some(Lookup::NotCached),
                    true => (is_valid && seq & 1 == 0 && above.is_unchanged(seq)).then_some(Lookup::Negative),
                }
            }
        }
    }

    #[inline]
    fn take_step(&self, found: &Found<'_>) -> Option<Lookup> {
        let &Found { id, record, seq, flags } = found;
        if seq & 1 != 0 {
            return None;
        }
        self.mark(id).touch();
        if flags.is_negative() {
            order_reads();
            return record.is_unchanged(seq).then_some(Lookup::Negative);
        }
        self.hold_if(id, || record.is_unchanged(seq)).then_some(Lookup::Positive(id))
    }
}
