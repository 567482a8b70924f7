//! The climb: from an entry up by its parents' numbers, as long as they bear the names that stand in the path before its own.
//!
//! A record tells how long its name is, and so where in the path that begins and the name before ends, which the parent's record must
//! bear. What is found is decided by names, slashes and parents' numbers; a hash, or whatever else named the entry, only says where to
//! begin. The counts of all records are kept, to be compared at the end of the walk.

use super::{
    Core, Id,
    chunks::prefetch,
    index::Extent,
    name::{INLINE, Text},
    record::{Pattern, Record, Shape, settle_reads},
    walk::SHALLOW,
};
use crate::Handle;
use std::mem::MaybeUninit;

/// Components of one leap: what the trail holds without an allocation, less its start.
const RUNGS: usize = SHALLOW - 1;

/// A record on the way up, with its count.
pub(super) type Hold = (Id, u32);

/// The records on the way up, the last component's first.
pub(super) struct Climbed {
    holds: [MaybeUninit<Hold>; RUNGS],
    pub(super) count: usize,
    /// All counts, or-ed.
    pub(super) counts: u32,
    /// Where in the path the last name begins.
    pub(super) begin: usize,
}

impl Climbed {
    #[inline(always)]
    pub(super) fn new() -> Climbed {
        Climbed { holds: [const { MaybeUninit::uninit() }; RUNGS], count: 0, counts: 0, begin: 0 }
    }

    #[inline(always)]
    pub(super) fn holds(&self) -> &[Hold] {
        // SAFETY: the first `count` have been written, and `MaybeUninit<Hold>` is laid out as `Hold` is.
        unsafe { std::slice::from_raw_parts(self.holds.as_ptr().cast(), self.count) }
    }
}

impl<H: Handle> Core<H> {
    /// Looks for what has `hash` and bears the last name of the path between the `ends`, is like `passes`, and has the names before it
    /// above, up to `top`. Answers it; `climbed` is filled then.
    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "a structure of them would be built in memory")]
    pub(super) fn climb(
        &self,
        extent: Extent,
        top: Id,
        text: Text<'_, '_>,
        ends: (usize, usize),
        hash: u32,
        passes: Pattern,
        climbed: &mut Climbed,
    ) -> Option<Id> {
        self.index
            .likely(extent, hash)
            .find(|&found| self.climb_from(found, top, text, ends, passes, climbed))
    }

    /// The same from an entry that is known; tells whether it came up to `top`.
    #[inline(always)]
    pub(super) fn climb_from(
        &self,
        mut id: Id,
        top: Id,
        text: Text<'_, '_>,
        (at, mut end): (usize, usize),
        mut passes: Pattern,
        climbed: &mut Climbed,
    ) -> bool {
        climbed.counts = 0;
        for (rung, hold) in climbed.holds.iter_mut().enumerate() {
            let record = self.record(id);
            let seq = record.begin();
            let shape = record.shape();
            if !passes.fits(shape) {
                return false;
            }
            let Some(begin) = self.begin_of_name(record, shape, id, text, (at, end)) else { return false };
            if rung == 0 {
                climbed.begin = begin;
                prefetch(self.used(id));
                if shape.hides_handle() {
                    // Whoever wants the handle reads there: not to wait for it behind the climb.
                    prefetch(self.dentry(id));
                }
            }
            hold.write((id, seq));
            climbed.counts |= seq;
            id = record.parent();
            if begin == at {
                climbed.count = rung + 1;
                return id == top;
            }
            end = begin - 1;
            if text.bytes[end] != b'/' {
                return false;
            }
            passes = Shape::open_directory();
        }
        false
    }

    /// Where the name of a record begins in the path if it stands there before `end`.
    #[inline(always)]
    pub(super) fn begin_of_name(
        &self,
        record: &Record,
        shape: Shape,
        id: Id,
        text: Text<'_, '_>,
        (at, end): (usize, usize),
    ) -> Option<usize> {
        let len = shape.name_len();
        if len > end - at {
            return None;
        }
        let begin = end - len;
        let is_it = if len.wrapping_sub(1) < INLINE {
            record.has_name(text.window(begin), len)
        } else {
            self.has_long_name(id, &text.bytes[begin..end])
        };
        is_it.then_some(begin)
    }

    /// The same for a name that is not in the record; the root has none.
    #[cold]
    fn has_long_name(&self, id: Id, name: &[u8]) -> bool {
        // SAFETY: walks are inside the epoch.
        let long = unsafe { self.dentry(id).long_name() };
        long == Some(name)
    }

    /// Whether all records of a climb, and the one where it ended, have the counts that they had.
    #[inline(always)]
    pub(super) fn is_unchanged_since(&self, (start, count): Hold, climbed: &Climbed) -> bool {
        settle_reads();
        // All of them, without a branch for each. Not `all`: that is a call.
        let mut is_unchanged = (count | climbed.counts) & 1 == 0 && self.record(start).is_unchanged(count);
        for &(id, seq) in climbed.holds() {
            is_unchanged &= self.record(id).is_unchanged(seq);
        }
        is_unchanged
    }
}
