//! One step: a name in a directory that the caller holds. What FUSE and every other caller with inodes asks for.
//!
//! Two dependent cache lines: the bucket of the index and the record. A positive entry's written part is touched for
//! the reference alone. The entry was linked in the directory under the name from the moment that its sequence count
//! was read until it was compared (G1). A miss is believed only in a complete directory whose record, and the bucket,
//! are unchanged at the end (G2). Nothing waits (G3).

use super::{
    Core, Id,
    fill::Known,
    name::Name,
    record::{Shape, settle_reads},
    walk::{ATTEMPTS, Found},
};
use crate::Handle;

impl<H: Handle> Core<H> {
    /// Looks one name up without a lock. Returns the entry held.
    pub(crate) fn look(&self, dir: Id, name: &Name<'_>) -> Known {
        let pin = self.epoch.enter();
        for _ in 0..ATTEMPTS {
            if let Some(known) = self.try_step(dir, name) {
                let counters = pin.counters();
                counters.components.add(u64::from(!matches!(known, Known::Unknown)));
                return known;
            }
            pin.counters().retries.add(1);
        }
        Known::Unknown
    }

    /// One attempt; `None` if something was rewritten meanwhile. [epoch]
    #[inline]
    fn try_step(&self, dir: Id, name: &Name<'_>) -> Option<Known> {
        if !self.is_surely_in_tree(dir) {
            return Some(Known::Unknown);
        }
        let above = self.record(dir);
        let seq = above.begin();
        match self.find(self.index.extent(), dir, name) {
            Ok(found) => self.take_step(dir, &found),
            Err(miss) => {
                // A directory that has expired may lack names that are there by now.
                let is_complete =
                    above.shape().has(Shape::COMPLETE) && above.stamp() >= self.horizon_above(dir);
                if !is_complete {
                    return Some(Known::Unknown);
                }
                settle_reads();
                (seq & 1 == 0 && above.is_unchanged(seq) && self.index.still_misses(miss))
                    .then_some(Known::Negative)
            }
        }
    }

    #[inline]
    fn take_step(&self, dir: Id, found: &Found<'_>) -> Option<Known> {
        let &Found { id, record, seq, shape } = found;
        let is_believed = !self.expiry.ever() && !shape.has(Shape::TIMED) || !self.is_outdated(dir, id);
        if seq & 1 != 0 || !is_believed {
            return (seq & 1 == 0).then_some(Known::Unknown);
        }
        self.used(id).touch();
        if !shape.is_negative() && !self.hold(id) {
            return None;
        }
        settle_reads();
        match (record.is_unchanged(seq), shape.is_negative()) {
            (true, true) => Some(Known::Negative),
            (true, false) => Some(Known::Positive(id)),
            (false, true) => None,
            (false, false) => {
                self.release(id);
                None
            }
        }
    }
}
