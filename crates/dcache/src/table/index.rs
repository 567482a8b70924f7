//! The index: from a hash to candidate records.
//!
//! A bucket is one cache line of 11 slots: a record's number, and 8 bits of its hash as a tag. A
//! lookup reads one index line and one record, but for one false tag in 40; a miss mostly reads no
//! record.
//!
//! ```text
//!  0  tags   8 + 4 bytes   upper 8 bits of the hash, 0 = empty slot         [bucket seq]
//! 12  seq    u32           odd while the bucket is written: its lock        itself
//! 16  next   u32           overflow bucket + 1                              [bucket seq]
//! 20  ids    11 × u32      record numbers                                   [bucket seq]
//! ```
//!
//! **Growth** is linear hashing (Litwin 1980): with `count` buckets, a hash belongs to bucket `hash
//! mod 2ᵏ⁺¹` if that is below `count`, else to `hash mod 2ᵏ`. Splitting bucket `count - 2ᵏ` adds
//! one, stops no reader and needs no second array. Above [`LOAD`] each insertion splits four
//! buckets until the count has doubled, as unsplit buckets are twice as full.
//!
//! **A miss is valid** only if the bucket did not change: `seq` even before the scan, and `seq` and
//! `count` the same after it. Partners:
//! - I1 a writer of a bucket: `seq` odd (Acquire), fence Release, slots, `seq` even (Release); a
//!   reader: `seq` (Acquire), slots, fence Acquire, `seq`. As in `record.rs`.
//! - I2 a split stores `count` (Release) before it takes anything out of the old bucket, and takes
//!   it out before that bucket's `seq` is even again. A reader that found the old bucket even
//!   either saw it before the split, whole; or, by Acquire of `seq`, sees the new `count` when it
//!   compares.
//!
//! **Membership changes with identity.** A record's place and name change only while the buckets of
//! both its hashes are locked. So in an unchanged bucket no record was renamed.

use dentree_sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use dentree_sync::{Backoff, Mutex, loom_switch_point};

use crate::hash::bytes::positions;
use crate::table::chunks::Chunks;
use crate::table::chunks::Zeroed;
use crate::table::chunks::prefetch;
use crate::table::id::Id;

const SLOTS: usize = 11;
/// Entries per bucket at which the index doubles. One run at 3 million entries: 6, 8 and 10 take
/// 14.8, 15.2 and 16.2 bytes an entry (fuller buckets overflow), and a cold walk 162, 164 and 202
/// ns a component.
const LOAD: usize = if cfg!(any(loom, shuttle)) { 1 } else { 8 };
const FIRST_BUCKETS: u32 = if cfg!(any(loom, shuttle)) { 1 } else { 16 };
const SPLITS_AT_ONCE: usize = 4;
/// Entries that one change renames, at most: an exchange.
pub(crate) const MOVES: usize = 2;

#[derive(Default)]
#[repr(C, align(64))]
struct Bucket {
    tags_low: AtomicU64,
    tags_high: AtomicU32,
    seq: AtomicU32,
    next: AtomicU32,
    ids: [AtomicU32; SLOTS],
}

#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(size_of::<Bucket>() == 64);

// SAFETY: atomics of zero bytes are zero, and need no drop.
unsafe impl Zeroed for Bucket {}

pub(crate) struct Index {
    /// [growing] number of buckets.
    count: AtomicU32,
    buckets: Chunks<Bucket>,
    overflow: Chunks<Bucket>,
    spare: Mutex<Spare>,
    growing: Mutex<()>,
}

/// Overflow buckets that are not in use. [spare]
#[derive(Default)]
struct Spare {
    free: Vec<u32>,
    made: u32,
}

/// A number of buckets.
#[derive(Clone, Copy)]
pub(crate) struct Extent {
    count: u32,
    mask: u32,
}

impl Extent {
    fn new(count: u32) -> Self {
        // 2ᵏ⁺¹ - 1 for the largest 2ᵏ ≤ count.
        Extent { count, mask: u32::MAX >> count.leading_zeros() }
    }

    #[inline(always)]
    pub(crate) fn count(self) -> u32 {
        self.count
    }

    #[inline(always)]
    fn bucket(self, hash: u32) -> u32 {
        let wide = hash & self.mask;
        if wide < self.count { wide } else { wide & (self.mask >> 1) }
    }
}

