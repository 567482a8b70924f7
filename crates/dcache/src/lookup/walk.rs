//! The walk: from a path to an entry without a lock, a shared write or a copy of the path.
//!
//! Each step reads a bucket and a record, and adds the record's sequence count to the *read set*.
//! At the end, after taking its one reference, the walk compares all counts. If they are even and
//! equal, every record was linked from its read until then: that is the instant of G1. Otherwise it
//! starts anew. After [`ATTEMPTS`] it returns [`Reason::Busy`], upon which callers look one
//! component up under its directory's lock. It never waits (G3).
//!
//! A miss is valid only if bucket and directory are unchanged at the end, so a rename is not missed
//! under both names. In a complete directory it means ENOENT (G2).
//!
//! A bucket does not depend on the directory's record. The processor predicts the comparison of a
//! record and fetches the next bucket meanwhile: a cold component costs one memory latency, not
//! two.
//!
//! A walk tries the path cache first if that has helped this thread lately, and inserts there what
//! it found by plain steps. [`advance`](Core::advance) takes plain components: directories that
//! everyone may search, and ends that are no symbolic link. [`step_any`](Core::step_any) takes all
//! others.

use crate::core::Core;
use crate::hash::name::{NAME_MAX, Name, PATH_MAX, Text};
use crate::lookup::path_cache::{self, Key, PathEnd};
use crate::reclaim::epoch::Pin;
use crate::table::id::Id;
use crate::table::index::{Extent, Miss};
use crate::table::record::{Flags, InlineHandle, Record, order_reads};
use crate::{DentryId, Handle, Kind, Reason, Seen, WalkOptions};

pub(crate) const ATTEMPTS: usize = 16;
/// Records in the array; more are allocated.
const SHALLOW: usize = 16;

#[derive(Clone, Copy)]
pub(crate) struct Request<'p, 't> {
    /// [held by the caller]
    pub(crate) start: Id,
    pub(crate) text: Text<'p, 't>,
    pub(crate) options: WalkOptions,
    /// One of a batch, which bypasses the path cache.
    pub(crate) is_batched: bool,
}

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

