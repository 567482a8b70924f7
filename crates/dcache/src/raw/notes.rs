//! The notes: what is at the end of a path, as a walk has found it before.
//!
//! A **note** is written by a walk that has climbed (`climb.rs`) from a path's last component to where it began: a digest of the path's bytes, what
//! it has found, the directories on the way there, and the sum of the counts that all their records had. The next walk of that path finds the
//! note by the digest and adds the counts up anew, by loads that do not wait for each other, from where they lie sixteen to a line
//! (`record.rs`). It splits no path, compares no name, looks into no index and at no record. A path whose last name a complete directory does not have
//! is noted as well, with that directory; then the name is looked for there.
//!
//! ```text
//! note, 64 bytes
//!   0  seq     u32        odd while the note is written                    itself
//!   4  size    u32        bytes of the path, directories, what `end` is, laps   [note seq]
//!   8  end     u32        an entry, or the directory without the name      [note seq]
//!  12  sum     u32        of the counts of the start, `dirs` and `end`     [note seq]
//!  16  digest  [u64; 2]   of the start's number, the length and the path   [note seq]
//!  32  dirs    [u32; 8]   the directories between start and end            [note seq]
//!                        of five at most; then the last three words are
//!                        generation and handle of the entry
//! ```
//!
//! **Why a note may be believed (G1, G2).** It was written by a walk that found all its counts even and unchanged at one instant: then each
//! record was linked below the one before, under its name in the path, without a time to live, as a directory that everybody may search, the
//! last one as what the note says. All of that changes only with a record's count, which changes before it (R5), and what
//! expires below a directory ends leaps altogether. Counts only grow, so if their sum is what it was, each of them is (N2 has the exception).
//! So who finds the sum as noted knows all of it for the time from the note's writing to its own look at the first count. That look is inside its
//! call: there is the instant. That a complete directory does not have a name the walk has found out before that look. Nobody has to tell
//! the notes that something was renamed, removed, evicted or closed to somebody: its count tells. Where a number has come to mean another entry, its count has changed when it was unlinked.
//!
//! **Why the path is the one that was noted.** Of its bytes only length and digest are compared. The digest is keyed, with secrets drawn for each
//! cache, and two different paths of one length share it with a probability of at most 2^-64, whatever they are (`name.rs`). A walk compares
//! its path with two notes. So whoever could choose 2^30 paths a second and have them walked would be given one wrong answer in 272 years, and that
//! of a path below directories that everybody may search. All else in this cache that compares names compares their bytes.
//!
//! None of it has to do with hashes of names. So a walk that came to an entry one component at a time, as it must below a directory that was renamed
//! (its children's hashes follow from its old name), climbs from there all the same, and what it finds is as good a note as any: its counts
//! are compared behind the climb. The next walk of that path leaps.
//!
//! **Why the handle may be believed.** With five directories at most a note repeats handle and generation of the entry where the handle is a word, so that
//! who finds the note looks neither at record nor at dentry. The note's writer has read them of an entry that was linked, inside its pin; they
//! stay that entry's until it is unlinked, which its count would tell. Who asks for the handle takes it from the note before it looks at the counts.
//!
//! **Why the entry may be looked at (G6).** A note has an entry's number, and the slot may be free by now, or be made another entry at this moment,
//! which what is found through the index cannot be. L1: who has found, inside its pin, that a note holds, may read the slot's
//! handle and generation and count itself in. *The slot was filled before that*: the note's writer had found it linked, and who reads a whole note has seen
//! what its writer had seen (N1). *It is not emptied before the pin ends*: had it been unlinked before what `epoch.rs` argues with in place of the
//! index (case `e > t`: before the pin; third case: before the barrier), the walk would have seen the count with which that begins. Before that
//! a note's reader reads words only.
//!
//! Partners, beside L1 and those of `record.rs`:
//! - N1 a writer: `seq` odd, **fence Release**, fields, `seq` even **Release**; a reader: `seq` **Acquire**, fields, **fence Acquire**,
//!   `seq`. As R1 to R4. Who reads a whole note has seen what its writer had seen: with R6, no count that it loads *behind* the note is older than the
//!   noted one. An older one would make good for a later one in the sum.
//! - N2 the sum comes back to what it was after 2³¹ rewrites, and a note may lie that long. So each record counts a *lap* whenever it
//!   has come a sixteenth of the way round, which the ten of a note cannot together without one of them doing so, before it stores its count with
//!   Release; a reader that has loaded the counts looks behind a **fence Acquire** whether the laps are those of the note. Had the sum come
//!   round, it would see a later lap.
//!
//! **Who writes.** A walk that found no note, or that something had changed. Where something else is noted already only one in
//! [`PATIENCE`] of a thread does, so that paths which displace each other cost few writes; and of those that asked for their lines
//! beforehand only one in as many does at all. A writer waits for nobody: where another one is at the
//! same place, it leaves it at that. Each may lie in one of two places. The table has a fixed size, a
//! thirty-second of the cache's budget at most, which it is taken from.
//!
//! **Where it is not used.** Where notes have not helped lately: with millions of entries walked at random nearly every look would be a wait
//! for memory in vain, so a thread that has learnt that (`prefetch.rs`) looks one time of a few. Where all lines of a climb were asked for
//! beforehand: the note is not among them. Where a leap is not: directories that not everybody may search are asked for one by one, so no answer of one user
//! serves another. For paths of more than nine components or 255 bytes, and for records beyond those that the budget foresaw, the climb
//! remains.

