//! Five replacement policies, written from their descriptions, over block numbers alone.
//!
//! Each reports hits, and never exceeds its capacity.

use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use std::collections::{BTreeSet, VecDeque};

/// A cache of block numbers.
pub trait Policy {
    /// Accesses a block; returns whether it was a hit.
    fn access(&mut self, block: u64) -> bool;
}

/// Makes a cache of a capacity for these accesses, which only the optimal policy reads.
pub type Make = fn(usize, &[u64]) -> Box<dyn Policy>;

/// All policies, by name.
pub const POLICIES: [(&str, Make); 5] = [
    ("lru", |capacity, _| Box::new(Lru::new(capacity))),
    ("clock", |capacity, _| Box::new(Clock::new(capacity))),
    ("sieve", |capacity, _| Box::new(Sieve::new(capacity))),
    ("s3-fifo", |capacity, _| Box::new(S3Fifo::new(capacity))),
    ("optimal", |capacity, future| Box::new(Optimal::new(capacity, future))),
];

/// Evicts the least recently used block.
struct Lru {
    capacity: usize,
    now: u64,
    used_at: HashMap<u64, u64>,
    by_age: BTreeSet<(u64, u64)>,
}

impl Lru {
    fn new(capacity: usize) -> Lru {
        Lru { capacity, now: 0, used_at: HashMap::new(), by_age: BTreeSet::new() }
    }
}

impl Policy for Lru {
    fn access(&mut self, block: u64) -> bool {
        self.now += 1;
        let before = self.used_at.insert(block, self.now);
        if let Some(before) = before {
            self.by_age.remove(&(before, block));
        }
        self.by_age.insert((self.now, block));
        if self.by_age.len() > self.capacity
            && let Some((_, oldest)) = self.by_age.pop_first()
        {
            self.used_at.remove(&oldest);
        }
        before.is_some()
    }
}

/// A ring and a hand, which evicts the first block that was not used since its last visit. A new
/// block counts as not used.
struct Clock {
    capacity: usize,
    slots: Vec<(u64, bool)>,
    at: HashMap<u64, usize>,
    hand: usize,
}

impl Clock {
    fn new(capacity: usize) -> Clock {
        Clock { capacity, slots: Vec::new(), at: HashMap::new(), hand: 0 }
    }
}

impl Policy for Clock {
    fn access(&mut self, block: u64) -> bool {
        if let Some(&slot) = self.at.get(&block) {
            self.slots[slot].1 = true;
            return true;
        }
        if self.slots.len() < self.capacity {
            self.at.insert(block, self.slots.len());
            self.slots.push((block, false));
            return false;
        }
        loop {
            let slot = self.hand;
            self.hand = (slot + 1) % self.capacity;
            if !std::mem::take(&mut self.slots[slot].1) {
                self.at.remove(&self.slots[slot].0);
                self.slots[slot] = (block, false);
                self.at.insert(block, slot);
                return false;
            }
        }
    }
}

const NONE: usize = usize::MAX;

/// A queue in order of arrival, and a hand from the oldest to the newest, which then starts over. A
/// used block stays in its position and loses its mark; the first unused one is evicted. New blocks
/// are added behind the hand's start, so it reaches them soon.
struct Sieve {
    capacity: usize,
    nodes: Vec<SieveNode>,
    at: HashMap<u64, usize>,
    newest: usize,
    oldest: usize,
    hand: usize,
}

struct SieveNode {
    block: u64,
    was_used: bool,
    newer: usize,
    older: usize,
}

impl Sieve {
    fn new(capacity: usize) -> Sieve {
        Sieve { capacity, nodes: Vec::new(), at: HashMap::new(), newest: NONE, oldest: NONE, hand: NONE }
    }

    /// Evicts a block; returns its node for reuse.
    fn evict(&mut self) -> usize {
        let mut hand = if self.hand == NONE { self.oldest } else { self.hand };
        while std::mem::take(&mut self.nodes[hand].was_used) {
            hand = if self.nodes[hand].newer == NONE { self.oldest } else { self.nodes[hand].newer };
        }
        let SieveNode { block, newer, older, .. } = self.nodes[hand];
        self.hand = newer;
        match older {
            NONE => self.oldest = newer,
            older => self.nodes[older].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => self.nodes[newer].older = older,
        }
        self.at.remove(&block);
        hand
    }
}

impl Policy for Sieve {
    fn access(&mut self, block: u64) -> bool {
        if let Some(&node) = self.at.get(&block) {
            self.nodes[node].was_used = true;
            return true;
        }
        let place = if self.nodes.len() == self.capacity { self.evict() } else { self.nodes.len() };
        let node = SieveNode { block, was_used: false, newer: NONE, older: self.newest };
        if place == self.nodes.len() {
            self.nodes.push(node);
        } else {
            self.nodes[place] = node;
        }
        match self.newest {
            NONE => self.oldest = place,
            newest => self.nodes[newest].newer = place,
        }
        self.newest = place;
        self.at.insert(block, place);
        false
    }
}

/// A small queue for new blocks, a main queue for those used in it, and a ghost queue of the
/// numbers of the others: a block whose number is in the ghost queue enters the main queue
/// directly.
struct S3Fifo {
    small_capacity: usize,
    main_capacity: usize,
    small: VecDeque<u64>,
    main: VecDeque<u64>,
    /// Uses since insertion, up to 3.
    uses: HashMap<u64, u8>,
    ghosts: VecDeque<u64>,
    is_ghost: HashSet<u64>,
}

