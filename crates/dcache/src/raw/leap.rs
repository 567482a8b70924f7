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
//! What a climb finds is noted (`ways.rs`), so that the next walk need not climb: `leap_by_hint` is what most walks are, `leap_to_end` the
//! rest. A name that is not there ends a leap as well: at a negative entry, or below a directory that is complete.
//!
//! The leap fails where anything is not plain: something is not cached, is a link, is no directory that everyone may search, has a
//! deadline or has expired, is `.` or `..` (no entry has such a name) or has two slashes before it; or where a directory on the way was
//! renamed, as its children's hashes follow from its old name. Then `walk.rs` goes on one component at a time, and leaps again from
//! behind a renamed directory.

use super::{
    Core, Id,
    chunks::prefetch,
    counters::Counter,
    epoch::Pin,
    index::Extent,
    name::{INLINE, NAME_MAX, PATH_MAX, Sign, Text},
    record::{Pattern, Record, Shape, settle_reads},
    walk::{Descent, End, Here, Request, SHALLOW, Trail},
    ways::Known,
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
pub(super) type Hold = (Id, u32);

/// The records on the way up, the last component's first.
struct Climbed {
    holds: [MaybeUninit<Hold>; RUNGS],
    count: usize,
    /// All counts, or-ed.
    counts: u32,
    /// Where in the path the last name begins.
    begin: usize,
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
        Climbed { holds: [const { MaybeUninit::uninit() }; RUNGS], count: 0, counts: 0, begin: 0 }
    }

    #[inline(always)]
    fn holds(&self) -> &[Hold] {
        // SAFETY: the first `count` have been written, and `MaybeUninit<Hold>` is laid out as `Hold` is.
        unsafe { std::slice::from_raw_parts(self.holds.as_ptr().cast(), self.count) }
    }
}

/// A walk whose path may be one leap: from `foot` to what stands between `at` and the end of the text.
#[derive(Clone, Copy)]
pub(super) struct Aim<'p, 't> {
    foot: Hold,
    text: Text<'p, 't>,
    at: usize,
    sign: Sign,
    keep_last_link: bool,
}

/// The last component, seen in a directory that is known to be where the path says. To be believed after [`Core::is_true`] has said so.
#[derive(Clone, Copy)]
struct Glimpse<'a> {
    found: Hold,
    record: &'a Record,
    way: Option<Known<'a>>,
    /// Where its name begins, if it is a negative entry.
    missing: Option<usize>,
}

impl Glimpse<'_> {
    /// How many components the path has.
    #[inline(always)]
    fn components(&self) -> usize {
        1 + self.way.map_or(0, Known::len)
    }
}

impl<H: Handle> Core<H> {
    /// Looks whether the path of a walk may be one leap.
    #[inline(always)]
    pub(super) fn aim<'p, 't>(&self, request: &Request<'_>, text: Text<'p, 't>) -> Option<Aim<'p, 't>> {
        let record = self.record(request.start);
        let at = text.skip_slashes(0);
        let foot = (request.start, record.begin());
        if !(1..=PATH_MAX).contains(&(text.bytes.len() - at))
            || !record.shape().is_open_directory()
            || self.expiry.ever()
        {
            return None;
        }
        let sign = self.hasher.sign(request.start, text);
        Some(Aim { foot, text, at, sign, keep_last_link: request.keep_last_link })
    }

    /// Ends a walk at what the hints have for the end of its path: answers what `settle` makes of the entry, or where in the path a name
    /// stands that is not there. `undo` takes what `settle` made if it came to nothing. Counts the walk if it ends here.
    #[inline(always)]
    pub(crate) fn leap_by_hint<R>(
        &self,
        pin: &Pin<'_>,
        request: &Request<'_>,
        settle: impl FnOnce(Id) -> Option<R>,
        undo: impl FnOnce(R),
    ) -> Option<Result<R, (usize, usize)>> {
        let mut tail = Text::TAIL;
        let text = Text::new(request.path, &mut tail);
        let aim = self.aim(request, text)?;
        let hint = self.ways.hint(aim.sign)?;
        let Some(glimpse) = self.verify(&aim, hint) else { return self.miss_by_hint(pin, &aim, hint) };
        glimpse.record.touch();
        let counters = pin.counters();
        let count = |how: &Counter| {
            counters.walks.add(1);
            counters.components.add(glimpse.components() as u64);
            how.add(1);
        };
        if let Some(at) = glimpse.missing {
            return self.is_true(&aim, &glimpse).then(|| {
                count(&counters.negative);
                Err((at, text.bytes.len()))
            });
        }
        let settled = settle(glimpse.found.0)?;
        if self.is_true(&aim, &glimpse) {
            count(&counters.found);
            return Some(Ok(settled));
        }
        counters.retries.add(1);
        undo(settled);
        None
    }

