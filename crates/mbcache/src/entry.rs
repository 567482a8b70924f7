//! An entry: three words, all atomic, in a slot that is never freed.
//!
//! ```text
//! value   the block (or inode) number                           written only while refs = 0
//! link    key (32) │ next slot or end of chain (32)             [stripe lock]
//! state   life (32) │ flags: REUSABLE REFERENCED WAITED │ refs (24)
//! ```
//!
//! The 2016 rewrite of the kernel's mbcache needs 7 words; the list heads of its LRU went, because the pruner
//! sweeps the slots themselves (CLOCK), and chains link by slot number.
//!
//! Life of a slot: free (`refs` 0) → filled and linked by the one thread that took it from the free list →
//! [published](Entry::publish) (`refs` 1, the cache's own reference) → any number of [`get`](Entry::get) and
//! [`put`](Entry::put) → [claimed](Entry::claim) by the one thread that forgets it, which holds the stripe's lock
//! and found no other holder (`refs` 0 again).

use crate::sync::{AtomicU64, Ordering};

/// An entry may be found by key: its block has room for one more user.
pub(crate) const REUSABLE: u64 = 1 << 24;
/// It was used since the pruner's hand came by.
pub(crate) const REFERENCED: u64 = 1 << 25;
/// Somebody waits for the other holders to go.
pub(crate) const WAITED: u64 = 1 << 26;
const REFS: u64 = REUSABLE - 1;
const ONE_LIFE: u64 = 1 << 32;

/// A slot of the slab.
pub(crate) struct Entry {
    value: AtomicU64,
    link: AtomicU64,
    state: AtomicU64,
}

/// A key and the next slot, as one word so that a reader never pairs one entry's key with another's next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Link {
    pub(crate) key: u32,
    pub(crate) next: u32,
}

/// A state as it was at one instant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct State(u64);

impl State {
    /// How many hold the entry, the cache included; 0: the slot is free.
    pub(crate) fn refs(self) -> u64 {
        self.0 & REFS
    }

    /// Whether a flag is set.
    pub(crate) fn is(self, flag: u64) -> bool {
        self.0 & flag != 0
    }
}

impl Entry {
    pub(crate) fn free() -> Entry {
        Entry { value: AtomicU64::new(0), link: AtomicU64::new(0), state: AtomicU64::new(0) }
    }

    /// What the entry stands for. Steady while the caller holds a reference.
    pub(crate) fn value(&self) -> u64 {
        self.value.load(Ordering::Relaxed)
    }

    /// Key and next slot.
    ///
    /// Acquire, partner: the release in [`set_link`](Entry::set_link). A reader that sees a slot's new link sees
    /// the value that was written before it; one that sees the old link goes where the old chain went.
    pub(crate) fn link(&self) -> Link {
        let word = self.link.load(Ordering::Acquire);
        Link { key: (word >> 32) as u32, next: word as u32 }
    }

    /// Needs the lock of the stripe that the entry is in, or is about to enter.
    pub(crate) fn set_link(&self, link: Link) {
        self.link.store(u64::from(link.key) << 32 | u64::from(link.next), Ordering::Release);
    }

    /// Fills a free slot. Nobody can hold it: with `refs` 0 every [`get`](Entry::get) fails.
    pub(crate) fn fill(&self, value: u64) {
        self.value.store(value, Ordering::Relaxed);
    }

    /// Begins a life: gives a filled and linked slot its first reference, the cache's own.
    ///
    /// Release, partner: the acquire in [`get`](Entry::get). A reader either finds `refs` 0 and passes by, or
    /// finds it 1 and with it the value and key of this life.
    pub(crate) fn publish(&self, reusable: bool) {
        let life = (self.state.load(Ordering::Relaxed) & !(ONE_LIFE - 1)).wrapping_add(ONE_LIFE);
        let reusable = if reusable { REUSABLE } else { 0 };
        self.state.store(life | REFERENCED | reusable | 1, Ordering::Release);
    }

    /// Takes a reference unless the slot is free. The caller then checks that it still stands for what it looked
    /// for: between reading the link and this call it may have begun another life.
    pub(crate) fn get(&self) -> bool {
        let one_more = |state| (1..REFS).contains(&(state & REFS)).then(|| state + 1);
        self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more).is_ok()
    }

    /// Drops a reference; answers the state left behind. The cache's own is never dropped here, so `refs` stays
    /// above 0.
    ///
    /// Release, partner: the acquire in [`claim`](Entry::claim) and [`state`](Entry::state). All that a holder
    /// did with the entry comes before the slot's next life, and before a waiter goes on.
    pub(crate) fn put(&self) -> State {
        State(self.state.fetch_sub(1, Ordering::AcqRel) - 1)
    }

    /// Ends the life that was `seen`, if nothing changed since: no holder came or went, no flag moved. The caller
    /// holds the stripe's lock and accounts for all of `seen`'s references.
    ///
    /// The life's number makes this exact: if the slot was freed and filled again meanwhile, with another key and
    /// so perhaps in another stripe, the states differ.
    pub(crate) fn claim(&self, seen: State) -> bool {
        let free = seen.0 & !(ONE_LIFE - 1);
        self.state.compare_exchange(seen.0, free, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// References and flags.
    ///
    /// Acquire, partner: the releases in [`publish`](Entry::publish) and [`put`](Entry::put).
    pub(crate) fn state(&self) -> State {
        State(self.state.load(Ordering::Acquire))
    }

    /// Sets a flag, without writing where it is set already.
    pub(crate) fn set(&self, flag: u64) {
        if !self.state().is(flag) {
            self.state.fetch_or(flag, Ordering::AcqRel);
        }
    }

    /// Clears a flag.
    pub(crate) fn clear(&self, flag: u64) {
        self.state.fetch_and(!flag, Ordering::AcqRel);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_three_words() {
        assert_eq!(size_of::<Entry>(), 24);
    }

    #[test]
    fn a_claim_fails_for_a_slot_that_began_another_life() {
        let entry = Entry::free();
        entry.publish(true);
        let first = entry.state();
        assert!(entry.claim(first));
        entry.publish(true);
        assert!(!entry.claim(first));
        assert!(entry.claim(entry.state()));
    }
}
