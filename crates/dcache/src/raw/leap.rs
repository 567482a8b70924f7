//! The leap: all plain components of a path at once, from its end up.
//!
//! As a directory's seed follows from its name ("sticky seeds", `tree.rs`), the hash of the last component follows from
//! the bytes of the path alone, in one pass that does not look for slashes (`name.rs`). So that one is looked for in the index, and from it
//! the walk climbs (`climb.rs`) up to where it stands. Of all components but one it reads the record and no bucket, and it never splits the
//! path.
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
    climb::{Climbed, Hold},
    counters::Counter,
    epoch::Pin,
    index::Miss,
    name::{NAME_MAX, PATH_MAX, Text},
    record::{Record, Shape, settle_reads},
    walk::{Descent, End, Here, Request, Trail},
    ways::Known,
};
use crate::Handle;

/// A path, and what was found out about it before it is walked.
pub(crate) struct Route<'p, 't> {
    pub(super) text: Text<'p, 't>,
    /// The hash of the last component, and the seed that the walk must begin under for that.
    aim: Option<(u64, u32)>,
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

    /// What may be one leap, without slashes before it.
    pub(super) fn plain_part(&self) -> Option<&'p [u8]> {
        let path = &self.text.bytes[self.text.skip_slashes(0)..];
        (1..=PATH_MAX).contains(&path.len()).then_some(path)
    }

    /// The hash of the last component, if it was noted.
    pub(super) fn aimed(&self) -> Option<u32> {
        self.aim.map(|(_, hash)| hash)
    }

    /// Notes the hash of the last component of a walk that begins under `seed`.
    pub(super) fn set_aim(&mut self, seed: u64, hash: u32) {
        self.aim = Some((seed, hash));
    }
}

/// A walk whose path may be one leap: from `foot` to what stands between `at` and the end of the text.
#[derive(Clone, Copy)]
pub(super) struct Aim<'p, 't> {
    pub(super) foot: Hold,
    pub(super) text: Text<'p, 't>,
    pub(super) at: usize,
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
        Some(Aim { foot, text, at, keep_last_link: request.keep_last_link })
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
        if !pin.trials().look(pin.counters().walks.get()) {
            return None;
        }
        let mut tail = Text::TAIL;
        let text = Text::new(request.path, &mut tail);
        let aim = self.aim(request, text)?;
        let hint = self.ways.hint(self.hasher.sign(request.start, text))?;
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
    ///
    /// Where the lines of a climb were asked for beforehand it does not look for a way, whose lines were not.
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
        let (is_aimed, seed) = (route.aim.is_some(), self.record(foot.0).seed());
        let hash = match route.aim {
            Some((under, hash)) if under == seed => hash,
            _ => self.hasher.path(seed, &text.bytes[at..]),
        };
        let by_way = if is_aimed { None } else { self.leap_by_way(aim, hash, &mut settle, &mut undo) };
        match by_way {
            None if self.index.likely(self.index.extent(), hash).next().is_some() => {
                self.climb_to_end(aim, is_aimed, hash, settle, undo)
            }
            None => self.leap_to_miss(aim, is_aimed),
            ended => ended,
        }
    }

    /// The same where the way is known.
    #[inline(always)]
    fn leap_by_way(
        &self,
        aim: &Aim<'_, '_>,
        hash: u32,
        settle: &mut impl FnMut(&End) -> bool,
        undo: &mut impl FnMut(&End),
    ) -> Option<(End, usize)> {
        let by_way = |found| {
            prefetch(self.dentry(found));
            self.verify(aim, found)
        };
        let glimpse = self.index.search(self.index.extent(), hash, by_way).ok()?;
        let end = self.end_of(aim, &glimpse);
        if !settle(&end) {
            return None;
        }
        if !self.is_true(aim, &glimpse) {
            undo(&end);
            return None;
        }
        self.note_hint(aim, glimpse.found.0);
        Some((end, glimpse.components()))
    }

    /// Ends a walk at the name that a complete directory does not have: by the way to that, or a climb.
    fn leap_to_miss(&self, aim: &Aim<'_, '_>, is_aimed: bool) -> Option<(End, usize)> {
        let &Aim { foot, text, at, .. } = aim;
        let slash = text.last_slash().filter(|&slash| slash > at)?;
        let extent = self.index.extent();
        let hash = self.hasher.path(self.record(foot.0).seed(), &text.bytes[at..slash]);
        let end_at = |at| End::Negative { at, end: text.bytes.len(), complete: true };
        for dir in self.index.likely(extent, hash).filter(|_| !is_aimed) {
            if let Some((at, components)) = self.miss_below(aim, dir) {
                self.note_hint(aim, dir);
                return Some((end_at(at), components));
            }
        }
        let mut climbed = Climbed::new();
        let passes = Shape::open_directory();
        let dir = self.climb(extent, foot.0, text, (at, slash), hash, passes, &mut climbed)?;
        let miss = self.miss_at_end(text, slash, dir)?;
        if !self.is_unchanged_since(foot, &climbed) || !self.index.still_misses(miss) {
            return None;
        }
        self.note_climb(aim, (slash, climbed.holds()), dir, is_aimed);
        Some((end_at(slash + 1), climbed.count))
    }

    /// Where in the path a name stands that `dir` does not have, if that is complete and the way there known, and how many components that
    /// has. Nobody holds a miss, so there is nothing to settle.
    fn miss_below(&self, aim: &Aim<'_, '_>, dir: Id) -> Option<(usize, usize)> {
        let &Aim { foot: (start, count), text, at, .. } = aim;
        let slash = text.last_slash().filter(|&slash| slash > at)?;
        let way = self.ways.find((start, dir), text, (at, slash))?;
        let miss = self.miss_at_end(text, slash, dir)?;
        settle_reads();
        let is_true = count & 1 == 0
            && self.record(start).is_unchanged(count)
            && way.holds(self.records.foreseen())
            && self.index.still_misses(miss);
        is_true.then_some((slash + 1, way.len()))
    }

    /// The miss of the path's last name, which stands behind `slash`, if `dir` is complete and does not have it.
    fn miss_at_end(&self, text: Text<'_, '_>, slash: usize, dir: Id) -> Option<Miss> {
        let record = self.record(dir);
        if slash + 1 == text.bytes.len() || !record.shape().has(Shape::COMPLETE) {
            return None;
        }
        let (name, _) = self.hasher.split(record.seed(), text, slash + 1);
        if name.is_dot() || name.is_dot_dot() || name.bytes.len() > NAME_MAX {
            return None;
        }
        self.find(self.index.extent(), dir, &name).err()
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
        self.note_climb(aim, (begin.saturating_sub(1), &climbed.holds()[1..]), found, is_aimed);
        Some((end, climbed.count))
    }

    /// Notes the way to what a walk has found one component at a time, where a leap would have got there but for hashes that follow from
    /// a directory's old name: then a climb from what was found gets up to where the walk began.
    #[inline(never)]
    pub(super) fn note_found(&self, request: &Request<'_>, route: &Route<'_, '_>, found: Id) {
        let Some(aim) = &self.aim(request, route.text) else { return };
        let &Aim { foot, text, at, .. } = aim;
        let mut climbed = Climbed::new();
        let ends = (at, text.bytes.len());
        if self.climb_from(found, foot.0, text, ends, Shape::plain_end(), &mut climbed)
            && self.is_unchanged_since(foot, &climbed)
        {
            let slash = climbed.begin.saturating_sub(1);
            self.note_climb(aim, (slash, &climbed.holds()[1..]), found, route.aim.is_some());
        }
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
}
