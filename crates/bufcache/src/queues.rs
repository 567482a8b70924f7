//! In which order blocks have to go: two queues, and a memory of who went.

use std::iter::successors;

/// Where a slot waits for its turn to make room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Queue {
    /// Blocks that have yet to show that they are used more than once.
    Small,
    /// Those that have.
    Main,
}

/// The queues of a shard, linked by slot numbers, so that one that is dropped leaves at once.
#[derive(Default)]
pub(crate) struct Queues {
    links: Vec<Link>,
    lists: [List; 2],
}

/// A slot's neighbours.
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

    /// The slots of a queue, the oldest first.
    pub(crate) fn iter(&self, queue: Queue) -> impl Iterator<Item = u32> {
        successors(self.oldest(queue), |slot| {
            Some(self.links[*slot as usize].newer).filter(|newer| *newer != NONE)
        })
    }

    /// Puts a slot behind all others of a queue, wherever it was before.
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

    /// Takes a slot out of its queue, if it is in one.
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

/// Which blocks went lately without having been used more than once: by a part of their hash, in a table in which a later one takes the place of an
/// earlier. So each is remembered while about as many others go as the cache has blocks; that some are forgotten sooner, and one in
/// many millions is taken for another, costs a miss.
#[derive(Default)]
pub(crate) struct Gone(Box<[u32]>);

impl Gone {
    /// Notes a block; the table for a cache of `capacity` is made for the first.
    pub(crate) fn note(&mut self, hash: u64, capacity: usize) {
        if self.0.is_empty() {
            self.0 = vec![0; capacity.max(1).next_power_of_two()].into();
        }
        let (at, print) = self.place(hash);
        self.0[at] = print;
    }

    /// Whether a block went lately. It is forgotten by that.
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
        // The length is a power of two. Zero means nobody.
        (hash as usize & (self.0.len() - 1), (hash >> 32) as u32 | 1)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn slots_leave_in_the_order_in_which_they_came_but_for_those_that_are_taken_out() {
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
    fn who_went_is_remembered_once() {
        let mut gone = Gone::default();
        let hash = |block: u64| block.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        assert!(!gone.take(hash(5)));
        gone.note(hash(5), 64);
        assert!(!gone.take(hash(6)) && gone.take(hash(5)) && !gone.take(hash(5)));
        // Of 64 that went last, most are known; of those long before, few.
        (0..10_000).for_each(|block| gone.note(hash(block), 64));
        let mut known = |blocks: std::ops::Range<u64>| blocks.filter(|block| gone.take(hash(*block))).count();
        assert!(known(9_936..10_000) >= 32 && known(0..9_000) < 8);
    }
}
