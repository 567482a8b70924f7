//! Who stays in a cache: five answers, from their descriptions, over block numbers alone.
//!
//! All say of each access whether it was a hit, and hold no more than their capacity.

use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use std::collections::{BTreeSet, VecDeque};

/// A cache of block numbers.
pub trait Policy {
    /// Uses a block; says whether it was there.
    fn access(&mut self, block: u64) -> bool;
}

/// Makes a cache with room for so many blocks, for these accesses: only the one that sees the future looks at them.
pub type Make = fn(usize, &[u64]) -> Box<dyn Policy>;

/// All that are compared, by name.
pub const POLICIES: [(&str, Make); 5] = [
    ("lru", |room, _| Box::new(Lru::new(room))),
    ("clock", |room, _| Box::new(Clock::new(room))),
    ("sieve", |room, _| Box::new(Sieve::new(room))),
    ("s3-fifo", |room, _| Box::new(S3Fifo::new(room))),
    ("optimal", |room, future| Box::new(Optimal::new(room, future))),
];

/// Who was used longest ago goes.
struct Lru {
    room: usize,
    now: u64,
    used_at: HashMap<u64, u64>,
    by_age: BTreeSet<(u64, u64)>,
}

impl Lru {
    fn new(room: usize) -> Lru {
        Lru { room, now: 0, used_at: HashMap::new(), by_age: BTreeSet::new() }
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
        if self.by_age.len() > self.room
            && let Some((_, oldest)) = self.by_age.pop_first()
        {
            self.used_at.remove(&oldest);
        }
        before.is_some()
    }
}

/// A ring and a hand that takes the first block that was not used since it last came by. A new block counts as not used.
struct Clock {
    room: usize,
    slots: Vec<(u64, bool)>,
    at: HashMap<u64, usize>,
    hand: usize,
}

impl Clock {
    fn new(room: usize) -> Clock {
        Clock { room, slots: Vec::new(), at: HashMap::new(), hand: 0 }
    }
}

