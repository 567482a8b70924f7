//! One shard: slots, their table, and eviction.
//!
//! Eviction is S3-FIFO. A requested block enters the *small* queue, a tenth of the shard. At its
//! head, a block that was used twice moves to the *main* queue; any other is evicted and leaves a
//! ghost, so that it enters the main queue if it returns soon. At the head of the main queue a
//! block with counted uses (at most three) loses one and goes to the end. Blocks that are read
//! ahead enter the main queue, as the small one is too short for them; their first use counts as
//! their read. `dentree-lab replacement` compares this with LRU, CLOCK and SIEVE.

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use crate::bh_lru::Invalidation;
use crate::buffer::Buffer;
use crate::feedback::Feedback;
use crate::pending::Pending;
use crate::queues::{Ghosts, Link, Queue, Queues};
use crate::stats::Stats;

/// The result of a lookup.
pub(crate) enum Found {
    /// With the invalidation flag if it is to be copied.
    Ready(Buffer, Origin, Option<Arc<Invalidation>>),
    /// Another thread reads it.
    Reading(Arc<Pending>, Origin),
    /// The caller must read it.
    Missing(LockedSlot),
}

/// The result of a request to read ahead.
pub(crate) enum AheadSlot {
    /// The caller must read it.
    Locked(LockedSlot),
    /// The block is in memory or being read.
    Present,
    /// All evictable blocks are more useful.
    NoRoom,
}

/// Why a block is in memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    Used,
    /// Read ahead, and this is its first use.
    ReadAhead,
}

pub(crate) struct LockedSlot {
    /// The slot, now *reading*.
    pub(crate) slot: u32,
    /// Where other threads wait.
    pub(crate) pending: Arc<Pending>,
    /// The memory of the evicted block.
    pub(crate) memory: Option<Arc<[u8]>>,
    pub(crate) is_ahead: bool,
}

pub(crate) enum Residency {
    /// In this slot.
    Ready(u32),
    /// Another thread reads it.
    Reading(Arc<Pending>),
    Missing,
}

/// Pins a changed block until it is written, see [`BufCache::update`](crate::BufCache::update).
/// Changes that are written together share an id, for example a transaction's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PinId(pub u32);

/// Bytes of a slot beside the block: the slot, its table entry at the lowest load, the reference
/// count, its links, and a ghost.
pub(crate) const SLOT_OVERHEAD: usize = size_of::<Slot>()
    + 2 * size_of::<Entry>()
    + 2 * size_of::<usize>()
    + size_of::<Link>()
    + 2 * size_of::<u32>();

// Tests assume this for caches with room for one block.
const _: () = assert!(SLOT_OVERHEAD <= 192);

/// Slots considered for eviction to read one block ahead.
const AHEAD_LOOKS: usize = 16;

/// The result of a change.
#[derive(Clone, Copy, Debug)]
pub struct Changed<R> {
    /// What the closure returned.
    pub value: R,
    /// The block was not pinned with this id.
    pub is_first: bool,
}

struct Slot {
    block: u64,
    uses: u8,
    /// The last change is not written.
    pinned: Option<PinId>,
    /// Read ahead and not used.
    is_ahead: bool,
    /// Set if threads may have copies of the version.
    invalidation: Option<Arc<Invalidation>>,
    state: State,
}

const MOST_USES: u8 = 3;

/// The small queue's fraction of a shard's slots.
const SMALL: usize = 10;

fn count_use(uses: &mut u8) {
    *uses = (*uses + 1).min(MOST_USES);
}

impl Slot {
    fn new(block: u64, state: State) -> Slot {
        Slot { block, uses: 0, pinned: None, is_ahead: false, invalidation: None, state }
    }

    /// Ends the version and its copies.
    fn invalidate_copies(&mut self) {
        if let Some(invalidation) = self.invalidation.take() {
            invalidation.set();
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.invalidate_copies();
    }
}

enum Eviction {
    Now,
    /// Move to the end of this queue.
    Requeue(Queue),
    /// Held, being read, or pinned.
    Busy,
}

enum State {
    Vacant,
    Reading(Arc<Pending>),
    Ready(Buffer),
}

struct Entry {
    block: u64,
    slot: u32,
}

/// Padded, as other threads lock its neighbours.
#[repr(align(128))]
pub(crate) struct Shard {
    table: HashTable<Entry>,
    slots: Vec<Slot>,
    vacant: Vec<u32>,
    /// Number of slots that are `is_ahead`.
    ahead: usize,
    queues: Queues,
    ghosts: Ghosts,
    capacity: usize,
    hasher: RandomState,
    counts: Stats,
    feedback: Arc<Feedback>,
}

impl Shard {
    pub(crate) fn new(capacity: usize, hasher: RandomState, feedback: Arc<Feedback>) -> Self {
        Shard {
            table: HashTable::new(),
            slots: Vec::new(),
            vacant: Vec::new(),
            ahead: 0,
            queues: Queues::default(),
            ghosts: Ghosts::default(),
            capacity: capacity.min(u32::MAX as usize),
            hasher,
            counts: Stats::default(),
            feedback,
        }
    }

