//! The lookup record: one cache line with all that a walk reads of an entry.
//!
//! ```text
//!  0  seq         u32   odd while the record is rewritten                        itself
//!  4  flags       u16   length of the name; kind and flags                       [record seq]
//!  8  place       u64   parent << 32 | hash of the name in the parent            [record seq]
//! 16  handle      u64   inline handle: the inode, where its handle is a word     [record seq]
//! 24  generation  u32   how often the number was given to another entry          [record seq] while linked
//! 32  name        [u64; 4]  up to 32 bytes, or a 128-bit hash of a longer name   [record seq]
//! ```
//!
//! The generation changes between an entry's death and the reuse of its number: a reader of the new
//! entry's flags sees the new generation (R1). An entry that changes in place (`negative.rs`)
//! changes it in the rewrite.
//!
//! **The sequence protocol** (Boehm, "Can seqlocks get along with programming language memory
//! models?", 2012). A writer makes `seq` odd by compare-and-swap, which excludes other writers,
//! writes, and makes it even. A reader loads `seq`, reads, and compares `seq` at the end. Partners:
//!
//! | writer | reader | if the reader sees the writer's … |
//! |---|---|---|
//! | R1 `seq` = odd, **fence Release**, fields | fields, **fence Acquire** (R3), `seq` again | field, then it sees `seq` odd or later: differs |
//! | R2 fields, `seq` = even **Release** | `seq` **Acquire** (R4), fields | even value, then it sees all fields or newer |
//!
//! So an unchanged even `seq` means that the fields did not change in between.
//!
//! **Separate counts.** A [`Count`] repeats a record's sequence count, sixteen to a line, for the
//! path cache. During a rewrite it already has the value that `seq` gets at the end. The writer's
//! part comes between `seq` = odd and the fields:
//!
//! | writer | reader | if the reader … |
//! |---|---|---|
//! | R5 count, **fence Release** (R1), fields | fields, **fence Acquire**, count | sees a field, then it sees its count or a later one |
//! | R6 count, `seq` = even **Release** (R2) | `seq` **Acquire** (R4), anything, count | has seen the even value, then it sees no older count |
//!
//! Limit: a reader that sleeps through 2³¹ rewrites of a record may believe it unchanged. What
//! lasts longer than a walk compares the [`wraps`] as well.

use dentree_sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering, fence};
use dentree_sync::{Backoff, loom_switch_point};

use crate::Kind;
use crate::hash::name::Name;
use crate::table::chunks::Zeroed;
use crate::table::id::Id;

#[derive(Default)]
#[repr(C, align(64))]
pub(crate) struct Record {
    seq: AtomicU32,
    flags: AtomicU16,
    place: AtomicU64,
    handle: AtomicU64,
    generation: AtomicU32,
    name: [AtomicU64; 4],
}

#[cfg(not(any(loom, shuttle)))]
const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<Record>() == 64);
    assert!(offset_of!(Record, place) == 8);
    assert!(offset_of!(Record, handle) == 16);
    assert!(offset_of!(Record, flags) == 4);
    assert!(offset_of!(Record, generation) == 24);
    assert!(offset_of!(Record, name) == 32);
};

// SAFETY: atomics of zero bytes are zero, and need no drop.
unsafe impl Zeroed for Record {}

#[derive(Default)]
pub(crate) struct Count(AtomicU32);

// SAFETY: an atomic integer of zero bytes is zero.
unsafe impl Zeroed for Count {}

impl Count {
    #[inline(always)]
    pub(crate) fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Counts a wrap before storing the count that begins it. [record seq]
    fn set(&self, count: u32) {
        if count.is_multiple_of(WRAP) {
            WRAPS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
        // Release: see P2 in `path_cache.rs`.
        self.0.store(count, Ordering::Release);
    }
}

/// Name length, kind and flags. 16 bits, but wider in registers, as partial registers cost.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flags(u32);

impl Flags {
    const LEN: u32 = 0x00ff;
    const KIND: u32 = 0x0300;
    /// In the index under its place. Otherwise the record is free, being filled, or detached.
    const LINKED: u32 = 0x0400;
    /// Everyone may search this directory.
    pub(crate) const SEARCH: u32 = 0x0800;
    /// All entries of this directory are cached.
    pub(crate) const COMPLETE: u32 = 0x1000;
    pub(crate) const INLINE_HANDLE: u32 = 0x2000;

