//! Eviction: what the clock chooses, one entry, or all below a directory.

use dentree_sync::atomic::Ordering;

use crate::Handle;
use crate::core::Core;
use crate::reclaim::clock::Marks;
use crate::table::id::Id;
use crate::table::record::Flags;

/// Victims per collection: the clock's lock is taken once for so many.
const BATCH: usize = 32;
/// Slots and words of marks that the hand looks at under one lock.
const STRIDE: usize = 1024;

impl<H: Handle> Core<H> {
    /// Enlists an entry that a scan brought in: it goes first unless it is used.
    pub(crate) fn enlist_cold(&self, id: Id) {
        // What is pushed out of probation at its far end has become an ordinary entry.
        self.clock.lock().cold.push((id, self.record(id).generation()));
    }

    /// Enlists a negative entry; returns the one that has to go for it. That one gets a second
    /// chance if it was used, at the expense of the next.
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

    /// What is in use, without what is only set aside.
    pub(crate) fn bytes_in_use(&self) -> usize {
        self.memory.used().saturating_sub(self.bytes_to_come())
    }

    /// Bytes that `used` counts already for the rings and the path cache, and that they do not take
    /// yet.
    pub(crate) fn bytes_to_come(&self) -> usize {
        self.clock.lock().bytes_to_come() + self.paths.bytes_to_come()
    }

    /// Evicts some [`BATCH`] entries; 0 means that nothing can be evicted.
    pub(crate) fn evict_batch(&self) -> usize {
        self.prune(1)
    }

    /// Evicts at least `n` entries and at most [`BATCH`] more, cold and unused ones first, or all
    /// that the hand meets in two rounds. Returns how many went.
    pub(crate) fn prune(&self, n: usize) -> usize {
        let slots = self.high_water();
        let (mut pruned, mut ends) = (0, 0);
        let mut victims = Vec::with_capacity(BATCH);
        // Other threads may turn the hand too, so the strides of three rounds are a limit as well.
        let strides = 4 * slots as usize / STRIDE + 4;
        for _ in 0..strides {
            ends += u32::from(self.choose(&mut victims, slots));
            pruned += victims.drain(..).filter(|&id| self.evict(id)).count();
            // The first whole round may only clear marks; the one under way at the call is no
            // whole.
            if pruned >= n || ends == 3 {
                break;
            }
        }
        pruned
    }

    /// Chooses victims: from probation, then as the hand meets them. Returns whether the hand has
    /// come to the end of the slots.
    fn choose(&self, victims: &mut Vec<Id>, slots: u32) -> bool {
        let mut clock = self.clock.lock();
        let quota = clock.cold.limit / 2;
        while victims.len() < BATCH && clock.cold.queue.len() > quota {
            let Some((id, generation)) = clock.cold.queue.pop_front() else { break };
            if self.record(id).generation() == generation && self.may_go(id) {
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
            // Neither entry 0, which is none, nor those of the last word that were never made.
            victims.extend(occupied.filter(|&id| id != Id::NONE && id.0 < slots && self.may_go(id)));
        }
        false
    }

    /// Whether the clock lets an entry go now; takes its chance away if not.
    fn may_go(&self, id: Id) -> bool {
        if !self.record(id).flags().is_linked() || !self.dentry(id).is_evictable() {
            return false;
        }
        let chance = self.mark(id).is_used();
        if chance {
            self.mark(id).clear();
        }
        !chance
    }

    /// Evicts one entry if it is not held and nothing is below it.
    pub(crate) fn evict(&self, id: Id) -> bool {
        let record = self.record(id);
        let parent = record.parent();
        {
            let _dir = self.lock_dir(parent);
            // While the directory is locked nothing enters or leaves it; what the slot holds now
            // may be another entry than the one that was chosen, and may go as well.
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

    /// Evicts all below `dir` that is not in use, leaves first: select_parent. Returns how many
    /// went.
    pub(crate) fn prune_below(&self, dir: Id) -> usize {
        let (mut dirs, mut at, mut pruned) = (vec![dir], 0, 0);
        // From the top down, then back up: a directory can go only after what is in it.
        while let Some(&dir) = dirs.get(at) {
            let _dir = self.lock_dir(dir);
            dirs.extend(self.children(dir).filter(|&id| self.dentry(id).first_child() != Id::NONE));
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

    /// The positive entries of a directory that are cached, held.
    pub(crate) fn hold_children(&self, dir: Id) -> Vec<Id> {
        let _dir = self.lock_dir(dir);
        let is_positive = |id: &Id| !self.record(*id).flags().is_negative() && !self.is_past_deadline(*id);
        self.children(dir).filter(|id| is_positive(id) && self.hold(*id)).collect()
    }

    /// Says that an entry of `dir` left the cache though it is on disk. [dir lock]
    pub(crate) fn lose_completeness(&self, dir: Id) {
        self.dentry(dir).note_change();
        if self.record(dir).flags().has(Flags::COMPLETE) {
            // Before the entry leaves the index, so that a walk which misses it also finds this
            // record changed.
            self.rewrite(dir).change_flags(0, Flags::COMPLETE);
        }
    }
}
