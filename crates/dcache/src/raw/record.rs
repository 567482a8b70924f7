//! The lookup record: one cache line, all that a walk reads of an entry.
//!
//! ```text
//!  0  seq       u32   odd while the record is rewritten                          itself
//!  4  shape     u16   length of the name; kind and flags                         [record seq]
//!  8  place     u64   parent << 32 | hash of the name under the parent's seed    [record seq]
//! 16  word      u64   directory: the seed of its children's hashes               [immutable] while linked
//!                     anything else: its handle, where that is a word
//! 24  stamp     u32   value of the expiry counter when the entry was learnt      single word
//! 28  age       u32   directory: its horizon: what lies below and has a lower    single word
//!                     stamp has expired
//!                     anything else: the generation, beside its handle           [immutable] while linked
//! 32  name      [u64; 4]  up to 32 bytes, or a 128-bit hash of a longer name     [record seq]
//! ```
//!
//! "Single word" fields are read and written on their own; no decision combines them with others.
//!
//! **Handles here.** An entry's handle and the generation of its number are its dentry's (`dentry.rs`), which owns the one and counts the other. Both
//! are what they are from before the entry is linked until it has been unlinked and nobody can reach it any more. What is no directory has no
//! children and so neither seed nor horizon; in their place the record repeats both where the handle is a word, and its shape says so
//! ([`SIGHTED`](Shape::SIGHTED)): a walk that ends there reads no dentry. They are written with the name, by whoever links the entry, and never
//! again, so who may read the dentry's (found linked inside the pin, `epoch.rs`) may read these, and sees the same; who may not looks at
//! the count as for any field.
//!
//! **The sequence protocol** (Boehm, "Can seqlocks get along with programming language memory models?", 2012).
//! A writer makes `seq` odd by compare-and-swap, so that writers exclude each other; writes; and makes it even
//! again. A reader loads `seq`, reads, and at the end of its walk looks whether `seq` is what it was. Partners:
//!
//! | writer | reader | if the reader sees the writer's … |
//! |---|---|---|
//! | R1 `seq` = odd, **fence Release**, fields | fields, **fence Acquire** (R3), `seq` again | field, then it sees `seq` odd or later: differs |
//! | R2 fields, `seq` = even **Release** | `seq` **Acquire** (R4), fields | even value, then it sees all fields or newer |
//!
//! So an unchanged even `seq` means that the fields were the record's for the whole time between.
//!
//! **Counts apart.** Each record has its count once more in a [`Count`], sixteen to a line, for notes (`notes.rs`), which look at the counts of
//! whole paths and at no more of them. It tells the count that the record will have when the rewriting under way is done. Partners, of which the
//! writer's come in this order between its `seq` = odd and its fields:
//!
//! | writer | reader | if the reader … |
//! |---|---|---|
//! | R5 count, **fence Release** (R1), fields | fields, **fence Acquire**, count | sees a field, then it sees its count or a later one |
//! | R6 count, `seq` = even **Release** (R2) | `seq` **Acquire** (R4), anything, count | has seen the even value, then it sees no older count |
//!
//! Limit: a reader that sleeps while a record is rewritten 2³¹ times may believe it unchanged. What is kept longer than a walk
//! takes looks at the [`laps`] as well.

use super::{
    Id,
    bytes::equal_positions,
    chunks::Zeroed,
    name::{INLINE, Name},
};
use crate::Kind;
use crate::sync::{AtomicU16, AtomicU32, AtomicU64, Backoff, Ordering, fence, switch_point};

/// See the module's text.
#[derive(Default)]
#[repr(C, align(64))]
pub(crate) struct Record {
    seq: AtomicU32,
    shape: AtomicU16,
    place: AtomicU64,
    word: AtomicU64,
    stamp: AtomicU32,
    age: AtomicU32,
    name: [AtomicU64; 4],
}

#[cfg(not(any(loom, shuttle)))]
const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<Record>() == 64);
    assert!(offset_of!(Record, place) == 8);
    assert!(offset_of!(Record, word) == 16);
    assert!(offset_of!(Record, shape) == 4);
    assert!(offset_of!(Record, stamp) == 24);
    assert!(offset_of!(Record, name) == 32);
};

// SAFETY: atomics of zero bytes are zero, and need no drop.
unsafe impl Zeroed for Record {}

/// A record's count apart from it. See the module's text.
#[derive(Default)]
pub(crate) struct Count(AtomicU32);

// SAFETY: an atomic integer of zero bytes is zero.
unsafe impl Zeroed for Count {}