impl End {
    /// For the counters.
    #[inline(always)]
    pub(crate) fn new(id: Id, is_negative: bool) -> End {
        if is_negative { End::Negative { at: 0, end: 0, complete: false } } else { End::Found(id) }
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Stop {
    pub(crate) dir: Id,
    pub(crate) link: Option<Id>,
    pub(crate) rest: usize,
    pub(crate) why: Reason,
}

/// Records and their counts that an attempt relies on.
struct ReadSet {
    /// Used part of `first`.
    len: usize,
    /// All counts, or-ed: even if all are.
    counts: u32,
    first: [(u32, u32); SHALLOW],
    more: Vec<(u32, u32)>,
    miss: Option<Miss>,
}

impl ReadSet {
    fn beginning_at(id: Id, seq: u32) -> ReadSet {
        let mut first = [(0, 0); SHALLOW];
        first[0] = (id.0, seq);
        ReadSet { len: 1, counts: seq, first, more: Vec::new(), miss: None }
    }

    #[inline(always)]
    fn push(&mut self, id: Id, seq: u32) {
        if self.len == SHALLOW {
            self.more.extend_from_slice(&self.first);
            self.len = 0;
        }
        self.first[self.len] = (id.0, seq);
        self.len += 1;
        self.counts |= seq;
    }

    fn last(&self) -> u32 {
        self.first[self.len - 1].1
    }

    #[inline]
    fn components(&self) -> usize {
        (self.more.len() + self.len).saturating_sub(1)
    }
}

struct Descent<'t, 'p> {
    extent: Extent,
    text: Text<'p, 't>,
    /// The next component, or the end of the path.
    at: usize,
    /// The directory reached, last of the read set.
    here: Id,
    /// `here` is unreachable, so its cached entries may be out of date.
    is_detached: bool,
    /// `may_search` has allowed `here`.
    may_search: bool,
    /// All components were plain so far.
    is_plain: bool,
    reads: ReadSet,
}

impl Descent<'_, '_> {
    #[inline(always)]
    fn is_at_end(&self) -> bool {
        self.at >= self.text.bytes.len()
    }

    fn stop(&mut self, why: Reason) -> End {
        self.is_plain = false;
        End::Stopped(Stop { dir: self.here, link: None, rest: self.at, why })
    }

    #[inline(always)]
    fn descend_to(&mut self, id: Id, end: usize) {
        (self.here, self.is_detached, self.may_search) = (id, false, false);
        self.at = self.text.skip_slashes(end);
    }

    fn miss(&mut self, name: &Name<'_>, is_complete: bool) -> End {
        let at = self.at;
        match is_complete {
            _ if name.bytes.len() > NAME_MAX => self.stop(Reason::NameTooLong),
            true => End::Negative { at, end: at + name.bytes.len(), complete: true },
            false => self.stop(Reason::Miss),
        }
    }
}

/// A record with its count before it was read.
pub(crate) struct Found<'a> {
    pub(crate) id: Id,
    pub(crate) record: &'a Record,
    pub(crate) seq: u32,
    pub(crate) flags: Flags,
}

/// A record was rewritten: the attempt is void.
struct Changed;

impl<H: Handle> Core<H> {
    /// Walks. Calls `finish` with the end, inside the pin and before the counts are compared;
    /// `None` means that the end has died. Drops its result if the attempt turns out void.
    pub(crate) fn walk<W>(
        &self,
        pin: &mut Pin<'_>,
        request: &Request<'_, '_>,
        may_search: &mut impl FnMut(&H) -> bool,
        finish: impl Fn(&End) -> Option<W>,
    ) -> W {
        for _ in 0..ATTEMPTS {
            let mut descent = self.begin(request);
            let end = match self.advance(&mut descent, request.options.keep_last_link) {
                Some(end) => Ok(end),
                None => self.descend(pin, request, may_search, &mut descent),
            };
            if let Ok(end) = end
                && let Some(walk) = finish(&end)
                && self.is_unchanged(&descent.reads)
            {
                self.count_walk(pin, &end, descent.reads.components());
                if !request.is_batched
                    && !request.text.is_one_name()
                    && pin.hit_rate().learn(pin.counters().walks.get() - 1)
                    && descent.is_plain
                {
                    self.insert_path(request, &descent.reads);
                }
                return walk;
            }
            pin.counters().retries.add(1);
        }
        let end = End::Stopped(Stop { dir: request.start, link: None, rest: 0, why: Reason::Busy });
        self.count_walk(pin, &end, 0);
        finish(&end).expect("the caller holds the start")
    }

    #[inline(always)]
    pub(crate) fn count_walk(&self, pin: &Pin<'_>, end: &End, components: usize) {
        let counters = pin.counters();
        counters.walks.add(1);
        counters.components.add(components as u64);
        match end {
            End::Found(_) => counters.found.add(1),
            End::Negative { complete: false, .. } => counters.negative.add(1),
            End::Negative { complete: true, .. } => counters.complete_negative.add(1),
            End::Stopped(stop) => counters.stopped[stop.why as usize].add(1),
        }
    }

    /// Looks the path up in the path cache if that has helped lately, and counts a hit as a walk.
    /// Use the end within the pin by [`hold_if`](Self::hold_if) its count is the same or
    /// [`see_path_end`](Self::see_path_end) (L1).
    #[inline(always)]
    pub(crate) fn cached_path(&self, pin: &Pin<'_>, request: &Request<'_, '_>) -> Option<PathEnd> {
        // A single step costs less than the path cache.
        if request.text.is_one_name()
            || !pin.hit_rate().is_worth_it(pin.counters().walks.get())
            || !self.is_surely_in_tree(request.start)
        {
            return None;
        }
        let key = self.path_key(request)?;
        let count = |id: Id| Some(self.counts.get_if_made(id.0)?.get());
        let end = self.paths.get(key, request.start, count)?;
        if end.kind == Some(Kind::Symlink) && !request.options.keep_last_link {
            return None;
        }
        self.mark(end.id).touch();
        pin.counters().cached_paths.add(1);
        self.count_walk(pin, &End::new(end.id, end.kind.is_none()), end.components);
        Some(end)
    }

