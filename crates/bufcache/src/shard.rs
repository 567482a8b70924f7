//! One shard: slots, the table that finds them, and the clock hand that frees them. See the crate's page.

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use crate::claim::Buffer;
use crate::pending::Pending;
use crate::recent::{Recent, SEAT_OVERHEAD, Seats};
use crate::stats::Stats;

/// What a look at a shard finds, or does.
pub(crate) enum Found {
    Ready(Buffer, Origin),
    /// Another thread reads it.
    Reading(Arc<Pending>, Origin),
    /// The caller is to read it.
    Missing(Vacancy),
}

/// How a block came to be in memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Somebody has used it before.
    Used,
    /// It was read ahead, and this is its first use.
    ReadAhead,
}

/// A promise to read a block, and where to put it.
pub(crate) struct Vacancy {
    /// The slot, now *reading*.
    pub(crate) slot: u32,
    /// Where those wait who come for the block meanwhile.
    pub(crate) pending: Arc<Pending>,
    /// The bytes of the block that had the slot before.
    pub(crate) memory: Option<Arc<[u8]>>,
    /// Nobody has asked for the block yet.
    pub(crate) is_ahead: bool,
}

/// What a change of a block is told.
pub(crate) enum Place {
    /// In this slot.
    Ready(u32),
    /// Another thread reads it.
    Reading(Arc<Pending>),
    Missing,
}

/// Who changed a block last: it pins the block until its home is written, see [`BufCache::update`](crate::BufCache::update).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp(pub u32);

/// A slot costs the budget this much besides the block: itself, its table entry at the table's least load, and the count
/// in front of the bytes; and its part of the seats.
pub(crate) const SLOT_OVERHEAD: usize =
    size_of::<Slot>() + 2 * size_of::<Entry>() + 2 * size_of::<usize>() + SEAT_OVERHEAD;

/// So many slots are looked at for one that can be given to a block that is read ahead.
const AHEAD_LOOKS: usize = 16;

/// What a change of a block came to.
#[derive(Clone, Copy, Debug)]
pub struct Changed<R> {
    /// What the closure returned.
    pub value: R,
    /// The block was not pinned by this stamp before.
    pub is_first: bool,
}

struct Slot {
    block: u64,
    /// Used since the hand last came by.
    marked: bool,
    /// The last change of the block is not in its home.
    pinned: Option<Stamp>,
    /// Read ahead, and not used yet.
    is_ahead: bool,
    /// Who may have the block besides.
    seats: Seats,
    state: State,
}

impl Slot {
    fn new(block: u64, state: State) -> Slot {
        Slot { block, marked: false, pinned: None, is_ahead: false, seats: Seats::default(), state }
    }
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

/// On cache lines of its own: neighbours are locked by other threads.
#[repr(align(128))]
pub(crate) struct Shard {
    table: HashTable<Entry>,
    slots: Vec<Slot>,
    vacant: Vec<u32>,
    /// Slots that are `is_ahead`.
    ahead: usize,
    hand: usize,
    /// Most slots there may be.
    capacity: usize,
    hasher: RandomState,
    /// What processors have of this shard's blocks, too: before a block changes or goes, it is recalled.
    recent: Arc<Recent>,
    counts: Stats,
}

impl Shard {
    pub(crate) fn new(capacity: usize, hasher: RandomState, recent: Arc<Recent>) -> Self {
        Shard {
            table: HashTable::new(),
            slots: Vec::new(),
            vacant: Vec::new(),
            ahead: 0,
            hand: 0,
            capacity: capacity.min(u32::MAX as usize),
            hasher,
            recent,
            counts: Stats::default(),
        }
    }

    /// Finds `block`, or claims a slot for it. With `is_single` this processor remembers what it finds: of a run each block is wanted once.
    #[inline]
    pub(crate) fn find_or_claim(&mut self, block: u64, hash: u64, is_single: bool) -> Found {
        self.counts.looks += 1;
        if let Some(slot) = self.slot_of(block, hash) {
            let origin = self.first_use(slot);
            let slot = &mut self.slots[slot as usize];
            match &slot.state {
                State::Ready(buffer) => {
                    slot.marked = true;
                    self.counts.hits += 1;
                    if is_single {
                        self.recent.install(block, buffer, &mut slot.seats);
                    }
                    return Found::Ready(buffer.clone(), origin);
                }
                State::Reading(pending) => {
                    self.counts.waits += 1;
                    return Found::Reading(Arc::clone(pending), origin);
                }
                // An entry leaves the table when its slot is vacated.
                State::Vacant => {}
            }
        }
        Found::Missing(self.claim(block, hash))
    }

