//! The walk: from a path to an entry without a lock, a shared write or a dependent chain of misses.
//!
//! An attempt goes down component by component and notes each record's sequence count. At the end, when it has
//! taken its one reference, it looks whether all counts are what they were. If so, every record was linked where
//! it was found from the moment it was read until that look: that is the instant of G1. If not, it begins anew,
//! and gives up after [`ATTEMPTS`] with [`Reason::Busy`], which a caller meets as he meets a miss: by asking for
//! one component under its directory's lock. It never waits (G3).
//!
//! A miss is ENOENT only in a complete directory, and only if bucket and directory are unchanged at the end (G2).
//!
//! The hash of each component is computed under the seed that the component before implies ("sticky seeds"), not
//! under the one that its record holds; the two are compared afterwards. As that branch is predicted, the
//! processor is already fetching the next bucket and record while it still waits for this one.

use super::{
    Core, Id,
    chunks::prefetch,
    epoch::Pin,
    fill::Known,
    index::{Extent, Miss},
    name::{NAME_MAX, Name},
    record::{Record, Shape, settle_reads},
};
use crate::{Handle, Reason};

/// Attempts that are overtaken by writers before a walk gives up.
const ATTEMPTS: usize = 16;
/// Components whose lines are asked for at once; more would not be under way together anyway.
const AHEAD: usize = 16;

/// Where a walk begins and how it ends.
#[derive(Clone, Copy)]
pub(crate) struct Request<'p> {
    /// Held by the caller.
    pub(crate) start: Id,
    /// `..` does not lead above this.
    pub(crate) floor: Id,
    pub(crate) path: &'p [u8],
    /// Answer a symbolic link that is the last component, without a slash behind it.
    pub(crate) keep_last_link: bool,
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
#[derive(Default)]
struct Trail {
    len: usize,
    first: [(Id, u32); AHEAD],
    more: Vec<(Id, u32)>,
    /// The miss that the end relies on.
    miss: Option<Miss>,
}

impl Trail {
    #[inline(always)]
    fn push(&mut self, id: Id, seq: u32) {
        match self.first.get_mut(self.len) {
            Some(slot) => *slot = (id, seq),
            None => self.more.push((id, seq)),
        }
        self.len += 1;
    }

    #[inline]
    fn records(&self) -> impl Iterator<Item = (Id, u32)> {
        self.first[..self.len.min(AHEAD)].iter().chain(&self.more).copied()
    }
}

/// The directory that an attempt has reached.
#[derive(Clone, Copy)]
struct Here {
    id: Id,
    seq: u32,
    shape: Shape,
    /// Under which its children are hashed.
    seed: u32,
    /// What is below and has a lower stamp has expired.
    horizon: u32,
}

/// A record that was being rewritten: the attempt is void.
struct Moving;

impl<H: Handle> Core<H> {
    /// Walks, and calls `settle` with how it ended, inside the pin and before the last look at the counts:
    /// there references are taken. What it answers is given to `undo` if the attempt turns out void.
    pub(crate) fn walk<R>(
        &self,
        request: Request<'_>,
        may_search: &mut impl FnMut(&H) -> bool,
        settle: impl Fn(End) -> Option<R>,
        undo: impl Fn(R),
    ) -> R {
        let mut pin = self.epoch.enter();
        pin.counters().walks.add(1);
        if self.prefetch.is_wanted() {
            self.prefetch_path(&request);
            pin.counters().prefetched.add(1);
        }
        for _ in 0..ATTEMPTS {
            let mut trail = Trail::default();
            if let Ok(end) = self.attempt(&mut pin, &request, may_search, &mut trail)
                && let Some(answer) = settle(end)
            {
                if self.is_unchanged(&trail) {
                    self.count_end(&pin, end, &trail);
                    return answer;
                }
                undo(answer);
            }
            pin.counters().retries.add(1);
        }
        let end = End::Stopped(Stop { dir: request.start, link: None, rest: 0, why: Reason::Busy });
        self.count_end(&pin, end, &Trail::default());
        settle(end).expect("the start is held by the caller")
    }

    #[inline]
    fn is_unchanged(&self, trail: &Trail) -> bool {
        settle_reads();
        trail.records().all(|(id, seq)| self.record(id).is_unchanged(seq))
            && trail.miss.is_none_or(|miss| self.index.still_misses(miss))
    }

