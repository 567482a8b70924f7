//! Finds blocks with equal content by hash, so that inodes can share them.
//!
//! Before a file system stores a block, it looks up blocks with the same hash, compares their
//! content, and shares one: ext4 does so with extended attribute blocks. The cache holds hash keys
//! and block numbers; it knows no file system and does no I/O. Its operations are those of the
//! kernel's mbcache (Jan Kara, 2016). Lookups take no lock, an entry has 3 words instead of 7, and
//! the memory budget is hard.
//!
//! ```
//! use dentree_mbcache::{Inserted, MbCache};
//!
//! let cache = MbCache::new(64 << 10);
//! let hash_of_content = 0x5EED;
//! assert_eq!(cache.insert(hash_of_content, 1234, true), Inserted::Yes);
//!
//! // Another inode is about to store content with that hash: which blocks are worth comparing?
//! let mut candidate = cache.find_first(hash_of_content);
//! while let Some(entry) = candidate {
//!     if entry.value() == 1234 { // read block 1234: the same content, share it
//!         entry.touch();
//!         break;
//!     }
//!     candidate = entry.find_next();
//! }
//!
//! // The last user of block 1234 leaves it. The caller counts the users.
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
//! # Locking
//!
//! | data | protected by |
//! |---|---|
//! | value and key of an entry | stable while a reference is held |
//! | chains | stripe lock for writing; read without |
//! | reference count and flags | one atomic word per entry |
//! | free slots, the pruner's hand, waiters | a lock each |
//!
//! Lock order: hand → stripes in ascending order (only growth takes several) → free slots, waiters.
//!
//! Known limit: slots are kept until the cache is dropped. [`MbCache::shrink_to`] bounds the
//! entries, not the memory once used.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod entry;
mod slab;
mod table;

use dentree_sync::atomic::{AtomicUsize, Ordering};
use dentree_sync::{Condvar, Mutex};
use entry::{Entry, REFERENCED, REUSABLE, WAITED};
use slab::Slab;
use std::fmt;
use table::{Stripe, Table};

/// Bytes of an entry: its slot, its share of the heads of all table sizes, its place on the free
/// list.
pub const BYTES_PER_ENTRY: usize = size_of::<Entry>() + 8 + 4;

/// References to an entry that only the caller holds: the cache's and the caller's.
const OURS: u64 = 2;

/// A cache of (key, value) pairs within a memory budget. See the [crate documentation](crate).
pub struct MbCache {
    slab: Slab,
    table: Table,
    entries: AtomicUsize,
    /// The pruner's next slot. [hand lock]
    hand: Mutex<usize>,
    /// For threads that wait until an entry has no other holder.
    waiters: Mutex<()>,
    gone: Condvar,
}

/// Result of [`MbCache::insert`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inserted {
    /// The entry is in the cache.
    Yes,
    /// The pair was in the cache before.
    Duplicate,
    /// All entries of the budget are held, so the pair is not cached.
    Full,
}

/// What a step of [`MbCache::leave`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Users {
    /// The block has other users.
    Others {
        /// The block has room for one more.
        reusable: bool,
    },
    /// The caller is the only user.
    Alone,
}

impl MbCache {
    /// An empty cache of at most `budget` bytes, but for at least one entry.
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

