//! The path cache: whole paths to entries.
//!
//! A direct lookup hash table (Tsai, Zhan, Reddy, Jiao, Zhang, Porter, "How to get more value from
//! your file system directory cache", SOSP 2015), validated by sequence counts instead of prefix
//! checks. A lookup finds a path's entry by digest and adds up the counts of its records, sixteen
//! to a line (`record.rs`), by independent loads. It splits no path and reads no bucket and no
//! record.
//!
//! ```text
//! entry, 64 bytes
//!   0  seq     u32        odd while the entry is written                              itself
//!   4  about   u32        bytes of the path, directories, kind of `end`, wraps        [entry seq]
//!   8  end     u32        number of the entry at the end                              [entry seq]
//!  12  sum     u32        of the counts of the start, `dirs` and `end`                [entry seq]
//!  16  digest  [u64; 2]   of the start's number, the length and the path              [entry seq]
//!  32  dirs    [u32; 8]   the directories between start and end                       [entry seq]
//!                         of five at most; then the last three words are
//!                         generation and inline handle of `end`
//! ```
//!
//! **Why a hit is valid (G1, G2).** The walk that inserted the path had found all counts even and
//! unchanged at one instant. Then each record was linked below the one before under its name, each
//! directory open to everyone, the end of the kind that the entry says. A
//! change of that changes the record's count first (R5). Counts only grow, so an equal sum means
//! equal counts (but see P2), from the insertion to the reader's load of the first count, inside
//! its call: that is the instant. A reused number's count changed at the unlink, so no change has
//! to search the path cache.
//!
//! **Why the path is the right one.** Only length and keyed digest are compared. Two paths of one
//! length share a digest with a probability of at most 2^-64 (`name.rs`). A walk compares two
//! entries, so an attacker with 2^30 walks a second gets one wrong result in 272 years, below
//! directories open to everyone.
//!
//! **Why the end may be used (G6).** Its slot may be free by now, or become another entry. L1: a
//! reader with a hit inside its pin may read the slot's handle or take a reference, and believes
//! either if the end's count is the same afterwards, as an entry may change in place
//! (`mutate/negative.rs`). *The slot was filled before*: the inserting walk had found it linked,
//! and a reader of a whole entry has seen what its writer had seen (P1). *The slot is not emptied
//! before the pin ends*: otherwise it was unlinked before the point that `epoch.rs` argues with for
//! the index (case `e > t`: before the pin; third case: before the barrier), and the reader would
//! have seen the count of the unlink.
//!
//! Partners, beside those of `record.rs`:
//! - P1 a writer: `seq` odd, **fence Release**, fields, `seq` even **Release**; a reader: `seq`
//!   **Acquire**, fields, **fence Acquire**, `seq`. As R1 to R4. With R6, no count that the reader
//!   loads *after* the entry is older than the inserted one; it could make up for a later one.
//! - P2 the sum repeats after 2³¹ rewrites, which an entry may outlast. So each record counts a
//!   *wrap* at every sixteenth of its range, before it stores its count with Release. The ten
//!   records of an entry cannot bring the sum round without a wrap. A reader that has loaded the
//!   counts compares, after a **fence Acquire**, the wraps with the entry's: had the sum come
//!   round, it would see a later wrap.
//!
//! **Writers** never wait: they give up where another one writes. A path has two possible places.
//! The table has a fixed size, at most a sixty-fourth of the cache's budget.

use dentree_sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

use crate::Kind;
use crate::hash::name::Digest;
use crate::table::chunks::{Chunks, Zeroed};
use crate::table::id::Id;
use crate::table::record::{InlineHandle, order_reads, wraps};

pub(crate) const DIRS: usize = 8;
/// `DIRS` of an entry with an inline handle.
const DIRS_BESIDE_HANDLE: usize = DIRS - 3;
/// Part of the budget for the table.
const BUDGET_SHARE: usize = 64;
/// A larger table fits no processor's caches.
const MAX_ENTRIES: usize = 1 << 16;
/// One of so many insertions replaces another path.
const REPLACE_EVERY: u64 = if cfg!(any(debug_assertions, loom, shuttle)) { 1 } else { 8 };