    /// Notes that a slot's block is used.
    #[inline]
    fn first_use(&mut self, slot: u32) -> Origin {
        if !std::mem::take(&mut self.slots[slot as usize].is_ahead) {
            return Origin::Used;
        }
        self.ahead -= 1;
        self.counts.ahead_used += 1;
        Origin::ReadAhead
    }

    #[inline]
    fn slot_of(&self, block: u64, hash: u64) -> Option<u32> {
        self.table.find(hash, |entry| entry.block == block).map(|entry| entry.slot)
    }

    /// Where `block` is, for who is to change or drop it.
    pub(crate) fn place(&self, block: u64, hash: u64) -> Place {
        match self.slot_of(block, hash) {
            None => Place::Missing,
            Some(slot) => match &self.slots[slot as usize].state {
                State::Ready(_) => Place::Ready(slot),
                State::Reading(pending) => Place::Reading(Arc::clone(pending)),
                State::Vacant => Place::Missing,
            },
        }
    }

    #[cold]
    pub(crate) fn claim(&mut self, block: u64, hash: u64) -> Vacancy {
        self.counts.misses += 1;
        let memory = if self.resident() < self.capacity { None } else { self.evict() };
        self.claim_slot(block, hash, memory)
    }

    /// Claims a slot for a block that may be wanted soon, if it is not there and there is room that nobody needs more: what is read
    /// ahead takes a quarter of the cache at most, and pushes out nothing that was used since the hand came by.
    pub(crate) fn claim_ahead(&mut self, block: u64, hash: u64) -> Option<Vacancy> {
        if self.slot_of(block, hash).is_some() || self.ahead >= self.capacity.div_ceil(4) {
            return None;
        }
        let memory =
            if self.resident() < self.capacity { None } else { Some(self.evict_cold(AHEAD_LOOKS, false)?) };
        let vacancy = Vacancy { is_ahead: true, ..self.claim_slot(block, hash, memory) };
        self.slots[vacancy.slot as usize].is_ahead = true;
        self.ahead += 1;
        self.counts.ahead_read += 1;
        Some(vacancy)
    }

    fn claim_slot(&mut self, block: u64, hash: u64, memory: Option<Arc<[u8]>>) -> Vacancy {
        let pending = Arc::new(Pending::new());
        let slot = self.insert(block, hash, State::Reading(Arc::clone(&pending)));
        Vacancy { slot, pending, memory, is_ahead: false }
    }

    /// Gives `block`, which is in no slot, a slot.
    fn insert(&mut self, block: u64, hash: u64, state: State) -> u32 {
        let slot = match self.vacant.pop() {
            Some(slot) => slot,
            None => {
                self.slots.push(Slot::new(block, State::Vacant));
                // As many blocks do not fit into memory.
                u32::try_from(self.slots.len() - 1).expect("a shard has less than 2^32 slots")
            }
        };
        self.slots[slot as usize] = Slot::new(block, state);
        self.table.insert_unique(hash, Entry { block, slot }, |entry| self.hasher.hash_one(entry.block));
        slot
    }

    /// Slots that are not vacant.
    fn resident(&self) -> usize {
        self.slots.len() - self.vacant.len()
    }

    /// Vacates the slot of a block that nobody needs, if there is one, and returns its memory.
    fn evict(&mut self) -> Option<Arc<[u8]>> {
        // Twice round: the first time may only clear marks.
        self.evict_cold(2 * self.slots.len(), true)
    }

    /// The same, looking at so many slots. Who does not age the others leaves them their marks, and what others read ahead.
    fn evict_cold(&mut self, looks: usize, ages: bool) -> Option<Arc<[u8]>> {
        for _ in 0..looks.min(2 * self.slots.len()) {
            let at = self.hand;
            self.hand = (at + 1) % self.slots.len();
            let slot = &mut self.slots[at];
            let State::Ready(buffer) = &slot.state else { continue };
            if slot.pinned.is_some() {
                continue;
            }
            if slot.marked || ((slot.is_ahead || !slot.seats.is_empty()) && !ages) {
                slot.marked &= !ages;
                continue;
            }
            // What was found there bore no mark for it.
            if self.recent.recall(slot.block, &mut slot.seats) || buffer.is_held() {
                continue;
            }
            let memory = buffer.clone().into_memory();
            self.counts.evictions += 1;
            // It came from a u32.
            self.vacate(at as u32);
            return Some(memory);
        }
        None
    }