/// A search without a hit: valid while [`Index::still_misses`].
#[derive(Clone, Copy)]
pub(crate) struct Miss {
    bucket: u32,
    seq: u32,
    count: u32,
}

#[inline(always)]
fn tag(hash: u32) -> u8 {
    ((hash >> 24) as u8).max(1)
}

impl Bucket {
    #[inline(always)]
    fn candidates(&self, tag: u8) -> Candidates<'_> {
        let low = self.tags_low.load(Ordering::Relaxed);
        let high = u64::from(self.tags_high.load(Ordering::Relaxed));
        // Bits beyond the slots are zero, which is no tag.
        Candidates { bucket: self, slots: positions(low, high, tag) }
    }

    /// [bucket seq]
    fn free_slot(&self) -> Option<usize> {
        let low = self.tags_low.load(Ordering::Relaxed);
        let high = u64::from(self.tags_high.load(Ordering::Relaxed));
        let slot = positions(low, high, 0).trailing_zeros() as usize;
        (slot < SLOTS).then_some(slot)
    }

    /// [bucket seq]
    fn is_empty(&self) -> bool {
        self.tags_low.load(Ordering::Relaxed) == 0 && self.tags_high.load(Ordering::Relaxed) == 0
    }

    /// [bucket seq]
    fn set(&self, slot: usize, id: Id, tag: u8) {
        loom_switch_point();
        self.ids[slot].store(id.0, Ordering::Relaxed);
        let shift = 8 * (slot % 8);
        if slot < 8 {
            let tags = self.tags_low.load(Ordering::Relaxed) & !(0xff << shift);
            self.tags_low.store(tags | u64::from(tag) << shift, Ordering::Release);
        } else {
            let tags = self.tags_high.load(Ordering::Relaxed) & !(0xff << shift);
            self.tags_high.store(tags | u32::from(tag) << shift, Ordering::Release);
        }
    }

    /// Empty slots have no number. [bucket seq]
    fn ids(&self) -> impl Iterator<Item = Id> {
        self.ids.iter().map(|id| Id(id.load(Ordering::Relaxed)))
    }

    fn lock(&self) -> Locked<'_> {
        let mut backoff = Backoff::default();
        loop {
            let seq = self.seq.load(Ordering::Relaxed);
            if seq & 1 == 0
                && self.seq.compare_exchange(seq, seq | 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                // I1.
                fence(Ordering::Release);
                loom_switch_point();
                return Locked(self, seq);
            }
            backoff.wait();
        }
    }
}

/// Slots left to read, one bit each.
pub(crate) struct Candidates<'a> {
    bucket: &'a Bucket,
    slots: u32,
}

impl Iterator for Candidates<'_> {
    type Item = Id;

    #[inline(always)]
    fn next(&mut self) -> Option<Id> {
        if self.slots == 0 {
            return None;
        }
        let slot = self.slots.trailing_zeros() as usize;
        self.slots &= self.slots - 1;
        self.bucket.ids.get(slot).map(|id| Id(id.load(Ordering::Relaxed)))
    }
}

pub(crate) struct Likely<'a> {
    index: &'a Index,
    part: Candidates<'a>,
    tag: u8,
}

impl Iterator for Likely<'_> {
    type Item = Id;

    #[inline(always)]
    fn next(&mut self) -> Option<Id> {
        loop {
            if let Some(id) = self.part.next() {
                return Some(id);
            }
            self.part = self.index.next_part(self.part.bucket)?.candidates(self.tag);
        }
    }
}

/// A locked bucket with its overflow buckets.
struct Locked<'a>(&'a Bucket, u32);

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        loom_switch_point();
        // I1.
        self.0.seq.store(self.1.wrapping_add(2), Ordering::Release);
    }
}

impl Index {
    /// An index for about `entries` entries; more are stored less compactly.
    pub(crate) fn new(entries: usize) -> Self {
        let buckets = (entries / LOAD + 1).next_power_of_two().max(FIRST_BUCKETS as usize);
        let buckets = u32::try_from(buckets).unwrap_or(1 << 31);
        Index {
            count: AtomicU32::new(FIRST_BUCKETS),
            buckets: Chunks::new(buckets),
            overflow: Chunks::new(buckets / 2 + 1),
            spare: Mutex::default(),
            growing: Mutex::default(),
        }
    }

