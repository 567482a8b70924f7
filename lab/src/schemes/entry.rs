//! An entry's fields and their placement: the subject of the mail "place d_hash close to d_parent
//! and d_name" (2005).
//!
//! ```text
//! Apart     chain │ written by users ║ key │ name    link and key in two lines, as before the mail
//! Together  chain │ key │ name ║ written by users    a chain walk reads one line
//! Split     chain │ key │ name, in another array: written by users
//! ```
//! `║` ends a cache line if entries are aligned to lines and four words of the name are inline.

use std::fmt::Debug;
use std::ops::Deref;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

use prefetch_index::prefetch_index;

/// An entry, by number. Valid while a reference is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dentry(pub(super) u32);

impl Dentry {
    /// The root directory, always referenced.
    pub const ROOT: Self = Self(0);

    pub(super) fn index(self) -> usize {
        self.0 as usize
    }

    /// The number, for callers that index arrays of their own by it, such as locks.
    pub fn number(self) -> usize {
        self.index()
    }
}

/// The lock bit in a [`Link`], used in the heads of chains under a bit lock.
pub(super) const LINK_LOCK_BIT: u32 = 31;
const NUMBER: u32 = (1 << LINK_LOCK_BIT) - 1;
/// The null link.
const NONE: u32 = NUMBER;
/// The most entries that numbers can name.
pub(super) const ENTRIES_MAX: usize = NONE as usize;

/// A pointer to an entry, or null.
///
/// Loads acquire and stores release: readers without a lock see a complete entry behind a link.
/// Under a lock relaxed would do; on x86 acquire and release are free.
#[derive(Debug)]
pub(super) struct Link(AtomicU32);

impl Default for Link {
    fn default() -> Self {
        Self(AtomicU32::new(NONE))
    }
}

impl Link {
    #[inline]
    pub(super) fn get(&self) -> Option<Dentry> {
        let number = self.0.load(Acquire) & NUMBER;
        (number != NONE).then_some(Dentry(number))
    }

    /// Keeps the lock bit: only the holder of the bit changes a link whose bit is set.
    #[inline]
    pub(super) fn set(&self, to: Option<Dentry>) {
        let lock = self.0.load(Relaxed) & !NUMBER;
        self.0.store(lock | to.map_or(NONE, |dentry| dentry.0), Release);
    }

    /// The word with the lock bit.
    pub(super) fn word(&self) -> &AtomicU32 {
        &self.0
    }
}

/// `list_head`: links to the neighbours in a list.
#[derive(Debug, Default)]
pub(super) struct ListNode {
    pub(super) next: Link,
    pub(super) prev: Link,
}

/// `d_hash`: links of the hash chain.
#[derive(Debug, Default)]
pub struct Chain {
    pub(super) node: ListNode,
    /// `d_nexthash`: the next entry of the chain at the time of unlinking (scheme 8).
    pub(super) saved_next: Link,
    /// `d_seq`: odd while the key changes (scheme 11).
    pub(super) seq: AtomicU32,
}

/// `d_parent` and `d_name`, without the name's bytes.
#[derive(Debug, Default)]
pub struct Key {
    pub(super) hash: AtomicU32,
    pub(super) parent: Link,
    pub(super) length: AtomicU32,
    /// [`HASHED`], [`UNLINKED`].
    pub(super) state: AtomicU32,
}

/// The entry is in a hash chain.
pub(super) const HASHED: u32 = 1;
/// `DCACHE_UNLINKED`: readers on this entry continue at `saved_next` (scheme 8).
pub(super) const UNLINKED: u32 = 2;

/// Fields that users of an entry write.
#[derive(Debug, Default)]
pub struct Written {
    /// `d_count`, with [`COUNT_LOCK_BIT`] and [`DEAD`] above it.
    pub(super) count: AtomicU32,
    /// [`ON_LRU`], [`REFERENCED`].
    pub(super) flags: AtomicU32,
    /// 0 in a negative entry.
    pub(super) inode: AtomicU64,
    pub(super) children: Link,
    pub(super) sibling: ListNode,
    pub(super) lru: ListNode,
    pub(super) alias: ListNode,
}