    /// Reads the end, unless its record has changed.
    ///
    /// # Safety
    /// The end must be of that kind and found under the caller's pin.
    #[inline(always)]
    pub(crate) unsafe fn see_path_end(&self, end: &PathEnd, kind: Kind) -> Option<Seen<H>> {
        let handle = end.handle.or_else(|| {
            let record = self.record(end.id);
            record.flags().has(Flags::INLINE_HANDLE).then(|| record.inline_handle())
        });
        order_reads();
        if end.handle.is_none() && self.counts.get(end.id.0).get() != end.count {
            return None;
        }
        // SAFETY: as the caller promises; an entry whose handle is not in its record does not
        // change in place.
        Some(unsafe { self.see_by(end.id, kind, handle) })
    }

    /// The key, without one leading slash.
    #[inline(always)]
    fn path_key(&self, request: &Request<'_, '_>) -> Option<Key> {
        let path = match request.text.bytes {
            [b'/', rest @ ..] => rest,
            path => path,
        };
        let is_in_range = (1..=PATH_MAX).contains(&path.len());
        is_in_range.then(|| Key { digest: self.hasher.digest(request.start, path), bytes: path.len() })
    }

    /// Caches a path found by plain steps alone. [epoch]
    #[inline(never)]
    fn insert_path(&self, request: &Request<'_, '_>, reads: &ReadSet) {
        let records = &reads.first[..reads.len];
        let is_short = reads.more.is_empty() && (2..=path_cache::DIRS + 2).contains(&records.len());
        let (Some(key), Some(&(end, seq)), true) = (self.path_key(request), records.last(), is_short) else {
            return;
        };
        let record = self.record(Id(end));
        let (flags, handle) = (record.flags(), record.inline_handle());
        order_reads();
        if !record.is_unchanged(seq) {
            return;
        }
        let handle = flags.has(Flags::INLINE_HANDLE).then_some(handle);
        let inserted = &self.epoch.thread_slot().counters.inserted_paths;
        inserted.add(1);
        self.paths.insert(key, records, flags.kind(), handle, inserted.get());
    }

    /// Reads an entry by value, from its record if it has an inline handle. `None` if it has become
    /// negative.
    ///
    /// # Safety
    /// The entry was positive and linked when it was found under the caller's pin.
    #[inline(always)]
    pub(crate) unsafe fn see(&self, id: Id) -> Option<Seen<H>> {
        let record = self.record(id);
        let flags = record.flags();
        // SAFETY: as the caller promises; an entry whose handle is not in its record does not
        // change in place.
        (!flags.is_negative()).then(|| unsafe { self.see_record(id, record, flags) })
    }

    /// [`see`](Self::see) with the record at hand.
    ///
    /// # Safety
    /// As for [`see`](Self::see), and positive by these flags.
    #[inline(always)]
    pub(crate) unsafe fn see_record(&self, id: Id, record: &Record, flags: Flags) -> Seen<H> {
        let kind = flags.kind().unwrap_or(Kind::Other);
        let handle = flags.has(Flags::INLINE_HANDLE).then(|| record.inline_handle());
        // SAFETY: as the caller promises.
        unsafe { self.see_by(id, kind, handle) }
    }

    /// [`see`](Self::see) with kind and handle at hand.
    ///
    /// # Safety
    /// As for [`see`](Self::see), and `handle` is that entry's.
    #[inline(always)]
    pub(crate) unsafe fn see_by(&self, id: Id, kind: Kind, handle: Option<InlineHandle>) -> Seen<H> {
        if let Some(InlineHandle { word, generation }) = handle
            && let Some(handle) = H::from_word(word)
        {
            return Seen { id: DentryId::new(id, generation), handle, kind };
        }
        // SAFETY: as the caller promises.
        let handle = unsafe { self.dentry(id).handle() }.clone();
        Seen { id: DentryId::new(id, self.record(id).generation()), handle, kind }
    }

    #[inline(always)]
    fn begin<'t, 'p>(&self, &Request { start, text, .. }: &Request<'p, 't>) -> Descent<'t, 'p> {
        let reads = ReadSet::beginning_at(start, self.record(start).begin());
        let is_detached = !self.is_surely_in_tree(start);
        Descent {
            extent: self.index.extent(),
            text,
            at: text.skip_slashes(0),
            here: start,
            is_detached,
            may_search: false,
            is_plain: !is_detached && self.record(start).flags().is_open_directory(),
            reads,
        }
    }

