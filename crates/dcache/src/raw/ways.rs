//! The ways: which path leads to a directory, and what is at a path's end, as a walk has found it before.
//!
//! A **way** is noted by a walk that has climbed (`climb.rs`) from a path's last component to where it stands: the path's bytes up to the last
//! component's directory, and the directories on it with the counts that their records had. From then on whoever meets an entry of
//! that directory compares the bytes at once, and then the counts, which are loads that do not wait for each other. One way serves
//! all entries of its directory.
//!
//! A **hint** tells by the last 32 bytes of a path and its length which entry is likely to be at its end, or which directory does not have
//! what is there. It is a guess, as the index's hash is one, but costs no pass over the path.
//!
//! ```text
//! way, 256 bytes                                                                  hint, 8 bytes
//!   0  seq    u32        odd while the note is written       itself                number of an entry << 32
//!   4  size   u32        records, bytes of the path, laps    [way seq]             | half of a sign
//!   8  ends   u64        where the path begins << 32         [way seq]             single word
//!                        | the directory
//!  16  holds  [u64; 10]  a record << 32 | its count          [way seq]
//!  96  path   [u64; 20]  zeroes behind its last bytes        [way seq]
//! ```
//!
//! **Why a note may be believed (G1, G2).** It was written by a walk that found all its counts even and unchanged at one instant: then each
//! record was linked below the one before, under its name in the path, as a directory that everybody may search and that has no time to live.
//! All of that changes only with a record's count, and what expires below a directory ends leaps altogether. So who finds the counts as
//! noted knows all of it for the time from the note's writing to its own look at the first of them. That look is inside its call and behind
//! its look at the last component, whose count it compares as well: there is the instant. It relies on nothing that a climb would not
//! rely on, and nobody has to tell the ways that a directory was renamed, removed, evicted or closed to somebody: its count tells. Where a
//! number has come to mean another directory, its count has changed when it was unlinked; the number where the path begins
//! cannot mean another one, as the first record pins it while it is linked there.
//!
//! None of it has to do with hashes. So a walk that came to an entry one component at a time, as it must below a directory that was renamed
//! (its children's hashes follow from its old name), climbs from there all the same, and what it finds is as good a note as any: its counts
//! are compared behind the climb. The next walk of that path leaps.
//!
//! **Why a hint may be followed (G6).** It is an entry's number, and the slot may be free by now, or be made another entry at this moment, which
//! what is found through the index cannot be. L1: who has read, inside its pin, that a record is linked, and has put a **fence Acquire** behind,
//! may read the slot's handle, name and generation and count itself in. *The slot was not filled before that*: filling it came before the fence
//! Release (R1) that came before the shape, so all of it is seen. *It is not emptied before the pin ends*: if it had been retired before the
//! pin, the walk would see it unlinked (`epoch.rs`, case `e > t`, of the shape in place of the index). Before that a hint reads words only.
//!
//! Partners, beside L1 and those of `record.rs`:
//! - W1 a writer: `seq` odd, **fence Release**, fields, `seq` even **Release**; a reader: `seq` **Acquire**, fields, **fence Acquire**,
//!   `seq`. As R1 to R4. Who reads a whole note has seen what its writer had seen: no count that it loads is older than the noted one.
//! - W2 a count comes back to what it was after 2³¹ rewrites, and a note may lie that long. So each record that has come a quarter round
//!   counts a *lap*, before it stores its count with Release; a reader that has loaded the counts looks behind a **fence Acquire** whether
//!   the laps are those of the note. Had a count come round, it would see a later lap.
//!
//! **Who writes.** A walk that knew no way, or a change of one, or had no hint. Where something else is noted already only one in
//! [`PATIENCE`] of a thread does, so that paths which displace each other cost few writes; and of those that asked for their lines
//! beforehand only one in as many does at all. A writer waits for nobody: where another one is at the
//! same place, it leaves it at that. Each may lie in one of two places. The tables have a fixed size, together a
//! thirty-second of the cache's budget at most, which it is taken from.
//!
//! **Where it is not used.** Where notes have not helped lately: with millions of entries walked at random nearly every look would be a wait
//! for memory in vain, so a thread that has learnt that (`prefetch.rs`) looks one time of a few. Where all lines of a climb were asked for
//! beforehand: those of a way are not among them. Where a leap is not: directories that not everybody may search are asked for one by one, so no answer of one user
//! serves another. For paths of more than ten directories or 159 bytes, and for records beyond those that the budget foresaw, the climb
//! remains.

use super::{
    Core, Id,
    chunks::{Chunks, Zeroed},
    climb::Hold,
    epoch::Seat,
    leap::Aim,
    name::{Sign, Text},
    record::{Record, laps, settle_reads},
};
use crate::Handle;
use crate::sync::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