    /// Finds `block`, or locks a slot for it. With `to_copy` a marked version gets an invalidation
    /// flag.
    #[inline]
    pub(crate) fn find_or_lock(&mut self, block: u64, hash: u64, to_copy: bool) -> Found {
        self.counts.looks += 1;
        if let Some(slot) = self.slot_of(block, hash) {
            let origin = self.first_use(slot);
            let slot = &mut self.slots[slot as usize];
            match &slot.state {
                State::Ready(buffer) => {
                    if origin == Origin::Used {
                        count_use(&mut slot.uses);
                    }
                    self.counts.hits += 1;
                    let is_copied = to_copy && buffer.mark() != 0;
                    let invalidation =
                        is_copied.then(|| Arc::clone(slot.invalidation.get_or_insert_default()));
                    return Found::Ready(buffer.clone(), origin, invalidation);
                }
                State::Reading(pending) => {
                    self.counts.waits += 1;
                    return Found::Reading(Arc::clone(pending), origin);
                }
                // Unreachable: a vacated slot has no table entry.
                State::Vacant => {}
            }
        }
        Found::Missing(self.lock_missing(block, hash))
    }

    /// Clears `is_ahead` at a use.
    #[inline]
    fn first_use(&mut self, slot: u32) -> Origin {
        if !std::mem::take(&mut self.slots[slot as usize].is_ahead) {
            return Origin::Used;
        }
        self.ahead -= 1;
        self.counts.ahead_used += 1;
        self.feedback.used(1);
        Origin::ReadAhead
    }

    #[inline]
    fn slot_of(&self, block: u64, hash: u64) -> Option<u32> {
        self.table.find(hash, |entry| entry.block == block).map(|entry| entry.slot)
    }

    /// The state of `block`, to change or drop it.
    pub(crate) fn place(&self, block: u64, hash: u64) -> Residency {
        match self.slot_of(block, hash) {
            None => Residency::Missing,
            Some(slot) => match &self.slots[slot as usize].state {
                State::Ready(_) => Residency::Ready(slot),
                State::Reading(pending) => Residency::Reading(Arc::clone(pending)),
                State::Vacant => Residency::Missing,
            },
        }
    }

    #[cold]
    pub(crate) fn lock_missing(&mut self, block: u64, hash: u64) -> LockedSlot {
        self.counts.misses += 1;
        let queue = self.queue_for(hash);
        let memory = if self.resident() < self.capacity { None } else { self.evict() };
        self.lock_slot(block, hash, queue, memory)
    }

    /// The queue that a requested block enters.
    fn queue_for(&mut self, hash: u64) -> Queue {
        if self.ghosts.take(hash) { Queue::Main } else { Queue::Small }
    }

    /// Locks a slot to read a block ahead. Such blocks take at most a quarter of the cache, and
    /// evict nothing with a counted use.
    pub(crate) fn lock_ahead(&mut self, block: u64, hash: u64) -> AheadSlot {
        if self.slot_of(block, hash).is_some() {
            return AheadSlot::Present;
        }
        let Some(memory) = self.room_ahead() else {
            self.feedback.wasted(1);
            return AheadSlot::NoRoom;
        };
        let locked = LockedSlot { is_ahead: true, ..self.lock_slot(block, hash, Queue::Main, memory) };
        self.slots[locked.slot as usize].is_ahead = true;
        self.ahead += 1;
        self.counts.ahead_read += 1;
        AheadSlot::Locked(locked)
    }

    /// Makes room for a block that is read ahead. `Some(memory)` if there is room.
    fn room_ahead(&mut self) -> Option<Option<Arc<[u8]>>> {
        if self.ahead >= self.capacity.div_ceil(4) {
            return None;
        }
        if self.resident() < self.capacity { Some(None) } else { self.evict_unused().map(Some) }
    }

    fn lock_slot(&mut self, block: u64, hash: u64, queue: Queue, memory: Option<Arc<[u8]>>) -> LockedSlot {
        let pending = Arc::new(Pending::new());
        let slot = self.insert(block, hash, queue, State::Reading(Arc::clone(&pending)));
        LockedSlot { slot, pending, memory, is_ahead: false }
    }