    /// The same for a hint of the directory that a name is not in.
    #[inline(never)]
    fn miss_by_hint<R>(
        &self,
        pin: &Pin<'_>,
        aim: &Aim<'_, '_>,
        dir: Id,
    ) -> Option<Result<R, (usize, usize)>> {
        let (missing, components) = self.miss_below(aim, dir)?;
        let counters = pin.counters();
        counters.walks.add(1);
        counters.components.add(components as u64);
        counters.complete_negative.add(1);
        Some(Err((missing, aim.text.bytes.len())))
    }

    /// Sees whether an entry has the last name of the path, and the way to its directory is known to be the rest.
    #[inline(always)]
    fn verify(&self, aim: &Aim<'_, '_>, found: Id) -> Option<Glimpse<'_>> {
        let &Aim { foot: (start, _), text, at, keep_last_link, .. } = aim;
        let record = self.records.foreseen().get(found.0 as usize)?;
        let seq = record.begin();
        let shape = record.shape();
        if !Shape::plain().fits(shape) || shape.is_symlink() && !keep_last_link {
            return None;
        }
        // L1.
        settle_reads();
        let begin = self.begin_of_name(record, shape, found, text, (at, text.bytes.len()))?;
        let dir = record.parent();
        let way = match begin {
            _ if begin == at => (dir == start).then_some(None)?,
            _ if text.bytes[begin - 1] != b'/' => return None,
            _ => Some(self.ways.find((start, dir), text, (at, begin - 1))?),
        };
        Some(Glimpse { found: (found, seq), record, way, missing: shape.is_negative().then_some(begin) })
    }

    /// How a walk ends with what it has glimpsed.
    #[inline(always)]
    fn end_of(&self, aim: &Aim<'_, '_>, glimpse: &Glimpse<'_>) -> End {
        glimpse.record.touch();
        match glimpse.missing {
            None => End::Found(glimpse.found.0),
            Some(at) => End::Negative { at, end: aim.text.bytes.len(), complete: false },
        }
    }

    /// Whether all that was glimpsed was so at one instant. To be asked after the end is held.
    #[inline(always)]
    fn is_true(&self, aim: &Aim<'_, '_>, glimpse: &Glimpse<'_>) -> bool {
        settle_reads();
        let ((start, count), (_, seq)) = (aim.foot, glimpse.found);
        (seq | count) & 1 == 0
            && glimpse.record.is_unchanged(seq)
            && self.record(start).is_unchanged(count)
            && glimpse.way.is_none_or(|way| way.holds(self.records.foreseen()))
    }

    /// Walks to the end of the path by the index, and by the way to its directory or a climb; `settle` and `undo` as for any walk.
    /// Answers how it ended and how many components there are.
    #[inline(never)]
    pub(super) fn leap_to_end(
        &self,
        request: &Request<'_>,
        route: &Route<'_, '_>,
        mut settle: impl FnMut(&End) -> bool,
        mut undo: impl FnMut(&End),
    ) -> Option<(End, usize)> {
        let aim = &self.aim(request, route.text)?;
        let &Aim { foot, text, at, .. } = aim;
        let (extent, seed) = (self.index.extent(), self.record(foot.0).seed());
        let hash = match route.aim {
            Some((under, hash)) if under == seed => hash,
            _ => self.hasher.path(seed, &text.bytes[at..]),
        };
        let mut is_there = self.index.likely(extent, hash).next().is_some();
        // What was asked for beforehand is not expected in the caches, and notes less so: a climb waits for less.
        let is_aimed = route.aim.is_some();
        let by_way = |found| {
            prefetch(self.dentry(found));
            is_there = true;
            self.verify(aim, found)
        };
        if !is_aimed && let Ok(glimpse) = self.index.search(extent, hash, by_way) {
            let end = self.end_of(aim, &glimpse);
            if settle(&end) {
                if self.is_true(aim, &glimpse) {
                    self.note_hint(aim.sign, glimpse.found.0);
                    return Some((end, glimpse.components()));
                }
                undo(&end);
            }
        }
        if is_there { self.climb_to_end(aim, is_aimed, hash, settle, undo) } else { self.leap_to_miss(aim) }
    }

    /// Ends a walk at the name that a complete directory does not have, if the way to that is known.
    fn leap_to_miss(&self, aim: &Aim<'_, '_>) -> Option<(End, usize)> {
        let &Aim { foot: (start, _), text, at, .. } = aim;
        let slash = text.last_slash().filter(|&slash| slash > at)?;
        let hash = self.hasher.path(self.record(start).seed(), &text.bytes[at..slash]);
        let mut is_there = false;
        for dir in self.index.likely(self.index.extent(), hash) {
            is_there = true;
            if let Some((at, components)) = self.miss_below(aim, dir) {
                self.note_hint(aim.sign, dir);
                let end = End::Negative { at, end: text.bytes.len(), complete: true };
                return Some((end, components));
            }
        }
        if is_there {
            self.learn_way(aim, slash, hash);
        }
        None
    }

    /// Where in the path a name stands that `dir` does not have, if that is complete and the way there known, and how many components that
    /// has. Nobody holds a miss, so there is nothing to settle.
    fn miss_below(&self, aim: &Aim<'_, '_>, dir: Id) -> Option<(usize, usize)> {
        let &Aim { foot: (start, count), text, at, .. } = aim;
        let slash = text.last_slash().filter(|&slash| slash > at)?;
        let way = self.ways.find((start, dir), text, (at, slash))?;
        let record = self.record(dir);
        if slash + 1 == text.bytes.len() || !record.shape().has(Shape::COMPLETE) {
            return None;
        }
        let (name, _) = self.hasher.split(record.seed(), text, slash + 1);
        if name.is_dot() || name.is_dot_dot() || name.bytes.len() > NAME_MAX {
            return None;
        }
        let miss = self.find(self.index.extent(), dir, &name).err()?;
        settle_reads();
        let is_true = count & 1 == 0
            && self.record(start).is_unchanged(count)
            && way.holds(self.records.foreseen())
            && self.index.still_misses(miss);
        is_true.then_some((slash + 1, way.len()))
    }

    /// Walks to the end of the path by a climb; `settle` and `undo` as for any walk. Answers how it ended and how many components
    /// there are.
    fn climb_to_end(
        &self,
        aim: &Aim<'_, '_>,
        is_aimed: bool,
        hash: u32,
        mut settle: impl FnMut(&End) -> bool,
        mut undo: impl FnMut(&End),
    ) -> Option<(End, usize)> {
        let &Aim { foot, text, at, .. } = aim;
        let mut climbed = Climbed::new();
        let (extent, ends) = (self.index.extent(), (at, text.bytes.len()));
        let found = self.climb(extent, foot.0, text, ends, hash, Shape::plain(), &mut climbed)?;
        let (record, begin) = (self.record(found), climbed.begin);
        record.touch();
        let end = match record.shape() {
            shape if shape.is_symlink() && !aim.keep_last_link => return None,
            shape if shape.is_negative() => End::Negative { at: begin, end: ends.1, complete: false },
            _ => End::Found(found),
        };
        if !settle(&end) {
            return None;
        }
        if !self.is_unchanged_since(foot, &climbed) {
            undo(&end);
            return None;
        }
        self.note_way(foot.0, text, (at, begin.saturating_sub(1)), &climbed.holds()[1..], is_aimed);
        Some((end, climbed.count))
    }

    /// Climbs once to the directory of a name that is not there, so that the way there is known the next time.
    #[cold]
    fn learn_way(&self, aim: &Aim<'_, '_>, end: usize, hash: u32) {
        let &Aim { foot, text, at, .. } = aim;
        let mut climbed = Climbed::new();
        let (extent, passes) = (self.index.extent(), Shape::open_directory());
        let found = self.climb(extent, foot.0, text, (at, end), hash, passes, &mut climbed);
        if found.is_some() && self.is_unchanged_since(foot, &climbed) {
            self.note_way(foot.0, text, (at, end), climbed.holds(), false);
        }
    }

    /// Whether all records of a climb, and the one where it ended, have the counts that they had.
    #[inline(always)]
    fn is_unchanged_since(&self, (start, count): Hold, climbed: &Climbed) -> bool {
        settle_reads();
        // All of them, without a branch for each. Not `all`: that is a call.
        let mut is_unchanged = (count | climbed.counts) & 1 == 0 && self.record(start).is_unchanged(count);
        for &(id, seq) in climbed.holds() {
            is_unchanged &= self.record(id).is_unchanged(seq);
        }
        is_unchanged
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
                if !passes.fits(shape) {
                    continue 'candidate;
                }
                let Some(begin) = self.begin_of_name(record, shape, id, text, (at, end)) else {
                    continue 'candidate;
                };
                if rung == 0 {
                    climbed.begin = begin;
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

    /// Where the name of a record begins in the path if it stands there before `end`.
    #[inline(always)]
    fn begin_of_name(
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
}
