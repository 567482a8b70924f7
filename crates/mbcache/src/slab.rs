//! Slots by number, in chunks allocated on demand and freed with the cache.
//!
//! Slots are type-stable: a number from a chain always leads to an [`Entry`], perhaps of another
//! generation. So readers need no reclamation.

use crate::entry::Entry;
use dentree_sync::Mutex;
use std::sync::OnceLock;

/// Slots of a chunk.
pub(crate) const CHUNK: usize = if cfg!(loom) { 2 } else { 1024 };

pub(crate) struct Slab {
    chunks: Box<[OnceLock<Box<[Entry]>>]>,
    slots_max: usize,
    spare: Mutex<Spare>,
}

/// [slab lock]
struct Spare {
    freed: Vec<u32>,
    never_used: usize,
}

impl Slab {
    pub(crate) fn new(slots_max: usize) -> Slab {
        let chunks = (0..slots_max.div_ceil(CHUNK)).map(|_| OnceLock::new()).collect();
        Slab { chunks, slots_max, spare: Mutex::new(Spare { freed: Vec::new(), never_used: 0 }) }
    }

    /// `None` for a slot that was never used.
    pub(crate) fn slot(&self, number: u32) -> Option<&Entry> {
        let number = number as usize;
        self.chunks.get(number / CHUNK)?.get()?.get(number % CHUNK)
    }

    pub(crate) fn take(&self) -> Option<(u32, &Entry)> {
        let mut spare = self.spare.lock();
        let number = match spare.freed.pop() {
            Some(number) => number,
            None if spare.never_used < self.slots_max => {
                spare.never_used += 1;
                (spare.never_used - 1) as u32
            }
            None => return None,
        };
        let chunk = self.chunks.get(number as usize / CHUNK)?;
        let chunk = chunk.get_or_init(|| {
            let len = CHUNK.min(self.slots_max - number as usize / CHUNK * CHUNK);
            (0..len).map(|_| Entry::free()).collect()
        });
        Some((number, &chunk[number as usize % CHUNK]))
    }

    /// Returns a slot with `refs` 0 that no chain leads to.
    pub(crate) fn give(&self, number: u32) {
        self.spare.lock().freed.push(number);
    }

    /// Number of slots ever used, which the pruner sweeps.
    pub(crate) fn used(&self) -> usize {
        self.spare.lock().never_used
    }

    pub(crate) fn slots_max(&self) -> usize {
        self.slots_max
    }

    pub(crate) fn bytes(&self) -> usize {
        let made = self.chunks.iter().filter_map(OnceLock::get);
        made.map(|chunk| size_of_val(&**chunk)).sum::<usize>() + self.spare.lock().freed.capacity() * 4
    }
}
