//! The walk: from a path to an entry without a lock, a shared write or a dependent chain of misses.
//!
//! An attempt goes down component by component and notes each record's sequence count. At the end, when it has
//! taken its one reference, it looks whether all counts are what they were. If so, every record was linked where
//! it was found from the moment it was read until that look: that is the instant of G1. If not, it begins anew,
//! and gives up after [`ATTEMPTS`] with [`Reason::Busy`], which a caller meets as he meets a miss: by asking for
//! one component under its directory's lock. It never waits (G3).
//!
//! A miss, too, is believed only if bucket and directory are unchanged at the end: so a walk does not miss a name
//! that is being renamed under both its names. In a complete directory it means ENOENT (G2).
//!
//! Most walks are one leap (`leap.rs`), from the end of the path up. Where it does not get there, `glide` goes down as
//! long as components are plain, and `step` takes any. In `glide` the hash of each component is computed under the seed that the
//! component before implies ("sticky seeds"), not under the one that its record holds; the two are compared
//! afterwards. As that branch is predicted, the processor is already fetching the next bucket and record while it
//! still waits for this one.

use super::{
    Core, Id,
    epoch::Pin,
    expiry::NEVER,
    index::{Extent, Miss},
    leap::{Leap, Route},
    name::{NAME_MAX, Name, Text},
    notes,
    record::{Record, Shape, Sight, settle_reads},
};
use crate::{DentryId, Handle, Kind, Reason, Seen};
use std::time::Instant;

/// Attempts that are overtaken by writers before a walk gives up.
pub(super) const ATTEMPTS: usize = 16;
/// Components whose counts are kept without an allocation.
pub(super) const SHALLOW: usize = 16;

/// Where a walk begins and how it ends.
#[derive(Clone, Copy)]
pub(crate) struct Request<'p> {
    /// Held by the caller.
    pub(crate) start: Id,
    /// `..` does not lead above this, nor above the root.
    pub(crate) floor: Option<DentryId>,
    pub(crate) path: &'p [u8],
    /// Answer a symbolic link that is the last component, without a slash behind it.
    pub(crate) keep_last_link: bool,
    /// Whether what is found is to be held, which is done in its dentry.
    pub(crate) holds: bool,
}

/// How an attempt ended.
#[derive(Clone, Copy)]
pub(crate) enum End {
    Found(Id),
    /// `path[at..end]` does not exist.
    Negative {
        at: usize,
        end: usize,
        complete: bool,
    },
    Stopped(Stop),
}

#[derive(Clone, Copy)]
pub(crate) struct Stop {
    pub(crate) dir: Id,
    pub(crate) link: Option<Id>,
    pub(crate) rest: usize,
    pub(crate) why: Reason,
}

/// The records that an attempt relies on, with the counts they had.
pub(super) struct Trail {
    /// How many of `first` are in use.
    pub(super) len: usize,
    /// All counts, or-ed: even if every one was.
    pub(super) counts: u32,
    pub(super) first: [(u32, u32); SHALLOW],
    more: Vec<(u32, u32)>,
    /// The miss at the end.
    miss: Option<Miss>,
}

impl Trail {
    fn beginning_at(id: Id, seq: u32) -> Trail {
        let mut first = [(0, 0); SHALLOW];
        first[0] = (id.0, seq);
        Trail { len: 1, counts: seq, first, more: Vec::new(), miss: None }
    }

    #[inline]
    fn push(&mut self, id: Id, seq: u32) {
        if self.len == SHALLOW {
            self.more.extend_from_slice(&self.first);
            self.len = 0;
        }
        self.first[self.len] = (id.0, seq);
        self.len += 1;
        self.counts |= seq;
    }

    /// The count of the last record.
    fn last(&self) -> u32 {
        self.first[self.len - 1].1
    }

    #[inline]
    fn components(&self) -> usize {
        (self.more.len() + self.len).saturating_sub(1)
    }
}

/// An attempt on its way down.
pub(super) struct Descent<'t, 'p> {
    pub(super) extent: Extent,
    pub(super) text: Text<'p, 't>,
    /// Where in the path the walk has come to: to its end, or to something else than a slash.
    pub(super) at: usize,
    pub(super) here: Here,
}

/// The directory that an attempt has reached; the last one on its trail.
#[derive(Clone, Copy)]
pub(super) struct Here {
    pub(super) id: Id,
    /// Under which its children are hashed.
    pub(super) seed: u64,
    /// What is below and has a lower stamp has expired.
    pub(super) horizon: u32,
    /// The caller was asked whether it may be searched, and said yes.
    may_search: bool,
    /// What was known of the directory itself, that it is complete and who may search it, has expired.
    pub(super) is_outdated: bool,
}