use super::{
    Core, Id,
    chunks::{Chunks, Zeroed},
    climb::Hold,
    epoch::Seat,
    leap::Aim,
    name::Digest,
    record::{Count, Sight, laps, settle_reads},
};
use crate::sync::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use crate::{Handle, Kind};

/// The most directories of a note.
pub(super) const DIRS: usize = 8;
/// The most of a note that tells a handle.
const SIGHTED_DIRS: usize = DIRS - 3;
/// The part of the budget that the table may take.
const SHARE: usize = 32;
/// More would not stay in any processor's caches.
const MOST: usize = 1 << 16;
/// One in so many walks writes over what is noted already.
pub(super) const PATIENCE: u64 = if cfg!(any(debug_assertions, loom, shuttle)) { 1 } else { 8 };

/// See the module's text.
#[derive(Default)]
#[repr(C, align(64))]
struct Note {
    seq: AtomicU32,
    size: AtomicU32,
    end: AtomicU32,
    sum: AtomicU32,
    digest: [AtomicU64; 2],
    dirs: [AtomicU32; DIRS],
}

#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(size_of::<Note>() == 64);

// SAFETY: atomics of zero bytes are zero, and need no drop.
unsafe impl Zeroed for Note {}

/// What a note is about, and how old it is: 8 bits of the path's length, 4 of directories, 3 of what is at the end, one for whether it tells the
/// handle, 16 of laps.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Size(u32);

impl Size {
    const END: u32 = 12;
    const SIGHTED: u32 = 1 << 15;

    fn new(bytes: usize, dirs: usize, end: End, laps: u32) -> Size {
        debug_assert!(dirs <= DIRS && (1..256).contains(&bytes));
        let end = match end {
            End::Positive(Kind::Directory) => 0,
            End::Positive(Kind::Symlink) => 1,
            End::Positive(Kind::Other) => 2,
            End::Negative => 3,
            End::Miss => 4,
        };
        Size(bytes as u32 | (dirs as u32) << 8 | end << Self::END | laps << 16)
    }

    #[inline(always)]
    fn end(self) -> End {
        match self.0 >> Self::END & 7 {
            0 => End::Positive(Kind::Directory),
            1 => End::Positive(Kind::Symlink),
            2 => End::Positive(Kind::Other),
            3 => End::Negative,
            _ => End::Miss,
        }
    }

    #[inline(always)]
    fn is_sighted(self) -> bool {
        self.0 & Self::SIGHTED != 0
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
    fn has_laps(self, laps: u32) -> bool {
        self.0 >> 16 == laps & 0xffff
    }
}

/// What a path ends at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    Positive(Kind),
    /// A negative entry.
    Negative,
    /// A complete directory, which does not have the path's last name.
    Miss,
}

/// A path from where a walk began, as notes are found by it.
#[derive(Clone, Copy)]
pub(super) struct Key {
    /// Of the start and all bytes.
    pub(super) digest: Digest,
    /// How many bytes, at least one.
    pub(super) bytes: usize,
}

/// What a walk has found.
#[derive(Clone, Copy)]
pub(super) struct Finding<'a> {
    /// The count that the record had where the walk began.
    pub(super) foot: u32,
    /// The records on the path, the last one first.
    pub(super) holds: &'a [Hold],
    /// What the last one is.
    pub(super) end: End,
    /// Its handle, where that is a word.
    pub(super) sight: Option<Sight>,
}