    fn insert(&mut self, block: u64, hash: u64, queue: Queue, state: State) -> u32 {
        let slot = match self.vacant.pop() {
            Some(slot) => slot,
            None => {
                self.slots.push(Slot::new(block, State::Vacant));
                // More blocks do not fit into memory.
                u32::try_from(self.slots.len() - 1).expect("a shard has less than 2^32 slots")
            }
        };
        self.slots[slot as usize] = Slot::new(block, state);
        self.queues.push(slot, queue);
        self.table.insert_unique(hash, Entry { block, slot }, |entry| self.hasher.hash_one(entry.block));
        slot
    }

    /// Slots that are not vacant.
    fn resident(&self) -> usize {
        self.slots.len() - self.vacant.len()
    }

    /// The order in which queues are tried: the small one first if it is full.
    fn turn(&self) -> [Queue; 2] {
        let is_full = self.queues.len(Queue::Small) >= (self.capacity / SMALL).max(1);
        if is_full { [Queue::Small, Queue::Main] } else { [Queue::Main, Queue::Small] }
    }

    /// Evicts a block if one can be, and returns its memory.
    fn evict(&mut self) -> Option<Arc<[u8]>> {
        // Busy blocks met in each queue. Any other step consumes a use, moves a block, or ends the
        // loop.
        let mut busy = [0; 2];
        loop {
            let may_evict = |queue: &Queue| busy[*queue as usize] < self.queues.len(*queue);
            let queue = self.turn().into_iter().find(may_evict)?;
            let slot = self.queues.oldest(queue)?;
            match self.decide(slot, queue) {
                Eviction::Now => return Some(self.evict_slot(slot, queue)),
                Eviction::Requeue(next) => self.queues.push(slot, next),
                Eviction::Busy => {
                    busy[queue as usize] += 1;
                    self.queues.push(slot, queue);
                }
            }
        }
    }

    /// Evicts until `percent` of the blocks are left, or no more can be evicted. Returns their
    /// number.
    pub(crate) fn shrink(&mut self, percent: usize) -> usize {
        let before = self.resident();
        let kept = before * percent / 100;
        while self.resident() > kept && self.evict().is_some() {}
        before - self.resident()
    }

    /// Decides about the slot at the head of a queue.
    fn decide(&mut self, slot: u32, queue: Queue) -> Eviction {
        let Slot { uses, pinned, invalidation, state, .. } = &mut self.slots[slot as usize];
        let State::Ready(buffer) = state else { return Eviction::Busy };
        if pinned.is_some() {
            return Eviction::Busy;
        }
        match queue {
            Queue::Small if *uses > 1 => {
                *uses = 0;
                return Eviction::Requeue(Queue::Main);
            }
            Queue::Main if *uses > 0 => {
                *uses -= 1;
                return Eviction::Requeue(Queue::Main);
            }
            _ => {}
        }
        // Uses of copies are not counted in the slot.
        if invalidation.as_ref().is_some_and(|invalidation| invalidation.take_use()) {
            return Eviction::Requeue(Queue::Main);
        }
        if buffer.is_held() { Eviction::Busy } else { Eviction::Now }
    }

    /// [`evict`](Self::evict), but only of unused blocks among a few of each queue.
    fn evict_unused(&mut self) -> Option<Arc<[u8]>> {
        for queue in self.turn() {
            let found = self.queues.iter(queue).take(AHEAD_LOOKS).find(|slot| self.is_unused(*slot));
            if let Some(slot) = found {
                return Some(self.evict_slot(slot, queue));
            }
        }
        // Rotates the main queue for the next call. Only misses change the order of the small
        // queue.
        for _ in 0..AHEAD_LOOKS.min(self.queues.len(Queue::Main)) {
            if let Some(slot) = self.queues.oldest(Queue::Main) {
                self.queues.push(slot, Queue::Main);
            }
        }
        None
    }

    fn is_unused(&self, slot: u32) -> bool {
        let Slot { uses, pinned, is_ahead, invalidation, state, .. } = &self.slots[slot as usize];
        let is_free = *uses == 0 && pinned.is_none() && !*is_ahead && invalidation.is_none();
        is_free && matches!(state, State::Ready(buffer) if !buffer.is_held())
    }

    fn evict_slot(&mut self, slot: u32, queue: Queue) -> Arc<[u8]> {
        let Slot { block, state, .. } = &mut self.slots[slot as usize];
        let memory = match std::mem::replace(state, State::Vacant) {
            State::Ready(buffer) => buffer.into_memory(),
            // Unreachable: it was ready.
            _ => Arc::default(),
        };
        if queue == Queue::Small {
            self.ghosts.insert(self.hasher.hash_one(*block), self.capacity);
        }
        self.counts.evictions += 1;
        self.vacate(slot);
        memory
    }