    #[inline]
    fn is_unchanged(&self, reads: &ReadSet) -> bool {
        order_reads();
        let all = |part: &[(u32, u32)]| part.iter().all(|&(id, seq)| self.record(Id(id)).is_unchanged(seq));
        reads.counts & 1 == 0
            && all(&reads.first[..reads.len.min(SHALLOW)])
            && (reads.more.is_empty() || all(&reads.more))
            && reads.miss.is_none_or(|miss| self.index.still_misses(miss))
    }

    /// Takes plain components; returns the end if they lead to it. Copies the fields, which fit
    /// into registers.
    #[inline(never)]
    fn advance(&self, descent: &mut Descent<'_, '_>, keep_last_link: bool) -> Option<End> {
        if descent.is_detached || !self.record(descent.here).flags().is_open_directory() {
            return None;
        }
        let Descent { extent, text, mut at, here: mut id, ref mut reads, .. } = *descent;
        let len = text.bytes.len();
        let mut end = None;
        while at < len {
            let (name, behind) = self.hasher.split(id, text, at);
            if name.begins_with_dot() || name.is_long() || reads.len == SHALLOW {
                break;
            }
            let Some(Found { id: found, seq, flags, .. }) = self.find_short(extent, id, &name) else { break };
            if behind < len {
                if !flags.is_open_directory() {
                    break;
                }
            } else if !flags.is_plain_end() {
                let is_negative = flags.is_negative();
                if is_negative || keep_last_link && flags.is_symlink() {
                    reads.push(found, seq);
                    self.mark(found).touch();
                    end = Some(match is_negative {
                        true => End::Negative { at, end: behind, complete: false },
                        false => End::Found(found),
                    });
                }
                break;
            }
            reads.push(found, seq);
            (id, at) = (found, text.skip_slashes(behind));
        }
        if at >= len && end.is_none() {
            self.mark(id).touch();
            end = Some(End::Found(id));
        }
        if id != descent.here {
            (descent.here, descent.may_search) = (id, false);
        }
        descent.at = at;
        end
    }