    /// Takes a slot's block out of the table.
    fn vacate(&mut self, slot: u32) {
        self.vacant.push(slot);
        let Slot { block, state, pinned, is_ahead, seats, .. } = &mut self.slots[slot as usize];
        self.recent.recall(*block, seats);
        (*state, *pinned) = (State::Vacant, None);
        let (block, was_ahead) = (*block, std::mem::take(is_ahead));
        self.ahead -= usize::from(was_ahead);
        self.counts.ahead_wasted += u64::from(was_ahead);
        let hash = self.hasher.hash_one(block);
        if let Ok(entry) = self.table.find_entry(hash, |entry| entry.block == block) {
            entry.remove();
        }
    }

    /// Ends a claim well. `stamp` is who has changed the block since it was read.
    pub(crate) fn publish(&mut self, slot: u32, buffer: Buffer, stamp: Option<Stamp>) {
        self.counts.changes += u64::from(stamp.is_some());
        let Slot { state, pinned, .. } = &mut self.slots[slot as usize];
        (*state, *pinned) = (State::Ready(buffer), stamp);
        if self.resident() > self.capacity && stamp.is_none() {
            self.counts.uncached += 1;
            self.vacate(slot);
        }
    }

    /// Ends a claim badly.
    pub(crate) fn give_up(&mut self, slot: u32) {
        self.vacate(slot);
    }

    /// The bytes of the next version of a ready block, which is pinned by that; and whether `stamp` had not pinned it before.
    #[inline]
    pub(crate) fn next_version(&mut self, slot: u32, stamp: Stamp) -> Option<(&mut [u8], bool)> {
        self.first_use(slot);
        let slot = &mut self.slots[slot as usize];
        let State::Ready(buffer) = &mut slot.state else { return None };
        self.recent.recall(slot.block, &mut slot.seats);
        slot.marked = true;
        self.counts.changes += 1;
        self.counts.copies += u64::from(buffer.is_held());
        let is_first = slot.pinned.replace(stamp) != Some(stamp);
        Some((buffer.bytes_mut(), is_first))
    }

    /// Puts a version of `block`, which nobody is reading, in the place of what is known of it, and pins it. Returns whether
    /// `stamp` had not pinned it before.
    pub(crate) fn replace(&mut self, block: u64, hash: u64, buffer: Buffer, stamp: Stamp) -> bool {
        self.counts.changes += 1;
        let slot = match self.slot_of(block, hash) {
            Some(slot) => slot,
            None => {
                if self.resident() >= self.capacity {
                    self.evict();
                }
                self.insert(block, hash, State::Vacant)
            }
        };
        self.first_use(slot);
        let slot = &mut self.slots[slot as usize];
        self.recent.recall(block, &mut slot.seats);
        slot.state = State::Ready(buffer);
        slot.marked = true;
        slot.pinned.replace(stamp) != Some(stamp)
    }

    /// The bytes of `block`, if `stamp` changed it last and it is not home yet.
    pub(crate) fn pinned(&self, block: u64, hash: u64, stamp: Stamp) -> Option<Buffer> {
        let slot = &self.slots[self.slot_of(block, hash)? as usize];
        match &slot.state {
            State::Ready(buffer) if slot.pinned == Some(stamp) => Some(buffer.clone()),
            _ => None,
        }
    }

    /// Notes a mark on a version, if the block is still that.
    pub(crate) fn set_mark(&mut self, block: u64, hash: u64, version: &Buffer, mark: u64) {
        let Some(at) = self.slot_of(block, hash) else { return };
        let slot = &mut self.slots[at as usize];
        if let State::Ready(buffer) = &mut slot.state {
            // Seats have it without the mark.
            self.recent.recall(block, &mut slot.seats);
            buffer.mark_as(version, mark);
        }
    }

    pub(crate) fn unpin(&mut self, block: u64, hash: u64, stamp: Stamp) {
        let Some(at) = self.slot_of(block, hash) else { return };
        let slot = &mut self.slots[at as usize];
        if slot.pinned == Some(stamp) {
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

    pub(crate) fn ahead_wasted(&self) -> u64 {
        self.counts.ahead_wasted
    }

    pub(crate) fn stats(&self, block_size: usize) -> Stats {
        let bytes = |slots: usize| (slots * block_size) as u64;
        let held = |slot: &&Slot| match &slot.state {
            State::Ready(buffer) => buffer.holders() > 1 + self.recent.holders(slot.block, slot.seats),
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