    const DIRECTORY: u32 = 0x0100;
    const SYMLINK: u32 = 0x0200;
    const OTHER: u32 = 0x0300;

    /// A linked record's flags. No kind means a negative entry.
    pub(crate) fn linked(kind: Option<Kind>, flags: u32, len: usize) -> Flags {
        debug_assert!(len <= Self::LEN as usize);
        let kind = match kind {
            None => 0,
            Some(Kind::Directory) => Self::DIRECTORY,
            Some(Kind::Symlink) => Self::SYMLINK,
            Some(Kind::Other) => Self::OTHER,
        };
        Flags(kind | flags | Self::LINKED | len as u32)
    }

    #[inline(always)]
    pub(crate) fn kind(self) -> Option<Kind> {
        match self.0 & Self::KIND {
            Self::DIRECTORY => Some(Kind::Directory),
            Self::SYMLINK => Some(Kind::Symlink),
            Self::OTHER => Some(Kind::Other),
            _ => None,
        }
    }

    #[inline(always)]
    pub(crate) fn is_negative(self) -> bool {
        self.0 & Self::KIND == 0
    }

    #[inline(always)]
    pub(crate) fn is_directory(self) -> bool {
        self.0 & Self::KIND == Self::DIRECTORY
    }

    #[inline(always)]
    pub(crate) fn is_symlink(self) -> bool {
        self.0 & Self::KIND == Self::SYMLINK
    }

    /// A walk passes through without further checks.
    #[inline(always)]
    pub(crate) fn is_open_directory(self) -> bool {
        let open = Self::DIRECTORY | Self::SEARCH;
        self.0 & (Self::KIND | Self::SEARCH) == open
    }

    /// A walk may end here without further checks: a directory or other, not a symbolic link.
    #[inline(always)]
    pub(crate) fn is_plain_end(self) -> bool {
        self.has(Self::DIRECTORY)
    }

    #[inline(always)]
    pub(crate) fn is_linked(self) -> bool {
        self.has(Self::LINKED)
    }

    #[inline(always)]
    pub(crate) fn has(self, flag: u32) -> bool {
        self.0 & flag != 0
    }

    pub(crate) fn name_len(self) -> usize {
        (self.0 & Self::LEN) as usize
    }

    pub(crate) fn renamed(self, len: usize) -> Flags {
        debug_assert!(len <= Self::LEN as usize);
        Flags(self.0 & !Self::LEN | len as u32)
    }

    pub(crate) fn with(self, set: u32) -> Flags {
        Flags(self.0 | set)
    }

    pub(crate) fn without(self, clear: u32) -> Flags {
        Flags(self.0 & !clear)
    }
}

/// The handle of an entry whose handle is a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct InlineHandle {
    pub(crate) word: u64,
    pub(crate) generation: u32,
}

fn place(parent: Id, hash: u32) -> u64 {
    u64::from(parent.0) << 32 | u64::from(hash)
}

impl Record {
    /// The sequence count, odd during a rewrite.
    #[inline(always)]
    pub(crate) fn begin(&self) -> u32 {
        // R4.
        self.seq.load(Ordering::Acquire)
    }

    /// Whether nothing was rewritten since [`begin`](Self::begin) returned `seq`, which was even.
    /// Call [`order_reads`] between the reads and this.
    #[inline(always)]
    pub(crate) fn is_unchanged(&self, seq: u32) -> bool {
        self.seq.load(Ordering::Relaxed) == seq
    }

    /// The flags, if this is linked below `parent` under `name`. Of a long name only length and
    /// hash are compared.
    #[inline(always)]
    pub(crate) fn flags_if_named(&self, parent: Id, name: &Name<'_>) -> Option<Flags> {
        let flags = self.flags();
        let expected = Flags::LINKED | (name.bytes.len() as u32 & Flags::LEN);
        let differing = |i: usize| self.name[i].load(Ordering::Relaxed) ^ name.words[i];
        let is_it = self.place.load(Ordering::Relaxed) == place(parent, name.hash())
            && flags.0 & (Flags::LEN | Flags::LINKED) == expected
            && differing(0) | differing(1) == 0
            // Names of one length end in the same word; the words after it are zero.
            && (name.bytes.len() < 16 || differing(2) | differing(3) == 0);
        is_it.then_some(flags)
    }