    /// Caches that block `value` has content with hash `key`. `reusable`: it has room for one more
    /// user. Prunes an unused entry (CLOCK) if the budget is used up.
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
        // Counted before it can be found, as its removal must not bring the count below zero.
        let entries = self.entries.fetch_add(1, Ordering::Relaxed) + 1;
        entry.publish(reusable);
        drop(stripe);
        self.table.grow_for(&self.slab, entries);
        Inserted::Yes
    }

    /// The first reusable entry with this key. Takes no lock. May miss an entry that is being
    /// changed.
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

    /// Removes the pair if its entry is not held. Otherwise returns the entry, still in the cache:
    /// the caller [waits](EntryRef::wait_unused) and tries again.
    pub fn delete_or_get(&self, key: u32, value: u64) -> Option<EntryRef<'_>> {
        let stripe = self.table.stripe(key);
        // The stripe's lock prevents its removal.
        let entry = stripe.find(&self.slab, key, value)?;
        let seen = entry.state();
        if seen.refs() > 1 || !entry.claim(seen) {
            return entry.get().then_some(EntryRef { cache: self, entry });
        }
        self.remove(&stripe, entry);
        None
    }

    /// Ends the caller's use of block `value`. Returns whether it was the last user; then there can
    /// be no new one.
    ///
    /// `step` changes the number of users atomically, under the caller's own lock. Its argument
    /// tells whether the block is hidden:
    ///
    /// - not hidden: with several users it removes one; with one it changes nothing;
    /// - hidden (not to be found, no entry held): with one user it may free the block; with more it
    ///   changes nothing, and the block can be found again.
    ///
    /// A thread becomes a user only while it holds the entry, and only of a block that has a user.
    /// The caller must hold no entry of this pair, as `leave` waits for it.
    ///
    /// # Errors
    /// Those of `step`, at once. The block may then be hidden.
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

    /// Removes the pair, and waits for the holders of its entry.
    pub fn hide(&self, key: u32, value: u64) {
        while let Some(held) = self.delete_or_get(key, value) {
            held.wait_unused();
        }
    }

    /// Removes up to `count` unused entries in CLOCK order. Returns their number.
    pub fn shrink(&self, count: usize) -> usize {
        let mut hand = self.hand.lock();
        let used = self.slab.used();
        let mut removed = 0;
        // Two rounds, as the first clears the reference flags.
        for _ in 0..2 * used {
            if removed == count {
                break;
            }
            let number = *hand % used;
            *hand = number + 1;
            removed += usize::from(self.remove_unused(number as u32));
        }
        removed
    }

    /// Removes the entry in slot `number` unless it is free, held, or used since the hand passed.
    fn remove_unused(&self, number: u32) -> bool {
        let Some(entry) = self.slab.slot(number) else { return false };
        let seen = entry.state();
        if seen.is(REFERENCED) {
            entry.clear(REFERENCED);
            return false;
        }
        // The claim fails if the key is no longer that of `seen`.
        let stripe = self.table.stripe(entry.link().key);
        let unused = seen.refs() == 1 && entry.claim(seen);
        if unused {
            self.remove(&stripe, entry);
        }
        unused
    }

    fn remove(&self, stripe: &Stripe<'_>, entry: &Entry) {
        if let Some(number) = stripe.remove(&self.slab, entry) {
            self.entries.fetch_sub(1, Ordering::Relaxed);
            self.slab.give(number);
        }
    }

    /// Removes unused entries until at most `bytes` of entries are left. Returns the number
    /// removed.
    pub fn shrink_to(&self, bytes: usize) -> usize {
        let keep = bytes / BYTES_PER_ENTRY;
        self.shrink(self.len().saturating_sub(keep))
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.load(Ordering::Relaxed)
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Memory in bytes.
    pub fn bytes(&self) -> usize {
        self.slab.bytes() + self.table.bytes()
    }

    fn put(&self, entry: &Entry) {
        if entry.put().is(WAITED) {
            // Under the waiters' lock, so that a waiter either sees the state later, or sleeps and
            // is woken.
            let _waiters = self.waiters.lock();
            self.gone.notify_all();
        }
    }
}

/// A reference to an entry, whose key and value are stable while it is held.
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

    /// Marks the entry as used, so that it stays longer.
    pub fn touch(&self) {
        self.entry.set(REFERENCED);
    }

    /// Sets whether the block has room for one more user. Without it the entry is not found by key.
    pub fn set_reusable(&self, reusable: bool) {
        if reusable { self.entry.set(REUSABLE) } else { self.entry.clear(REUSABLE) }
    }

    /// Whether the block has room for one more user.
    pub fn is_reusable(&self) -> bool {
        self.entry.state().is(REUSABLE)
    }

    /// Waits until the caller is the only holder. Only one caller may wait for an entry: two would
    /// wait for each other.
    pub fn wait_unused(&self) {
        let mut waiters = self.cache.waiters.lock();
        self.entry.set(WAITED);
        while self.entry.state().refs() > OURS {
            waiters = self.cache.gone.wait(waiters);
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
