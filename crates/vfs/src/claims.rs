//! Names that are being changed, and who is in a directory.
//!
//! # Data
//! A [`Claim`] is the right to change one name of one directory: two changes of one name come one after the other, those of different
//! names side by side. [`Sides`] lets either changes or listings into a directory: a listing hands out numbers of inodes, which
//! must not change hands meanwhile. Both are taken with the directory's lock ([`Inode::names`](crate::Inode)) shared; who
//! holds that alone needs neither. Where many changes came since the last who listed, or had the directory alone, a change is a biased
//! read ([`ReaderBias`]) in place of both.
//!
//! | what | guard |
//! |---|---|
//! | claimed names | [`Claims`], one mutex for a part of all directories and names; a leaf |
//! | who is in, who waits, whose turn it is | [`Sides`], one mutex; a leaf |
//! | biased changes | the bias: it goes on by a change that has the lock shared, in a hold of that mutex in which nobody lists or wants to; off by a listing in the hold in which it comes in or begins to wait |
//!
//! What is claimed is a digest of the directory and the name, keyed anew for each file system: so a claim takes no memory, and writes one cache line, which
//! another thread has to hand over half of the time. Two names of one digest would wait for each other, and while one is made the other
//! would be hidden; of 2⁶² pairs that is one.
//!
//! # Guarantees
//! - **C1** Of a name there is one claim at a time. Nobody claims two names, so no circle can form of claims.
//! - **C2** Whoever waits for its side gets in once those of the other side who were in have left: nobody of the other side who comes
//!   later gets in before.
//! - **C3** A look-up waits for neither. What it would be wrong to show, a name whose inode nobody knows yet, is told apart by
//!   [`Claims::is_being_made`].

use crate::Ino;
use dentree_sync::{Condvar, Mutex, ReaderBias};
use std::hash::{BuildHasher, RandomState};
use std::iter;

const SHARDS: usize = 128;

/// The names that are being changed.
pub(crate) struct Claims {
    shards: Box<[Shard]>,
    hasher: RandomState,
}

/// On a cache line of its own.
#[derive(Default)]
#[repr(align(64))]
struct Shard {
    names: Mutex<Names>,
    /// One of them is free again.
    freed: Condvar,
}

const _: () = assert!(size_of::<Shard>() == 64);

#[derive(Default)]
struct Names {
    /// A word of the claimed name, 0 where there is none.
    first: u64,
    /// Those of names that were claimed beside it.
    more: Vec<u64>,
    /// How many wait for one of them: to wake nobody is a system call, too.
    waiting: u32,
}

/// What a digest has no bits in: a word is a digest with one or both of these.
const CLAIMED: u64 = 1;
const BEING_MADE: u64 = 2;

impl Names {
    fn find(&mut self, digest: u64) -> Option<&mut u64> {
        iter::once(&mut self.first)
            .chain(&mut self.more)
            .find(|word| **word & !BEING_MADE == digest | CLAIMED)
    }

    fn add(&mut self, digest: u64) {
        match self.first {
            0 => self.first = digest | CLAIMED,
            _ => self.more.push(digest | CLAIMED),
        }
    }

    fn remove(&mut self, digest: u64) {
        if let Some(word) = self.find(digest) {
            *word = 0;
            self.more.retain(|&word| word != 0);
        }
    }
}

/// The right to change a name, until it is dropped.
pub(crate) struct Claim<'a> {
    shard: &'a Shard,
    digest: u64,
}

impl Claims {
    pub(crate) fn new() -> Claims {
        Claims { shards: (0..SHARDS).map(|_| Shard::default()).collect(), hasher: RandomState::new() }
    }

    fn digest(&self, dir: Ino, name: &[u8]) -> (&Shard, u64) {
        let hash = self.hasher.hash_one((dir.0, name));
        (&self.shards[(hash >> 32) as usize % SHARDS], hash & !(CLAIMED | BEING_MADE))
    }

    /// Claims a name of directory `dir` in the one form that all its spellings share; waits where somebody has it.
    pub(crate) fn claim(&self, dir: Ino, name: &[u8]) -> Claim<'_> {
        let (shard, digest) = self.digest(dir, name);
        let mut names = shard.names.lock();
        while names.find(digest).is_some() {
            names.waiting += 1;
            names = shard.freed.wait(names);
            names.waiting -= 1;
        }
        names.add(digest);
        Claim { shard, digest }
    }

    /// Whether a name that the file system shows is just being made: its inode is not in the cache yet, and must not be loaded. Who is
    /// told no after it has seen the name finds the inode in the cache.
    pub(crate) fn is_being_made(&self, dir: Ino, name: &[u8]) -> bool {
        let (shard, digest) = self.digest(dir, name);
        shard.names.lock().find(digest).is_some_and(|word| *word & BEING_MADE != 0)
    }
}