/// The most directories of a way.
pub(super) const RECORDS: usize = 10;
const WORDS: usize = 20;
const WORD: usize = size_of::<u64>();
/// The part of the budget that each table may take.
const SHARE: usize = 64;
/// More of either would not stay in any processor's caches.
const MOST: usize = 1 << 16;
/// One in so many walks writes over what is noted already.
pub(super) const PATIENCE: u64 = if cfg!(any(debug_assertions, loom, shuttle)) { 1 } else { 8 };

/// See the module's text.
#[derive(Default)]
#[repr(C, align(64))]
struct Way {
    seq: AtomicU32,
    size: AtomicU32,
    ends: AtomicU64,
    holds: [AtomicU64; RECORDS],
    path: [AtomicU64; WORDS],
}

#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(size_of::<Way>() == 256);

// SAFETY: atomics of zero bytes are zero, and need no drop.
unsafe impl Zeroed for Way {}

/// What a path that ends like this is likely to lead to: its number << 32 | the lower half of its sign. Verified before it is believed.
#[derive(Default)]
struct Hint(AtomicU64);

// SAFETY: an atomic integer of zero bytes is zero.
unsafe impl Zeroed for Hint {}

/// How long a note is, and how old: 8 bits of records, 8 of bytes, 16 of laps.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Size(u32);

impl Size {
    fn new(records: usize, bytes: usize, laps: u32) -> Size {
        debug_assert!(records <= RECORDS && bytes < WORDS * WORD);
        Size(records as u32 | (bytes as u32) << 8 | laps << 16)
    }

    #[inline(always)]
    fn records(self) -> usize {
        (self.0 & 0xff) as usize
    }

    #[inline(always)]
    fn bytes(self) -> usize {
        (self.0 >> 8 & 0xff) as usize
    }

    #[inline(always)]
    fn has_laps(self, laps: u32) -> bool {
        self.0 >> 16 == laps & 0xffff
    }
}

/// See the module's text.
pub(crate) struct Ways {
    table: Chunks<Way>,
    /// The bits of a hash that are no part of a place in the table.
    shift: u32,
    hints: Chunks<Hint>,
    hint_shift: u32,
    /// Bytes that were written at least once.
    noted: AtomicUsize,
}

/// A note that leads where it was asked for. To be believed after [`Known::holds`] has said so.
#[derive(Clone, Copy)]
pub(super) struct Known<'a> {
    way: &'a Way,
    seq: u32,
    size: Size,
}

impl Known<'_> {
    /// How many components the path has.
    #[inline(always)]
    pub(super) fn len(self) -> usize {
        self.size.records()
    }

    /// Whether all records of the note have the counts that it says. `records` are those that the budget foresaw: others are not believed.
    /// The caller has put a fence with [`settle_reads`] before.
    #[inline(always)]
    pub(super) fn holds(self, records: &[Record]) -> bool {
        let Known { way, seq, size } = self;
        let mut is_unchanged = true;
        // Not `all`: that is a branch for each.
        for word in way.holds.iter().take(size.records()) {
            let word = word.load(Ordering::Relaxed);
            // A torn note may name any number.
            let record = records.get((word >> 32) as usize);
            is_unchanged &= record.is_some_and(|record| record.is_unchanged(word as u32));
        }
        // W1, W2.
        settle_reads();
        is_unchanged && way.seq.load(Ordering::Relaxed) == seq && size.has_laps(laps())
    }
}

/// The two directories that a way leads between; never 0.
fn ends(base: Id, dir: Id) -> u64 {
    u64::from(base.0) << 32 | u64::from(dir.0)
}

/// The bytes of the path that do not fill a word, and zeroes. Reads beyond `end`, not beyond the text.
#[inline(always)]
fn remainder(text: Text<'_, '_>, (at, end): (usize, usize)) -> u64 {
    let left = (end - at) % WORD;
    let word = text.window(end - left).first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    word & !(u64::MAX << (8 * left))
}

impl Ways {
    /// Tables for a cache with this budget.
    pub(crate) fn new(budget: usize) -> Ways {
        let bits = |size: usize, least: usize| (budget / SHARE / size).clamp(least, MOST).ilog2();
        let model = cfg!(any(loom, shuttle)).then_some(1);
        let (ways, hints) = (bits(size_of::<Way>(), 2), bits(size_of::<Hint>(), 2));
        let (ways, hints) = (model.unwrap_or(ways), model.unwrap_or(hints));
        Ways {
            table: Chunks::new(1 << ways),
            shift: u64::BITS - ways,
            hints: Chunks::new(1 << hints),
            hint_shift: u64::BITS - hints,
            noted: AtomicUsize::new(0),
        }
    }

    /// What all of them weigh.
    pub(crate) fn bytes(&self) -> usize {
        (size_of::<Way>() << (u64::BITS - self.shift)) + (size_of::<Hint>() << (u64::BITS - self.hint_shift))
    }