impl Here {
    pub(super) fn at(id: Id, seed: u64, horizon: u32) -> Here {
        Here { id, seed, horizon, may_search: false, is_outdated: false }
    }
}

impl Descent<'_, '_> {
    #[inline(always)]
    pub(super) fn is_at_end(&self) -> bool {
        self.at >= self.text.bytes.len()
    }

    fn stop(&self, why: Reason) -> End {
        End::Stopped(Stop { dir: self.here.id, link: None, rest: self.at, why })
    }

    /// The end at a name that is not cached.
    fn miss(&self, name: &Name<'_>, is_complete: bool) -> End {
        let at = self.at;
        match is_complete {
            _ if name.bytes.len() > NAME_MAX => self.stop(Reason::NameTooLong),
            true => End::Negative { at, end: at + name.bytes.len(), complete: true },
            false => self.stop(Reason::Miss),
        }
    }
}

/// A record under the name that was looked for, with its count before it was read.
pub(super) struct Found<'a> {
    pub(super) id: Id,
    pub(super) record: &'a Record,
    pub(super) seq: u32,
    pub(super) shape: Shape,
}

/// A record was rewritten: the attempt is void.
struct Moving;

impl<H: Handle> Core<H> {
    /// Walks. `settle` is called with how it ended, inside the pin and before the last look at the counts; it answers
    /// `false` where the end has died meanwhile. If the attempt turns out void after that, `undo` is called.
    ///
    /// For those who want references these are [`hold_end`](Self::hold_end) and [`release_end`](Self::release_end).
    #[inline]
    pub(crate) fn walk(
        &self,
        pin: &mut Pin<'_>,
        request: &Request<'_>,
        may_search: &mut impl FnMut(&H) -> bool,
        settle: impl FnMut(&End) -> bool,
        undo: impl FnMut(&End),
    ) -> End {
        pin.trials().learn_from_notes(pin.counters().walks.get());
        let plan = self.prefetch.plan(self.index.extent(), pin.trials());
        let begun = plan.timed.then(Instant::now);
        let mut tail = Text::TAIL;
        let mut route = Route::new(Text::new(request.path, &mut tail));
        if plan.prefetch {
            pin.counters().prefetched.add(1);
            self.prefetch_walk(request, &mut route);
        }
        let end = self.walk_counted(pin, request, &route, may_search, settle, undo);
        if let Some(begun) = begun {
            pin.trials().learn(plan, begun.elapsed());
        }
        end
    }

    /// Takes the references that an end stands for, or none.
    #[inline(always)]
    pub(crate) fn hold_end(&self, end: &End) -> bool {
        match end {
            End::Found(id) => self.hold(*id),
            End::Negative { .. } => true,
            End::Stopped(stop) => self.hold_stop(stop),
        }
    }

    /// What there is to be seen of an entry: its record tells if it can.
    ///
    /// # Safety
    /// The entry must be positive, and found linked under the caller's pin.
    #[inline(always)]
    pub(crate) unsafe fn see(&self, id: Id) -> Seen<H> {
        let record = self.record(id);
        let shape = record.shape();
        let kind = shape.kind().unwrap_or(Kind::Other);
        let sight = shape.has(Shape::SIGHTED).then(|| record.sight());
        // SAFETY: as the caller promises.
        unsafe { self.see_by(id, kind, sight) }
    }

    /// The same of an entry of which this is known.
    ///
    /// # Safety
    /// As for [`see`](Self::see), and `sight` must be that entry's.
    #[inline(always)]
    pub(crate) unsafe fn see_by(&self, id: Id, kind: Kind, sight: Option<Sight>) -> Seen<H> {
        if let Some(Sight { word, generation }) = sight
            && let Some(handle) = H::from_word(word)
        {
            return Seen { id: DentryId::new(id, generation), handle, kind };
        }
        let dentry = self.dentry(id);
        // SAFETY: as the caller promises.
        let handle = unsafe { dentry.handle() }.clone();
        Seen { id: DentryId::new(id, dentry.generation()), handle, kind }
    }

    /// What a note may keep of an entry.
    ///
    /// # Safety
    /// As for [`see`](Self::see).
    pub(super) unsafe fn sight(&self, id: Id) -> Option<Sight> {
        let (record, dentry) = (self.record(id), self.dentry(id));
        if record.shape().has(Shape::SIGHTED) {
            return Some(record.sight());
        }
        // SAFETY: as the caller promises.
        let word = unsafe { dentry.handle() }.to_word()?;
        Some(Sight { word, generation: dentry.generation() })
    }

