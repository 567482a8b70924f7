//! The leap: all plain components of a path at once, from its end up.
//!
//! As a directory's seed follows from its name ("sticky seeds", `tree.rs`), the hash of the last component follows from
//! the path alone. So that one is looked for in the index, and its record names its parent, whose record must bear
//! the name before, and so on up to where the walk stands: of all components but one a walk reads the record and no
//! bucket. What is found is decided by names and parents' numbers; the hash only says where to begin.
//!
//! The counts of all records go on the trail and are compared at the end of the walk, as for any other way of finding
//! them: the order in which records are read has no part in the argument for G1.
//!
//! The leap fails where anything is not plain: something is not cached, is a link or a negative entry, is no directory
//! that everyone may search, has a deadline or has expired, is `.` or `..` (no entry has such a name), or where a
//! directory on the way was renamed, as its children's hashes follow from its old name. Then `walk.rs` goes on one
//! component at a time, and leaps again from behind a renamed directory.

use super::{
    Core, Id,
    chunks::prefetch,
    index::Extent,
    name::{Hasher, INLINE, Name, Text},
    record::{Pattern, Record, Shape, settle_reads},
    walk::{Descent, Here, SHALLOW, Trail},
};
use crate::Handle;
use std::mem::MaybeUninit;

/// Components of one leap: what the trail holds without an allocation, less its start.
const RUNGS: usize = SHALLOW - 1;

/// One component on the way up.
#[derive(Clone, Copy)]
#[repr(C)]
struct Rung {
    words: [u64; 4],
    /// Hash and seed.
    hash: u64,
    len: u32,
    /// Where it ends, from where the ladder begins.
    end: u32,
}

/// The components of a path, first to last, hashed as if no directory had been renamed.
pub(crate) struct Ladder<'p, 't> {
    pub(super) text: Text<'p, 't>,
    rungs: [MaybeUninit<Rung>; RUNGS],
    count: usize,
    /// Where it begins, and under which seed.
    foot: (usize, u32),
    /// Where it ends.
    end: usize,
    /// Some name does not fit a record.
    has_long: bool,
}

/// A record on the way up, with its count.
type Hold = (Id, u32);

/// How a leap ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Leap {
    /// As far as it looked, which need not be the end of the path.
    There,
    /// One component before that: the next one is not plainly there.
    Before,
    /// Where it began. Going one by one may lead further.
    Nowhere,
    /// Where it began, and there is no other plain way.
    Stuck,
}

impl Rung {
    /// Writes a rung word by word, so that the words stay in general registers: if the four are stored as two vectors,
    /// they are made vectors before, and taken apart again for the products of the hash, 15 instructions more.
    #[inline(always)]
    fn put(self, slot: &mut MaybeUninit<Rung>) {
        let Rung { words, hash, len, end } = self;
        let slot = slot.as_mut_ptr();
        for (i, word) in words.into_iter().enumerate() {
            // SAFETY: inside `slot`, which is writable.
            unsafe { (&raw mut (*slot).words).cast::<u64>().add(i).write_volatile(word) };
        }
        // SAFETY: as above.
        unsafe {
            (&raw mut (*slot).hash).write(hash);
            (&raw mut (*slot).len).write(len);
            (&raw mut (*slot).end).write(end);
        }
    }

    #[inline(always)]
    fn is_it(&self, record: &Record, passes: Pattern) -> bool {
        record.has_key(&self.words) && passes.fits(record.shape(), self.len)
    }
}

impl<'p, 't> Ladder<'p, 't> {
    #[inline(always)]
    pub(crate) fn new(text: Text<'p, 't>) -> Self {
        let rungs = [const { MaybeUninit::uninit() }; RUNGS];
        Ladder { text, rungs, count: 0, foot: (usize::MAX, 0), end: 0, has_long: false }
    }

    /// Splits what is left of a path, or the beginning of it, into components. There must be a byte at `at`.
    #[inline(never)]
    fn set_up(&mut self, hasher: &Hasher, mut seed: u32, at: usize) {
        let text = self.text;
        self.foot = (at, seed);
        let mut slashes = text.slashes(at);
        let (mut begin, mut count) = (0, 0);
        let (mut last, mut has_long) = (0, false);
        while slashes != 0 {
            let end = slashes.trailing_zeros() as usize;
            slashes &= slashes - 1;
            let len = end - begin;
            if len != 0 {
                let Some(slot) = self.rungs.get_mut(count) else { break };
                let (words, hash) = if len < INLINE {
                    hasher.key(seed, text, at + begin, len)
                } else {
                    has_long |= len > INLINE;
                    hasher.split_long(seed, text, at + begin).0.into_parts()
                };
                Rung { words, hash, len: len as u32, end: end as u32 }.put(slot);
                seed = (hash >> 32) as u32;
                count += 1;
                last = end;
            }
            begin = end + 1;
        }
        (self.count, self.end, self.has_long) = (count, at + last, has_long);
    }

    /// Splits the path from `at` on, where that is not done yet.
    #[inline(always)]
    pub(super) fn stand_at(&mut self, hasher: &Hasher, seed: u32, at: usize) {
        if self.foot != (at, seed) {
            self.set_up(hasher, seed, at);
        }
    }

    /// The hashes of all components.
    pub(super) fn hashes(&self) -> impl Iterator<Item = u32> {
        self.rungs().iter().map(|rung| rung.hash as u32)
    }

