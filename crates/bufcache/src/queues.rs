//! Queues of eviction, and ghosts of evicted blocks.

use std::iter::successors;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Queue {
    /// Blocks used at most once.
    Small,
    /// Blocks that were.
    Main,
}

/// The queues of a shard, linked by slot numbers, so that any slot is removed in one step.
#[derive(Default)]
pub(crate) struct Queues {
    links: Vec<Link>,
    lists: [List; 2],
}

#[derive(Clone, Copy)]
pub(crate) struct Link {
    newer: u32,
    older: u32,
    queue: Option<Queue>,
}

struct List {
    oldest: u32,
    newest: u32,
    len: usize,
}

const NONE: u32 = u32::MAX;

impl Default for List {
    fn default() -> Self {
        List { oldest: NONE, newest: NONE, len: 0 }
    }
}

impl Queues {
    pub(crate) fn len(&self, queue: Queue) -> usize {
        self.lists[queue as usize].len
    }

    pub(crate) fn oldest(&self, queue: Queue) -> Option<u32> {
        Some(self.lists[queue as usize].oldest).filter(|slot| *slot != NONE)
    }

    /// The slots of a queue, oldest first.
    pub(crate) fn iter(&self, queue: Queue) -> impl Iterator<Item = u32> {
        successors(self.oldest(queue), |slot| {
            Some(self.links[*slot as usize].newer).filter(|newer| *newer != NONE)
        })
    }

    /// Moves a slot to the end of a queue.
    pub(crate) fn push(&mut self, slot: u32, queue: Queue) {
        self.remove(slot);
        let at = slot as usize;
        if at >= self.links.len() {
            self.links.resize(at + 1, Link { newer: NONE, older: NONE, queue: None });
        }
        let list = &mut self.lists[queue as usize];
        self.links[at] = Link { newer: NONE, older: list.newest, queue: Some(queue) };
        match list.newest {
            NONE => list.oldest = slot,
            newest => self.links[newest as usize].newer = slot,
        }
        list.newest = slot;
        list.len += 1;
    }

    /// Removes a slot from its queue, if it is in one.
    pub(crate) fn remove(&mut self, slot: u32) {
        let Some(link) = self.links.get_mut(slot as usize) else { return };
        let Some(queue) = link.queue.take() else { return };
        let Link { newer, older, .. } = *link;
        let list = &mut self.lists[queue as usize];
        list.len -= 1;
        match older {
            NONE => list.oldest = newer,
            older => self.links[older as usize].newer = newer,
        }
        match newer {
            NONE => list.newest = older,
            newer => self.links[newer as usize].older = older,
        }
    }
}

/// The ghosts of S3-FIFO: blocks recently evicted from the small queue.
///
/// A table of parts of their hashes, where a later block replaces an earlier one: a ghost lasts for
/// about as many evictions as the cache has blocks. A lost or mistaken ghost (one in many millions)
/// costs a miss.
#[derive(Default)]
pub(crate) struct Ghosts(Box<[u32]>);

impl Ghosts {
    /// Inserts a block; the first call allocates the table, for a cache of `capacity` blocks.
    pub(crate) fn insert(&mut self, hash: u64, capacity: usize) {
        if self.0.is_empty() {
            self.0 = vec![0; capacity.max(1).next_power_of_two()].into();
        }
        let (at, print) = self.place(hash);
        self.0[at] = print;
    }

    /// Removes a block; returns whether it was present.
    pub(crate) fn take(&mut self, hash: u64) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let (at, print) = self.place(hash);
        let was_there = self.0[at] == print;
        if was_there {
            self.0[at] = 0;
        }
        was_there
    }

    fn place(&self, hash: u64) -> (usize, u32) {
        // The length is a power of two. A hash part is never 0.
        (hash as usize & (self.0.len() - 1), (hash >> 32) as u32 | 1)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn slots_leave_in_the_order_of_their_arrival() {
        let mut queues = Queues::default();
        let small = |queues: &Queues| queues.iter(Queue::Small).collect::<Vec<_>>();
        [3, 1, 4, 0].into_iter().for_each(|slot| queues.push(slot, Queue::Small));
        queues.push(7, Queue::Main);
        assert_eq!(small(&queues), [3, 1, 4, 0]);
        queues.remove(4);
        queues.remove(4);
        queues.push(3, Queue::Small);
        assert_eq!(small(&queues), [1, 0, 3]);
        queues.push(1, Queue::Main);
        assert_eq!((small(&queues), queues.iter(Queue::Main).collect()), (vec![0, 3], vec![7, 1]));
        [0, 3, 1, 7].into_iter().for_each(|slot| queues.remove(slot));
        assert_eq!((queues.oldest(Queue::Small), queues.len(Queue::Main)), (None, 0));
        queues.push(2, Queue::Small);
        assert_eq!(small(&queues), [2]);
    }

    #[test]
    fn a_ghost_is_found_once() {
        let mut ghosts = Ghosts::default();
        let hash = |block: u64| block.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        assert!(!ghosts.take(hash(5)));
        ghosts.insert(hash(5), 64);
        assert!(!ghosts.take(hash(6)) && ghosts.take(hash(5)) && !ghosts.take(hash(5)));
        // Most of the last 64 are found, and few older ones.
        (0..10_000).for_each(|block| ghosts.insert(hash(block), 64));
        let mut known =
            |blocks: std::ops::Range<u64>| blocks.filter(|block| ghosts.take(hash(*block))).count();
        assert!(known(9_936..10_000) >= 32 && known(0..9_000) < 8);
    }
}
