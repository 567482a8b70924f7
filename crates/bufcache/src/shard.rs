//! One shard: slots, the table that finds them, and the queues by which they are freed. See the crate's page.
//!
//! Who makes room is S3-FIFO's to say. A block that is read because somebody wants it waits in the *small* queue, a tenth of the shard. Used twice
//! by the time it is its turn, it moves to the *main* queue, else it goes, and is remembered: if it comes back soon it is put into the main queue
//! at once. There a block whose turn it is waits again for each use, of three at most, that was noted since. What is read
//! ahead goes to the main queue, or it would have to be used before others are read; its first use counts as its reading.
//! `dentree-lab replacement` compares this with LRU, CLOCK and SIEVE.

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use crate::buffer::Buffer;
use crate::feedback::Feedback;
use crate::pending::Pending;
use crate::queues::{Gone, Link, Queue, Queues};
use crate::recent::Watch;
use crate::stats::Stats;

/// What a look at a shard finds, or does.
pub(crate) enum Found {
    /// With the watch on its version, where it is to be copied.
    Ready(Buffer, Origin, Option<Arc<Watch>>),
    /// Another thread reads it.
    Reading(Arc<Pending>, Origin),
    /// The caller is to read it.
    Missing(Vacancy),
}

/// What becomes of a block that may be wanted soon.
pub(crate) enum Soon {
    /// The caller is to read it.
    Claimed(Vacancy),
    /// It is in memory, or on its way.
    Here,
    /// There is no room that nobody needs more.
    Refused,
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
/// in front of the bytes; its links, and what is remembered of one that went.
pub(crate) const SLOT_OVERHEAD: usize = size_of::<Slot>()
    + 2 * size_of::<Entry>()
    + 2 * size_of::<usize>()
    + size_of::<Link>()
    + 2 * size_of::<u32>();

// What the tests take a slot for at most: with more, caches that are to have room for one block would have room for none.
const _: () = assert!(SLOT_OVERHEAD <= 192);

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
    /// Uses that are to its credit.
    uses: u8,
    /// The last change of the block is not in its home.
    pinned: Option<Stamp>,
    /// Read ahead, and not used yet.
    is_ahead: bool,
    /// Threads may have copies of the version.
    watch: Option<Arc<Watch>>,
    state: State,
}

/// More uses than this are not noted.
const MOST_USES: u8 = 3;

/// The small queue has one in so many of a shard's slots.
const SMALL: usize = 10;

fn note_use(uses: &mut u8) {
    *uses = (*uses + 1).min(MOST_USES);
}

impl Slot {
    fn new(block: u64, state: State) -> Slot {
        Slot { block, uses: 0, pinned: None, is_ahead: false, watch: None, state }
    }