    /// How much of that they do not take yet.
    pub(crate) fn bytes_to_come(&self) -> usize {
        self.bytes().saturating_sub(self.noted.load(Ordering::Relaxed))
    }

    /// The first or second place where a note may lie.
    #[inline(always)]
    fn place(&self, ends: u64, second: u32) -> &Way {
        self.table.get((ends.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as u32 ^ second)
    }

    /// The note that from `base` the part of the path between the `ends_at` leads to `dir`.
    #[inline(always)]
    pub(super) fn find(
        &self,
        (base, dir): (Id, Id),
        text: Text<'_, '_>,
        (at, end): (usize, usize),
    ) -> Option<Known<'_>> {
        let ends = ends(base, dir);
        let is_it = |way: &Way| way.ends.load(Ordering::Relaxed) == ends;
        let mut way = self.place(ends, 0);
        if !is_it(way) {
            way = self.place(ends, 1);
        }
        // W1.
        let seq = way.seq.load(Ordering::Acquire);
        let size = Size(way.size.load(Ordering::Relaxed));
        if !is_it(way) || seq & 1 != 0 || size.bytes() != end - at {
            return None;
        }
        let (full, _) = text.bytes[at..end].as_chunks::<WORD>();
        let mut differing = remainder(text, (at, end)) ^ way.path.get(full.len())?.load(Ordering::Relaxed);
        for (word, noted) in full.iter().zip(&way.path) {
            differing |= u64::from_le_bytes(*word) ^ noted.load(Ordering::Relaxed);
        }
        (differing == 0).then_some(Known { way, seq, size })
    }

    /// Notes that the path between the ends leads from `base` by these records, the last one first, who all had their counts at one instant.
    /// Over another note only one time of a few, which `turn` counts.
    pub(super) fn note(
        &self,
        base: Id,
        text: Text<'_, '_>,
        (at, end): (usize, usize),
        holds: &[Hold],
        turn: u64,
    ) {
        let Some(&(dir, _)) = holds.first() else { return };
        let (full, _) = text.bytes[at..end].as_chunks::<WORD>();
        if holds.len() > RECORDS || full.len() >= WORDS {
            return;
        }
        let ends = ends(base, dir);
        let (first, second) = (self.place(ends, 0), self.place(ends, 1));
        let is = |way: &Way, what| way.ends.load(Ordering::Relaxed) == what;
        let way = match () {
            () if is(first, ends) => first,
            () if is(second, ends) => second,
            () if is(first, 0) => first,
            () if is(second, 0) => second,
            () => [first, second][(turn / PATIENCE % 2) as usize],
        };
        if !is(way, 0) && !is(way, ends) && !turn.is_multiple_of(PATIENCE) {
            return;
        }
        let path = full.iter().map(|word| u64::from_le_bytes(*word)).chain([remainder(text, (at, end))]);
        if is(way, 0) {
            self.noted.fetch_add(size_of::<Way>(), Ordering::Relaxed);
        }
        way.write(ends, Size::new(holds.len(), end - at, laps()), holds, path);
    }

    /// The first or second place where a hint may lie.
    #[inline(always)]
    fn hint_at(&self, sign: Sign, second: u32) -> &AtomicU64 {
        &self.hints.get((sign.0 >> self.hint_shift) as u32 ^ second).0
    }

    /// What is likely to be at the end of a path: an entry, or the directory that does not have it.
    #[inline(always)]
    pub(super) fn hint(&self, sign: Sign) -> Option<Id> {
        let mut hint = self.hint_at(sign, 0).load(Ordering::Relaxed);
        if hint as u32 != sign.0 as u32 {
            hint = self.hint_at(sign, 1).load(Ordering::Relaxed);
            if hint as u32 != sign.0 as u32 {
                return None;
            }
        }
        Some(Id((hint >> 32) as u32))
    }

    /// Writes a hint. Over another one only if `insist`.
    fn note_hint(&self, sign: Sign, id: Id, insist: bool) {
        let (first, second) = (self.hint_at(sign, 0), self.hint_at(sign, 1));
        let is_free = |place: &AtomicU64| place.load(Ordering::Relaxed) == 0;
        let is_old = |place: &AtomicU64| place.load(Ordering::Relaxed) as u32 == sign.0 as u32;
        let place = match () {
            () if is_old(first) => first,
            () if is_old(second) || is_free(second) && !is_free(first) => second,
            () => first,
        };
        if is_free(place) {
            self.noted.fetch_add(size_of::<Hint>(), Ordering::Relaxed);
        } else if !insist {
            return;
        }
        place.store(u64::from(id.0) << 32 | sign.0 & u64::from(u32::MAX), Ordering::Relaxed);
    }
}