/// See the module's text.
pub(crate) struct Notes {
    table: Chunks<Note>,
    /// The bits of a hash that are no part of a place in the table.
    shift: u32,
    /// Bytes that were written at least once.
    noted: AtomicUsize,
}

/// A note about the path that was asked for. To be believed after [`Known::holds`] has said so.
#[derive(Clone, Copy)]
pub(super) struct Known<'a> {
    note: &'a Note,
    seq: u32,
    size: Size,
    /// The entry at the end of the path, or the directory that does not have it.
    pub(super) id: Id,
}

impl Known<'_> {
    /// How many components the path has, up to `end`.
    #[inline(always)]
    pub(super) fn len(self) -> usize {
        self.size.dirs() + 1
    }

    /// What there is at the end.
    #[inline(always)]
    pub(super) fn end(self) -> End {
        self.size.end()
    }

    /// The handle of what there is, where the note tells it.
    #[inline(always)]
    pub(super) fn sight(self) -> Option<Sight> {
        self.size.is_sighted().then(|| {
            let word = |i: usize| self.note.dirs[i].load(Ordering::Relaxed);
            let handle = u64::from(word(SIGHTED_DIRS + 2)) << 32 | u64::from(word(SIGHTED_DIRS + 1));
            Sight { word: handle, generation: word(SIGHTED_DIRS) }
        })
    }

    /// Whether all counts are those that the note was written with: `foot` is that of the record where the walk begins, `counts` those that the
    /// budget foresaw. Who relies on anything of a record that was read before has put a fence with [`settle_reads`] behind.
    #[inline(always)]
    pub(super) fn holds(self, foot: &Count, counts: &[Count]) -> bool {
        let Known { note, seq, size, id: end } = self;
        let count = |id: u32| {
            debug_assert!((id as usize) < counts.len());
            // SAFETY: each word that was ever written here is the number of a record that the budget foresaw, or zero.
            unsafe { counts.get_unchecked(id as usize) }.get()
        };
        let mut sum = foot.get().wrapping_add(count(end.0));
        for id in note.dirs.iter().take(size.dirs()) {
            sum = sum.wrapping_add(count(id.load(Ordering::Relaxed)));
        }
        let noted = note.sum.load(Ordering::Relaxed);
        // N1, N2.
        settle_reads();
        sum == noted && note.seq.load(Ordering::Relaxed) == seq && size.has_laps(laps())
    }
}

impl Notes {
    /// A table for a cache with this budget.
    pub(crate) fn new(budget: usize) -> Notes {
        let model = cfg!(any(loom, shuttle)).then_some(1);
        let bits = model.unwrap_or((budget / SHARE / size_of::<Note>()).clamp(2, MOST).ilog2());
        Notes { table: Chunks::new(1 << bits), shift: u64::BITS - bits, noted: AtomicUsize::new(0) }
    }

    /// What all of them weigh.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Note>() << (u64::BITS - self.shift)
    }

    /// How much of that they do not take yet.
    pub(crate) fn bytes_to_come(&self) -> usize {
        self.bytes().saturating_sub(self.noted.load(Ordering::Relaxed))
    }

    /// The first or second place where a note may lie.
    #[inline(always)]
    fn place(&self, digest: Digest, second: u32) -> &Note {
        self.table.get((digest.mixed() >> self.shift) as u32 ^ second)
    }

    /// The note about a path.
    #[inline(always)]
    pub(super) fn find(&self, key: Key) -> Option<Known<'_>> {
        let look = |second| {
            let note = self.place(key.digest, second);
            // N1.
            let seq = note.seq.load(Ordering::Acquire);
            (note, seq, note.is_of(key.digest))
        };
        let (mut note, mut seq, is_it) = look(0);
        if !is_it {
            let other;
            (note, seq, other) = look(1);
            if !other {
                return None;
            }
        }
        let (size, id) = (Size(note.size.load(Ordering::Relaxed)), Id(note.end.load(Ordering::Relaxed)));
        (seq & 1 == 0 && size.has_bytes(key.bytes)).then_some(Known { note, seq, size, id })
    }

    /// Notes what there is at the end of a path, of records which all had their counts at one instant. Over another note only one time of a
    /// few, which `turn` counts.
    pub(super) fn note(&self, key: Key, finding: Finding<'_>, turn: u64) {
        if finding.holds.len() > DIRS + 1 {
            return;
        }
        let (first, second) = (self.place(key.digest, 0), self.place(key.digest, 1));
        let note = match () {
            () if first.is_of(key.digest) => first,
            () if second.is_of(key.digest) => second,
            () if first.is_free() => first,
            () if second.is_free() => second,
            () if !turn.is_multiple_of(PATIENCE) => return,
            () => [first, second][(turn / PATIENCE % 2) as usize],
        };
        if note.is_free() {
            self.noted.fetch_add(size_of::<Note>(), Ordering::Relaxed);
        }
        note.write(key, finding);
    }
}