#[derive(Default)]
#[repr(C, align(64))]
struct Entry {
    seq: AtomicU32,
    about: AtomicU32,
    end: AtomicU32,
    sum: AtomicU32,
    digest: [AtomicU64; 2],
    dirs: [AtomicU32; DIRS],
}

#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(size_of::<Entry>() == 64);

// SAFETY: atomics of zero bytes are zero, and need no drop.
unsafe impl Zeroed for Entry {}

/// Packed, from bit 0: 8 bits of path length, 4 of directories, 2 of the end's kind, 1 for an
/// inline handle, 16 of wraps.
#[derive(Clone, Copy, PartialEq, Eq)]
struct About(u32);

impl About {
    const KIND: u32 = 12;
    const INLINE_HANDLE: u32 = 1 << 15;

    fn new(bytes: usize, dirs: usize, kind: Option<Kind>, wraps: u32) -> About {
        debug_assert!(dirs <= DIRS && (1..256).contains(&bytes));
        let kind = match kind {
            Some(Kind::Directory) => 0,
            Some(Kind::Symlink) => 1,
            Some(Kind::Other) => 2,
            None => 3,
        };
        About(bytes as u32 | (dirs as u32) << 8 | kind << Self::KIND | wraps << 16)
    }

    #[inline(always)]
    fn kind(self) -> Option<Kind> {
        match self.0 >> Self::KIND & 3 {
            0 => Some(Kind::Directory),
            1 => Some(Kind::Symlink),
            2 => Some(Kind::Other),
            _ => None,
        }
    }

    #[inline(always)]
    fn has_inline_handle(self) -> bool {
        self.0 & Self::INLINE_HANDLE != 0
    }

    #[inline(always)]
    fn has_bytes(self, bytes: usize) -> bool {
        (self.0 & 0xff) as usize == bytes
    }

    #[inline(always)]
    fn dirs(self) -> usize {
        (self.0 >> 8 & 0xf) as usize
    }