/// `d_lock`, in one word with the count as in the kernel's `lockref`.
pub(super) const COUNT_LOCK_BIT: u32 = 31;
/// The entry is being freed: no reference can be taken (scheme 11).
pub(super) const DEAD: u32 = 1 << 30;
/// The bits of the count.
pub(super) const COUNT: u32 = DEAD - 1;

/// The entry is on an LRU list.
pub(super) const ON_LRU: u32 = 1;
/// `DCACHE_REFERENCED`: looked up since the last pruning.
pub(super) const REFERENCED: u32 = 2;

const _: () = assert!(size_of::<Chain>() == 16 && size_of::<Key>() == 16 && size_of::<Written>() == 48);

/// The placement of an entry's fields in memory.
pub trait Layout: Debug + Send + Sync + 'static {
    /// Bytes of one entry.
    const BYTES: usize;

    /// An arena of this many entries.
    fn new(entries: usize) -> Self;
    /// Links of the hash chain.
    fn chain(&self, dentry: Dentry) -> &Chain;
    /// What a lookup compares before the name.
    fn key(&self, dentry: Dentry) -> &Key;
    /// The name's inline words.
    fn name(&self, dentry: Dentry) -> &[AtomicU64];
    /// Fields that users write.
    fn written(&self, dentry: Dentry) -> &Written;
    /// Prefetches the entry's first cache line.
    fn prefetch(&self, dentry: Dentry);
}

/// The alignment of entries.
pub trait Alignment: Debug + Send + Sync + 'static {
    /// One entry in the arena.
    type Slot<T: Debug + Default + Send + Sync + 'static>: Debug
        + Default
        + Send
        + Sync
        + Deref<Target = T>
        + 'static;
}

/// Entries without padding; their size need not divide a cache line.
#[derive(Debug)]
pub struct Dense;

/// Entries aligned to cache lines of 64 bytes.
#[derive(Debug)]
pub struct Aligned;

/// A slot of [`Dense`].
#[derive(Debug, Default)]
pub struct DenseSlot<T>(T);

/// A slot of [`Aligned`].
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct AlignedSlot<T>(T);

impl<T> Deref for DenseSlot<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Deref for AlignedSlot<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl Alignment for Dense {
    type Slot<T: Debug + Default + Send + Sync + 'static> = DenseSlot<T>;
}

impl Alignment for Aligned {
    type Slot<T: Debug + Default + Send + Sync + 'static> = AlignedSlot<T>;
}

/// The name's inline part, `DNAME_INLINE_LEN` in words of eight bytes.
#[derive(Debug)]
#[repr(transparent)]
pub struct Inline<const WORDS: usize>([AtomicU64; WORDS]);

impl<const WORDS: usize> Default for Inline<WORDS> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

/// The layout of today's kernel and of Dentree: one line that lookups read, one that users write,
/// 32 bytes of name.
pub type Standard = Together<4, Aligned>;

/// Implements [`Layout`] for entries in one array.
macro_rules! in_one_array {
    ($layout:ident of $entry:ident) => {
        impl<const WORDS: usize, A: Alignment> Layout for $layout<WORDS, A> {
            const BYTES: usize = size_of::<A::Slot<$entry<WORDS>>>();

            fn new(entries: usize) -> Self {
                Self(slots(entries))
            }
            #[inline]
            fn chain(&self, dentry: Dentry) -> &Chain {
                &self.0[dentry.index()].chain
            }
            #[inline]
            fn key(&self, dentry: Dentry) -> &Key {
                &self.0[dentry.index()].key
            }
            #[inline]
            fn name(&self, dentry: Dentry) -> &[AtomicU64] {
                &self.0[dentry.index()].name.0
            }
            #[inline]
            fn written(&self, dentry: Dentry) -> &Written {
                &self.0[dentry.index()].written
            }
            #[inline]
            fn prefetch(&self, dentry: Dentry) {
                prefetch_index(&self.0, dentry.index());
            }
        }
    };
}