impl Count {
    #[inline(always)]
    pub(crate) fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// [record seq] Counts a lap before the count that begins it.
    fn set(&self, count: u32) {
        if count.is_multiple_of(LAP) {
            LAPS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
        // Release: see N2 in `notes.rs`.
        self.0.store(count, Ordering::Release);
    }
}

/// The flags of a record, its kind and the length of its name: 16 bits, in registers wider, as partial registers
/// cost.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape(u32);

impl Shape {
    const LEN: u32 = 0x00ff;
    const KIND: u32 = 0x0300;
    /// In the index under its place. Without this a record is free, being filled, or detached.
    const LINKED: u32 = 0x0400;
    /// Everyone may search this directory.
    pub(crate) const SEARCH: u32 = 0x0800;
    /// All entries of this directory are cached.
    pub(crate) const COMPLETE: u32 = 0x1000;
    /// This directory was renamed: its seed is not the one that its name implies.
    pub(crate) const MOVED: u32 = 0x2000;

    /// The entry is believed only for a time, which its dentry tells.
    pub(crate) const TIMED: u32 = 0x4000;
    /// The record has the entry's handle and generation; of no directory.
    pub(crate) const SIGHTED: u32 = 0x8000;

    const DIRECTORY: u32 = 0x0100;
    const SYMLINK: u32 = 0x0200;
    const OTHER: u32 = 0x0300;

    /// A linked record's shape; no kind: a negative entry.
    pub(crate) fn linked(kind: Option<Kind>, flags: u32, len: usize) -> Shape {
        debug_assert!(len <= Self::LEN as usize);
        let kind = match kind {
            None => 0,
            Some(Kind::Directory) => Self::DIRECTORY,
            Some(Kind::Symlink) => Self::SYMLINK,
            Some(Kind::Other) => Self::OTHER,
        };
        Shape(kind | flags | Self::LINKED | len as u32)
    }

    pub(crate) fn kind(self) -> Option<Kind> {
        match self.0 & Self::KIND {
            Self::DIRECTORY => Some(Kind::Directory),
            Self::SYMLINK => Some(Kind::Symlink),
            Self::OTHER => Some(Kind::Other),
            _ => None,
        }
    }

    #[inline]
    pub(crate) fn is_negative(self) -> bool {
        self.0 & Self::KIND == 0
    }

    #[inline]
    pub(crate) fn is_directory(self) -> bool {
        self.0 & Self::KIND == Self::DIRECTORY
    }

    #[inline]
    pub(crate) fn is_symlink(self) -> bool {
        self.0 & Self::KIND == Self::SYMLINK
    }

    /// Whether a walk passes through without a further question.
    #[inline(always)]
    pub(crate) fn is_open_directory(self) -> bool {
        let open = Self::DIRECTORY | Self::SEARCH;
        self.0 & (Self::KIND | Self::SEARCH | Self::TIMED) == open
    }

    /// What linked records have through which a walk passes without a further question.
    #[inline(always)]
    pub(crate) fn open_directory() -> Pattern {
        let asked = Self::KIND | Self::SEARCH | Self::TIMED | Self::LINKED;
        Pattern { asked, expected: Self::DIRECTORY | Self::SEARCH | Self::LINKED }
    }

    /// What linked records have that are believed until something tells otherwise, negative entries and links too.
    #[inline(always)]
    pub(crate) fn plain() -> Pattern {
        Pattern { asked: Self::LINKED | Self::TIMED, expected: Self::LINKED }
    }

    /// What linked records have at which a walk may end without a further question.
    #[inline(always)]
    pub(crate) fn plain_end() -> Pattern {
        let asked = Self::DIRECTORY | Self::TIMED | Self::LINKED;
        Pattern { asked, expected: Self::DIRECTORY | Self::LINKED }
    }

    /// Whether a walk may end here without a further question.
    #[inline(always)]
    pub(crate) fn is_plain_end(self) -> bool {
        // Directories and others, not links and negative entries.
        self.0 & (Self::DIRECTORY | Self::TIMED) == Self::DIRECTORY
    }

    /// Whether there is a handle and only the dentry tells it.
    #[inline(always)]
    pub(crate) fn hides_handle(self) -> bool {
        !self.has(Self::SIGHTED) && !self.is_negative()
    }

    #[inline]
    pub(crate) fn is_linked(self) -> bool {
        self.has(Self::LINKED)
    }

    #[inline]
    pub(crate) fn has(self, flag: u32) -> bool {
        self.0 & flag != 0
    }

    pub(crate) fn name_len(self) -> usize {
        (self.0 & Self::LEN) as usize
    }

    /// The shape under a new name.
    pub(crate) fn renamed(self, len: usize, set: u32) -> Shape {
        debug_assert!(len <= Self::LEN as usize);
        Shape(self.0 & !Self::LEN | set | len as u32)
    }