impl Way {
    fn write(&self, ends: u64, size: Size, holds: &[Hold], path: impl Iterator<Item = u64>) {
        let seq = self.seq.load(Ordering::Relaxed);
        // Acquire: pairs with the Release of the writer before.
        if seq & 1 != 0
            || self.seq.compare_exchange(seq, seq | 1, Ordering::Acquire, Ordering::Relaxed).is_err()
        {
            return;
        }
        // W1.
        fence(Ordering::Release);
        self.ends.store(ends, Ordering::Relaxed);
        self.size.store(size.0, Ordering::Relaxed);
        for (slot, &(id, seq)) in self.holds.iter().zip(holds) {
            slot.store(u64::from(id.0) << 32 | u64::from(seq), Ordering::Relaxed);
        }
        for (slot, word) in self.path.iter().zip(path) {
            slot.store(word, Ordering::Relaxed);
        }
        // W1.
        self.seq.store(seq.wrapping_add(2), Ordering::Release);
    }
}

impl<H: Handle> Core<H> {
    /// Notes what a walk has found at the end of a path to which it knew the way.
    pub(super) fn note_hint(&self, aim: &Aim<'_, '_>, id: Id) {
        let counters = &self.epoch.seat().counters;
        counters.unhinted.add(1);
        let sign = self.hasher.sign(aim.foot.0, aim.text);
        self.ways.note_hint(sign, id, counters.unhinted.get().is_multiple_of(PATIENCE));
    }

    /// Notes what a walk has found at the end of a path, and the way there that it has climbed: up to `slash`, by these records. Where the
    /// lines of the climb were asked for beforehand one time of a few, as the notes' are not near.
    pub(super) fn note_climb(
        &self,
        aim: &Aim<'_, '_>,
        (slash, holds): (usize, &[Hold]),
        id: Id,
        is_aimed: bool,
    ) {
        let Seat { counters, trials, .. } = self.epoch.seat();
        counters.climbed.add(1);
        let turn = counters.climbed.get();
        let patience = if is_aimed { trials.patience(PATIENCE) } else { 1 };
        let is_foreseen = |&(id, _): &Hold| (id.0 as usize) < self.records.foreseen().len();
        if turn.is_multiple_of(patience) && holds.iter().all(is_foreseen) {
            self.ways.note(aim.foot.0, aim.text, (aim.at, slash), holds, turn);
            let sign = self.hasher.sign(aim.foot.0, aim.text);
            self.ways.note_hint(sign, id, turn.is_multiple_of(PATIENCE));
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::super::record::LAP;
    use super::*;

    const BASE: Id = Id(1);
    const DIR: Id = Id(2);

    /// Notes that `dir/` leads to [`DIR`], with the count that its record has, and looks at the note.
    fn noted<'w>(ways: &'w Ways, records: &[Record], text: Text<'_, '_>) -> Known<'w> {
        ways.note(BASE, text, (0, 3), &[(DIR, records[DIR.0 as usize].begin())], 0);
        ways.find((BASE, DIR), text, (0, 3)).expect("just noted")
    }

    /// One test, as laps are those of all records of the process. Without them a count that has come round would be taken for one that has not changed.
    #[test]
    fn a_note_is_not_believed_once_a_count_may_have_come_round() {
        let (ways, mut tail) = (Ways::new(1 << 20), Text::TAIL);
        let text = Text::new(b"dir/file", &mut tail);
        let records: [Record; 3] = Default::default();
        let dir = &records[DIR.0 as usize];
        for quarter in 0..4_u32 {
            // The last count of this quarter: of the last one, also that of its type.
            let last = quarter.wrapping_add(1).wrapping_mul(LAP).wrapping_sub(2);
            dir.set_count(last);
            let before = noted(&ways, &records, text);
            (0..100).for_each(|_| drop(records[0].rewrite()));
            assert!(before.holds(&records), "other records' rewrites within a quarter are no laps");
            drop(dir.rewrite());
            assert_eq!(dir.begin(), last.wrapping_add(2));
            assert!(!before.holds(&records));
            // Three quarters further it is what it was.
            dir.set_count(last);
            assert!(!before.holds(&records), "quarter {quarter}");
            assert!(noted(&ways, &records, text).holds(&records));
        }
    }

    #[test]
    fn a_lap_is_told_from_all_but_the_one_65536_later() {
        for laps in [0, 1, 0xffff, 0x1_0000, u32::MAX] {
            let size = Size::new(RECORDS, WORDS * WORD - 1, laps);
            assert_eq!((size.records(), size.bytes()), (RECORDS, WORDS * WORD - 1));
            assert!(size.has_laps(laps) && size.has_laps(laps.wrapping_add(1 << 16)));
            assert!((1..1 << 16).all(|later| !size.has_laps(laps.wrapping_add(later))), "{laps}");
        }
    }
}
