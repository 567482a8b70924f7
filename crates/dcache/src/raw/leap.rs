//! The leap: all plain components of a path at once, from its end up.
//!
//! As a directory's seed follows from its name ("sticky seeds", `tree.rs`), the hash of the last component follows from
//! the bytes of the path alone, in one pass that does not look for slashes (`name.rs`). So that one is looked for in the index; its
//! record tells how long its name is, and so where in the path that begins and the name before ends, which the parent's record must
//! bear; and so on up to where the walk stands. Of all components but one a walk reads the record and no bucket, and it never splits the
//! path. What is found is decided by names, slashes and parents' numbers; the hash only says where to begin.
//!
//! The counts of all records go on the trail and are compared at the end of the walk, as for any other way of finding
//! them: the order in which records are read has no part in the argument for G1.
//!
//! The leap fails where anything is not plain: something is not cached, is a link or a negative entry, is no directory
//! that everyone may search, has a deadline or has expired, has a name of more than 32 bytes, is `.` or `..` (no entry has such a name) or
//! has two slashes before it; or where a directory on the way was renamed, as its children's hashes follow from its old name. Then
//! `walk.rs` goes on one component at a time, and leaps again from behind a renamed directory.

use super::{
    Core, Id,
    chunks::prefetch,
    index::Extent,
    name::{INLINE, PATH_MAX, Text},
    record::{Pattern, Shape, settle_reads},
    walk::{Descent, Here, SHALLOW, Trail},
};
use crate::Handle;
use std::mem::MaybeUninit;

/// Components of one leap: what the trail holds without an allocation, less its start.
const RUNGS: usize = SHALLOW - 1;

/// A path, and what was found out about it before it is walked.
pub(crate) struct Route<'p, 't> {
    pub(super) text: Text<'p, 't>,
    /// The hash of the last component, and the seed that the walk must begin under for that.
    aim: Option<(u64, u32)>,
}

/// A record on the way up, with its count.
type Hold = (Id, u32);

/// The records on the way up, the last component's first.
struct Climbed {
    holds: [MaybeUninit<Hold>; RUNGS],
    count: usize,
    /// All counts, or-ed.
    counts: u32,
}

/// How a leap ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Leap {
    /// At the end of the path.
    There,
    /// One component before that: the next one is not plainly there.
    Before,
    /// Where it began. Going one by one may lead further.
    Nowhere,
    /// Where it began, and there is no other plain way.
    Stuck,
}

impl<'p, 't> Route<'p, 't> {
    #[inline(always)]
    pub(crate) fn new(text: Text<'p, 't>) -> Self {
        Route { text, aim: None }
    }

    /// Notes the hash of the last component of a walk that begins under `seed`.
    pub(super) fn set_aim(&mut self, seed: u64, hash: u32) {
        self.aim = Some((seed, hash));
    }
}

impl Climbed {
    #[inline(always)]
    fn new() -> Climbed {
        Climbed { holds: [const { MaybeUninit::uninit() }; RUNGS], count: 0, counts: 0 }
    }

    #[inline(always)]
    fn holds(&self) -> &[Hold] {
        // SAFETY: the first `count` have been written, and `MaybeUninit<Hold>` is laid out as `Hold` is.
        unsafe { std::slice::from_raw_parts(self.holds.as_ptr().cast(), self.count) }
    }
}

impl<H: Handle> Core<H> {
    /// Walks from `start` to the end of the path if that is one leap; `settle` and `undo` as for any walk. Answers the
    /// entry and how many components there are.
    #[inline(always)]
    pub(super) fn leap_to_end(
        &self,
        start: Id,
        route: &Route<'_, '_>,
        settle: impl FnOnce(Id) -> bool,
        undo: impl FnOnce(Id),
    ) -> Option<(Id, usize)> {
        let (foot, text) = (self.record(start), route.text);
        let at = text.skip_slashes(0);
        let seq = foot.begin();
        let path = &text.bytes[at..];
        if !(1..=PATH_MAX).contains(&path.len()) || !foot.shape().is_open_directory() || self.expiry.ever() {
            return None;
        }
        let seed = foot.seed();
        let hash = match route.aim {
            Some((under, hash)) if under == seed => hash,
            _ => self.hasher.path(seed, path),
        };
        let mut climbed = Climbed::new();
        let ends = (at, text.bytes.len());
        let found =
            self.climb(self.index.extent(), start, text, ends, hash, Shape::plain_end(), &mut climbed)?;
        self.record(found).touch();
        if !settle(found) {
            return None;
        }
        settle_reads();
        // All of them, without a branch for each. Not `all`: that is a call.
        let mut is_unchanged = (seq | climbed.counts) & 1 == 0 && foot.is_unchanged(seq);
        for &(id, seq) in climbed.holds() {
            is_unchanged &= self.record(id).is_unchanged(seq);
        }
        if is_unchanged {
            return Some((found, climbed.count));
        }
        undo(found);
        None
    }

