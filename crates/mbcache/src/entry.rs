//! An entry: three atomic words in a type-stable slot.
//!
//! ```text
//! value   the block (or inode) number                           written only while refs = 0
//! link    key (32) │ next slot or end of chain (32)             [stripe lock]
//! state   generation (32) │ REUSABLE REFERENCED WAITED │ refs (24)
//! ```
//!
//! The kernel's entry has 7 words. This one has no LRU links, as the pruner sweeps the slots
//! (CLOCK), and links chains by slot number.
//!
//! A slot is free (`refs` 0). A thread takes it from the free list, fills, links and
//! [publishes](Entry::publish) it (`refs` 1, the cache's own). [`get`](Entry::get) and
//! [`put`](Entry::put) follow, until a thread with the stripe's lock [claims](Entry::claim) it
//! without another holder.

use dentree_sync::atomic::{AtomicU64, Ordering};

/// Found by key, as the block has room for one more user.
pub(crate) const REUSABLE: u64 = 1 << 24;
/// Used since the pruner's hand passed.
pub(crate) const REFERENCED: u64 = 1 << 25;
/// A thread waits for the other holders.
pub(crate) const WAITED: u64 = 1 << 26;
const REFS: u64 = REUSABLE - 1;
const GENERATION: u64 = 1 << 32;

pub(crate) struct Entry {
    value: AtomicU64,
    link: AtomicU64,
    state: AtomicU64,
}

/// A key and the next slot, in one word: a reader never pairs one entry's key with another's next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Link {
    pub(crate) key: u32,
    pub(crate) next: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct State(u64);

impl State {
    /// Number of holders, the cache included; 0 for a free slot.
    pub(crate) fn refs(self) -> u64 {
        self.0 & REFS
    }

    pub(crate) fn is(self, flag: u64) -> bool {
        self.0 & flag != 0
    }
}

impl Entry {
    pub(crate) fn free() -> Entry {
        Entry { value: AtomicU64::new(0), link: AtomicU64::new(0), state: AtomicU64::new(0) }
    }

    /// The block number. Stable while the entry is held.
    pub(crate) fn value(&self) -> u64 {
        self.value.load(Ordering::Relaxed)
    }

    /// Key and next slot.
    ///
    /// Acquire, partner: the release in [`set_link`](Entry::set_link). A reader of the new link
    /// sees the value written before it; a reader of the old link follows the old chain.
    pub(crate) fn link(&self) -> Link {
        let word = self.link.load(Ordering::Acquire);
        Link { key: (word >> 32) as u32, next: word as u32 }
    }

    /// [stripe]
    pub(crate) fn set_link(&self, link: Link) {
        self.link.store(u64::from(link.key) << 32 | u64::from(link.next), Ordering::Release);
    }

    /// Fills a free slot, which no [`get`](Entry::get) can hold.
    pub(crate) fn fill(&self, value: u64) {
        self.value.store(value, Ordering::Relaxed);
    }

    /// Gives a filled and linked slot the cache's reference.
    ///
    /// Release, partner: the acquire in [`get`](Entry::get). A reader sees `refs` 0 and skips the
    /// slot, or sees 1 and value and key of this generation.
    pub(crate) fn publish(&self, reusable: bool) {
        let generation = (self.state.load(Ordering::Relaxed) & !(GENERATION - 1)).wrapping_add(GENERATION);
        let reusable = if reusable { REUSABLE } else { 0 };
        self.state.store(generation | REFERENCED | reusable | 1, Ordering::Release);
    }

    /// Takes a reference unless the slot is free. The caller then checks key and value again, as
    /// the slot may have been reused.
    pub(crate) fn get(&self) -> bool {
        let one_more = |state| (1..REFS).contains(&(state & REFS)).then(|| state + 1);
        self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more).is_ok()
    }

    /// Drops a reference and returns the new state. `refs` stays above 0, as the cache keeps its
    /// own.
    ///
    /// Release, partner: the acquire in [`claim`](Entry::claim) and [`state`](Entry::state). A
    /// holder's accesses come before the slot's reuse, and before a waiter continues.
    pub(crate) fn put(&self) -> State {
        State(self.state.fetch_sub(1, Ordering::AcqRel) - 1)
    }

    /// Frees the slot if its state is still `seen`. The caller holds the stripe's lock and all of
    /// `seen`'s references. The generation tells a slot that was freed and filled meanwhile.
    pub(crate) fn claim(&self, seen: State) -> bool {
        let free = seen.0 & !(GENERATION - 1);
        self.state.compare_exchange(seen.0, free, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// References and flags.
    ///
    /// Acquire, partner: the releases in [`publish`](Entry::publish) and [`put`](Entry::put).
    pub(crate) fn state(&self) -> State {
        State(self.state.load(Ordering::Acquire))
    }

    /// Sets a flag; writes only a clear one.
    pub(crate) fn set(&self, flag: u64) {
        if !self.state().is(flag) {
            self.state.fetch_or(flag, Ordering::AcqRel);
        }
    }

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
    fn a_claim_fails_for_a_slot_that_was_reused() {
        let entry = Entry::free();
        entry.publish(true);
        let first = entry.state();
        assert!(entry.claim(first));
        entry.publish(true);
        assert!(!entry.claim(first));
        assert!(entry.claim(entry.state()));
    }
}