impl Note {
    #[inline(always)]
    fn is_of(&self, Digest([low, high]): Digest) -> bool {
        let differing = |i: usize, word: u64| self.digest[i].load(Ordering::Relaxed) ^ word;
        differing(0, low) | differing(1, high) == 0
    }

    fn is_free(&self) -> bool {
        self.size.load(Ordering::Relaxed) == 0
    }

    fn write(&self, key: Key, Finding { foot, holds, end, sight }: Finding<'_>) {
        let [(id, _), dirs @ ..] = holds else { return };
        let sight = sight.filter(|_| dirs.len() <= SIGHTED_DIRS);
        let seq = self.seq.load(Ordering::Relaxed);
        // Acquire: pairs with the Release of the writer before.
        if seq & 1 != 0
            || self.seq.compare_exchange(seq, seq | 1, Ordering::Acquire, Ordering::Relaxed).is_err()
        {
            return;
        }
        // N1.
        fence(Ordering::Release);
        let sum = holds.iter().fold(foot, |sum, &(_, count)| sum.wrapping_add(count));
        let size = Size::new(key.bytes, dirs.len(), end, laps());
        let sighted = if sight.is_some() { Size::SIGHTED } else { 0 };
        self.size.store(size.0 | sighted, Ordering::Relaxed);
        self.end.store(id.0, Ordering::Relaxed);
        self.sum.store(sum, Ordering::Relaxed);
        for (slot, word) in self.digest.iter().zip(key.digest.0) {
            slot.store(word, Ordering::Relaxed);
        }
        for (slot, &(id, _)) in self.dirs.iter().zip(dirs) {
            slot.store(id.0, Ordering::Relaxed);
        }
        if let Some(Sight { word, generation }) = sight {
            let words = [generation, word as u32, (word >> 32) as u32];
            for (slot, word) in self.dirs[SIGHTED_DIRS..].iter().zip(words) {
                slot.store(word, Ordering::Relaxed);
            }
        }
        // N1.
        self.seq.store(seq.wrapping_add(2), Ordering::Release);
    }
}

impl<H: Handle> Core<H> {
    /// Notes what a walk has found by these records, the last one first. Where the lines of the climb were asked for beforehand one time
    /// of a few, as the note's is not near.
    pub(super) fn note_climb(&self, aim: &Aim<'_, '_>, holds: &[Hold], end: End, is_aimed: bool) {
        let Seat { counters, trials, .. } = self.epoch.seat();
        counters.climbed.add(1);
        let turn = counters.climbed.get();
        let patience = if is_aimed { trials.patience(PATIENCE) } else { 1 };
        let is_foreseen = |&(id, _): &Hold| (id.0 as usize) < self.counts.foreseen().len();
        if turn.is_multiple_of(patience) && holds.iter().all(is_foreseen) {
            let key = self.key(aim.foot.0, &aim.text.bytes[aim.at..]);
            let sight = match (end, holds) {
                // SAFETY: the caller's walk has found it linked inside its pin, and positive.
                (End::Positive(_), &[(id, _), ..]) => unsafe { self.sight(id) },
                _ => None,
            };
            self.notes.note(key, Finding { foot: aim.foot.1, holds, end, sight }, turn);
        }
    }