    /// Removes a slot's block from the table.
    fn vacate(&mut self, slot: u32) {
        self.vacant.push(slot);
        self.queues.remove(slot);
        self.slots[slot as usize].invalidate_copies();
        let Slot { block, state, pinned, is_ahead, .. } = &mut self.slots[slot as usize];
        (*state, *pinned) = (State::Vacant, None);
        let (block, was_ahead) = (*block, std::mem::take(is_ahead));
        self.ahead -= usize::from(was_ahead);
        self.counts.ahead_wasted += u64::from(was_ahead);
        self.feedback.wasted(u64::from(was_ahead));
        let hash = self.hasher.hash_one(block);
        if let Ok(entry) = self.table.find_entry(hash, |entry| entry.block == block) {
            entry.remove();
        }
    }

    /// Ends a read, and a change of its bytes with `pin`.
    pub(crate) fn publish(&mut self, slot: u32, buffer: Buffer, pin: Option<PinId>) {
        self.counts.changes += u64::from(pin.is_some());
        let Slot { state, pinned, .. } = &mut self.slots[slot as usize];
        (*state, *pinned) = (State::Ready(buffer), pin);
        if self.resident() > self.capacity && pin.is_none() {
            self.counts.uncached += 1;
            self.vacate(slot);
        }
    }

    pub(crate) fn fail(&mut self, slot: u32) {
        self.vacate(slot);
    }

    /// Pins a ready block. Returns its bytes to change, and whether `pin` is new.
    #[inline]
    pub(crate) fn next_version(&mut self, slot: u32, pin: PinId) -> Option<(&mut [u8], bool)> {
        self.first_use(slot);
        let slot = &mut self.slots[slot as usize];
        slot.invalidate_copies();
        let State::Ready(buffer) = &mut slot.state else { return None };
        count_use(&mut slot.uses);
        self.counts.changes += 1;
        self.counts.copies += u64::from(buffer.is_held());
        let is_first = slot.pinned.replace(pin) != Some(pin);
        Some((buffer.bytes_mut(), is_first))
    }

    /// Replaces `block`, which is not being read, and pins it. Returns whether `pin` is new.
    pub(crate) fn replace(&mut self, block: u64, hash: u64, buffer: Buffer, pin: PinId) -> bool {
        self.counts.changes += 1;
        let slot = match self.slot_of(block, hash) {
            Some(slot) => slot,
            None => {
                let queue = self.queue_for(hash);
                if self.resident() >= self.capacity {
                    self.evict();
                }
                self.insert(block, hash, queue, State::Vacant)
            }
        };
        self.first_use(slot);
        let slot = &mut self.slots[slot as usize];
        slot.invalidate_copies();
        slot.state = State::Ready(buffer);
        count_use(&mut slot.uses);
        slot.pinned.replace(pin) != Some(pin)
    }

    pub(crate) fn pinned(&self, block: u64, hash: u64, pin: PinId) -> Option<Buffer> {
        let slot = &self.slots[self.slot_of(block, hash)? as usize];
        match &slot.state {
            State::Ready(buffer) if slot.pinned == Some(pin) => Some(buffer.clone()),
            _ => None,
        }
    }

    pub(crate) fn is_newest(&self, block: u64, hash: u64, version: &Buffer) -> bool {
        let slot = self.slot_of(block, hash).map(|slot| &self.slots[slot as usize].state);
        matches!(slot, Some(State::Ready(buffer)) if buffer.is_same(version))
    }

    pub(crate) fn set_mark(&mut self, block: u64, hash: u64, version: &Buffer, mark: u64) {
        let Some(at) = self.slot_of(block, hash) else { return };
        let slot = &mut self.slots[at as usize];
        if let State::Ready(buffer) = &mut slot.state {
            buffer.mark_as(version, mark);
        }
    }

    pub(crate) fn unpin(&mut self, block: u64, hash: u64, pin: PinId) {
        let Some(at) = self.slot_of(block, hash) else { return };
        let slot = &mut self.slots[at as usize];
        if slot.pinned == Some(pin) {
            slot.pinned = None;
            if self.resident() > self.capacity {
                self.vacate(at);
            }
        }
    }

    /// Drops a ready block, also a pinned one.
    pub(crate) fn discard(&mut self, slot: u32) {
        self.vacate(slot);
    }

    pub(crate) fn count_device_read(&mut self) {
        self.counts.device_reads += 1;
    }

    pub(crate) fn stats(&self, block_size: usize) -> Stats {
        let bytes = |slots: usize| (slots * block_size) as u64;
        let held = |slot: &&Slot| match &slot.state {
            State::Ready(buffer) => buffer.is_held(),
            _ => false,
        };
        let pinned = |slot: &&Slot| slot.pinned.is_some();
        Stats {
            resident_bytes: bytes(self.resident()),
            over_budget_bytes: bytes(self.resident().saturating_sub(self.capacity)),
            pinned_bytes: bytes(self.slots.iter().filter(pinned).count()),
            held_bytes: bytes(self.slots.iter().filter(held).count()),
            ..self.counts
        }
    }
}