    /// Looks at what was found, and takes the references that any other end stands for. To be called inside of a pin.
    #[inline(always)]
    pub(crate) fn see_end(&self, end: &End, seen: &mut Option<Seen<H>>) -> bool {
        match end {
            End::Found(id) => {
                // SAFETY: found linked inside the pin of this walk, and positive.
                *seen = Some(unsafe { self.see(*id) });
                true
            }
            End::Negative { .. } => true,
            End::Stopped(stop) => self.hold_stop(stop),
        }
    }

    /// Gives up the references that [`see_end`](Self::see_end) took.
    #[cold]
    pub(crate) fn release_stop(&self, end: &End) {
        if let End::Stopped(_) = end {
            self.release_end(end);
        }
    }

    #[inline(never)]
    fn hold_stop(&self, stop: &Stop) -> bool {
        if stop.link.is_some_and(|link| !self.hold(link)) {
            return false;
        }
        let held = self.hold(stop.dir);
        if let Some(link) = stop.link.filter(|_| !held) {
            self.release(link);
        }
        held
    }

    /// Gives up what [`hold_end`](Self::hold_end) took.
    #[cold]
    pub(crate) fn release_end(&self, end: &End) {
        match end {
            End::Found(id) => self.release(*id),
            End::Negative { .. } => {}
            End::Stopped(stop) => {
                stop.link.into_iter().for_each(|link| self.release(link));
                self.release(stop.dir);
            }
        }
    }

    /// A walk as users count them.
    #[inline(always)]
    pub(crate) fn walk_counted(
        &self,
        pin: &mut Pin<'_>,
        request: &Request<'_>,
        route: &Route<'_, '_>,
        may_search: &mut impl FnMut(&H) -> bool,
        settle: impl FnMut(&End) -> bool,
        undo: impl FnMut(&End),
    ) -> End {
        pin.counters().walks.add(1);
        let (end, components) = self.walk_inside(pin, request, route, may_search, settle, undo);
        let counters = pin.counters();
        counters.components.add(components as u64);
        match end {
            End::Found(_) => counters.found.add(1),
            End::Negative { complete: false, .. } => counters.negative.add(1),
            End::Negative { complete: true, .. } => counters.complete_negative.add(1),
            End::Stopped(stop) => counters.stopped[stop.why as usize].add(1),
        }
        end
    }

    /// The walk itself: how it ended, and how many components it resolved.
    #[inline(always)]
    fn walk_inside(
        &self,
        pin: &mut Pin<'_>,
        request: &Request<'_>,
        route: &Route<'_, '_>,
        may_search: &mut impl FnMut(&H) -> bool,
        mut settle: impl FnMut(&End) -> bool,
        mut undo: impl FnMut(&End),
    ) -> (End, usize) {
        let undo_leap = |end: &End| {
            pin.counters().retries.add(1);
            undo(end);
        };
        if let Some(ended) = self.leap_to_end(request, route, &mut settle, undo_leap) {
            return ended;
        }
        let (end, components) = self.attempt(pin, request, may_search, settle, undo, route.text);
        if let End::Found(found) = end
            && components <= notes::DIRS + 1
            && pin.counters().walks.get().is_multiple_of(notes::PATIENCE)
        {
            self.note_found(request, route, found);
        }
        (end, components)
    }

    /// A walk that is not one leap.
    #[inline(never)]
    fn attempt(
        &self,
        pin: &mut Pin<'_>,
        request: &Request<'_>,
        may_search: &mut impl FnMut(&H) -> bool,
        mut settle: impl FnMut(&End) -> bool,
        mut undo: impl FnMut(&End),
        text: Text<'_, '_>,
    ) -> (End, usize) {
        for _ in 0..ATTEMPTS {
            let start = self.record(request.start);
            // Apart from the rest, as it would be copied with it.
            let mut trail = Trail::beginning_at(request.start, start.begin());
            let mut descent = Descent {
                extent: self.index.extent(),
                text,
                at: text.skip_slashes(0),
                here: self.stand_on(request.start, start),
            };
            let end = self.descend(pin, request, may_search, &mut descent, &mut trail);
            if let Ok(end) = end
                && settle(&end)
            {
                if self.is_unchanged(&trail) {
                    return (end, trail.components());
                }
                undo(&end);
            }
            pin.counters().retries.add(1);
        }
        let end = End::Stopped(Stop { dir: request.start, link: None, rest: 0, why: Reason::Busy });
        // The caller holds the start.
        settle(&end);
        (end, 0)
    }