impl Claim<'_> {
    /// There is no such name, and its owner is about to make it.
    pub(crate) fn begin_making(&self) {
        if let Some(word) = self.shard.names.lock().find(self.digest) {
            *word |= BEING_MADE;
        }
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut names = self.shard.names.lock();
        names.remove(self.digest);
        if names.waiting > 0 {
            self.shard.freed.notify_all();
        }
    }
}

/// What somebody is in a directory for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    Change,
    List,
}

/// Lets many of one side in, or many of the other.
#[derive(Default)]
pub(crate) struct Sides {
    state: Mutex<State>,
    /// The last of a side has left, and there are others who wait.
    left: Condvar,
}

#[derive(Default)]
struct State {
    inside: [u32; 2],
    waiting: [u32; 2],
    /// Which side is next where both want to.
    turn: usize,
}

impl State {
    fn may_enter(&self, side: usize) -> bool {
        let other = 1 - side;
        self.inside[other] == 0 && (self.waiting[other] == 0 || self.turn == side)
    }
}

/// Somebody is in.
pub(crate) struct Inside<'a> {
    sides: &'a Sides,
    side: usize,
}

impl Sides {
    /// Comes in. A change turns the bias on where it may; on return of a listing there is no biased change.
    pub(crate) fn enter(&self, side: Side, bias: &ReaderBias) -> Inside<'_> {
        let is_list = side == Side::List;
        let side = side as usize;
        let mut state = self.state.lock();
        if is_list {
            // Before a change can come that finds nobody who lists.
            bias.stop();
        }
        if !state.may_enter(side) {
            state.waiting[side] += 1;
            while !state.may_enter(side) {
                if state.inside[1 - side] > 0 {
                    // Those who are in leave, and nobody follows them (C2).
                    state.turn = side;
                }
                state = self.left.wait(state);
            }
            state.waiting[side] -= 1;
        }
        state.inside[side] += 1;
        if is_list {
            drop(state);
            bias.revoke();
        } else if state.waiting[Side::List as usize] == 0 {
            bias.note_slow_read();
        }
        Inside { sides: self, side }
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        let mut state = self.sides.state.lock();
        state.inside[self.side] -= 1;
        if state.inside[self.side] == 0 && state.waiting != [0, 0] {
            self.sides.left.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicI32, AtomicU32, Ordering::SeqCst};
    use std::sync::mpsc;

    #[test]
    fn a_name_has_one_claim_at_a_time_and_other_names_do_not_wait() {
        let (claims, changes) = (Claims::new(), AtomicU32::new(0));
        let first = claims.claim(Ino(2), b"a");
        let others = [claims.claim(Ino(2), b"b"), claims.claim(Ino(3), b"a")];
        assert!(!claims.is_being_made(Ino(2), b"a"));
        first.begin_making();
        assert!(claims.is_being_made(Ino(2), b"a") && !claims.is_being_made(Ino(2), b"b"));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _second = claims.claim(Ino(2), b"a");
                assert_eq!(changes.load(SeqCst), 1, "the first has not ended");
            });
            changes.store(1, SeqCst);
            drop(first);
        });
        assert!(!claims.is_being_made(Ino(2), b"a"));
        drop(others);
    }

    #[test]
    fn sides_are_never_in_together_and_none_waits_for_ever() {
        let (sides, bias, inside) = (Sides::default(), ReaderBias::default(), AtomicI32::new(0));
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (sides, bias, inside) = (&sides, &bias, &inside);
                scope.spawn(move || {
                    let (side, sign) = if thread % 2 == 0 { (Side::Change, 1) } else { (Side::List, -1) };
                    for round in 0..2000 {
                        // Listings come in bursts, so that changes are biased in between.
                        if side == Side::List && round % 100 == 0 {
                            dentree_testing::linger(std::time::Duration::from_micros(500));
                        }
                        let biased = if side == Side::Change { bias.try_read() } else { None };
                        let _inside = biased.is_none().then(|| sides.enter(side, bias));
                        assert!((inside.fetch_add(sign, SeqCst) + sign) * sign > 0);
                        std::thread::yield_now();
                        inside.fetch_sub(sign, SeqCst);
                    }
                });
            }
        });
        assert_eq!(inside.into_inner(), 0);
    }

    #[test]
    fn who_waits_is_not_overtaken_by_the_other_side() {
        let sides = Sides::default();
        let bias = ReaderBias::default();
        let first = sides.enter(Side::List, &bias);
        let (told, hear) = mpsc::channel();
        std::thread::scope(|scope| {
            let (sides, bias, waiting) = (&sides, &bias, told.clone());
            scope.spawn(move || {
                let _change = sides.enter(Side::Change, bias);
                waiting.send("change").unwrap();
            });
            while sides.state.lock().waiting == [0, 0] {
                std::thread::yield_now();
            }
            scope.spawn(move || {
                let _list = sides.enter(Side::List, bias);
                told.send("list").unwrap();
            });
            while sides.state.lock().waiting != [1, 1] {
                std::thread::yield_now();
            }
            drop(first);
        });
        assert_eq!(hear.iter().collect::<Vec<_>>(), ["change", "list"]);
    }
}