    #[inline]
    pub(crate) fn parent(&self) -> Id {
        Id((self.place.load(Ordering::Relaxed) >> 32) as u32)
    }

    #[inline]
    pub(crate) fn hash(&self) -> u32 {
        self.place.load(Ordering::Relaxed) as u32
    }

    #[inline(always)]
    pub(crate) fn flags(&self) -> Flags {
        Flags(u32::from(self.flags.load(Ordering::Relaxed)))
    }

    #[inline(always)]
    pub(crate) fn inline_handle(&self) -> InlineHandle {
        InlineHandle { word: self.handle.load(Ordering::Relaxed), generation: self.generation() }
    }

    #[inline(always)]
    pub(crate) fn generation(&self) -> u32 {
        self.generation.load(Ordering::Relaxed)
    }

    /// Makes all ids of the entry stale. The entry is dead or being rewritten.
    pub(crate) fn next_generation(&self) {
        self.generation.store(self.generation().wrapping_add(1), Ordering::Relaxed);
    }

    /// The flags, and a generation that is not older than they are.
    #[inline]
    pub(crate) fn flags_and_generation(&self) -> (Flags, u32) {
        let flags = self.flags();
        // R1: a reader of new flags sees the new generation.
        fence(Ordering::Acquire);
        (flags, self.generation())
    }

    /// The slot owns no handle any more. The entry is dead and its grace period over.
    pub(crate) fn clear_flags(&self) {
        self.flags.store(0, Ordering::Relaxed);
    }

    pub(crate) fn inline_name(&self) -> [u8; crate::hash::name::INLINE] {
        let mut bytes = [0; crate::hash::name::INLINE];
        for (chunk, word) in bytes.chunks_exact_mut(8).zip(&self.name) {
            chunk.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        bytes
    }

    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(crate) fn set_count(&self, count: &Count, seq: u32) {
        self.seq.store(seq, Ordering::Relaxed);
        count.0.store(seq, Ordering::Relaxed);
    }

    /// Excludes other writers and invalidates readers until the result is dropped. `count` is this
    /// record's.
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
                loom_switch_point();
                return Rewrite { record: self, next };
            }
            backoff.wait();
        }
    }
}

/// Orders earlier reads before later loads of counts.
#[inline(always)]
pub(crate) fn order_reads() {
    // R3.
    fence(Ordering::Acquire);
}

pub(crate) const WRAP: u32 = 1 << 28;
/// For all records of the process, as wraps are rare. `std`'s, as no model gets that far.
static WRAPS: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);

/// How often a record's count has passed a sixteenth of its range.
#[inline(always)]
pub(crate) fn wraps() -> u32 {
    WRAPS.load(std::sync::atomic::Ordering::Relaxed)
}

/// The write lock of a record; dropping it publishes.
pub(crate) struct Rewrite<'a> {
    record: &'a Record,
    next: u32,
}

impl Rewrite<'_> {
    pub(crate) fn place(&self, parent: Id, name: &Name<'_>) {
        for (slot, &word) in self.record.name.iter().zip(&name.words) {
            slot.store(word, Ordering::Relaxed);
        }
        self.record.place.store(place(parent, name.hash()), Ordering::Relaxed);
    }

    pub(crate) fn inline_handle(&self, word: u64) {
        self.record.handle.store(word, Ordering::Relaxed);
    }

    pub(crate) fn next_generation(&self) {
        self.record.next_generation();
    }

    pub(crate) fn flags(&self, flags: Flags) {
        self.record.flags.store(flags.0 as u16, Ordering::Relaxed);
    }

    pub(crate) fn change_flags(&self, set: u32, clear: u32) {
        self.flags(self.record.flags().without(clear).with(set));
    }

    /// Makes the record unfindable; its place stays readable for `..`.
    pub(crate) fn unlink(&self) {
        self.change_flags(0, Flags::LINKED | Flags::COMPLETE);
    }
}

impl Drop for Rewrite<'_> {
    fn drop(&mut self) {
        // R2, R6.
        self.record.seq.store(self.next, Ordering::Release);
    }
}