    /// What a note about this path, of 1 to 255 bytes without slashes before it, is found by.
    #[inline(always)]
    pub(super) fn key(&self, start: Id, path: &[u8]) -> Key {
        Key { digest: self.hasher.digest(start, path), bytes: path.len() }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::super::{
        name::Hasher,
        record::{LAP, Record, Rewrite},
    };
    use super::*;

    const BASE: Id = Id(1);
    const DIR: Id = Id(2);
    const FILE: Id = Id(3);

    const FILE_END: End = End::Positive(Kind::Other);

    /// Records and their counts.
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

    /// Whether a note about the path is believed of these records.
    fn believes<const N: usize>(notes: &Notes, (_, counts): &Records<N>, path: &[u8]) -> bool {
        let known = notes.find(key(path));
        known.is_some_and(|known| known.holds(&counts[BASE.0 as usize], counts))
    }

    /// Notes that the path leads from [`BASE`] over [`DIR`] to [`FILE`], with the counts that their records have.
    fn note<const N: usize>(notes: &Notes, (records, _): &Records<N>, path: &[u8]) {
        let hold = |id: Id| (id, records[id.0 as usize].begin());
        let holds = [hold(FILE), hold(DIR)];
        notes.note(key(path), Finding { foot: hold(BASE).1, holds: &holds, end: FILE_END, sight: None }, 0);
    }

    #[test]
    fn a_note_is_believed_until_any_of_its_records_is_rewritten() {
        let (notes, records) = (Notes::new(1 << 20), records::<5>());
        for rewritten in 0..5 {
            note(&notes, &records, b"dir/file");
            assert!(believes(&notes, &records, b"dir/file"));
            assert!(!believes(&notes, &records, b"dir/fila"));
            let rewrite = rewrite(&records, rewritten);
            let is_its = [BASE, DIR, FILE].contains(&Id(rewritten as u32));
            assert_eq!(believes(&notes, &records, b"dir/file"), !is_its, "while {rewritten} is rewritten");
            drop(rewrite);
            assert_eq!(believes(&notes, &records, b"dir/file"), !is_its, "{rewritten}");
        }
    }

    /// One test, as laps are those of all records of the process. Without them a sum that has come round would be taken for one that has not
    /// changed.
    #[test]
    fn a_note_is_not_believed_once_its_sum_may_have_come_round() {
        let (notes, records) = (Notes::new(1 << 20), records::<5>());
        let (dir, count) = (&records.0[DIR.0 as usize], &records.1[DIR.0 as usize]);
        for lap in [1, 2, u32::MAX / LAP, 0] {
            // The last count of this lap: of the last one, also that of its type.
            let last = LAP.wrapping_mul(lap).wrapping_sub(2);
            dir.set_count(count, last);
            note(&notes, &records, b"dir/file");
            (0..100).for_each(|_| drop(rewrite(&records, 4)));
            assert!(believes(&notes, &records, b"dir/file"), "other records' rewrites within a lap are none");
            drop(dir.rewrite(count));
            assert_eq!(dir.begin(), last.wrapping_add(2));
            assert!(!believes(&notes, &records, b"dir/file"));
            // Some laps further it is what it was.
            dir.set_count(count, last);
            assert!(!believes(&notes, &records, b"dir/file"), "lap {lap}");
        }
        // All records of a note together cannot bring their sum round without a lap.
        assert!((DIRS as u64 + 2) * u64::from(LAP) < 1 << 32);
    }

    #[test]
    fn a_lap_is_told_from_all_but_the_one_65536_later() {
        for laps in [0, 1, 0xffff, 0x1_0000, u32::MAX] {
            let size = Size::new(255, DIRS, FILE_END, laps);
            assert!(size.dirs() == DIRS && size.has_bytes(255));
            let ends = [Kind::Directory, Kind::Symlink, Kind::Other].map(End::Positive);
            for end in ends.into_iter().chain([End::Negative, End::Miss]) {
                assert_eq!(Size::new(255, DIRS, end, laps).end(), end);
            }
            assert!(size.has_laps(laps) && size.has_laps(laps.wrapping_add(1 << 16)));
            assert!((1..1 << 16).all(|later| !size.has_laps(laps.wrapping_add(later))), "{laps}");
        }
    }

    #[test]
    fn the_longest_notes_are_whole_and_longer_ones_are_not_taken() {
        for dirs in [0, 1, DIRS, DIRS + 1] {
            let (notes, records) = (Notes::new(1 << 20), records::<16>());
            let path = vec![b'x'; 100 + dirs];
            let holds: Vec<Hold> = (2..3 + dirs as u32).map(|id| (Id(id), 0)).collect();
            notes.note(key(&path), Finding { foot: 0, holds: &holds, end: FILE_END, sight: None }, 0);
            assert_eq!(believes(&notes, &records, &path), dirs <= DIRS, "{dirs}");
            drop(rewrite(&records, 2 + dirs));
            assert!(!believes(&notes, &records, &path), "the uppermost of {dirs}");
        }
    }
}