    /// Goes on to the last component, or to the one before it if that is all that is plainly there.
    #[inline(never)]
    pub(super) fn leap(&self, descent: &mut Descent<'_, '_>, trail: &mut Trail) -> Leap {
        let Descent { at, text, .. } = *descent;
        if descent.is_at_end() || !self.record(descent.here.id).shape().is_open_directory() {
            return Leap::Stuck;
        }
        let end = text.end_before_slashes(at, text.bytes.len());
        if self.leap_along(descent, trail, end) {
            return Leap::There;
        }
        let last = text.bytes[at..end].iter().rposition(|&byte| byte == b'/').map_or(at, |slash| at + slash);
        let before = text.end_before_slashes(at, last);
        match () {
            () if before == at => Leap::Stuck,
            () if self.leap_along(descent, trail, before) => Leap::Before,
            () if !text.bytes[at..before].contains(&b'/') => Leap::Stuck,
            () => Leap::Nowhere,
        }
    }

    /// Moves the walk to `end` if all components up to there are plainly there.
    fn leap_along(&self, descent: &mut Descent<'_, '_>, trail: &mut Trail, end: usize) -> bool {
        let (at, text) = (descent.at, descent.text);
        if end - at > PATH_MAX {
            return false;
        }
        let is_end = end == text.bytes.len();
        let passes = if is_end { Shape::plain_end() } else { Shape::open_directory() };
        let hash = self.hasher.path(descent.here.seed, &text.bytes[at..end]);
        let mut climbed = Climbed::new();
        let found = self.climb(descent.extent, descent.here.id, text, (at, end), hash, passes, &mut climbed);
        let (Some(found), Some(slots)) = (found, trail.first.get_mut(trail.len..trail.len + climbed.count))
        else {
            return false;
        };
        let mut horizon = descent.here.horizon;
        for (&(id, seq), slot) in climbed.holds().iter().rev().zip(slots) {
            let record = self.record(id);
            if record.stamp() < horizon {
                return false;
            }
            horizon = horizon.max(record.horizon());
            *slot = (id.0, seq);
        }
        trail.len += climbed.count;
        trail.counts |= climbed.counts;
        descent.here = Here::at(found, self.record(found).seed(), horizon);
        descent.at = text.skip_slashes(end);
        true
    }

    /// Looks for what has `hash` and bears the last name of the path between the `ends`, is like `passes`, and has the names before it
    /// above, up to `top`. Answers it; `climbed` is filled then.
    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "a structure of them would be built in memory")]
    fn climb(
        &self,
        extent: Extent,
        top: Id,
        text: Text<'_, '_>,
        (at, end): (usize, usize),
        hash: u32,
        passes: Pattern,
        climbed: &mut Climbed,
    ) -> Option<Id> {
        'candidate: for found in self.index.likely(extent, hash) {
            // Whoever wants a handle or a reference reads there: not to wait for it behind the climb.
            prefetch(self.dentry(found));
            let (mut id, mut end, mut passes) = (found, end, passes);
            climbed.counts = 0;
            for (rung, hold) in climbed.holds.iter_mut().enumerate() {
                let record = self.record(id);
                let seq = record.begin();
                let shape = record.shape();
                let len = shape.name_len();
                // The root's name has none, and a long one cannot be compared here.
                if !passes.fits(shape) || len.wrapping_sub(1) >= INLINE || len > end - at {
                    continue 'candidate;
                }
                let begin = end - len;
                if !record.has_name(text.window(begin), len) {
                    continue 'candidate;
                }
                hold.write((id, seq));
                climbed.counts |= seq;
                id = record.parent();
                if begin == at {
                    if id != top {
                        continue 'candidate;
                    }
                    climbed.count = rung + 1;
                    return Some(found);
                }
                end = begin - 1;
                if text.bytes[end] != b'/' {
                    continue 'candidate;
                }
                passes = Shape::open_directory();
            }
        }
        None
    }
}