impl S3Fifo {
    fn new(capacity: usize) -> S3Fifo {
        let small_capacity = (capacity / 10).max(1);
        S3Fifo {
            small_capacity,
            main_capacity: (capacity - small_capacity).max(1),
            small: VecDeque::new(),
            main: VecDeque::new(),
            uses: HashMap::new(),
            ghosts: VecDeque::new(),
            is_ghost: HashSet::new(),
        }
    }

    fn evict(&mut self) {
        while self.small.len() + self.main.len() >= self.small_capacity + self.main_capacity {
            if self.small.len() >= self.small_capacity || self.main.is_empty() {
                self.leave_small();
            } else {
                self.leave_main();
            }
        }
    }

    fn leave_small(&mut self) {
        let Some(block) = self.small.pop_front() else { return };
        if self.uses.get(&block).is_some_and(|uses| *uses > 1) {
            self.uses.insert(block, 0);
            self.main.push_back(block);
            return;
        }
        self.uses.remove(&block);
        self.ghosts.push_back(block);
        self.is_ghost.insert(block);
        if self.ghosts.len() > self.main_capacity
            && let Some(forgotten) = self.ghosts.pop_front()
        {
            self.is_ghost.remove(&forgotten);
        }
    }

    fn leave_main(&mut self) {
        while let Some(block) = self.main.pop_front() {
            match self.uses.get_mut(&block) {
                Some(uses) if *uses > 0 => {
                    *uses -= 1;
                    self.main.push_back(block);
                }
                _ => {
                    self.uses.remove(&block);
                    return;
                }
            }
        }
    }
}

impl Policy for S3Fifo {
    fn access(&mut self, block: u64) -> bool {
        if let Some(uses) = self.uses.get_mut(&block) {
            *uses = (*uses + 1).min(3);
            return true;
        }
        self.evict();
        // A number that is in the ghost queue twice loses its mark with the first copy: rarely, a
        // block loses its second chance.
        let queue = if self.is_ghost.remove(&block) { &mut self.main } else { &mut self.small };
        queue.push_back(block);
        self.uses.insert(block, 0);
        false
    }
}

/// Evicts the block whose next use is last: no policy has more hits.
struct Optimal {
    capacity: usize,
    /// For each access, the next access to its block.
    next: Vec<usize>,
    now: usize,
    due: HashMap<u64, usize>,
    by_due: BTreeSet<(usize, u64)>,
}

impl Optimal {
    fn new(capacity: usize, future: &[u64]) -> Optimal {
        let mut seen = HashMap::new();
        let mut next = vec![usize::MAX; future.len()];
        for (at, block) in future.iter().enumerate().rev() {
            next[at] = seen.insert(*block, at).unwrap_or(usize::MAX);
        }
        Optimal { capacity, next, now: 0, due: HashMap::new(), by_due: BTreeSet::new() }
    }
}

impl Policy for Optimal {
    fn access(&mut self, block: u64) -> bool {
        let due = self.next.get(self.now).copied().unwrap_or(usize::MAX);
        self.now += 1;
        let before = self.due.insert(block, due);
        if let Some(before) = before {
            self.by_due.remove(&(before, block));
        }
        self.by_due.insert((due, block));
        if self.by_due.len() > self.capacity
            && let Some((_, last)) = self.by_due.pop_last()
        {
            self.due.remove(&last);
        }
        before.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// For each access, whether it was a hit.
    fn hits(name: &str, capacity: usize, blocks: &[u64]) -> Vec<bool> {
        let (_, make) = POLICIES.iter().find(|(known, _)| *known == name).unwrap();
        let mut cache = make(capacity, blocks);
        blocks.iter().map(|block| cache.access(*block)).collect()
    }

    #[test]
    fn each_policy_keeps_the_blocks_of_its_description() {
        const T: bool = true;
        const F: bool = false;
        // Capacity 3. LRU evicts 1 for 4 although it was used twice; its mark saves it from the
        // hand, once.
        let blocks = [1, 1, 2, 3, 4, 1];
        assert_eq!(hits("lru", 3, &blocks), [F, T, F, F, F, F]);
        assert_eq!(hits("clock", 3, &blocks), [F, T, F, F, F, T]);
        assert_eq!(hits("sieve", 3, &blocks), [F, T, F, F, F, T]);
        // The clock's hand reaches 1 again before 4; the sieve's stays at the new ones.
        let scan = [1, 1, 2, 3, 4, 5, 6, 7, 1];
        assert_eq!(hits("clock", 3, &scan).last(), Some(&F));
        assert_eq!(hits("sieve", 3, &scan).last(), Some(&T));
        // A block that returns soon after its eviction from the small queue survives a scan.
        let back: Vec<u64> = (1..=5).chain([1]).chain(10..14).chain([1]).collect();
        assert_eq!(hits("s3-fifo", 4, &back).last(), Some(&T));
        assert_eq!(hits("lru", 4, &back).last(), Some(&F));
        assert_eq!(hits("optimal", 2, &[1, 2, 3, 1, 2]), [F, F, F, T, T]);
    }

    proptest! {
        #[test]
        fn no_policy_beats_the_optimal_one_or_hits_a_new_block(
            blocks in prop::collection::vec(0u64..30, 0..400),
            capacity in 2usize..20,
        ) {
            let count = |name| hits(name, capacity, &blocks).into_iter().filter(|hit| *hit).count();
            let best = count("optimal");
            for (name, _) in POLICIES {
                prop_assert!(count(name) <= best, "{name}");
                let results = hits(name, capacity, &blocks);
                let first = |at: usize| !blocks[..at].contains(&blocks[at]);
                prop_assert!((0..blocks.len()).all(|at| !(first(at) && results[at])));
                // With capacity for all, each block misses once.
                let large = hits(name, 100, &blocks);
                prop_assert!((0..blocks.len()).all(|at| large[at] != first(at)), "{name}");
            }
        }
    }
}