    /// Finds a name of up to 32 bytes.
    #[inline(always)]
    pub(crate) fn find_short(&self, extent: Extent, dir: Id, name: &Name<'_>) -> Option<Found<'_>> {
        for id in self.index.likely(extent, name.hash()) {
            let record = self.record(id);
            let seq = record.begin();
            if let Some(flags) = record.flags_if_named(dir, name) {
                return Some(Found { id, record, seq, flags });
            }
        }
        None
    }

    /// Continues where plain steps ended.
    #[inline(never)]
    fn descend(
        &self,
        pin: &mut Pin<'_>,
        request: &Request<'_, '_>,
        may_search: &mut impl FnMut(&H) -> bool,
        descent: &mut Descent<'_, '_>,
    ) -> Result<End, Changed> {
        loop {
            if let Some(end) = self.step_any(pin, request, may_search, descent)? {
                return Ok(end);
            }
            if let Some(end) = self.advance(descent, request.options.keep_last_link) {
                return Ok(end);
            }
        }
    }

    /// Takes one component of any kind.
    fn step_any(
        &self,
        pin: &mut Pin<'_>,
        request: &Request<'_, '_>,
        may_search: &mut impl FnMut(&H) -> bool,
        descent: &mut Descent<'_, '_>,
    ) -> Result<Option<End>, Changed> {
        let here = descent.here;
        if descent.is_at_end() {
            self.mark(here).touch();
            return Ok(Some(End::Found(here)));
        }
        let dir = self.record(here);
        let (name, end) = self.hasher.split(here, descent.text, descent.at);
        if !dir.flags().is_directory() {
            return Ok(Some(descent.stop(Reason::NotADirectory)));
        }
        // The permissions of a detached directory may be out of date as well.
        if !descent.may_search && (descent.is_detached || !dir.flags().has(Flags::SEARCH)) {
            if !self.ask_search(pin, here, descent.reads.last(), may_search)? {
                return Ok(Some(descent.stop(Reason::Denied)));
            }
            descent.may_search = true;
        }
        descent.is_plain &= !descent.may_search && !name.is_dot() && !name.is_dot_dot();
        if name.is_dot() {
            descent.at = descent.text.skip_slashes(end);
            return Ok(None);
        }
        if name.is_dot_dot() && self.is_floor(here, request.options.floor) {
            return Ok(Some(descent.stop(Reason::Floor)));
        }
        if descent.is_detached {
            return Ok(Some(descent.stop(Reason::Detached)));
        }
        if name.is_dot_dot() {
            let parent = dir.parent();
            descent.reads.push(parent, self.record(parent).begin());
            let is_detached = !self.is_surely_in_tree(parent);
            descent.descend_to(parent, end);
            descent.is_detached = is_detached;
            return Ok(None);
        }
        match self.find(descent.extent, here, &name) {
            Ok(found) => Ok(self.step_to(request, descent, &found, end)),
            Err(miss) => {
                descent.is_plain = false;
                descent.reads.miss = Some(miss);
                Ok(Some(descent.miss(&name, dir.flags().has(Flags::COMPLETE))))
            }
        }
    }

    /// Continues at an entry found under the name that ends at `end`.
    fn step_to(
        &self,
        request: &Request<'_, '_>,
        descent: &mut Descent<'_, '_>,
        found: &Found<'_>,
        end: usize,
    ) -> Option<End> {
        let &Found { id, seq, flags, .. } = found;
        descent.reads.push(id, seq);
        let (dir, at) = (descent.here, descent.at);
        let is_last = end == descent.text.bytes.len();
        match flags.kind() {
            None => {
                self.mark(id).touch();
                descent.is_plain &= is_last;
                Some(End::Negative { at, end, complete: false })
            }
            Some(Kind::Symlink) if !is_last || !request.options.keep_last_link => {
                self.mark(id).touch();
                descent.is_plain = false;
                Some(End::Stopped(Stop { dir, link: Some(id), rest: end, why: Reason::Symlink }))
            }
            Some(Kind::Other | Kind::Symlink) if !is_last => Some(descent.stop(Reason::NotADirectory)),
            Some(_) => {
                descent.descend_to(id, end);
                None
            }
        }
    }

    /// Whether `..` stops at `id`; everywhere if the floor is gone.
    fn is_floor(&self, id: Id, floor: Option<DentryId>) -> bool {
        let is_or_gone = |floor: DentryId| floor.id() == id || !self.is_linked(floor);
        id == Id::ROOT || floor.is_some_and(is_or_gone)
    }

    #[inline]
    pub(crate) fn find(&self, extent: Extent, dir: Id, name: &Name<'_>) -> Result<Found<'_>, Miss> {
        self.index.search(extent, name.hash(), |id| {
            let record = self.record(id);
            let seq = record.begin();
            let flags = record.flags_if_named(dir, name)?;
            self.is_long_name(id, name).then_some(Found { id, record, seq, flags })
        })
    }

    /// Calls `may_search` for a directory, outside of the pin.
    #[cold]
    fn ask_search(
        &self,
        pin: &mut Pin<'_>,
        dir: Id,
        seq: u32,
        may_search: &mut impl FnMut(&H) -> bool,
    ) -> Result<bool, Changed> {
        pin.counters().searches_asked.add(1);
        if seq & 1 != 0 {
            return Err(Changed);
        }
        let record = self.record(dir);
        let flags = record.flags();
        if flags.is_negative() {
            return Err(Changed);
        }
        let word = flags.has(Flags::INLINE_HANDLE).then(|| record.inline_handle().word);
        let handle = match word.and_then(H::from_word) {
            Some(handle) => handle,
            // SAFETY: the directory is the start, which is held, or was found linked, or is the
            // parent of a live entry, inside this pin; or, by the check below, after the pin was
            // last left.
            None => unsafe { self.dentry(dir).handle() }.clone(),
        };
        order_reads();
        if !record.is_unchanged(seq) {
            return Err(Changed);
        }
        let may = pin.outside(|| may_search(&handle));
        order_reads();
        // Entries found before the pin was left may be gone: continue only from an unchanged
        // directory.
        if self.record(dir).is_unchanged(seq) { Ok(may) } else { Err(Changed) }
    }
}