    #[inline(always)]
    pub(crate) fn extent(&self) -> Extent {
        // Acquire: pairs with I2, so that a new bucket's contents are seen with the count that
        // reaches it.
        Extent::new(self.count.load(Ordering::Acquire))
    }

    #[inline(always)]
    pub(crate) fn prefetch(&self, extent: Extent, hash: u32) {
        prefetch(self.buckets.get(extent.bucket(hash)));
    }

    /// The records with the hash's tag, those in overflow buckets last.
    #[inline(always)]
    pub(crate) fn likely(&self, extent: Extent, hash: u32) -> Likely<'_> {
        let tag = tag(hash);
        Likely { index: self, part: self.buckets.get(extent.bucket(hash)).candidates(tag), tag }
    }

    /// Calls `wanted` for each candidate record until it returns something.
    #[inline(always)]
    pub(crate) fn search<R>(
        &self,
        extent: Extent,
        hash: u32,
        mut wanted: impl FnMut(Id) -> Option<R>,
    ) -> Result<R, Miss> {
        let number = extent.bucket(hash);
        let bucket = self.buckets.get(number);
        loom_switch_point();
        // I1.
        let seq = bucket.seq.load(Ordering::Acquire);
        loom_switch_point();
        let mut part = bucket;
        loop {
            // Not `find_map`, which keeps the closure from being inlined: 30 instructions a
            // component.
            for id in part.candidates(tag(hash)) {
                if let Some(found) = wanted(id) {
                    return Ok(found);
                }
            }
            match self.next_part(part) {
                None => return Err(Miss { bucket: number, seq, count: extent.count }),
                Some(next) => part = next,
            }
        }
    }

    #[inline(always)]
    fn next_part(&self, part: &Bucket) -> Option<&Bucket> {
        // Acquire: the overflow bucket was filled before it was linked.
        match part.next.load(Ordering::Acquire) {
            0 => None,
            next => Some(self.overflow.get(next - 1)),
        }
    }

    /// Whether no entry with such a hash was inserted, removed or renamed since.
    pub(crate) fn still_misses(&self, miss: Miss) -> bool {
        loom_switch_point();
        // I1, I2: the bucket's `seq` first, so that a split that emptied it shows in `count`.
        fence(Ordering::Acquire);
        let seq = self.buckets.get(miss.bucket).seq.load(Ordering::Acquire);
        miss.seq & 1 == 0 && seq == miss.seq && self.count.load(Ordering::Relaxed) == miss.count
    }

    /// Inserts `id` in place of `old`, if any. Calls `publish` while the bucket is locked, so that
    /// no reader misses both. Returns the bytes added and freed.
    pub(crate) fn insert(
        &self,
        hash: u32,
        id: Id,
        old: Option<Id>,
        publish: impl FnOnce(),
    ) -> (usize, usize) {
        let locked = self.lock_bucket(hash);
        publish();
        let freed = old.map_or(0, |old| self.take(locked.0, old));
        (self.put(locked.0, hash, id), freed)
    }

    /// Removes `id`. Calls `retract` while the bucket is locked. Returns the bytes freed.
    pub(crate) fn remove(&self, hash: u32, id: Id, retract: impl FnOnce()) -> usize {
        let locked = self.lock_bucket(hash);
        retract();
        self.take(locked.0, id)
    }

    /// Moves ids between buckets, `(id, from hash, to hash)` each, and removes `replaced`, `(id,
    /// hash)`, which had one of the new names. Calls `rename` while all of these buckets are
    /// locked. Returns the bytes added and freed.
    pub(crate) fn relink(
        &self,
        moves: [Option<(Id, u32, u32)>; MOVES],
        replaced: Option<(Id, u32)>,
        rename: impl FnOnce(),
    ) -> (usize, usize) {
        let mut hashes = moves.iter().flatten().flat_map(|&(_, from, to)| [from, to]);
        let _locked = self.lock_buckets(std::array::from_fn(|_| hashes.next()));
        rename();
        let extent = self.extent();
        let bucket = |hash| self.buckets.get(extent.bucket(hash));
        let (mut added, mut freed) = (0, replaced.map_or(0, |(id, hash)| self.take(bucket(hash), id)));
        for (id, from, _) in moves.into_iter().flatten() {
            freed += self.take(bucket(from), id);
        }
        for (id, _, to) in moves.into_iter().flatten() {
            added += self.put(bucket(to), to, id);
        }
        (added, freed)
    }

    fn lock_bucket(&self, hash: u32) -> Locked<'_> {
        loop {
            let extent = self.extent();
            let locked = self.buckets.get(extent.bucket(hash)).lock();
            // A split moves the hash only while this bucket is locked, so the check is final.
            if self.extent().bucket(hash) == extent.bucket(hash) {
                return locked;
            }
        }
    }

    /// Locks the buckets of all hashes, each once, in ascending order.
    fn lock_buckets(&self, hashes: [Option<u32>; 2 * MOVES]) -> [Option<Locked<'_>>; 2 * MOVES] {
        const NONE: u32 = u32::MAX;
        let numbers = |extent: Extent| {
            let mut numbers = hashes.map(|hash| hash.map_or(NONE, |hash| extent.bucket(hash)));
            numbers.sort_unstable();
            numbers
        };
        loop {
            let extent = self.extent();
            let (wanted, mut last) = (numbers(extent), NONE);
            let locked = wanted.map(|number| {
                let is_another = std::mem::replace(&mut last, number) != number;
                (is_another && number != NONE).then(|| self.buckets.get(number).lock())
            });
            let now = self.extent();
            if now.count == extent.count || numbers(now) == wanted {
                return locked;
            }
        }
    }

    fn parts<'a>(&'a self, first: &'a Bucket) -> impl Iterator<Item = &'a Bucket> {
        std::iter::successors(Some(first), |part| match part.next.load(Ordering::Relaxed) {
            0 => None,
            next => Some(self.overflow.get(next - 1)),
        })
    }

    /// [bucket seq of `first`]
    fn put(&self, first: &Bucket, hash: u32, id: Id) -> usize {
        let mut last = first;
        for part in self.parts(first) {
            if let Some(slot) = part.free_slot() {
                part.set(slot, id, tag(hash));
                return 0;
            }
            last = part;
        }
        let number = self.take_spare();
        let fresh = self.overflow.get(number);
        fresh.set(0, id, tag(hash));
        // Release: pairs with the Acquire in `search`.
        last.next.store(number + 1, Ordering::Release);
        size_of::<Bucket>()
    }

    /// [bucket seq of `first`]
    fn take(&self, first: &Bucket, id: Id) -> usize {
        let mut before = first;
        for part in self.parts(first) {
            if let Some(slot) = part.ids().position(|found| found == id) {
                part.set(slot, Id::NONE, 0);
                let is_spare = !std::ptr::eq(part, first) && part.is_empty();
                return if is_spare { self.drop_part(before, part) } else { 0 };
            }
            before = part;
        }
        debug_assert!(false, "record {} is in its bucket", id.0);
        0
    }

    /// Removes an empty overflow bucket. A reader in it may be led into another chain when it is
    /// reused: records are compared, so there is no false hit, and its miss is not valid.
    fn drop_part(&self, before: &Bucket, empty: &Bucket) -> usize {
        let number = before.next.load(Ordering::Relaxed) - 1;
        before.next.store(empty.next.load(Ordering::Relaxed), Ordering::Release);
        self.spare.lock().free.push(number);
        size_of::<Bucket>()
    }

    fn take_spare(&self) -> u32 {
        let mut spare = self.spare.lock();
        let number = spare.free.pop().unwrap_or_else(|| {
            spare.made += 1;
            spare.made - 1
        });
        drop(spare);
        self.overflow.ensure(number);
        self.overflow.get(number).next.store(0, Ordering::Relaxed);
        number
    }

    pub(crate) fn wants_to_grow(&self, entries: usize) -> bool {
        let count = self.count.load(Ordering::Relaxed);
        !count.is_power_of_two() || entries > count as usize * LOAD
    }

    /// Bytes that one `grow` adds, with few exceptions.
    pub(crate) const GROWTH: usize = 2 * SPLITS_AT_ONCE * size_of::<Bucket>();

    /// Splits a few buckets, unless another thread does. Returns the bytes added and freed.
    pub(crate) fn grow(&self, hash_of: impl Fn(Id) -> u32) -> (usize, usize) {
        let Some(_growing) = self.growing.try_lock() else { return (0, 0) };
        let (mut added, mut freed) = (0, 0);
        for _ in 0..SPLITS_AT_ONCE {
            let (more, less) = self.split(&hash_of);
            added += more;
            freed += less;
            if self.count.load(Ordering::Relaxed).is_power_of_two() {
                break;
            }
        }
        (added, freed)
    }

    /// [growing]
    fn split(&self, hash_of: &impl Fn(Id) -> u32) -> (usize, usize) {
        let count = self.count.load(Ordering::Relaxed);
        let (before, after) = (Extent::new(count), Extent::new(count + 1));
        self.buckets.ensure(count);
        let old = self.buckets.get(before.bucket(count)).lock();
        let new = self.buckets.get(count).lock();
        let mut moving = Vec::with_capacity(2 * SLOTS);
        for id in self.parts(old.0).flat_map(Bucket::ids).filter(|&id| id != Id::NONE) {
            let hash = hash_of(id);
            if after.bucket(hash) == count {
                moving.push((id, hash));
            }
        }
        let added: usize = moving.iter().map(|&(id, hash)| self.put(new.0, hash, id)).sum();
        loom_switch_point();
        // I2: from here on both buckets have them; they are taken out only after this.
        self.count.store(count + 1, Ordering::Release);
        let freed: usize = moving.iter().map(|&(id, _)| self.take(old.0, id)).sum();
        (added + size_of::<Bucket>(), freed)
    }

    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(crate) fn bytes(&self) -> usize {
        let spare = self.spare.lock();
        let overflow = spare.made as usize - spare.free.len();
        (self.count.load(Ordering::Relaxed) as usize + overflow) * size_of::<Bucket>()
    }

    pub(crate) const EMPTY: usize = FIRST_BUCKETS as usize * size_of::<Bucket>();
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    fn hash_of(id: Id) -> u32 {
        // Only 64 tags, and every 50th hash the same: buckets overflow.
        if id.0.is_multiple_of(50) { 7 << 26 } else { id.0.wrapping_mul(0x9e37_79b9) }
    }

    fn find(index: &Index, id: Id) -> Option<Id> {
        index.search(index.extent(), hash_of(id), |found| (found == id).then_some(id)).ok()
    }

    #[test]
    fn everything_is_found_while_the_index_grows_and_after_half_is_removed() {
        let index = Index::new(1000);
        let (mut bytes, ids) = (Index::EMPTY, 1..5000);
        for id in ids.clone() {
            if index.wants_to_grow(id as usize) {
                let (added, freed) = index.grow(hash_of);
                bytes = bytes + added - freed;
            }
            bytes += index.insert(hash_of(Id(id)), Id(id), None, || {}).0;
            assert_eq!(find(&index, Id(id / 2 + 1)), Some(Id(id / 2 + 1)));
        }
        assert!(ids.clone().all(|id| find(&index, Id(id)) == Some(Id(id))));
        let is_likely = |id| index.likely(index.extent(), hash_of(id)).any(|likely| likely == id);
        assert!(ids.clone().all(|id| is_likely(Id(id))), "in overflow buckets too");
        assert_eq!(index.bytes(), bytes);
        for id in ids.clone().filter(|id| id.is_multiple_of(2)) {
            bytes -= index.remove(hash_of(Id(id)), Id(id), || {});
        }
        assert!(ids.clone().all(|id| find(&index, Id(id)).is_some() == (id % 2 == 1)));
        assert_eq!(index.bytes(), bytes);
    }

    #[test]
    fn a_miss_holds_until_its_bucket_changes() {
        let index = Index::new(100);
        let hash = 99;
        let Err(miss) = index.search(index.extent(), hash, Some) else { panic!("empty") };
        assert!(index.still_misses(miss));
        index.insert(hash, Id(5), None, || assert!(!index.still_misses(miss)));
        assert!(!index.still_misses(miss));
    }

    #[test]
    fn relinking_finds_the_record_in_its_new_bucket_only() {
        let index = Index::new(100);
        index.insert(3, Id(5), None, || {});
        index.relink([Some((Id(5), 3, 4)), None], None, || {});
        assert!(index.search(index.extent(), 3, Some).is_err());
        assert_eq!(index.search(index.extent(), 4, Some).ok(), Some(Id(5)));
    }
}