impl Policy for Clock {
    fn access(&mut self, block: u64) -> bool {
        if let Some(&slot) = self.at.get(&block) {
            self.slots[slot].1 = true;
            return true;
        }
        if self.slots.len() < self.room {
            self.at.insert(block, self.slots.len());
            self.slots.push((block, false));
            return false;
        }
        loop {
            let slot = self.hand;
            self.hand = (slot + 1) % self.room;
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

/// A queue in the order of arrival, and a hand that goes from the oldest to the newest and starts over: who was used stays where it is, unmarked;
/// the first who was not goes. New blocks come in behind the hand's back, so that it sees them soon.
struct Sieve {
    room: usize,
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
    fn new(room: usize) -> Sieve {
        Sieve { room, nodes: Vec::new(), at: HashMap::new(), newest: NONE, oldest: NONE, hand: NONE }
    }

    /// Takes out the node that makes room; its place can be used again.
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
        let place = if self.nodes.len() == self.room { self.evict() } else { self.nodes.len() };
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

/// A small queue that blocks have to prove themselves in, a main one for those that did, and the numbers of those that did not: who comes back
/// while it is remembered goes into the main queue at once.
struct S3Fifo {
    small_room: usize,
    main_room: usize,
    small: VecDeque<u64>,
    main: VecDeque<u64>,
    /// Uses since it came in, up to 3.
    uses: HashMap<u64, u8>,
    gone: VecDeque<u64>,
    is_gone: HashSet<u64>,
}

impl S3Fifo {
    fn new(room: usize) -> S3Fifo {
        let small_room = (room / 10).max(1);
        S3Fifo {
            small_room,
            main_room: (room - small_room).max(1),
            small: VecDeque::new(),
            main: VecDeque::new(),
            uses: HashMap::new(),
            gone: VecDeque::new(),
            is_gone: HashSet::new(),
        }
    }

    fn make_room(&mut self) {
        while self.small.len() + self.main.len() >= self.small_room + self.main_room {
            if self.small.len() >= self.small_room || self.main.is_empty() {
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
        self.gone.push_back(block);
        self.is_gone.insert(block);
        if self.gone.len() > self.main_room
            && let Some(forgotten) = self.gone.pop_front()
        {
            self.is_gone.remove(&forgotten);
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
        self.make_room();
        // A number that is remembered twice is forgotten when its first copy goes: a rare second chance less.
        let queue = if self.is_gone.remove(&block) { &mut self.main } else { &mut self.small };
        queue.push_back(block);
        self.uses.insert(block, 0);
        false
    }
}

/// Who is used again last goes: no cache without foresight hits more often.
struct Optimal {
    room: usize,
    /// When each access's block is used next.
    next: Vec<usize>,
    now: usize,
    due: HashMap<u64, usize>,
    by_due: BTreeSet<(usize, u64)>,
}

impl Optimal {
    fn new(room: usize, future: &[u64]) -> Optimal {
        let mut seen = HashMap::new();
        let mut next = vec![usize::MAX; future.len()];
        for (at, block) in future.iter().enumerate().rev() {
            next[at] = seen.insert(*block, at).unwrap_or(usize::MAX);
        }
        Optimal { room, next, now: 0, due: HashMap::new(), by_due: BTreeSet::new() }
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
        if self.by_due.len() > self.room
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

    /// Which of the accesses hit.
    fn hits(name: &str, room: usize, blocks: &[u64]) -> Vec<bool> {
        let (_, make) = POLICIES.iter().find(|(known, _)| *known == name).unwrap();
        let mut cache = make(room, blocks);
        blocks.iter().map(|block| cache.access(*block)).collect()
    }

    #[test]
    fn each_keeps_whom_its_description_says() {
        const T: bool = true;
        const F: bool = false;
        // Room for three. LRU drops 1 for 4 although it was used twice; a mark saves it from the hand, once.
        let blocks = [1, 1, 2, 3, 4, 1];
        assert_eq!(hits("lru", 3, &blocks), [F, T, F, F, F, F]);
        assert_eq!(hits("clock", 3, &blocks), [F, T, F, F, F, T]);
        assert_eq!(hits("sieve", 3, &blocks), [F, T, F, F, F, T]);
        // The clock's hand comes to 1 again before it comes to 4; the sieve's does not leave the new ones.
        let scan = [1, 1, 2, 3, 4, 5, 6, 7, 1];
        assert_eq!(hits("clock", 3, &scan).last(), Some(&F));
        assert_eq!(hits("sieve", 3, &scan).last(), Some(&T));
        // One that comes back soon after it failed in the small queue stays through a scan.
        let back: Vec<u64> = (1..=5).chain([1]).chain(10..14).chain([1]).collect();
        assert_eq!(hits("s3-fifo", 4, &back).last(), Some(&T));
        assert_eq!(hits("lru", 4, &back).last(), Some(&F));
        assert_eq!(hits("optimal", 2, &[1, 2, 3, 1, 2]), [F, F, F, T, T]);
    }

    proptest! {
        #[test]
        fn none_hits_more_than_who_sees_the_future_or_what_it_was_never_given(
            blocks in prop::collection::vec(0u64..30, 0..400),
            room in 2usize..20,
        ) {
            let count = |name| hits(name, room, &blocks).into_iter().filter(|hit| *hit).count();
            let best = count("optimal");
            for (name, _) in POLICIES {
                prop_assert!(count(name) <= best, "{name}");
                let answers = hits(name, room, &blocks);
                let first = |at: usize| !blocks[..at].contains(&blocks[at]);
                prop_assert!((0..blocks.len()).all(|at| !(first(at) && answers[at])));
                // With room for all, each block is missed once.
                let roomy = hits(name, 100, &blocks);
                prop_assert!((0..blocks.len()).all(|at| roomy[at] != first(at)), "{name}");
            }
        }
    }
}