    pub(crate) fn with(self, set: u32) -> Shape {
        Shape(self.0 | set)
    }

    pub(crate) fn without(self, clear: u32) -> Shape {
        Shape(self.0 & !clear)
    }
}

/// What a walk answers of an entry where its handle is a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sight {
    /// The handle.
    pub(crate) word: u64,
    /// The generation of its number.
    pub(crate) generation: u32,
}

/// What a shape must be like.
#[derive(Clone, Copy)]
pub(crate) struct Pattern {
    asked: u32,
    expected: u32,
}

impl Pattern {
    /// Whether a shape is like this.
    #[inline(always)]
    pub(crate) fn fits(self, shape: Shape) -> bool {
        shape.0 & self.asked == self.expected
    }
}

/// Where a record is linked: below which directory, under which hash.
fn place(parent: Id, hash: u32) -> u64 {
    u64::from(parent.0) << 32 | u64::from(hash)
}

impl Record {
    /// The sequence count to compare with later; odd while the record is being rewritten.
    #[inline(always)]
    pub(crate) fn begin(&self) -> u32 {
        // R4.
        self.seq.load(Ordering::Acquire)
    }

    /// Whether nothing was rewritten since [`begin`](Self::begin) answered `seq`, which was even. The caller has
    /// put a fence with [`settle_reads`] between its reads and this.
    #[inline(always)]
    pub(crate) fn is_unchanged(&self, seq: u32) -> bool {
        self.seq.load(Ordering::Relaxed) == seq
    }

    /// The shape, if this is linked below `parent` under `name`, as far as the record can tell: of a long name
    /// only length and hash are compared.
    #[inline(always)]
    pub(crate) fn shape_if_named(&self, parent: Id, name: &Name<'_>) -> Option<Shape> {
        let shape = self.shape();
        let expected = Shape::LINKED | (name.bytes.len() as u32 & Shape::LEN);
        let differing = |i: usize| self.name[i].load(Ordering::Relaxed) ^ name.words[i];
        let is_it = self.place.load(Ordering::Relaxed) == place(parent, name.hash())
            && shape.0 & (Shape::LEN | Shape::LINKED) == expected
            && differing(0) | differing(1) == 0
            // Names of one length end in the same word, and all words behind it are zero.
            && (name.bytes.len() < 16 || differing(2) | differing(3) == 0);
        is_it.then_some(shape)
    }

    /// Whether the first `len` bytes of the name, 1 to 32, are those of `window`.
    #[inline(always)]
    pub(crate) fn has_name(&self, window: &[u8; INLINE], len: usize) -> bool {
        let word = |i: usize| self.name[i].load(Ordering::Relaxed);
        let equal = equal_positions(window, [word(0), word(1), word(2), word(3)]);
        // What stands behind the name in the window need not be equal.
        !equal << (INLINE - len) == 0
    }

    #[inline]
    pub(crate) fn parent(&self) -> Id {
        // Acquire: pairs with the Release in `Rewrite::place`, see `Core::horizon_above`.
        Id((self.place.load(Ordering::Acquire) >> 32) as u32)
    }

    #[inline]
    pub(crate) fn hash(&self) -> u32 {
        self.place.load(Ordering::Relaxed) as u32
    }

    #[inline]
    pub(crate) fn shape(&self) -> Shape {
        Shape(u32::from(self.shape.load(Ordering::Relaxed)))
    }

    /// The seed of a directory; of anything else it means nothing.
    #[inline]
    pub(crate) fn seed(&self) -> u64 {
        self.word.load(Ordering::Relaxed)
    }

    /// What an entry whose shape is [`SIGHTED`](Shape::SIGHTED) has for its handle.
    #[inline(always)]
    pub(crate) fn sight(&self) -> Sight {
        Sight { word: self.word.load(Ordering::Relaxed), generation: self.age.load(Ordering::Relaxed) }
    }

    #[inline]
    pub(crate) fn stamp(&self) -> u32 {
        self.stamp.load(Ordering::Relaxed)
    }

    /// The shape, and the generation that goes with it where the record tells. What is read behind is not older.
    #[inline]
    pub(crate) fn linked_as(&self) -> (Shape, Option<u32>) {
        let seq = self.begin();
        let (shape, Sight { generation, .. }) = (self.shape(), self.sight());
        settle_reads();
        let is_one = shape.has(Shape::SIGHTED) && seq & 1 == 0 && self.is_unchanged(seq);
        (shape, is_one.then_some(generation))
    }