    /// Its version goes: nobody is to use a copy of it.
    fn end_watch(&mut self) {
        if let Some(watch) = self.watch.take() {
            watch.end();
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.end_watch();
    }
}

/// Whether a block makes room.
enum Verdict {
    Goes,
    /// It has earned another turn, in this queue.
    Waits(Queue),
    /// Somebody holds, reads or has pinned it.
    Stuck,
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
    queues: Queues,
    gone: Gone,
    /// Most slots there may be.
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
            gone: Gone::default(),
            capacity: capacity.min(u32::MAX as usize),
            hasher,
            counts: Stats::default(),
            feedback,
        }
    }

    /// Finds `block`, or claims a slot for it. With `to_copy` the version that it finds is watched if it is marked.
    #[inline]
    pub(crate) fn find_or_claim(&mut self, block: u64, hash: u64, to_copy: bool) -> Found {
        self.counts.looks += 1;
        if let Some(slot) = self.slot_of(block, hash) {
            let origin = self.first_use(slot);
            let slot = &mut self.slots[slot as usize];
            match &slot.state {
                State::Ready(buffer) => {
                    if origin == Origin::Used {
                        note_use(&mut slot.uses);
                    }
                    self.counts.hits += 1;
                    let is_copied = to_copy && buffer.mark() != 0;
                    let watch = is_copied.then(|| Arc::clone(slot.watch.get_or_insert_default()));
                    return Found::Ready(buffer.clone(), origin, watch);
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
        self.feedback.used(1);
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
        let queue = self.queue_for(hash);
        let memory = if self.resident() < self.capacity { None } else { self.evict() };
        self.claim_slot(block, hash, queue, memory)
    }

    /// Where a block that is wanted comes in.
    fn queue_for(&mut self, hash: u64) -> Queue {
        if self.gone.take(hash) { Queue::Main } else { Queue::Small }
    }

    /// Claims a slot for a block that may be wanted soon, if it is not there and there is room that nobody needs more: what is read
    /// ahead takes a quarter of the cache at most, and pushes out nothing that has a use to its credit.
    pub(crate) fn claim_ahead(&mut self, block: u64, hash: u64) -> Soon {
        if self.slot_of(block, hash).is_some() {
            return Soon::Here;
        }
        let Some(memory) = self.room_ahead() else {
            self.feedback.in_vain(1);
            return Soon::Refused;
        };
        let vacancy = Vacancy { is_ahead: true, ..self.claim_slot(block, hash, Queue::Main, memory) };
        self.slots[vacancy.slot as usize].is_ahead = true;
        self.ahead += 1;
        self.counts.ahead_read += 1;
        Soon::Claimed(vacancy)
    }

    /// Room for one more that is read ahead, and the memory of who had it.
    fn room_ahead(&mut self) -> Option<Option<Arc<[u8]>>> {
        if self.ahead >= self.capacity.div_ceil(4) {
            return None;
        }
        if self.resident() < self.capacity { Some(None) } else { self.evict_unused().map(Some) }
    }

    fn claim_slot(&mut self, block: u64, hash: u64, queue: Queue, memory: Option<Arc<[u8]>>) -> Vacancy {
        let pending = Arc::new(Pending::new());
        let slot = self.insert(block, hash, queue, State::Reading(Arc::clone(&pending)));
        Vacancy { slot, pending, memory, is_ahead: false }
    }

    /// Gives `block`, which is in no slot, a slot.
    fn insert(&mut self, block: u64, hash: u64, queue: Queue, state: State) -> u32 {
        let slot = match self.vacant.pop() {
            Some(slot) => slot,
            None => {
                self.slots.push(Slot::new(block, State::Vacant));
                // As many blocks do not fit into memory.
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

    /// Whose turn it is to make room: the small queue while it has its share.
    fn turn(&self) -> [Queue; 2] {
        let is_full = self.queues.len(Queue::Small) >= (self.capacity / SMALL).max(1);
        if is_full { [Queue::Small, Queue::Main] } else { [Queue::Main, Queue::Small] }
    }

    /// Vacates the slot of a block that nobody needs, if there is one, and returns its memory.
    fn evict(&mut self) -> Option<Arc<[u8]>> {
        // Of each queue, how many were met that cannot go now. Every other step takes a use, moves a block, or ends.
        let mut stuck = [0; 2];
        loop {
            let has_hope = |queue: &Queue| stuck[*queue as usize] < self.queues.len(*queue);
            let queue = self.turn().into_iter().find(has_hope)?;
            let slot = self.queues.oldest(queue)?;
            match self.judge(slot, queue) {
                Verdict::Goes => return Some(self.evict_slot(slot, queue)),
                Verdict::Waits(next) => self.queues.push(slot, next),
                Verdict::Stuck => {
                    stuck[queue as usize] += 1;
                    self.queues.push(slot, queue);
                }
            }
        }
    }

    /// What becomes of the slot whose turn it is.
    fn judge(&mut self, slot: u32, queue: Queue) -> Verdict {
        let Slot { uses, pinned, watch, state, .. } = &mut self.slots[slot as usize];
        let State::Ready(buffer) = state else { return Verdict::Stuck };
        if pinned.is_some() {
            return Verdict::Stuck;
        }
        match queue {
            Queue::Small if *uses > 1 => {
                *uses = 0;
                return Verdict::Waits(Queue::Main);
            }
            Queue::Main if *uses > 0 => {
                *uses -= 1;
                return Verdict::Waits(Queue::Main);
            }
            _ => {}
        }
        // What was used as a copy was not noted here.
        if watch.as_ref().is_some_and(|watch| watch.take_use()) {
            return Verdict::Waits(Queue::Main);
        }
        if buffer.is_held() { Verdict::Stuck } else { Verdict::Goes }
    }

    /// The same as [`evict`](Self::evict) for one who must not take anything from those that were used: looks at a few of each queue.
    fn evict_unused(&mut self) -> Option<Arc<[u8]>> {
        for queue in self.turn() {
            let found = self.queues.iter(queue).take(AHEAD_LOOKS).find(|slot| self.is_unused(*slot));
            if let Some(slot) = found {
                return Some(self.evict_slot(slot, queue));
            }
        }
        // The next one looks at others. The order of the small queue is for those who miss to change.
        for _ in 0..AHEAD_LOOKS.min(self.queues.len(Queue::Main)) {
            if let Some(slot) = self.queues.oldest(Queue::Main) {
                self.queues.push(slot, Queue::Main);
            }
        }
        None
    }

    fn is_unused(&self, slot: u32) -> bool {
        let Slot { uses, pinned, is_ahead, watch, state, .. } = &self.slots[slot as usize];
        let is_free = *uses == 0 && pinned.is_none() && !*is_ahead && watch.is_none();
        is_free && matches!(state, State::Ready(buffer) if !buffer.is_held())
    }

    /// Vacates the slot of a ready block that nobody holds or remembers.
    fn evict_slot(&mut self, slot: u32, queue: Queue) -> Arc<[u8]> {
        let Slot { block, state, .. } = &mut self.slots[slot as usize];
        let memory = match std::mem::replace(state, State::Vacant) {
            State::Ready(buffer) => buffer.into_memory(),
            // It was ready: this does not happen.
            _ => Arc::default(),
        };
        if queue == Queue::Small {
            self.gone.note(self.hasher.hash_one(*block), self.capacity);
        }
        self.counts.evictions += 1;
        self.vacate(slot);
        memory
    }

    /// Takes a slot's block out of the table.
    fn vacate(&mut self, slot: u32) {
        self.vacant.push(slot);
        self.queues.remove(slot);
        self.slots[slot as usize].end_watch();
        let Slot { block, state, pinned, is_ahead, .. } = &mut self.slots[slot as usize];
        (*state, *pinned) = (State::Vacant, None);
        let (block, was_ahead) = (*block, std::mem::take(is_ahead));
        self.ahead -= usize::from(was_ahead);
        self.counts.ahead_wasted += u64::from(was_ahead);
        self.feedback.in_vain(u64::from(was_ahead));
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
        slot.end_watch();
        let State::Ready(buffer) = &mut slot.state else { return None };
        note_use(&mut slot.uses);
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
                let queue = self.queue_for(hash);
                if self.resident() >= self.capacity {
                    self.evict();
                }
                self.insert(block, hash, queue, State::Vacant)
            }
        };
        self.first_use(slot);
        let slot = &mut self.slots[slot as usize];
        slot.end_watch();
        slot.state = State::Ready(buffer);
        note_use(&mut slot.uses);
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

    /// Whether a block is still a version.
    pub(crate) fn is_newest(&self, block: u64, hash: u64, version: &Buffer) -> bool {
        let slot = self.slot_of(block, hash).map(|slot| &self.slots[slot as usize].state);
        matches!(slot, Some(State::Ready(buffer)) if buffer.is_same(version))
    }

    /// Notes a mark on a version, if the block is still that.
    pub(crate) fn set_mark(&mut self, block: u64, hash: u64, version: &Buffer, mark: u64) {
        let Some(at) = self.slot_of(block, hash) else { return };
        let slot = &mut self.slots[at as usize];
        if let State::Ready(buffer) = &mut slot.state {
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