    #[inline]
    fn count_end(&self, pin: &Pin<'_>, end: End, trail: &Trail) {
        let counters = pin.counters();
        counters.components.add(trail.len.saturating_sub(1) as u64);
        match end {
            End::Found(_) => counters.found.add(1),
            End::Negative { complete: false, .. } => counters.negative.add(1),
            End::Negative { complete: true, .. } => counters.complete_negative.add(1),
            End::Stopped(stop) => counters.stopped[stop.why as usize].add(1),
        }
    }

    #[inline]
    fn attempt(
        &self,
        pin: &mut Pin<'_>,
        request: &Request<'_>,
        may_search: &mut impl FnMut(&H) -> bool,
        trail: &mut Trail,
    ) -> Result<End, Moving> {
        let path = request.path;
        let extent = self.index.extent();
        let mut here = self.stand_on(request.start, trail)?;
        let mut at = skip_slashes(path, 0);
        while at < path.len() {
            let name = self.hasher.split(here.seed, path, at);
            let end = at + name.bytes.len();
            let stop = |why| Ok(End::Stopped(Stop { dir: here.id, link: None, rest: at, why }));
            if !here.shape.is_directory() {
                return stop(Reason::NotADirectory);
            }
            if !here.shape.has(Shape::SEARCH) {
                if !self.ask_search(pin, here, may_search)? {
                    return stop(Reason::Denied);
                }
                here.shape = here.shape.with(Shape::SEARCH);
            }
            if name.is_dot() {
                at = skip_slashes(path, end);
                continue;
            }
            if name.is_dot_dot() {
                if here.id == request.floor {
                    return stop(Reason::Floor);
                }
                here = self.stand_on(self.record(here.id).parent(), trail)?;
                at = skip_slashes(path, end);
                continue;
            }
            let (id, record, seq) = match self.step(extent, here.id, &name) {
                Ok(found) => found,
                Err(_) if name.bytes.len() > NAME_MAX => return stop(Reason::NameTooLong),
                Err(miss) if here.shape.has(Shape::COMPLETE) => {
                    trail.miss = Some(miss);
                    return Ok(End::Negative { at, end, complete: true });
                }
                Err(_) => return stop(Reason::Miss),
            };
            let seq = seq.ok_or(Moving)?;
            let (shape, deadline) = (record.shape(), record.deadline());
            if record.stamp() < here.horizon || deadline != 0 && self.expiry.is_past(deadline) {
                return stop(Reason::Expired);
            }
            trail.push(id, seq);
            if shape.is_negative() {
                record.touch();
                return Ok(End::Negative { at, end, complete: false });
            }
            if end < path.len() && !shape.is_directory() || shape.is_symlink() && !request.keep_last_link {
                return self.leave_tree(here.id, id, shape, at, end);
            }
            here = Here {
                id,
                seq,
                shape,
                seed: if record.seed() == name.seed() { name.seed() } else { reseed(record) },
                horizon: here.horizon.max(record.horizon()),
            };
            at = skip_slashes(path, end);
        }
        self.record(here.id).touch();
        Ok(End::Found(here.id))
    }

    /// The end of a walk at something that is no directory but has components behind it, or at a link.
    #[cold]
    fn leave_tree(&self, dir: Id, id: Id, shape: Shape, at: usize, end: usize) -> Result<End, Moving> {
        self.record(id).touch();
        Ok(End::Stopped(if shape.is_symlink() {
            Stop { dir, link: Some(id), rest: end, why: Reason::Symlink }
        } else {
            Stop { dir, link: None, rest: at, why: Reason::NotADirectory }
        }))
    }

    /// Finds one name below a directory. The count is `None` while the record is being rewritten.
    #[inline(always)]
    fn step(&self, extent: Extent, dir: Id, name: &Name<'_>) -> Result<(Id, &Record, Option<u32>), Miss> {
        self.index.search(extent, name.hash(), |id| {
            let record = self.record(id);
            let seq = record.begin();
            (record.is_named(dir, name) && self.is_long_name(id, name)).then_some((id, record, seq))
        })
    }

    /// Begins at a directory that was not found by its name: the start, or a parent.
    #[inline]
    fn stand_on(&self, id: Id, trail: &mut Trail) -> Result<Here, Moving> {
        let record = self.record(id);
        let seq = record.begin().ok_or(Moving)?;
        trail.push(id, seq);
        let here = Here { id, seq, shape: record.shape(), seed: record.seed(), horizon: record.horizon() };
        Ok(if self.expiry.ever() { self.with_horizon(here) } else { here })
    }