    #[inline(always)]
    fn has_wraps(self, wraps: u32) -> bool {
        self.0 >> 16 == wraps & 0xffff
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Key {
    /// Of the start and the path.
    pub(crate) digest: Digest,
    /// 1 to 255.
    pub(crate) bytes: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PathEnd {
    pub(crate) id: Id,
    /// `None` for a negative entry.
    pub(crate) kind: Option<Kind>,
    pub(crate) handle: Option<InlineHandle>,
    pub(crate) count: u32,
    pub(crate) components: usize,
}

pub(crate) struct PathCache {
    table: Chunks<Entry>,
    shift: u32,
    /// Bytes that were written at least once.
    written: AtomicUsize,
}

impl PathCache {
    pub(crate) fn new(budget: usize) -> PathCache {
        let model = cfg!(any(loom, shuttle)).then_some(1);
        let bits =
            model.unwrap_or((budget / BUDGET_SHARE / size_of::<Entry>()).clamp(2, MAX_ENTRIES).ilog2());
        PathCache { table: Chunks::new(1 << bits), shift: u64::BITS - bits, written: AtomicUsize::new(0) }
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of::<Entry>() << (u64::BITS - self.shift)
    }

    pub(crate) fn unallocated_bytes(&self) -> usize {
        self.bytes().saturating_sub(self.written.load(Ordering::Relaxed))
    }

    #[inline(always)]
    fn place(&self, digest: Digest, second: u32) -> u32 {
        (digest.mixed() >> self.shift) as u32 ^ second
    }

    /// The end of a path from `start`, as of an instant during the call. `count` returns a record's
    /// count, or `None` for an id that never existed, which a half-written entry may hold.
    #[inline(always)]
    pub(crate) fn get(&self, key: Key, start: Id, count: impl Fn(Id) -> Option<u32>) -> Option<PathEnd> {
        let first = self.table.get_if_made(self.place(key.digest, 0))?;
        let entry = match first.is_of(key.digest) {
            true => first,
            false => self.table.get_if_made(self.place(key.digest, 1))?,
        };
        // P1.
        let seq = entry.seq.load(Ordering::Acquire);
        let about = About(entry.about.load(Ordering::Relaxed));
        if !entry.is_of(key.digest) || seq & 1 != 0 || !about.has_bytes(key.bytes) {
            return None;
        }
        let id = Id(entry.end.load(Ordering::Relaxed));
        let handle = about.has_inline_handle().then(|| entry.inline_handle());
        let end = count(id)?;
        let mut sum = count(start)?.wrapping_add(end);
        for dir in entry.dirs.iter().take(about.dirs()) {
            sum = sum.wrapping_add(count(Id(dir.load(Ordering::Relaxed)))?);
        }
        let inserted = entry.sum.load(Ordering::Relaxed);
        // P1, P2.
        order_reads();
        let is_valid =
            sum == inserted && entry.seq.load(Ordering::Relaxed) == seq && about.has_wraps(wraps());
        let (kind, components) = (about.kind(), about.dirs() + 1);
        is_valid.then_some(PathEnd { id, kind, handle, count: end, components })
    }

    /// Inserts a path whose records, from start to end, all had these counts at one instant. It
    /// replaces another path only one `turn` in [`REPLACE_EVERY`].
    pub(crate) fn insert(
        &self,
        key: Key,
        records: &[(u32, u32)],
        kind: Option<Kind>,
        handle: Option<InlineHandle>,
        turn: u64,
    ) {
        let [_, dirs @ .., (end, _)] = records else { return };
        if dirs.len() > DIRS {
            return;
        }
        let [first, second] = [0, 1].map(|second| {
            let place = self.place(key.digest, second);
            self.table.ensure(place);
            self.table.get(place)
        });
        let entry = match () {
            () if first.is_of(key.digest) => first,
            () if second.is_of(key.digest) => second,
            () if first.is_free() => first,
            () if second.is_free() => second,
            () if !turn.is_multiple_of(REPLACE_EVERY) => return,
            () => [first, second][(turn / REPLACE_EVERY % 2) as usize],
        };
        let was_free = entry.is_free();
        let sum = records.iter().fold(0_u32, |sum, &(_, count)| sum.wrapping_add(count));
        if entry.write(key, dirs, *end, sum, (kind, handle)) && was_free {
            self.written.fetch_add(size_of::<Entry>(), Ordering::Relaxed);
        }
    }
}

impl Entry {
    #[inline(always)]
    fn is_of(&self, Digest([low, high]): Digest) -> bool {
        let differing = |i: usize, word: u64| self.digest[i].load(Ordering::Relaxed) ^ word;
        differing(0, low) | differing(1, high) == 0
    }

    fn is_free(&self) -> bool {
        self.about.load(Ordering::Relaxed) == 0
    }

    #[inline(always)]
    fn inline_handle(&self) -> InlineHandle {
        let word = |i: usize| self.dirs[DIRS_BESIDE_HANDLE + i].load(Ordering::Relaxed);
        InlineHandle { word: u64::from(word(2)) << 32 | u64::from(word(1)), generation: word(0) }
    }

    /// Writes all of an entry, unless another thread does. Returns whether it did.
    fn write(
        &self,
        key: Key,
        dirs: &[(u32, u32)],
        end: u32,
        sum: u32,
        (kind, handle): (Option<Kind>, Option<InlineHandle>),
    ) -> bool {
        let handle = handle.filter(|_| dirs.len() <= DIRS_BESIDE_HANDLE);
        let seq = self.seq.load(Ordering::Relaxed);
        // Acquire: pairs with the Release of the writer before.
        if seq & 1 != 0
            || self.seq.compare_exchange(seq, seq | 1, Ordering::Acquire, Ordering::Relaxed).is_err()
        {
            return false;
        }
        // P1.
        fence(Ordering::Release);
        let about = About::new(key.bytes, dirs.len(), kind, wraps());
        let flag = if handle.is_some() { About::INLINE_HANDLE } else { 0 };
        self.about.store(about.0 | flag, Ordering::Relaxed);
        self.end.store(end, Ordering::Relaxed);
        self.sum.store(sum, Ordering::Relaxed);
        for (slot, word) in self.digest.iter().zip(key.digest.0) {
            slot.store(word, Ordering::Relaxed);
        }
        for (slot, &(id, _)) in self.dirs.iter().zip(dirs) {
            slot.store(id, Ordering::Relaxed);
        }
        if let Some(InlineHandle { word, generation }) = handle {
            let words = [generation, word as u32, (word >> 32) as u32];
            for (slot, word) in self.dirs[DIRS_BESIDE_HANDLE..].iter().zip(words) {
                slot.store(word, Ordering::Relaxed);
            }
        }
        // P1.
        self.seq.store(seq.wrapping_add(2), Ordering::Release);
        true
    }
}

/// One walk of so many samples whether the path cache helps.
const SAMPLED: u64 = 64;
const ALL: u32 = 1 << 16;
/// Approximate number of lookups in the running mean.
const MEAN_OVER: u64 = 64;
/// Above this share wasted lookups, which wait for one line each, cost more than hits save.
const MAX_WASTED: u32 = ALL / 16 * 15;

/// A thread's estimate of how many lookups of the path cache end a walk.
#[derive(Default)]
pub(crate) struct HitRate {
    /// Running mean of the wasted lookups, of [`ALL`].
    wasted: AtomicU32,
    /// The thread's number of walks after the last one that the path cache did not end.
    stepped_at: AtomicU64,
}

impl HitRate {
    #[inline(always)]
    pub(crate) fn is_worth_it(&self, walks: u64) -> bool {
        self.wasted.load(Ordering::Relaxed) <= MAX_WASTED || walks.is_multiple_of(SAMPLED)
    }

    /// Learns from a walk that the path cache did not end, and from those before it since the last
    /// one. Returns whether the walk had [used it](Self::is_worth_it).
    pub(crate) fn learn(&self, walks: u64) -> bool {
        let ended = walks.wrapping_sub(self.stepped_at.load(Ordering::Relaxed));
        self.stepped_at.store(walks + 1, Ordering::Relaxed);
        let step = |mean: u32, wasted: u32| mean - mean / MEAN_OVER as u32 + wasted / MEAN_OVER as u32;
        let before = self.wasted.load(Ordering::Relaxed);
        let mean = (0..ended.min(MEAN_OVER)).fold(before, |mean, _| step(mean, 0));
        let has_asked = self.is_worth_it(walks);
        let mean = if has_asked { step(mean, ALL) } else { mean };
        if mean != before {
            self.wasted.store(mean, Ordering::Relaxed);
        }
        has_asked
    }

    /// Skips walks that did not use the path cache.
    pub(crate) fn skip(&self, walks: u64) {
        self.stepped_at.store(walks, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::hash::name::Hasher;
    use crate::table::record::{Count, Record, Rewrite, WRAP};

    const BASE: Id = Id(1);
    const DIR: Id = Id(2);
    const FILE: Id = Id(3);

    type Records<const N: usize> = ([Record; N], [Count; N]);

    fn records<const N: usize>() -> Records<N> {
        (std::array::from_fn(|_| Record::default()), std::array::from_fn(|_| Count::default()))
    }

    fn rewrite<const N: usize>((records, counts): &Records<N>, id: usize) -> Rewrite<'_> {
        records[id].rewrite(&counts[id])
    }

    fn key(path: &[u8]) -> Key {
        Key { digest: Hasher::new(7).digest(BASE, path), bytes: path.len() }
    }

    fn is_hit<const N: usize>(paths: &PathCache, (_, counts): &Records<N>, path: &[u8]) -> bool {
        paths.get(key(path), BASE, |id| Some(counts.get(id.0 as usize)?.get())).is_some()
    }

    fn insert<const N: usize>(paths: &PathCache, (records, _): &Records<N>, path: &[u8]) {
        let read = [BASE, DIR, FILE].map(|id| (id.0, records[id.0 as usize].begin()));
        paths.insert(key(path), &read, Some(Kind::Other), None, 0);
    }

    #[test]
    fn a_path_is_believed_until_any_of_its_records_is_rewritten() {
        let (paths, records) = (PathCache::new(1 << 20), records::<5>());
        for rewritten in 0..5 {
            insert(&paths, &records, b"dir/file");
            assert!(is_hit(&paths, &records, b"dir/file"));
            assert!(!is_hit(&paths, &records, b"dir/fila"));
            let rewrite = rewrite(&records, rewritten);
            let is_its = [BASE, DIR, FILE].contains(&Id(rewritten as u32));
            assert_eq!(is_hit(&paths, &records, b"dir/file"), !is_its, "while {rewritten} is rewritten");
            drop(rewrite);
            assert_eq!(is_hit(&paths, &records, b"dir/file"), !is_its, "{rewritten}");
        }
    }

    /// One test, as wraps count the records of the whole process.
    #[test]
    fn a_path_is_not_believed_once_its_sum_may_have_come_round() {
        let (paths, records) = (PathCache::new(1 << 20), records::<5>());
        let (dir, count) = (&records.0[DIR.0 as usize], &records.1[DIR.0 as usize]);
        for wrap in [1, 2, u32::MAX / WRAP, 0] {
            // The last count before this wrap.
            let last = WRAP.wrapping_mul(wrap).wrapping_sub(2);
            dir.set_count(count, last);
            insert(&paths, &records, b"dir/file");
            (0..100).for_each(|_| drop(rewrite(&records, 4)));
            assert!(is_hit(&paths, &records, b"dir/file"), "other records' rewrites without a wrap");
            drop(dir.rewrite(count));
            assert_eq!(dir.begin(), last.wrapping_add(2));
            assert!(!is_hit(&paths, &records, b"dir/file"));
            // Some wraps later the sum is the same again.
            dir.set_count(count, last);
            assert!(!is_hit(&paths, &records, b"dir/file"), "wrap {wrap}");
        }
        assert!((DIRS as u64 + 2) * u64::from(WRAP) < 1 << 32);
    }

    #[test]
    fn a_wrap_is_told_from_all_but_the_one_65536_later() {
        for wraps in [0, 1, 0xffff, 0x1_0000, u32::MAX] {
            for kind in [None, Some(Kind::Directory), Some(Kind::Symlink), Some(Kind::Other)] {
                let about = About::new(255, DIRS, kind, wraps);
                assert!(about.dirs() == DIRS && about.has_bytes(255) && about.kind() == kind);
                assert!(about.has_wraps(wraps) && about.has_wraps(wraps.wrapping_add(1 << 16)));
                assert!((1..1 << 16).all(|later| !about.has_wraps(wraps.wrapping_add(later))), "{wraps}");
            }
        }
    }

    #[test]
    fn the_longest_paths_are_inserted_whole_and_longer_ones_are_not() {
        for dirs in [0, 1, DIRS, DIRS + 1] {
            let (paths, records) = (PathCache::new(1 << 20), records::<16>());
            let path = vec![b'x'; 100 + dirs];
            let read: Vec<(u32, u32)> = (1..3 + dirs as u32).map(|id| (id, 0)).collect();
            paths.insert(key(&path), &read, Some(Kind::Other), None, 0);
            assert_eq!(is_hit(&paths, &records, &path), dirs <= DIRS, "{dirs}");
            drop(rewrite(&records, 2 + dirs));
            assert!(!is_hit(&paths, &records, &path), "the end behind {dirs}");
        }
    }

    /// Walks while `hits` says whether the path cache ends one. Returns how many used it.
    fn asked(rate: &HitRate, walks: std::ops::Range<u64>, hits: impl Fn(u64) -> bool) -> u64 {
        let mut asked = 0;
        for walk in walks {
            let asks = rate.is_worth_it(walk);
            asked += u64::from(asks);
            if !(asks && hits(walk)) {
                rate.learn(walk);
            }
        }
        asked
    }

    #[test]
    fn the_path_cache_is_asked_while_it_helps() {
        let rate = HitRate::default();
        assert!(asked(&rate, 0..10_000, |walk| walk % 4 == 0) == 10_000, "one of a few is enough");
        assert!(asked(&rate, 10_000..20_000, |_| false) < 600);
        assert_eq!(asked(&rate, 20_000..26_400, |_| false), 100, "samples");
        assert!(asked(&rate, 26_400..36_400, |_| true) > 8_000);
    }

    #[test]
    fn walks_that_did_not_ask_teach_nothing() {
        let rate = HitRate::default();
        asked(&rate, 0..10_000, |_| false);
        rate.skip(1_000_000);
        assert_eq!(asked(&rate, 1_000_001..1_006_401, |_| false), 100);
    }
}
