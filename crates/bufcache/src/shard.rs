//! One shard: slots, the table that finds them, and the clock hand that frees them. See the crate's page.

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use crate::claim::Buffer;
use crate::pending::Pending;
use crate::stats::Stats;

/// What a look at a shard finds, or does.
pub(crate) enum Found {
    Ready(Buffer),
    /// Another thread reads it.
    Reading(Arc<Pending>),
    /// The caller is to read it.
    Missing(Vacancy),
}

/// A promise to read a block, and where to put it.
pub(crate) struct Vacancy {
    /// The slot, now *reading*, and those who come to wait on it. `None` where there is no room.
    pub(crate) place: Option<(u32, Arc<Pending>)>,
    /// The bytes of the block that had the slot before.
    pub(crate) memory: Option<Arc<[u8]>>,
}

/// A slot costs the budget this much besides the block: itself, its table entry at the table's least load, and the count
/// in front of the bytes.
pub(crate) const SLOT_OVERHEAD: usize = size_of::<Slot>() + 2 * size_of::<Entry>() + 2 * size_of::<usize>();

struct Slot {
    block: u64,
    /// Used since the hand last came by.
    marked: bool,
    state: State,
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
    hand: usize,
    /// Most slots there may be.
    capacity: usize,
    hasher: RandomState,
    counts: Stats,
}

impl Shard {
    pub(crate) fn new(capacity: usize, hasher: RandomState) -> Self {
        Shard {
            table: HashTable::new(),
            slots: Vec::new(),
            vacant: Vec::new(),
            hand: 0,
            capacity: capacity.min(u32::MAX as usize),
            hasher,
            counts: Stats::default(),
        }
    }

    /// Finds `block`, or claims a slot for it.
    #[inline]
    pub(crate) fn find_or_claim(&mut self, block: u64, hash: u64) -> Found {
        if let Some(entry) = self.table.find(hash, |entry| entry.block == block) {
            let slot = &mut self.slots[entry.slot as usize];
            match &slot.state {
                State::Ready(buffer) => {
                    slot.marked = true;
                    self.counts.hits += 1;
                    return Found::Ready(buffer.clone());
                }
                State::Reading(pending) => {
                    self.counts.waits += 1;
                    return Found::Reading(Arc::clone(pending));
                }
                // An entry leaves the table when its slot is vacated.
                State::Vacant => {}
            }
        }
        Found::Missing(self.claim(block, hash))
    }

    #[cold]
    fn claim(&mut self, block: u64, hash: u64) -> Vacancy {
        self.counts.misses += 1;
        let Some((slot, memory)) = self.make_room() else {
            self.counts.uncached += 1;
            return Vacancy { place: None, memory: None };
        };
        let pending = Arc::new(Pending::new());
        self.slots[slot as usize] =
            Slot { block, marked: false, state: State::Reading(Arc::clone(&pending)) };
        self.table.insert_unique(hash, Entry { block, slot }, |entry| self.hasher.hash_one(entry.block));
        Vacancy { place: Some((slot, pending)), memory }
    }

    /// A vacant slot that is not on the list of vacant ones, and the memory of the block that was there.
    fn make_room(&mut self) -> Option<(u32, Option<Arc<[u8]>>)> {
        if let Some(slot) = self.vacant.pop() {
            return Some((slot, None));
        }
        if self.slots.len() < self.capacity {
            let slot = u32::try_from(self.slots.len()).ok()?;
            self.slots.push(Slot { block: 0, marked: false, state: State::Vacant });
            return Some((slot, None));
        }
        // Twice round: the first time may only clear marks.
        for _ in 0..2 * self.slots.len() {
            let at = self.hand;
            self.hand = (at + 1) % self.slots.len();
            let slot = &mut self.slots[at];
            let State::Ready(buffer) = &slot.state else { continue };
            if buffer.is_held() {
                continue;
            }
            if std::mem::take(&mut slot.marked) {
                continue;
            }
            let memory = buffer.clone().into_memory();
            self.counts.evictions += 1;
            let slot = u32::try_from(at).ok()?;
            self.vacate(slot);
            return Some((slot, Some(memory)));
        }
        None
    }

    /// Takes a slot's block out of the table. The slot is then nobody's.
    fn vacate(&mut self, slot: u32) {
        let Slot { block, state, .. } = &mut self.slots[slot as usize];
        *state = State::Vacant;
        let block = *block;
        let hash = self.hasher.hash_one(block);
        if let Ok(entry) = self.table.find_entry(hash, |entry| entry.block == block) {
            entry.remove();
        }
    }

    /// Ends a claim well.
    pub(crate) fn publish(&mut self, slot: u32, buffer: Buffer) {
        self.slots[slot as usize].state = State::Ready(buffer);
    }

    /// Ends a claim badly.
    pub(crate) fn give_up(&mut self, slot: u32) {
        self.vacate(slot);
        self.vacant.push(slot);
    }

    pub(crate) fn count_device_read(&mut self) {
        self.counts.device_reads += 1;
    }

    pub(crate) fn stats(&self, block_size: usize) -> Stats {
        let bytes = |slots: usize| (slots * block_size) as u64;
        let held = |slot: &&Slot| matches!(&slot.state, State::Ready(buffer) if buffer.is_held());
        Stats {
            resident_bytes: bytes(self.slots.len() - self.vacant.len()),
            held_bytes: bytes(self.slots.iter().filter(held).count()),
            ..self.counts
        }
    }
}