    /// The horizon of a directory; of anything else it means nothing.
    #[inline]
    pub(crate) fn horizon(&self) -> u32 {
        self.age.load(Ordering::Relaxed)
    }

    /// Says when the entry was learnt.
    pub(crate) fn set_stamp(&self, stamp: u32) {
        self.stamp.store(stamp, Ordering::Relaxed);
    }

    /// Marks the entry as learnt before anything that may have expired.
    pub(crate) fn expire(&self) {
        self.stamp.store(0, Ordering::Relaxed);
    }

    /// Of a directory that stays one meanwhile: it is held, or linked below a locked one.
    pub(crate) fn set_horizon(&self, horizon: u32) {
        debug_assert!(self.shape().is_directory());
        self.age.store(horizon, Ordering::Relaxed);
    }

    /// Says that the slot owns no handle any more. The entry is dead and its grace period over.
    pub(crate) fn forget_shape(&self) {
        self.shape.store(0, Ordering::Relaxed);
    }

    /// The bytes of a short name, as the record holds them.
    pub(crate) fn inline_name(&self) -> [u8; super::name::INLINE] {
        let mut bytes = [0; super::name::INLINE];
        for (chunk, word) in bytes.chunks_exact_mut(8).zip(&self.name) {
            chunk.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        bytes
    }

    /// Makes the count what so many rewrites would have made it.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(super) fn set_count(&self, count: &Count, seq: u32) {
        self.seq.store(seq, Ordering::Relaxed);
        count.0.store(seq, Ordering::Relaxed);
    }

    /// Excludes other writers and makes readers distrust what they read, until the answer is dropped. `count` is this record's.
    pub(crate) fn rewrite(&self, count: &Count) -> Rewrite<'_> {
        let mut backoff = Backoff::default();
        loop {
            let seq = self.seq.load(Ordering::Relaxed);
            // Acquire: pairs with R2 of the writer before.
            if seq & 1 == 0
                && self.seq.compare_exchange(seq, seq | 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                let next = seq.wrapping_add(2);
                count.set(next);
                // R1, R5.
                fence(Ordering::Release);
                switch_point();
                return Rewrite { record: self, next };
            }
            backoff.wait();
        }
    }
}

/// Puts what was read before into order with sequence counts read after it.
#[inline(always)]
pub(crate) fn settle_reads() {
    // R3.
    fence(Ordering::Acquire);
}

/// A record that was rewritten half so often has come a quarter round: each time adds two to its count.
pub(super) const LAP: u32 = 1 << 28;
/// Of all records of the process: so rare that no cache needs its own. Not of the facade, as no model comes so far.
static LAPS: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);

/// How often any record's count has come a quarter round.
#[inline(always)]
pub(crate) fn laps() -> u32 {
    LAPS.load(std::sync::atomic::Ordering::Relaxed)
}

/// The right to rewrite a record; dropping it publishes.
pub(crate) struct Rewrite<'a> {
    record: &'a Record,
    next: u32,
}

impl Rewrite<'_> {
    pub(crate) fn place(&self, parent: Id, name: &Name<'_>) {
        for (slot, &word) in self.record.name.iter().zip(&name.words) {
            slot.store(word, Ordering::Relaxed);
        }
        // Release: who sees the new parent sees the horizon that was stored before, see `Core::horizon_above`.
        self.record.place.store(place(parent, name.hash()), Ordering::Release);
    }

    /// Of a directory: before its place, see `Core::horizon_above`.
    pub(crate) fn seed(&self, seed: u64, horizon: u32) {
        self.record.word.store(seed, Ordering::Relaxed);
        self.record.age.store(horizon, Ordering::Relaxed);
    }

    /// Of anything else.
    pub(crate) fn sight(&self, sight: Sight) {
        self.record.word.store(sight.word, Ordering::Relaxed);
        self.record.age.store(sight.generation, Ordering::Relaxed);
    }

    /// Of whatever there is.
    pub(crate) fn forget_horizon(&self) {
        if self.record.shape().is_directory() {
            self.record.set_horizon(0);
        }
    }

    pub(crate) fn shape(&self, shape: Shape) {
        self.record.shape.store(shape.0 as u16, Ordering::Relaxed);
    }

    pub(crate) fn flags(&self, set: u32, clear: u32) {
        self.shape(self.record.shape().without(clear).with(set));
    }

    /// Makes the record unfindable; its place stays readable for `..`.
    pub(crate) fn unlink(&self) {
        self.flags(0, Shape::LINKED | Shape::COMPLETE);
    }
}

impl Drop for Rewrite<'_> {
    fn drop(&mut self) {
        // R2, R6.
        self.record.seq.store(self.next, Ordering::Release);
    }
}