    #[cold]
    fn with_horizon(&self, mut here: Here) -> Here {
        let above = self.horizon_above(here.id);
        here.horizon = here.horizon.max(above);
        if self.record(here.id).stamp() < above {
            // That it is complete was learnt before it expired.
            here.shape = here.shape.without(Shape::COMPLETE);
        }
        here
    }

    /// Asks the caller whether a directory may be searched, outside of the pin.
    #[cold]
    fn ask_search(
        &self,
        pin: &mut Pin<'_>,
        here: Here,
        may_search: &mut impl FnMut(&H) -> bool,
    ) -> Result<bool, Moving> {
        pin.counters().searches_asked.add(1);
        // SAFETY: the directory is the start, which is held, or was found linked, or as the parent of something
        // alive, inside this pin; or it was so after the pin was last left, by the check below.
        let handle = unsafe { self.dentry(here.id).handle() }.clone();
        let answer = pin.outside(|| may_search(&handle));
        settle_reads();
        // What was found before the pin was left may be gone: go on only from a directory that is still there.
        if self.record(here.id).is_unchanged(here.seq) { Ok(answer) } else { Err(Moving) }
    }

    /// Looks one name up without a lock. Answers the entry held.
    pub(crate) fn look(&self, dir: Id, name: &Name<'_>) -> Known {
        let pin = self.epoch.enter();
        for _ in 0..ATTEMPTS {
            let mut trail = Trail::default();
            let Ok(here) = self.stand_on(dir, &mut trail) else { continue };
            let (id, record, seq) = match self.step(self.index.extent(), dir, name) {
                Ok((id, record, Some(seq))) => (id, record, seq),
                Ok((_, _, None)) => continue,
                Err(miss) if here.shape.has(Shape::COMPLETE) => {
                    trail.miss = Some(miss);
                    if self.is_unchanged(&trail) {
                        return Known::Negative;
                    }
                    continue;
                }
                Err(_) => return Known::Unknown,
            };
            let (shape, deadline) = (record.shape(), record.deadline());
            if record.stamp() < here.horizon || deadline != 0 && self.expiry.is_past(deadline) {
                return Known::Unknown;
            }
            trail.push(id, seq);
            record.touch();
            if !shape.is_negative() && !self.hold(id) {
                continue;
            }
            if self.is_unchanged(&trail) {
                pin.counters().components.add(1);
                return if shape.is_negative() { Known::Negative } else { Known::Positive(id) };
            }
            if !shape.is_negative() {
                self.release(id);
            }
        }
        Known::Unknown
    }

    /// Asks for all lines of a walk: first the buckets, then the records that they name.
    pub(crate) fn prefetch_path(&self, request: &Request<'_>) {
        let extent = self.index.extent();
        let mut hashes = [0; AHEAD];
        let count = self.prefetch_buckets(extent, request, &mut hashes);
        for &hash in &hashes[..count] {
            self.prefetch_record(extent, hash);
        }
    }

    /// Asks for the buckets that the path's components will be looked for in, if nothing above was renamed.
    pub(crate) fn prefetch_buckets(
        &self,
        extent: Extent,
        request: &Request<'_>,
        hashes: &mut [u32; AHEAD],
    ) -> usize {
        let mut seed = self.record(request.start).seed();
        let mut at = skip_slashes(request.path, 0);
        let mut count = 0;
        while at < request.path.len() && count < AHEAD {
            let name = self.hasher.split(seed, request.path, at);
            hashes[count] = name.hash();
            self.index.prefetch(extent, name.hash());
            seed = name.seed();
            count += 1;
            at = skip_slashes(request.path, at + name.bytes.len());
        }
        count
    }

    pub(crate) fn prefetch_record(&self, extent: Extent, hash: u32) {
        if let Some(id) = self.index.likely(extent, hash) {
            prefetch(self.record(id));
        }
    }
}

/// The seed of a directory that was renamed. Not inlined: were it seen that this is what the record holds, the
/// guess would be optimised away, and with it the overlap that it is for.
#[cold]
#[inline(never)]
fn reseed(record: &Record) -> u32 {
    record.seed()
}

#[inline(always)]
fn skip_slashes(path: &[u8], mut at: usize) -> usize {
    while path.get(at) == Some(&b'/') {
        at += 1;
    }
    at
}
