//! Finds blocks with equal content by hash, so that they can be shared.
//!
//! A file system that is about to store a block asks which blocks have the same hash, compares, and shares one
//! instead of writing another: ext4 does so with extended attribute blocks. The cache holds hash keys and block
//! numbers only; it knows no file system and does no I/O. After Jan Kara's rewrite of the kernel's mbcache (2016),
//! whose operations it keeps; here look-ups take no lock, an entry is 3 words instead of 7, and the memory budget
//! is hard.
//!
//! ```
//! use dentree_mbcache::{Inserted, MbCache};
//!
//! let cache = MbCache::new(64 << 10);
//! let hash_of_content = 0x5EED;
//! assert_eq!(cache.insert(hash_of_content, 1234, true), Inserted::Yes);
//!
//! // Somebody else is about to store content with that hash: which blocks are worth comparing?
//! let mut candidate = cache.find_first(hash_of_content);
//! while let Some(entry) = candidate {
//!     if entry.value() == 1234 { // read block 1234: the same content, share it
//!         entry.touch();
//!         break;
//!     }
//!     candidate = entry.find_next();
//! }
//!
//! // The last user of block 1234 goes: nobody may find it any more. (The count of users is the caller's.)
//! # use dentree_mbcache::Users;
//! let mut users = 1;
//! let is_free = cache.leave(hash_of_content, 1234, |is_hidden| match users {
//!     1 if is_hidden => { users = 0; Ok::<_, std::io::Error>(Users::Alone) }
//!     1 => Ok(Users::Alone),
//!     _ => { users -= u32::from(!is_hidden); Ok(Users::Others { reusable: true }) }
//! })?;
//! assert!(is_free && cache.find_first(hash_of_content).is_none());
//! # Ok::<_, std::io::Error>(())
//! ```
//!
//! # Who protects what
//!
//! | what | guard |
//! |---|---|
//! | an entry's value and key | steady while anybody holds a reference |
//! | chains | written under the stripe's lock, read without |
//! | reference count and flags | one atomic word per entry |
//! | free slots, the pruner's hand, waiters | a lock each |
//!
//! Lock order: hand → stripes in ascending order (growth alone takes more than one) → free slots, waiters.
//!
//! Known limits: slots are kept for reuse until the cache is dropped, so [`MbCache::shrink_to`] bounds the entries,
//! not the memory that was once used within the budget.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod entry;
mod slab;
mod sync;
mod table;

use entry::{Entry, REFERENCED, REUSABLE, WAITED};
use slab::Slab;
use std::fmt;
use sync::{AtomicUsize, Condvar, Mutex, Ordering, lock};
use table::{Stripe, Table};

/// What an entry takes, in bytes: the slot, its part of the heads of all table sizes, its place on the free list.
pub const BYTES_PER_ENTRY: usize = size_of::<Entry>() + 8 + 4;

/// References to an entry that only its caller holds: the cache's own and the caller's.
const OURS: u64 = 2;

/// A cache of (key, value) pairs within a memory budget. See the [crate documentation](crate).
pub struct MbCache {
    slab: Slab,
    table: Table,
    /// Entries in the table. Changed by whoever adds or forgets one.
    entries: AtomicUsize,
    /// The slot that the pruner looks at next. [hand lock]
    hand: Mutex<usize>,
    /// Notified when an entry that somebody waits for is put.
    waiters: Mutex<()>,
    gone: Condvar,
}

/// What [`MbCache::insert`] did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inserted {
    /// The entry is there now.
    Yes,
    /// The very pair was there already.
    Duplicate,
    /// The budget is used up by entries that are held: the pair was not remembered.
    Full,
}

/// What a step of [`MbCache::leave`] came upon.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Users {
    /// There are others.
    Others {
        /// Whether the block has room for one more.
        reusable: bool,
    },
    /// There is nobody but the caller.
    Alone,
}