    #[inline]
    fn is_unchanged(&self, trail: &Trail) -> bool {
        settle_reads();
        let all = |part: &[(u32, u32)]| part.iter().all(|&(id, seq)| self.record(Id(id)).is_unchanged(seq));
        trail.counts & 1 == 0
            && all(&trail.first[..trail.len.min(SHALLOW)])
            && (trail.more.is_empty() || all(&trail.more))
            && trail.miss.is_none_or(|miss| self.index.still_misses(miss))
    }

    /// Goes on as long as there is nothing special about the components.
    #[inline(always)]
    fn advance(&self, descent: &mut Descent<'_, '_>, trail: &mut Trail) {
        loop {
            match self.leap(descent, trail) {
                Leap::There if descent.is_at_end() => return,
                Leap::There => {}
                Leap::Nowhere if self.glide(descent, trail) => {}
                Leap::Before | Leap::Nowhere | Leap::Stuck => return,
            }
        }
    }

    /// Goes on one by one as long as there is nothing special about a component: it is found in its bucket, and is a
    /// directory that everyone may search, or the last one and no link. Everything else is left to `descend`. Tells
    /// whether to leap from here, behind a directory that was renamed.
    ///
    /// Not inlined, and on copies of what it needs, so that all of it fits the registers.
    #[inline(never)]
    fn glide(&self, descent: &mut Descent<'_, '_>, trail: &mut Trail) -> bool {
        let Here { mut id, mut seed, mut horizon, is_outdated, .. } = descent.here;
        if is_outdated || !self.record(id).shape().is_open_directory() {
            return false;
        }
        let (extent, text) = (descent.extent, descent.text);
        let (mut at, mut len, mut counts) = (descent.at, trail.len, 0);
        let mut was_renamed = false;
        'component: while at < text.bytes.len() && !was_renamed {
            let (name, end) = self.hasher.split(seed, text, at);
            if name.begins_with_dot() || name.is_long() {
                break;
            }
            let is_last = end == text.bytes.len();
            for candidate in self.index.likely(extent, name.hash()) {
                let record = self.record(candidate);
                let seq = record.begin();
                let Some(shape) = record.shape_if_named(id, &name) else { continue };
                let passes = if is_last { shape.is_plain_end() } else { shape.is_open_directory() };
                let Some(slot) = trail.first.get_mut(len) else { break 'component };
                if !passes || record.stamp() < horizon {
                    break 'component;
                }
                *slot = (candidate.0, seq);
                len += 1;
                counts |= seq;
                id = candidate;
                was_renamed = record.seed() != name.seed();
                seed = if was_renamed { record.seed() } else { name.seed() };
                horizon = horizon.max(record.horizon());
                at = text.skip_slashes(end);
                continue 'component;
            }
            break;
        }
        if len != trail.len {
            descent.here = Here::at(id, seed, horizon);
            descent.at = at;
            trail.len = len;
            trail.counts |= counts;
        }
        was_renamed
    }

    /// Goes to the end of the walk.
    fn descend(
        &self,
        pin: &mut Pin<'_>,
        request: &Request<'_>,
        may_search: &mut impl FnMut(&H) -> bool,
        descent: &mut Descent<'_, '_>,
        trail: &mut Trail,
    ) -> Result<End, Moving> {
        self.advance(descent, trail);
        while !descent.is_at_end() {
            if let Some(end) = self.step(pin, request, may_search, descent, trail)? {
                return Ok(end);
            }
            self.advance(descent, trail);
        }
        self.used(descent.here.id).touch();
        Ok(End::Found(descent.here.id))
    }

