//! The public interface: entries by reference instead of by number.

use crate::core::Core;
use crate::hash::name::{INLINE, Text};
use crate::lookup::fill::Lookup;
use crate::lookup::path_cache::PathEnd;
use crate::lookup::prefetch::WALKS_AT_ONCE;
use crate::lookup::walk::{End, Request, Stop};
use crate::mutate::complete::Scan;
use crate::reclaim::epoch::Pin;
use crate::table::id::Id;
use crate::{
    Child, Dcache, DentryId, DentryRef, Fill, Handle, Kind, MemoryStats, Reason, Seen, Stats, Stopped, Walk,
    WalkOptions,
};
use dentree_sync::atomic::Ordering;
use std::{fmt, time::Instant};

impl<H: Handle> Dcache<H> {
    /// The root directory. Costs nothing.
    #[inline]
    pub fn root(&self) -> DentryRef<'_, H> {
        // References to the root are not counted.
        DentryRef::adopt(self, Id::ROOT)
    }

    /// The entry with this id, if it is still cached or held.
    pub fn get(&self, id: DentryId) -> Option<DentryRef<'_, H>> {
        self.core.hold_by_id(id).then(|| DentryRef::adopt(self, id.id()))
    }

    /// Walks `path` from `start` as far as the cache knows it, without a lock.
    ///
    /// Any number of slashes separates components; leading ones have no meaning. `..` leads to the
    /// parent, but not above the floor. A start that is not [reachable](DentryRef::is_reachable)
    /// stops the walk, as its entries may be out of date. `may_search` decides where a directory
    /// has no [`search`](Child::search) hint; it may be called several times for one directory, and
    /// may use the cache.
    ///
    /// ```
    /// # use dentree_dcache::*;
    /// let cache = Dcache::builder().build(Child::directory(2_u64));
    /// let root = cache.root();
    /// cache.create(&root, b"etc", Child::directory(11));
    /// let walk = cache.walk(&root, b"/etc/hosts", WalkOptions::default(), |_| true);
    /// let Walk::Stopped(Stopped { dir, rest, why: Reason::Miss, .. }) = walk else { panic!() };
    /// assert_eq!((*dir.handle(), &b"/etc/hosts"[rest..]), (11, &b"hosts"[..]));
    /// ```
    pub fn walk(
        &self,
        start: &DentryRef<'_, H>,
        path: &[u8],
        options: WalkOptions,
        mut may_search: impl FnMut(&H) -> bool,
    ) -> Walk<'_, H> {
        let mut pin = self.core.epoch.enter();
        let mut tail = Text::TAIL;
        let request = self.request(start, Text::new(path, &mut tail), options);
        let cached = |end: &PathEnd, _| {
            let is_it = || self.core.counts.get(end.id.0).get() == end.count;
            self.core.hold_if(end.id, is_it).then(|| DentryRef::adopt(self, end.id))
        };
        self.walk_by(&mut pin, &request, &mut may_search, cached, |id| self.hold(id))
    }

    /// As [`walk`](Self::walk), but returns the entry by value and leaves its reference count
    /// alone, which threads that meet at one entry contend for. To keep the entry,
    /// [`get`](Self::get) it. The entry where a walk stops is held.
    ///
    /// ```
    /// # use dentree_dcache::*;
    /// let cache = Dcache::builder().build(Child::directory(2_u64));
    /// let root = cache.root();
    /// cache.create(&root, b"etc", Child::directory(11));
    /// let found = cache.find(&root, b"/etc", WalkOptions::default(), |_| true);
    /// let Walk::Found(seen) = found else { panic!() };
    /// assert_eq!((seen.handle, seen.kind), (11, Kind::Directory));
    /// assert!(cache.is_linked(seen.id));
    /// cache.unlink(&root, b"etc");
    /// assert!(!cache.is_linked(seen.id));
    /// ```
    #[inline]
    pub fn find(
        &self,
        start: &DentryRef<'_, H>,
        path: &[u8],
        options: WalkOptions,
        mut may_search: impl FnMut(&H) -> bool,
    ) -> Walk<'_, H, Seen<H>> {
        let (core, dir) = (&self.core, start.raw_id());
        let mut pin = core.epoch.enter();
        if path.len() < INLINE
            && let Some(name) = core.hasher.lookup_name(dir, path)
            && let Some(seen) = core.see_step(&pin, dir, &name)
        {
            return seen.map_or(Walk::Negative { at: 0, end: path.len() }, Walk::Found);
        }
        let mut tail = Text::TAIL;
        let request = self.request(start, Text::new(path, &mut tail), options);
        // SAFETY: an entry from the path cache was linked inside this pin, and is positive.
        let cached = |end: &PathEnd, kind| unsafe { core.see_path_end(end, kind) };
        // SAFETY: a walk finds an entry linked inside its pin, and positive.
        self.walk_by(&mut pin, &request, &mut may_search, cached, |id| unsafe { core.see(id) })
    }

    /// Walks by the path cache, or by steps. `cached` and `found` make the result of an entry.
    #[inline(always)]
    fn walk_by<F>(
        &self,
        pin: &mut Pin<'_>,
        request: &Request<'_, '_>,
        may_search: &mut impl FnMut(&H) -> bool,
        cached: impl FnOnce(&PathEnd, Kind) -> Option<F>,
        found: impl Fn(Id) -> Option<F>,
    ) -> Walk<'_, H, F> {
        if let Some(end) = self.core.cached_path(pin, request) {
            let Some(kind) = end.kind else { return negative_end(request.text.bytes) };
            if let Some(found) = cached(&end, kind) {
                return Walk::Found(found);
            }
        }
        self.core.walk(pin, request, may_search, |end| self.finish(end, &found))
    }

    /// The result of a walk by steps; `None` if its end has died. [pin]
    #[inline(always)]
    fn finish<F>(&self, end: &End, found: impl Fn(Id) -> Option<F>) -> Option<Walk<'_, H, F>> {
        Some(match *end {
            End::Found(id) => Walk::Found(found(id)?),
            End::Negative { at, end, .. } => Walk::Negative { at, end },
            End::Stopped(Stop { dir, link, rest, why }) => {
                let link = if let Some(link) = link { Some(self.hold(link)?) } else { None };
                Walk::Stopped(Stopped { dir: self.hold(dir)?, link, rest, why })
            }
        })
    }

    #[inline(always)]
    fn hold(&self, id: Id) -> Option<DentryRef<'_, H>> {
        self.core.hold(id).then(|| DentryRef::adopt(self, id))
    }

    /// [Finds](Self::find) several paths from `start` with overlapping memory latencies, which is
    /// several times as fast for paths outside of the processor's caches. Returns the results in
    /// the order of the paths.
    ///
    /// ```
    /// # use dentree_dcache::*;
    /// let cache = Dcache::builder().build(Child::directory(2_u64));
    /// let root = cache.root();
    /// for name in ["a", "b"] {
    ///     cache.create(&root, name.as_bytes(), Child::other(3));
    /// }
    /// let found = cache.find_many(&root, &["a", "b", "c"], WalkOptions::default(), |_| true);
    /// assert!(matches!(found[..], [Walk::Found(_), Walk::Found(_), Walk::Stopped(_)]));
    /// ```
    pub fn find_many(
        &self,
        start: &DentryRef<'_, H>,
        paths: &[impl AsRef<[u8]>],
        options: WalkOptions,
        mut may_search: impl FnMut(&H) -> bool,
    ) -> Vec<Walk<'_, H, Seen<H>>> {
        let (core, mut found) = (&self.core, Vec::with_capacity(paths.len()));
        for batch in paths.chunks(WALKS_AT_ONCE) {
            let mut pin = core.epoch.enter();
            let plan = core.prefetch.plan(core.index.extent(), pin.trials());
            let begun = plan.timed.then(Instant::now);
            let mut tails = [Text::TAIL; WALKS_AT_ONCE];
            let texts = batch.iter().zip(&mut tails).map(|(path, tail)| Text::new(path.as_ref(), tail));
            let texts: Vec<Text<'_, '_>> = texts.collect();
            if plan.prefetch {
                core.prefetch_walks(start.raw_id(), &texts);
                pin.counters().prefetched.add(batch.len() as u64);
            }
            for text in texts {
                let request = Request { is_batched: true, ..self.request(start, text, options) };
                // SAFETY: a walk finds an entry linked inside its pin, and positive.
                let finish = |end: &End| self.finish(end, |id| unsafe { core.see(id) });
                found.push(core.walk(&mut pin, &request, &mut may_search, finish));
            }
            pin.hit_rate().skip(pin.counters().walks.get());
            if let Some(begun) = begun {
                pin.trials().learn(plan, begun.elapsed());
            }
        }
        found
    }

    /// Whether the entry with this id is still cached and has its name.
    pub fn is_linked(&self, id: DentryId) -> bool {
        self.core.is_linked(id)
    }

    /// Looks one name up in the cache alone: `Some(None)` for a negative entry, `None` if it is not
    /// cached. Checks no permissions and follows no symbolic link.
    ///
    /// ```
    /// # use dentree_dcache::*;
    /// let cache = Dcache::builder().build(Child::directory(2_u64));
    /// let root = cache.root();
    /// cache.create(&root, b"etc", Child::directory(11));
    /// cache.unlink(&root, b"usr");
    /// assert_eq!(cache.lookup(&root, b"etc").map(|found| found.map(|etc| *etc.handle())), Some(Some(11)));
    /// assert_eq!(cache.lookup(&root, b"usr"), Some(None));
    /// assert_eq!(cache.lookup(&root, b"var"), None);
    /// ```
    pub fn lookup(&self, dir: &DentryRef<'_, H>, name: &[u8]) -> Option<Option<DentryRef<'_, H>>> {
        let name = self.core.hasher.lookup_name(dir.raw_id(), name)?;
        match self.core.lookup(dir.raw_id(), &name) {
            Lookup::Positive(id) => Some(Some(DentryRef::adopt(self, id))),
            Lookup::Negative => Some(None),
            Lookup::NotCached => None,
        }
    }

    /// Looks one name up in `dir` and calls `fill` where it is not cached.
    ///
    /// Of several threads that look up one name, one runs its `fill` and the others wait. A result
    /// is not cached if a change of the name has overtaken it, or below a detached directory; the
    /// entry is then [detached](DentryRef::is_reachable).
    ///
    /// `fill` runs without a lock and may use the cache, except to look the same name up, which
    /// would wait for itself: builds with debug assertions panic. An invalid name (with a slash, or
    /// longer than 255 bytes) is passed to `fill` and not cached.
    ///
    /// # Errors
    /// Those of `fill`; nothing is cached then.
    pub fn lookup_or_fill<E>(
        &self,
        dir: &DentryRef<'_, H>,
        name: &[u8],
        fill: impl FnOnce() -> Result<Fill<H>, E>,
    ) -> Result<Option<DentryRef<'_, H>>, E> {
        let found = self.core.lookup_or_fill(dir.raw_id(), name, fill)?;
        Ok(found.map(|id| DentryRef::adopt(self, id)))
    }

    /// [Walks](Self::walk) to the end. Calls `fill` for each name that is not cached, as
    /// [`lookup_or_fill`](Self::lookup_or_fill) does.
    ///
    /// ```
    /// # use dentree_dcache::*;
    /// let cache = Dcache::builder().build(Child::directory(2_u64));
    /// let fill = |dir: &DentryRef<'_, u64>, name: &[u8]| Ok::<_, std::io::Error>(match (*dir.handle(), name) {
    ///     (2, b"etc") => Fill::Positive(Child::directory(11)),
    ///     (11, b"hosts") => Fill::Positive(Child::other(12)),
    ///     _ => Fill::Negative,
    /// });
    /// let found = cache.walk_or_fill(&cache.root(), b"etc/hosts", WalkOptions::default(), |_| true, fill)?;
    /// assert!(matches!(found, Walk::Found(hosts) if *hosts.handle() == 12));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of `fill`.
    pub fn walk_or_fill<E>(
        &self,
        start: &DentryRef<'_, H>,
        path: &[u8],
        options: WalkOptions,
        mut may_search: impl FnMut(&H) -> bool,
        mut fill: impl FnMut(&DentryRef<'_, H>, &[u8]) -> Result<Fill<H>, E>,
    ) -> Result<Walk<'_, H>, E> {
        let (mut from, mut begin) = (self.clone_ref(start), 0);
        loop {
            let stopped = match self.walk(&from, &path[begin..], options, &mut may_search) {
                Walk::Stopped(stopped) => stopped,
                Walk::Negative { at, end } => return Ok(Walk::Negative { at: begin + at, end: begin + end }),
                found => return Ok(found),
            };
            let rest = begin + stopped.rest;
            let at = rest + path[rest..].iter().take_while(|&&byte| byte == b'/').count();
            let end = path[at..].iter().position(|&byte| byte == b'/').map_or(path.len(), |len| at + len);
            let (name, is_last) = (&path[at..end], end == path.len());
            match stopped.why {
                Reason::Busy => continue,
                Reason::Miss | Reason::Detached if name != b".." => {}
                _ => return Ok(Walk::Stopped(Stopped { rest, ..stopped })),
            }
            let dir = stopped.dir;
            let Some(found) = self.lookup_or_fill(&dir, name, || fill(&dir, name))? else {
                return Ok(Walk::Negative { at, end });
            };
            let stop = |link, rest, why| Ok(Walk::Stopped(Stopped { dir: dir.clone(), link, rest, why }));
            match found.kind() {
                Kind::Symlink if !is_last || !options.keep_last_link => {
                    return stop(Some(found), end, Reason::Symlink);
                }
                Kind::Directory => (from, begin) = (found, end),
                _ if is_last => return Ok(Walk::Found(found)),
                _ => return stop(None, at, Reason::NotADirectory),
            }
        }
    }

    /// `name` in `dir` now is `child`, whatever it was before.
    pub fn create(&self, dir: &DentryRef<'_, H>, name: &[u8], child: Child<H>) -> DentryRef<'_, H> {
        DentryRef::adopt(self, self.core.create(dir.raw_id(), name, child))
    }

    /// `name` in `dir` was removed: d_delete. Holders of the entry keep it.
    pub fn unlink(&self, dir: &DentryRef<'_, H>, name: &[u8]) {
        self.core.unlink(dir.raw_id(), name);
    }

    /// A held entry has lost its name: d_delete. Without another holder it becomes negative;
    /// otherwise it stays positive, without a name.
    pub fn delete(&self, entry: &DentryRef<'_, H>) {
        self.core.delete(entry.raw_id());
    }

    /// `old` in `old_dir` was renamed to `new` in `new_dir`, replacing what was there: d_move.
    ///
    /// Entries below a directory move with it at no cost. At every instant a walk finds it under
    /// one of the names. Look `old` up before the file system renames it, so that the cache holds
    /// the renamed inode, and do not cache results about the names from then until this call
    /// returns ([`Fill::NotCached`]).
    pub fn rename(&self, old_dir: &DentryRef<'_, H>, old: &[u8], new_dir: &DentryRef<'_, H>, new: &[u8]) {
        self.core.rename(old_dir.raw_id(), old, new_dir.raw_id(), new);
    }

    /// As [`rename`](Self::rename), and `old` now is `left`: `RENAME_WHITEOUT`. Both in one step,
    /// so that `old` exists at every instant.
    ///
    /// ```
    /// # use dentree_dcache::*;
    /// let cache = Dcache::builder().build(Child::directory(2_u64));
    /// let root = cache.root();
    /// cache.create(&root, b"old", Child::other(11));
    /// let left = cache.rename_leaving(&root, b"old", &root, b"new", Child::other(12));
    /// let found = |name| cache.lookup(&root, name).flatten().map(|entry| *entry.handle());
    /// assert_eq!((found(b"new"), found(b"old"), *left.handle()), (Some(11), Some(12), 12));
    /// ```
    pub fn rename_leaving(
        &self,
        old_dir: &DentryRef<'_, H>,
        old: &[u8],
        new_dir: &DentryRef<'_, H>,
        new: &[u8],
        left: Child<H>,
    ) -> DentryRef<'_, H> {
        DentryRef::adopt(self, self.core.rename_leaving(old_dir.raw_id(), old, new_dir.raw_id(), new, left))
    }

    /// Two names have changed places: `RENAME_EXCHANGE`. If only one of them is cached, its entry
    /// moves to the other name. Do not cache results about the names meanwhile, as for
    /// [`rename`](Self::rename).
    pub fn exchange(&self, dir_a: &DentryRef<'_, H>, a: &[u8], dir_b: &DentryRef<'_, H>, b: &[u8]) {
        self.core.exchange(dir_a.raw_id(), a, dir_b.raw_id(), b);
    }

    /// Drops one name and everything below it. A held entry lives on
    /// [detached](DentryRef::is_reachable); the next lookup makes another entry for the same inode.
    pub fn invalidate(&self, dir: &DentryRef<'_, H>, name: &[u8]) {
        self.core.invalidate(dir.raw_id(), name);
    }

    /// Sets whether everyone may search this directory, as after `chmod(2)`. A fill that began
    /// before a `false` does not set it again.
    pub fn set_search(&self, dir: &DentryRef<'_, H>, search: bool) {
        self.core.set_search(dir.raw_id(), search);
    }

    /// Evicts `n` entries or up to 32 more, unused ones and those of scans first; fewer if no more
    /// can be evicted. Returns their number.
    pub fn prune(&self, n: usize) -> usize {
        self.core.prune(n)
    }

    /// Evicts all unused entries below `dir`: select_parent, shrink_dcache_parent. Returns their
    /// number.
    pub fn prune_subtree(&self, dir: &DentryRef<'_, H>) -> usize {
        self.core.prune_below(dir.raw_id())
    }

    /// Evicts until at most `bytes` are [used](crate::MemoryStats::used), or nothing more can be
    /// evicted. The budget does not change. Slots are kept; only long names and handles return
    /// their memory.
    pub fn shrink_to(&self, bytes: usize) {
        self.core.shrink_to(bytes.saturating_add(self.core.unallocated_bytes()));
    }

    /// Sets the [budget](crate::Builder::memory) and evicts what exceeds it. The sizes of the path
    /// cache and of the negative entries' quota do not change.
    pub fn set_memory(&self, bytes: usize) {
        self.core.memory.set_budget(bytes.max(crate::core::BUDGET_MIN));
        self.core.trim();
    }

    /// The cached positive entries of `dir`, in no order; all of them if it is
    /// [complete](DentryRef::is_complete).
    pub fn children(&self, dir: &DentryRef<'_, H>) -> Vec<DentryRef<'_, H>> {
        let held = self.core.hold_children(dir.raw_id());
        held.into_iter().map(|id| DentryRef::adopt(self, id)).collect()
    }

    /// Begins to insert all entries of `dir`; see [`Completion`].
    pub fn begin_complete(&self, dir: &DentryRef<'_, H>) -> Completion<'_, H> {
        Completion { scan: self.core.begin_complete(dir.raw_id()), _dir: self.clone_ref(dir), cache: self }
    }

    /// Counters and memory of the cache.
    pub fn stats(&self) -> Stats {
        let (core, memory) = (&self.core, &self.core.memory);
        let (entries, long_names, used) = (memory.live(), memory.long_names.get(), core.bytes_in_use());
        let records = entries * size_of::<crate::table::record::Record>();
        let dentries = entries * Core::<H>::ENTRY - records;
        let index = used.saturating_sub(records + dentries + long_names);
        let mut stats = Stats {
            evicted: core.evicted.load(Ordering::Relaxed),
            entries: entries as u64,
            negatives: memory.negatives.get() as u64,
            memory: MemoryStats { budget: memory.budget(), used, records, dentries, long_names, index },
            ..Stats::default()
        };
        core.epoch.thread_slots().for_each(|slot| stats.add(&slot.counters));
        stats
    }

    #[inline(always)]
    fn request<'p, 't>(
        &self,
        start: &DentryRef<'_, H>,
        text: Text<'p, 't>,
        options: WalkOptions,
    ) -> Request<'p, 't> {
        debug_assert!(std::ptr::eq(start.cache(), self), "an entry of another cache");
        Request { start: start.raw_id(), text, options, is_batched: false }
    }

    /// Another reference to a held entry, with the cache's lifetime.
    fn clone_ref(&self, dentry: &DentryRef<'_, H>) -> DentryRef<'_, H> {
        self.core.hold_again(dentry.raw_id());
        DentryRef::adopt(self, dentry.raw_id())
    }
}

impl<H: Handle> fmt::Debug for Dcache<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dcache").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

/// The insertion of all of a directory's entries. Once it is complete, a name that is not cached
/// does not exist, until one of its entries is evicted or invalidated.
///
/// ```
/// # use dentree_dcache::*;
/// let cache = Dcache::builder().build(Child::directory(2_u64));
/// let root = cache.root();
/// let mut completion = cache.begin_complete(&root);
/// completion.enter(b"bin", Child::directory(11));
/// completion.enter(b"etc", Child::directory(12));
/// assert!(completion.finish());
/// assert!(matches!(cache.walk(&root, b"usr", WalkOptions::default(), |_| true), Walk::Negative { .. }));
/// ```
pub struct Completion<'c, H: Handle> {
    cache: &'c Dcache<H>,
    _dir: DentryRef<'c, H>,
    scan: Scan,
}

impl<H: Handle> Completion<'_, H> {
    /// Inserts an entry, cold: it is evicted first unless it is used.
    pub fn enter(&mut self, name: &[u8], child: Child<H>) {
        self.cache.core.insert_scanned(&mut self.scan, name, child);
    }

    /// Ends the insertion. Returns whether the directory is complete: not if an entry was evicted
    /// or removed meanwhile.
    pub fn finish(self) -> bool {
        self.cache.core.finish_complete(self.scan)
    }
}

fn negative_end<'c, H: Handle, F>(path: &[u8]) -> Walk<'c, H, F> {
    let at = path.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    Walk::Negative { at, end: path.len() }
}
