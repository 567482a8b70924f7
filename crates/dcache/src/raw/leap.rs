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
//! What a climb finds is noted (`notes.rs`), so that the next walk need not climb: `leap_by_note` is what most walks are, `leap_to_end` the
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
    name::{NAME_MAX, PATH_MAX, Text, skip_slashes},
    notes::{self, Known},
    record::{Shape, Sight, settle_reads},
    walk::{Descent, End, Here, Request, Trail},
};
use crate::{Handle, Kind};

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
        plain_part(self.text.bytes)
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

/// See [`Route::plain_part`].
#[inline(always)]
fn plain_part(path: &[u8]) -> Option<&[u8]> {
    let path = &path[skip_slashes(path, 0)..];
    (1..=PATH_MAX).contains(&path.len()).then_some(path)
}

/// What stands behind a path's last slash.
fn last_name(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)
}

/// A walk whose path may be one leap: from `foot` to what stands between `at` and the end of the text.
#[derive(Clone, Copy)]
pub(super) struct Aim<'p, 't> {
    pub(super) foot: Hold,
    pub(super) text: Text<'p, 't>,
    pub(super) at: usize,
    keep_last_link: bool,
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
            || !self.is_surely_in_tree(request.start)
        {
            return None;
        }
        Some(Aim { foot, text, at, keep_last_link: request.keep_last_link })
    }

    /// Ends a walk at what is noted of its path: answers what `settle` makes of the entry, its kind and what else is noted of it, or where in
    /// the path a name stands that is not there. `settle` may read the entry's handle and generation. Counts the walk if it ends here.
    #[inline(always)]
    pub(crate) fn leap_by_note<R>(
        &self,
        pin: &Pin<'_>,
        request: &Request<'_>,
        settle: impl FnOnce(Id, Kind, Option<Sight>) -> Option<R>,
    ) -> Option<Result<R, (usize, usize)>> {
        let path = plain_part(request.path)?;
        if !pin.trials().look(pin.counters().walks.get())
            || self.expiry.ever()
            || !self.is_surely_in_tree(request.start)
        {
            return None;
        }
        let known = self.notes.find(self.key(request.start, path))?;
        let used = self.used.foreseen().get(known.id.0 as usize)?;
        let sight = known.sight();
        if request.holds || sight.is_none() {
            prefetch(self.dentry(known.id));
        }
        let count = |how: &Counter| {
            let counters = pin.counters();
            counters.walks.add(1);
            counters.components.add(known.len() as u64);
            how.add(1);
        };
        let len = request.path.len();
        let kind = match known.end() {
            notes::End::Miss => {
                let at = self.miss_by_note(request, known)?;
                count(&pin.counters().complete_negative);
                return Some(Err((at, len)));
            }
            notes::End::Positive(Kind::Symlink) if !request.keep_last_link => return None,
            notes::End::Positive(kind) => Some(kind),
            notes::End::Negative => None,
        };
        // L1.
        if !self.is_known(request, known) {
            return None;
        }
        used.touch();
        let Some(kind) = kind else {
            count(&pin.counters().negative);
            return Some(Err((len - last_name(path).len(), len)));
        };
        let settled = settle(known.id, kind, sight)?;
        count(&pin.counters().found);
        Some(Ok(settled))
    }

    /// Whether a note still holds.
    #[inline(always)]
    fn is_known(&self, request: &Request<'_>, known: Known<'_>) -> bool {
        known.holds(self.counts.get(request.start.0), self.counts.foreseen())
    }

    /// The same for the note that a directory does not have the last name. Nobody holds a miss, so there is nothing to settle.
    #[inline(never)]
    fn miss_by_note(&self, request: &Request<'_>, known: Known<'_>) -> Option<usize> {
        let mut tail = Text::TAIL;
        let text = Text::new(request.path, &mut tail);
        let slash = text.last_slash()?;
        let miss = self.miss_at_end(text, slash, known.id)?;
        // R5.
        settle_reads();
        let is_true = self.is_known(request, known) && self.index.still_misses(miss);
        is_true.then_some(slash + 1)
    }

    /// Walks to the end of the path by the index and a climb; `settle` and `undo` as for any walk.
    /// Answers how it ended and how many components there are.
    #[inline(never)]
    pub(super) fn leap_to_end(
        &self,
        request: &Request<'_>,
        route: &Route<'_, '_>,
        settle: impl FnMut(&End) -> bool,
        undo: impl FnMut(&End),
    ) -> Option<(End, usize)> {
        let aim = &self.aim(request, route.text)?;
        let &Aim { foot, text, at, .. } = aim;
        let (is_aimed, seed) = (route.aim.is_some(), self.record(foot.0).seed());
        let hash = match route.aim {
            Some((under, hash)) if under == seed => hash,
            _ => self.hasher.path(seed, &text.bytes[at..]),
        };
        if self.index.likely(self.index.extent(), hash).next().is_some() {
            self.climb_to_end(aim, is_aimed, hash, settle, undo)
        } else {
            self.leap_to_miss(aim, is_aimed)
        }
    }

    /// Ends a walk at the name that a complete directory does not have.
    fn leap_to_miss(&self, aim: &Aim<'_, '_>, is_aimed: bool) -> Option<(End, usize)> {
        let &Aim { foot, text, at, .. } = aim;
        let slash = text.last_slash().filter(|&slash| slash > at)?;
        let extent = self.index.extent();
        let hash = self.hasher.path(self.record(foot.0).seed(), &text.bytes[at..slash]);
        let mut climbed = Climbed::new();
        let passes = Shape::open_directory();
        let dir = self.climb(extent, foot.0, text, (at, slash), hash, passes, &mut climbed)?;
        let miss = self.miss_at_end(text, slash, dir)?;
        if !self.is_unchanged_since(foot, &climbed) || !self.index.still_misses(miss) {
            return None;
        }
        self.note_climb(aim, climbed.holds(), notes::End::Miss, is_aimed);
        Some((End::Negative { at: slash + 1, end: text.bytes.len(), complete: true }, climbed.count))
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
        self.used(found).touch();
        let shape = record.shape();
        let end = match shape {
            _ if shape.is_symlink() && !aim.keep_last_link => return None,
            _ if shape.is_negative() => End::Negative { at: begin, end: ends.1, complete: false },
            _ => End::Found(found),
        };
        if !settle(&end) {
            return None;
        }
        if !self.is_unchanged_since(foot, &climbed) {
            undo(&end);
            return None;
        }
        self.note_climb(
            aim,
            climbed.holds(),
            shape.kind().map_or(notes::End::Negative, notes::End::Positive),
            is_aimed,
        );
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
        if self.climb_from(found, foot.0, text, ends, Shape::plain_end(), &mut climbed) {
            let shape = self.record(found).shape();
            if self.is_unchanged_since(foot, &climbed) {
                self.note_climb(
                    aim,
                    climbed.holds(),
                    shape.kind().map_or(notes::End::Negative, notes::End::Positive),
                    route.aim.is_some(),
                );
            }
        }
    }

    /// Goes on to the last component, or to the one before it if that is all that is plainly there.
    #[inline(never)]
    pub(super) fn leap(&self, descent: &mut Descent<'_, '_>, trail: &mut Trail) -> Leap {
        let Descent { at, text, .. } = *descent;
        let is_open = !descent.here.is_outdated && self.record(descent.here.id).shape().is_open_directory();
        if descent.is_at_end() || !is_open {
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