    /// Takes one component, whatever it is; answers how the walk ended if it did.
    fn step(
        &self,
        pin: &mut Pin<'_>,
        request: &Request<'_>,
        may_search: &mut impl FnMut(&H) -> bool,
        descent: &mut Descent<'_, '_>,
        trail: &mut Trail,
    ) -> Result<Option<End>, Moving> {
        let here = descent.here;
        let dir = self.record(here.id);
        let (name, end) = self.hasher.split(here.seed, descent.text, descent.at);
        if !dir.shape().is_directory() {
            return Ok(Some(descent.stop(Reason::NotADirectory)));
        }
        if !here.may_search && (here.is_outdated || !dir.shape().has(Shape::SEARCH)) {
            if !self.ask_search(pin, here.id, trail.last(), may_search)? {
                return Ok(Some(descent.stop(Reason::Denied)));
            }
            descent.here.may_search = true;
        }
        if name.is_dot() || name.is_dot_dot() {
            if name.is_dot_dot() {
                if self.is_floor(here.id, request.floor) {
                    return Ok(Some(descent.stop(Reason::Floor)));
                }
                if here.horizon == NEVER {
                    // It may be in another directory by now.
                    return Ok(Some(descent.stop(Reason::Expired)));
                }
                let parent = dir.parent();
                trail.push(parent, self.record(parent).begin());
                descent.here = self.stand_on(parent, self.record(parent));
            }
            descent.at = descent.text.skip_slashes(end);
            return Ok(None);
        }
        let Found { id, record, seq, shape } = match self.find(descent.extent, here.id, &name) {
            Ok(found) => found,
            Err(miss) => {
                let is_complete = !here.is_outdated && dir.shape().has(Shape::COMPLETE);
                trail.miss = Some(miss);
                return Ok(Some(descent.miss(&name, is_complete)));
            }
        };
        let is_past = || shape.has(Shape::TIMED) && self.expiry.is_past(self.dentry(id).deadline());
        if record.stamp() < here.horizon || is_past() {
            return Ok(Some(descent.stop(Reason::Expired)));
        }
        trail.push(id, seq);
        if shape.is_negative() {
            self.used(id).touch();
            return Ok(Some(End::Negative { at: descent.at, end, complete: false }));
        }
        let is_last = end == descent.text.bytes.len();
        if !is_last && !shape.is_directory() || shape.is_symlink() && !request.keep_last_link {
            return Ok(Some(self.leave_tree(here.id, id, shape, descent.at, name.bytes.len())));
        }
        let horizon = here.horizon.max(record.horizon());
        descent.here = Here::at(id, record.seed(), horizon);
        descent.at = descent.text.skip_slashes(end);
        Ok(None)
    }

    /// Whether `..` does not lead up from `id`: where the floor is gone it leads nowhere.
    fn is_floor(&self, id: Id, floor: Option<DentryId>) -> bool {
        let is_or_gone = |floor: DentryId| floor.id() == id || !self.is_alive(floor);
        id == Id::ROOT || floor.is_some_and(is_or_gone)
    }

    /// The end of a walk at something that is no directory but has components behind it, or at a link.
    #[cold]
    fn leave_tree(&self, dir: Id, id: Id, shape: Shape, at: usize, len: usize) -> End {
        self.used(id).touch();
        End::Stopped(if shape.is_symlink() {
            Stop { dir, link: Some(id), rest: at + len, why: Reason::Symlink }
        } else {
            Stop { dir, link: None, rest: at, why: Reason::NotADirectory }
        })
    }

    /// Finds one name below a directory, with the count that its record had then.
    #[inline]
    pub(super) fn find(&self, extent: Extent, dir: Id, name: &Name<'_>) -> Result<Found<'_>, Miss> {
        self.index.search(extent, name.hash(), |id| {
            let record = self.record(id);
            let seq = record.begin();
            let shape = record.shape_if_named(dir, name)?;
            self.is_long_name(id, name).then_some(Found { id, record, seq, shape })
        })
    }

    /// Begins at a directory that was not found by its name: the start, or a parent. Its count is on the trail.
    #[inline]
    fn stand_on(&self, id: Id, record: &Record) -> Here {
        // One word at a time: a structure handed about in memory stalls on its own stores: 13 ns of a
        // walk of two components.
        let above = if self.is_surely_in_tree(id) { self.horizon_above(id) } else { NEVER };
        let is_past = || record.shape().has(Shape::TIMED) && self.expiry.is_past(self.dentry(id).deadline());
        let is_outdated = record.stamp() < above || is_past();
        Here { id, seed: record.seed(), horizon: record.horizon().max(above), may_search: false, is_outdated }
    }

    /// Asks the caller whether a directory may be searched, outside of the pin.
    #[cold]
    fn ask_search(
        &self,
        pin: &mut Pin<'_>,
        dir: Id,
        seq: u32,
        may_search: &mut impl FnMut(&H) -> bool,
    ) -> Result<bool, Moving> {
        pin.counters().searches_asked.add(1);
        if seq & 1 != 0 {
            return Err(Moving);
        }
        // SAFETY: the directory is the start, which is held, or was found linked, or as the parent of something
        // alive, inside this pin; or it was so after the pin was last left, by the check below.
        let handle = unsafe { self.dentry(dir).handle() }.clone();
        let answer = pin.outside(|| may_search(&handle));
        settle_reads();
        // What was found before the pin was left may be gone: go on only from a directory that is still there.
        if self.record(dir).is_unchanged(seq) { Ok(answer) } else { Err(Moving) }
    }
}
