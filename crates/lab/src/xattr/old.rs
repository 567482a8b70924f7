//! The metadata block cache as it was before 2016, from the description in the message of the change that replaced it: an entry may be
//! in several indexes, it has a reader-writer lock of its own make, one cache serves several file systems, and one lock guards all
//! lists.
//!
//! # Who protects what
//! Everything is under one mutex, the list lock: the table by block, the tables by key, the list of unused entries, and the words of each
//! entry's lock. Who has to wait for an entry's lock sleeps in the one queue that there is, and all in it wake whenever any entry is let go.

use super::BlockCache;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// In how many indexes an entry may be; file systems used one.
const INDEXES: usize = 1;
const BUCKETS: usize = 1 << 10;
const NONE: u32 = u32::MAX;
/// In `used`: somebody has it for himself.
const WRITER: u64 = 1 << 32;

/// Thirteen words, as the original's, most of them links: here buckets and the list of unused entries are vectors, but an entry is as large.
#[derive(Clone, Copy)]
#[allow(dead_code, reason = "what links stood for is in vectors")]
pub struct Entry {
    /// Neighbours among the unused: before and behind.
    unused: [u64; 2],
    /// Neighbours among those of the same bucket of blocks.
    by_block: [u64; 2],
    device: u64,
    block: u64,
    /// Holders, and [`WRITER`].
    used: u64,
    /// Who waits to have it for himself.
    queued: u64,
    /// For each index: neighbours among those of the bucket, and the key.
    by_key: [[u64; 2]; INDEXES],
    key: [u64; INDEXES],
    cache: u64,
    is_linked: u64,
}

/// See the [module](self).
pub struct Old {
    state: Mutex<State>,
    queue: Condvar,
}

struct State {
    entries: Vec<Entry>,
    free: Vec<u32>,
    blocks: Vec<Vec<u32>>,
    keys: [Vec<Vec<u32>>; INDEXES],
    /// Entries that nobody holds, the longest unused first. Those that were taken since are passed over.
    unused: VecDeque<u32>,
    most: usize,
}

impl Old {
    /// A cache of at most so many entries.
    pub fn new(most: usize) -> Old {
        let table = || vec![Vec::new(); BUCKETS];
        let state = State {
            entries: Vec::new(),
            free: Vec::new(),
            blocks: table(),
            keys: std::array::from_fn(|_| table()),
            unused: VecDeque::new(),
            most,
        };
        Old { state: Mutex::new(state), queue: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits in the one queue.
    fn wait<'s>(&self, state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        self.queue.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets an entry go that is held with others, or alone.
    fn release(&self, number: u32) {
        let mut state = self.lock();
        let entry = &mut state.entries[number as usize];
        entry.used = if entry.used & WRITER != 0 { 0 } else { entry.used - 1 };
        if entry.used == 0 && entry.queued == 0 {
            match entry.is_linked {
                0 => state.free.push(number),
                _ => state.unused.push_back(number),
            }
        }
        drop(state);
        self.queue.notify_all();
    }
}

impl State {
    fn bucket(value: u64) -> usize {
        (value.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 54) as usize
    }

    fn of_block(&self, block: u64) -> Option<u32> {
        let bucket = &self.blocks[Self::bucket(block)];
        bucket.iter().copied().find(|&number| self.entries[number as usize].block == block)
    }

    fn unlink(&mut self, number: u32) {
        let Entry { block, key, .. } = self.entries[number as usize];
        self.blocks[Self::bucket(block)].retain(|&other| other != number);
        for (table, key) in self.keys.iter_mut().zip(key) {
            table[Self::bucket(key)].retain(|&other| other != number);
        }
        self.entries[number as usize].is_linked = 0;
    }

    /// An entry for a new block: that of the longest unused one where there are too many.
    fn take(&mut self) -> u32 {
        if self.entries.len() - self.free.len() >= self.most {
            while let Some(oldest) = self.unused.pop_front() {
                let entry = self.entries[oldest as usize];
                if entry.used == 0 && entry.queued == 0 && entry.is_linked != 0 {
                    self.unlink(oldest);
                    return oldest;
                }
            }
        }
        self.free.pop().unwrap_or_else(|| {
            self.entries.push(Entry {
                unused: [0; 2],
                by_block: [0; 2],
                device: 0,
                block: 0,
                used: 0,
                queued: 0,
                by_key: [[0; 2]; INDEXES],
                key: [0; INDEXES],
                cache: 0,
                is_linked: 0,
            });
            u32::try_from(self.entries.len() - 1).unwrap_or(NONE)
        })
    }
}

impl BlockCache for Old {
    fn share(&self, key: u32, wanted: &dyn Fn(u64) -> bool) -> Option<u64> {
        let key = u64::from(key);
        let mut tried = Vec::new();
        loop {
            let mut state = self.lock();
            let number = loop {
                let bucket = &state.keys[0][State::bucket(key)];
                let next = bucket.iter().copied().find(|number| {
                    state.entries[*number as usize].key[0] == key && !tried.contains(number)
                })?;
                let entry = &mut state.entries[next as usize];
                // Readers let those go first who want it for themselves.
                if entry.used & WRITER == 0 && entry.queued == 0 {
                    entry.used += 1;
                    break next;
                }
                state = self.wait(state);
            };
            let block = state.entries[number as usize].block;
            drop(state);
            let found = wanted(block);
            self.release(number);
            if found {
                return Some(block);
            }
            tried.push(number);
        }
    }

    fn insert(&self, key: u32, block: u64) {
        let key = u64::from(key);
        let mut state = self.lock();
        if state.of_block(block).is_some() {
            return;
        }
        let number = state.take();
        let entry = &mut state.entries[number as usize];
        (entry.block, entry.key, entry.used, entry.is_linked) = (block, [key; INDEXES], WRITER, 1);
        state.blocks[State::bucket(block)].push(number);
        for table in &mut state.keys {
            table[State::bucket(key)].insert(0, number);
        }
        drop(state);
        self.release(number);
    }

    fn forget(&self, _: u32, block: u64) {
        let mut state = self.lock();
        let number = loop {
            let Some(number) = state.of_block(block) else { return };
            if state.entries[number as usize].used == 0 {
                break number;
            }
            state.entries[number as usize].queued += 1;
            state = self.wait(state);
            state.entries[number as usize].queued -= 1;
        };
        state.entries[number as usize].used = WRITER;
        state.unlink(number);
        drop(state);
        self.release(number);
    }
}
