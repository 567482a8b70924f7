//! Eviction: by the clock, of one entry, or below a directory.

use dentree_sync::atomic::Ordering;

use crate::Handle;
use crate::core::Core;
use crate::reclaim::clock::Marks;
use crate::table::id::Id;
use crate::table::record::Flags;

/// Victims chosen under one lock.
const BATCH: usize = 32;
/// Slots and words of marks that the hand reads under one lock.
const STRIDE: usize = 1024;

impl<H: Handle> Core<H> {
    /// Enlists an entry of a scan, to be evicted first unless it is used.
    pub(crate) fn enlist_cold(&self, id: Id) {
        // The ticket that falls out of the ring has become an ordinary entry.
        self.clock.lock().cold.push((id, self.record(id).generation()));
    }

    /// Enlists a negative entry and returns the one to evict for it. A used one gets a second
    /// chance, at the expense of the next.
    #[must_use]
    pub(crate) fn enlist_negative(&self, id: Id) -> Option<Id> {
        let mut clock = self.clock.lock();
        let mut ticket = clock.negative.push((id, self.record(id).generation()))?;
        for _ in 0..BATCH {
            let (oldest, generation) = ticket;
            if self.record(oldest).generation() != generation {
                return None;
            }
            if !self.mark(oldest).is_used() {
                break;
            }
            self.mark(oldest).clear();
            ticket = clock.negative.push(ticket)?;
        }
        Some(ticket.0)
    }

    /// Without reserved bytes.
    pub(crate) fn bytes_in_use(&self) -> usize {
        self.memory.used().saturating_sub(self.unallocated_bytes())
    }

    /// Reserved for rings and path cache, and not allocated yet.
    pub(crate) fn unallocated_bytes(&self) -> usize {
        self.clock.lock().unallocated_bytes() + self.paths.unallocated_bytes()
    }

    /// Evicts about [`BATCH`] entries; 0 means that nothing can be evicted.
    pub(crate) fn evict_batch(&self) -> usize {
        self.prune(1)
    }

    /// Evicts `n` to `n` + [`BATCH`] entries, cold and unused ones first, or what the hand finds in
    /// two rounds. Returns their number.
    pub(crate) fn prune(&self, n: usize) -> usize {
        let slots = self.high_water();
        let (mut pruned, mut ends) = (0, 0);
        let mut victims = Vec::with_capacity(BATCH);
        // Other threads may turn the hand too, so the number of strides is limited as well.
        let strides = 4 * slots as usize / STRIDE + 4;
        for _ in 0..strides {
            ends += u32::from(self.choose(&mut victims, slots));
            pruned += victims.drain(..).filter(|&id| self.evict(id)).count();
            // The first whole round may only clear marks; the one under way is not whole.
            if pruned >= n || ends == 3 {
                break;
            }
        }
        pruned
    }

    /// Chooses victims from probation, then by the hand. Returns whether the hand reached the end.
    fn choose(&self, victims: &mut Vec<Id>, slots: u32) -> bool {
        let mut clock = self.clock.lock();
        let quota = clock.cold.limit / 2;
        while victims.len() < BATCH && clock.cold.queue.len() > quota {
            let Some((id, generation)) = clock.cold.queue.pop_front() else { break };
            if self.record(id).generation() == generation && self.may_evict(id) {
                victims.push(id);
            }
        }
        let (words, mut looks) = (slots.div_ceil(Marks::SLOTS), 0);
        while looks < STRIDE && victims.len() < BATCH {
            let Some(word) = self.marks.next(clock.hand, words) else {
                clock.hand = 0;
                return true;
            };
            let occupied = self.marks.occupied(word);
            let met = occupied.clone().count();
            if !victims.is_empty() && victims.len() + met > BATCH {
                break;
            }
            clock.hand = word + 1;
            looks += 1 + met;
            // Neither entry 0 nor slots that were never made.
            victims.extend(occupied.filter(|&id| id != Id::NONE && id.0 < slots && self.may_evict(id)));
        }
        false
    }

    /// Whether to evict an entry now; clears its mark if not.
    fn may_evict(&self, id: Id) -> bool {
        if !self.record(id).flags().is_linked() || !self.dentry(id).is_evictable() {
            return false;
        }
        let chance = self.mark(id).is_used();
        if chance {
            self.mark(id).clear();
        }
        !chance
    }

    /// Evicts an entry without users and children.
    pub(crate) fn evict(&self, id: Id) -> bool {
        let record = self.record(id);
        let parent = record.parent();
        {
            let _dir = self.lock_dir(parent);
            // The locked directory cannot change. A reused slot may hold another entry, which may
            // be evicted as well.
            let flags = record.flags();
            if !flags.is_linked() || record.parent() != parent || !self.dentry(id).kill_unused() {
                return false;
            }
            if !flags.is_negative() {
                self.lose_completeness(parent);
            }
            self.unhash(parent, id);
        }
        self.evicted.fetch_add(1, Ordering::Relaxed);
        self.retire_entry(id);
        true
    }

    /// Evicts all unused entries below `dir`, leaves first: select_parent. Returns their number.
    pub(crate) fn prune_below(&self, dir: Id) -> usize {
        let (mut dirs, mut at, mut pruned) = (vec![dir], 0, 0);
        // Top down, then back up, as children go before their directory.
        while let Some(&dir) = dirs.get(at) {
            let _dir = self.lock_dir(dir);
            dirs.extend(self.children(dir).filter(|&id| self.dentry(id).first_child.get() != Id::NONE));
            at += 1;
        }
        for dir in dirs.into_iter().rev() {
            let children: Vec<Id> = {
                let _dir = self.lock_dir(dir);
                self.children(dir).filter(|&id| self.dentry(id).is_evictable()).collect()
            };
            pruned += children.into_iter().filter(|&id| self.evict(id)).count();
        }
        pruned
    }

    /// Positive entries, held.
    pub(crate) fn hold_children(&self, dir: Id) -> Vec<Id> {
        let _dir = self.lock_dir(dir);
        let is_positive = |id: &Id| !self.record(*id).flags().is_negative();
        self.children(dir).filter(|id| is_positive(id) && self.hold(*id)).collect()
    }

    /// An entry of `dir` leaves the cache though the file system has it. [dir lock]
    pub(crate) fn lose_completeness(&self, dir: Id) {
        self.dentry(dir).note_change();
        if self.record(dir).flags().has(Flags::COMPLETE) {
            // Before the entry leaves the index, so that a walk that misses it finds this record
            // changed.
            self.rewrite(dir).change_flags(0, Flags::COMPLETE);
        }
    }
}