impl MbCache {
    /// An empty cache that will take at most `budget` bytes, and room for one entry at least.
    pub fn new(budget: usize) -> MbCache {
        let slots_max = (budget / BYTES_PER_ENTRY).clamp(1, 1 << 30);
        MbCache {
            slab: Slab::new(slots_max),
            table: Table::new(slots_max),
            entries: AtomicUsize::new(0),
            hand: Mutex::new(0),
            waiters: Mutex::new(()),
            gone: Condvar::new(),
        }
    }

    /// Remembers that block `value` has content with hash `key`; `reusable`: it has room for one more user.
    ///
    /// Where the budget is used up, entries that were not used for long go first.
    pub fn insert(&self, key: u32, value: u64, reusable: bool) -> Inserted {
        let Some((number, entry)) = self.slab.take().or_else(|| {
            self.shrink(1);
            self.slab.take()
        }) else {
            return Inserted::Full;
        };
        entry.fill(value);
        let stripe = self.table.stripe(key);
        if stripe.find(&self.slab, key, value).is_some() {
            drop(stripe);
            self.slab.give(number);
            return Inserted::Duplicate;
        }
        stripe.insert(key, number, entry);
        // Counted before it can be found: whoever takes it away must not bring the count below zero.
        let entries = self.entries.fetch_add(1, Ordering::Relaxed) + 1;
        entry.publish(reusable);
        drop(stripe);
        self.table.grow_for(&self.slab, entries);
        Inserted::Yes
    }

    /// The first reusable entry with this key. Takes no lock. May miss an entry while others change the cache.
    pub fn find_first(&self, key: u32) -> Option<EntryRef<'_>> {
        self.find(key, None, |entry| entry.state().is(REUSABLE))
    }

    /// The entry with this key and value, reusable or not. Takes no lock.
    pub fn get(&self, key: u32, value: u64) -> Option<EntryRef<'_>> {
        self.find(key, None, |entry| entry.value() == value)
    }

    fn find(&self, key: u32, after: Option<&Entry>, wanted: impl Fn(&Entry) -> bool) -> Option<EntryRef<'_>> {
        let entry = self.table.find(&self.slab, key, after, wanted, |entry| self.put(entry))?;
        Some(EntryRef { cache: self, entry })
    }

    /// Forgets the pair if nobody uses its entry; otherwise answers the entry, still in the cache, so that the
    /// caller can [wait](EntryRef::wait_unused) and try again.
    pub fn delete_or_get(&self, key: u32, value: u64) -> Option<EntryRef<'_>> {
        let stripe = self.table.stripe(key);
        // Nobody else can forget it while the stripe is locked.
        let entry = stripe.find(&self.slab, key, value)?;
        let seen = entry.state();
        if seen.refs() > 1 || !entry.claim(seen) {
            return entry.get().then_some(EntryRef { cache: self, entry });
        }
        self.forget(&stripe, entry);
        None
    }

    /// Ends the caller's use of block `value`, so that nobody comes to share it once its last user is gone. Answers whether
    /// the caller was that.
    ///
    /// `step` looks at the block's users and changes them in one atomic step, under whatever guards them. It is told
    /// whether the block is hidden:
    ///
    /// - not hidden: of several users it takes one away; alone, it changes nothing;
    /// - hidden, so that nobody can find the block and nobody holds its entry: alone, it may make an end of the block; if
    ///   somebody was quicker and is a user now, it changes nothing, and the block comes back to be found.
    ///
    /// A user of a block becomes one while it holds the entry, and only if there is a user already. The caller must hold no
    /// entry of this pair: it is waited for.
    ///
    /// # Errors
    /// That of `step`, at once. The block may be hidden then.
    pub fn leave<E>(
        &self,
        key: u32,
        value: u64,
        mut step: impl FnMut(bool) -> Result<Users, E>,
    ) -> Result<bool, E> {
        loop {
            if step(false)? != Users::Alone {
                return Ok(false);
            }
            self.hide(key, value);
            match step(true)? {
                Users::Alone => return Ok(true),
                Users::Others { reusable } => self.insert(key, value, reusable),
            };
        }
    }

    /// Forgets the pair, waiting for those who hold its entry.
    pub fn hide(&self, key: u32, value: u64) {
        while let Some(held) = self.delete_or_get(key, value) {
            held.wait_unused();
        }
    }

    /// Forgets up to `count` entries that nobody holds, those not used for long first. Answers how many.
    pub fn shrink(&self, count: usize) -> usize {
        let mut hand = lock(&self.hand);
        let used = self.slab.used();
        let mut forgotten = 0;
        // Twice around: the first round takes the second chances away.
        for _ in 0..2 * used {
            if forgotten == count {
                break;
            }
            let number = *hand % used;
            *hand = number + 1;
            forgotten += usize::from(self.forget_unused(number as u32));
        }
        forgotten
    }

    /// Forgets the entry in slot `number` unless it is held, free, or was used since the hand came by.
    fn forget_unused(&self, number: u32) -> bool {
        let Some(entry) = self.slab.slot(number) else { return false };
        let seen = entry.state();
        if seen.is(REFERENCED) {
            entry.clear(REFERENCED);
            return false;
        }
        // The key is that of the life that was seen, or the claim fails.
        let stripe = self.table.stripe(entry.link().key);
        let unused = seen.refs() == 1 && entry.claim(seen);
        if unused {
            self.forget(&stripe, entry);
        }
        unused
    }

    /// Frees the slot of a claimed entry.
    fn forget(&self, stripe: &Stripe<'_>, entry: &Entry) {
        if let Some(number) = stripe.remove(&self.slab, entry) {
            self.entries.fetch_sub(1, Ordering::Relaxed);
            self.slab.give(number);
        }
    }

    /// Forgets entries until at most `bytes` of them are left, or only held ones. Answers how many went.
    pub fn shrink_to(&self, bytes: usize) -> usize {
        let keep = bytes / BYTES_PER_ENTRY;
        self.shrink(self.len().saturating_sub(keep))
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.entries.load(Ordering::Relaxed)
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What the cache takes, in bytes.
    pub fn bytes(&self) -> usize {
        self.slab.bytes() + self.table.bytes()
    }

    /// Drops one reference.
    fn put(&self, entry: &Entry) {
        if entry.put().is(WAITED) {
            // Under the waiters' lock: a waiter either looks later and sees, or sleeps already and is woken.
            let _waiters = lock(&self.waiters);
            self.gone.notify_all();
        }
    }
}