    #[inline(always)]
    fn rungs(&self) -> &[Rung] {
        // SAFETY: the first `count` have been written, and `MaybeUninit<Rung>` is laid out as `Rung` is.
        unsafe { std::slice::from_raw_parts(self.rungs.as_ptr().cast(), self.count) }
    }
}

impl<H: Handle> Core<H> {
    /// Walks from `start` to the end of the path if that is one leap; `settle` and `undo` as for any walk. Answers the
    /// entry and how many components there are.
    #[inline(always)]
    pub(super) fn leap_to_end(
        &self,
        start: Id,
        ladder: &mut Ladder<'_, '_>,
        settle: impl FnOnce(Id) -> bool,
        undo: impl FnOnce(Id),
    ) -> Option<(Id, usize)> {
        let (foot, text) = (self.record(start), ladder.text);
        let at = text.skip_slashes(0);
        let seq = foot.begin();
        if at == text.bytes.len() || !foot.shape().is_open_directory() {
            return None;
        }
        ladder.stand_at(&self.hasher, foot.seed(), at);
        if ladder.end != text.bytes.len() || ladder.has_long || self.expiry.ever() {
            return None;
        }
        let mut holds = [const { MaybeUninit::uninit() }; RUNGS];
        let (rungs, holds) = (ladder.rungs(), &mut holds[..ladder.count]);
        let (found, counts) = self.climb(self.index.extent(), start, rungs, holds, Shape::plain_end())?;
        self.record(found).touch();
        if !settle(found) {
            return None;
        }
        settle_reads();
        // SAFETY: `climb` has written them all.
        let mut holds = holds.iter().map(|hold| unsafe { hold.assume_init() });
        if (seq | counts) & 1 == 0
            && foot.is_unchanged(seq)
            && holds.all(|(id, seq)| self.record(id).is_unchanged(seq))
        {
            return Some((found, rungs.len()));
        }
        undo(found);
        None
    }

    /// Goes on to the last component, or to the one before it if that is all that is plainly there.
    #[inline(never)]
    pub(super) fn leap(&self, descent: &mut Descent<'_, '_>, trail: &mut Trail, ladder: &mut Ladder) -> Leap {
        let Here { id, seed, .. } = descent.here;
        if descent.is_at_end() || !self.record(id).shape().is_open_directory() {
            return Leap::Stuck;
        }
        ladder.stand_at(&self.hasher, seed, descent.at);
        let rungs = ladder.rungs();
        if self.leap_along(descent, trail, rungs) {
            return Leap::There;
        }
        match rungs.split_last() {
            Some((_, before)) if self.leap_along(descent, trail, before) => Leap::Before,
            Some((_, before)) if before.len() < 2 => Leap::Stuck,
            _ => Leap::Nowhere,
        }
    }

    /// Moves the walk to the last of `rungs` if all of them are plainly there.
    fn leap_along(&self, descent: &mut Descent<'_, '_>, trail: &mut Trail, rungs: &[Rung]) -> bool {
        let Some(last) = rungs.last() else { return false };
        let end = descent.at + last.end as usize;
        let is_end = end == descent.text.bytes.len();
        let passes = if is_end { Shape::plain_end() } else { Shape::open_directory() };
        let mut holds = [const { MaybeUninit::uninit() }; RUNGS];
        let holds = &mut holds[..rungs.len()];
        let climbed = self.climb(descent.extent, descent.here.id, rungs, holds, passes);
        let (Some((found, counts)), Some(slots)) =
            (climbed, trail.first.get_mut(trail.len..trail.len + rungs.len()))
        else {
            return false;
        };
        let mut horizon = descent.here.horizon;
        for ((rung, hold), slot) in rungs.iter().zip(holds).zip(slots) {
            // SAFETY: `climb` has written them all.
            let (id, seq) = unsafe { hold.assume_init() };
            let record = self.record(id);
            let end = descent.at + rung.end as usize;
            let bytes = &descent.text.bytes[end - rung.len as usize..end];
            let name = Name::of_parts(bytes, rung.words, rung.hash);
            if record.stamp() < horizon || !self.is_long_name(id, &name) {
                return false;
            }
            horizon = horizon.max(record.horizon());
            *slot = (id.0, seq);
        }
        trail.len += rungs.len();
        trail.counts |= counts;
        descent.here = Here::at(found, self.record(found).seed(), horizon);
        descent.at = descent.text.skip_slashes(end);
        true
    }

    /// Looks for the last of `rungs`, which must be like `passes`, and climbs from there to `top`. Answers it and all
    /// counts, or-ed; fills `holds`, which is as long.
    #[inline(always)]
    fn climb(
        &self,
        extent: Extent,
        top: Id,
        rungs: &[Rung],
        holds: &mut [MaybeUninit<Hold>],
        passes: Pattern,
    ) -> Option<(Id, u32)> {
        let ((last, above), (hold, holds)) = (rungs.split_last()?, holds.split_last_mut()?);
        'candidate: for found in self.index.likely(extent, last.hash as u32) {
            let record = self.record(found);
            // Whoever wants a reference writes there: not to wait for it behind the climb.
            prefetch(self.dentry(found));
            let mut counts = record.begin();
            if !last.is_it(record, passes) {
                continue;
            }
            hold.write((found, counts));
            let mut id = record.parent();
            for (rung, hold) in above.iter().zip(holds.iter_mut()).rev() {
                let record = self.record(id);
                let seq = record.begin();
                if !rung.is_it(record, Shape::open_directory()) {
                    continue 'candidate;
                }
                hold.write((id, seq));
                counts |= seq;
                id = record.parent();
            }
            if id == top {
                return Some((found, counts));
            }
        }
        None
    }
}