/// See [`Together`].
#[derive(Debug, Default)]
#[repr(C)]
pub struct TogetherEntry<const WORDS: usize> {
    chain: Chain,
    key: Key,
    name: Inline<WORDS>,
    written: Written,
}

/// The hash link next to the parent and the name.
#[derive(Debug)]
pub struct Together<const WORDS: usize, A: Alignment>(Box<[A::Slot<TogetherEntry<WORDS>>]>);

in_one_array!(Together of TogetherEntry);

/// See [`Apart`].
#[derive(Debug, Default)]
#[repr(C)]
pub struct ApartEntry<const WORDS: usize> {
    chain: Chain,
    written: Written,
    key: Key,
    name: Inline<WORDS>,
}

/// The hash link one cache line away from the parent and the name.
#[derive(Debug)]
pub struct Apart<const WORDS: usize, A: Alignment>(Box<[A::Slot<ApartEntry<WORDS>>]>);

in_one_array!(Apart of ApartEntry);

/// See [`Split`].
#[derive(Debug, Default)]
#[repr(C)]
pub struct ReadMostly<const WORDS: usize> {
    chain: Chain,
    key: Key,
    name: Inline<WORDS>,
}

/// One array that lookups read, another that users write.
#[derive(Debug)]
pub struct Split<const WORDS: usize, A: Alignment> {
    read: Box<[A::Slot<ReadMostly<WORDS>>]>,
    written: Box<[A::Slot<Written>]>,
}

impl<const WORDS: usize, A: Alignment> Layout for Split<WORDS, A> {
    const BYTES: usize = size_of::<A::Slot<ReadMostly<WORDS>>>() + size_of::<A::Slot<Written>>();

    fn new(entries: usize) -> Self {
        Self { read: slots(entries), written: slots(entries) }
    }
    #[inline]
    fn chain(&self, dentry: Dentry) -> &Chain {
        &self.read[dentry.index()].chain
    }
    #[inline]
    fn key(&self, dentry: Dentry) -> &Key {
        &self.read[dentry.index()].key
    }
    #[inline]
    fn name(&self, dentry: Dentry) -> &[AtomicU64] {
        &self.read[dentry.index()].name.0
    }
    #[inline]
    fn written(&self, dentry: Dentry) -> &Written {
        &self.written[dentry.index()]
    }
    #[inline]
    fn prefetch(&self, dentry: Dentry) {
        prefetch_index(&self.read, dentry.index());
    }
}

fn slots<T: Default>(entries: usize) -> Box<[T]> {
    std::iter::repeat_with(T::default).take(entries).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layouts_take_the_room_that_their_picture_shows() {
        assert_eq!(Together::<4, Aligned>::BYTES, 128);
        assert_eq!(Together::<4, Dense>::BYTES, 112);
        assert_eq!(Apart::<4, Aligned>::BYTES, 128);
        assert_eq!(Split::<4, Aligned>::BYTES, 128);
        assert_eq!(Together::<2, Dense>::BYTES, 96);
        assert_eq!(std::mem::offset_of!(TogetherEntry<4>, written), 64);
        assert_eq!(std::mem::offset_of!(ApartEntry<4>, key), 64);
    }

    #[test]
    fn a_link_keeps_its_lock_bit() {
        let link = Link::default();
        link.word().fetch_or(1 << LINK_LOCK_BIT, Relaxed);
        link.set(Some(Dentry(7)));
        assert_eq!((link.get(), link.word().load(Relaxed) >> LINK_LOCK_BIT), (Some(Dentry(7)), 1));
        link.set(None);
        assert_eq!(link.get(), None);
    }
}