/// A reference to an entry: while it is held, the entry's slot stands for the same key and value.
pub struct EntryRef<'c> {
    cache: &'c MbCache,
    entry: &'c Entry,
}

impl<'c> EntryRef<'c> {
    /// The hash key.
    pub fn key(&self) -> u32 {
        self.entry.link().key
    }

    /// The block (or inode) number.
    pub fn value(&self) -> u64 {
        self.entry.value()
    }

    /// The next reusable entry with the same key.
    pub fn find_next(self) -> Option<EntryRef<'c>> {
        self.cache.find(self.key(), Some(self.entry), |entry| entry.state().is(REUSABLE))
    }

    /// Notes that the entry was of use, so that it stays longer.
    pub fn touch(&self) {
        self.entry.set(REFERENCED);
    }

    /// Says whether the block has room for one more user. An entry without room is not found by key.
    pub fn set_reusable(&self, reusable: bool) {
        if reusable { self.entry.set(REUSABLE) } else { self.entry.clear(REUSABLE) }
    }

    /// Whether the block has room for one more user.
    pub fn is_reusable(&self) -> bool {
        self.entry.state().is(REUSABLE)
    }

    /// Waits until nobody else holds the entry. One caller may wait for an entry at a time: two would wait for
    /// each other.
    pub fn wait_unused(&self) {
        let mut waiters = lock(&self.cache.waiters);
        self.entry.set(WAITED);
        while self.entry.state().refs() > OURS {
            waiters = self.cache.gone.wait(waiters).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        self.entry.clear(WAITED);
    }
}

impl Drop for EntryRef<'_> {
    fn drop(&mut self) {
        self.cache.put(self.entry);
    }
}

impl fmt::Debug for EntryRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EntryRef").field("key", &self.key()).field("value", &self.value()).finish()
    }
}

impl fmt::Debug for MbCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MbCache").field("entries", &self.len()).field("bytes", &self.bytes()).finish()
    }
}
