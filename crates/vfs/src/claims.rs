//! Names that are being changed, and who is in a directory.
//!
//! # Data
//! A [`Claim`] is the right to change one name of one directory: two changes of one name come one after the other, those of different
//! names side by side. [`Sides`] lets either changes or listings into a directory: a listing hands out numbers of inodes, which
//! must not change hands meanwhile. Both are taken with the directory's lock ([`Inode::names`](crate::Inode)) shared; who
//! holds that alone needs neither.
//!
//! | what | guard |
//! |---|---|
//! | claimed names | [`Claims`], one mutex for a part of all directories and names; a leaf |
//! | who is in, who waits, whose turn it is | [`Sides`], one mutex; a leaf |
//!
//! # Guarantees
//! - **C1** Of a name there is one claim at a time. Nobody claims two names, so no circle can form of claims.
//! - **C2** Whoever waits for its side gets in once those of the other side who were in have left: nobody of the other side who comes
//!   later gets in before.
//! - **C3** A look-up waits for neither. What it would be wrong to show, a name whose inode nobody knows yet, is told apart by
//!   [`Claims::is_being_made`].

use crate::Ino;
use crate::inode::lock;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Condvar, Mutex, PoisonError};

const SHARDS: usize = 64;

/// The names that are being changed.
pub(crate) struct Claims {
    shards: Box<[Shard]>,
    hasher: RandomState,
}

/// On lines of its own: neighbours are taken by other threads.
#[derive(Default)]
#[repr(align(128))]
struct Shard {
    names: Mutex<Names>,
    /// One of them is free again.
    freed: Condvar,
}

#[derive(Default)]
struct Names {
    claimed: Vec<Claimed>,
    /// How many wait for one of them: to wake nobody is a system call, too.
    waiting: usize,
}

impl Names {
    fn find(&mut self, dir: Ino, name: &[u8]) -> Option<&mut Claimed> {
        self.claimed.iter_mut().find(|claimed| claimed.is(dir, name))
    }
}

struct Claimed {
    dir: Ino,
    name: Box<[u8]>,
    is_being_made: bool,
}

impl Claimed {
    fn is(&self, dir: Ino, name: &[u8]) -> bool {
        self.dir == dir && *self.name == *name
    }
}

/// The right to change a name, until it is dropped.
pub(crate) struct Claim<'a> {
    shard: &'a Shard,
    dir: Ino,
    name: &'a [u8],
}

impl Claims {
    pub(crate) fn new() -> Claims {
        Claims { shards: (0..SHARDS).map(|_| Shard::default()).collect(), hasher: RandomState::new() }
    }

    fn shard(&self, dir: Ino, name: &[u8]) -> &Shard {
        &self.shards[self.hasher.hash_one((dir.0, name)) as usize % SHARDS]
    }

    /// Claims a name of directory `dir` in the one form that all its spellings share; waits where somebody has it.
    pub(crate) fn claim<'a>(&'a self, dir: Ino, name: &'a [u8]) -> Claim<'a> {
        let shard = self.shard(dir, name);
        let mut names = lock(&shard.names);
        while names.find(dir, name).is_some() {
            names.waiting += 1;
            names = shard.freed.wait(names).unwrap_or_else(PoisonError::into_inner);
            names.waiting -= 1;
        }
        names.claimed.push(Claimed { dir, name: name.into(), is_being_made: false });
        Claim { shard, dir, name }
    }

    /// Whether a name that the file system shows is just being made: its inode is not in the cache yet, and must not be loaded. Who is
    /// told no after it has seen the name finds the inode in the cache.
    pub(crate) fn is_being_made(&self, dir: Ino, name: &[u8]) -> bool {
        lock(&self.shard(dir, name).names).find(dir, name).is_some_and(|claimed| claimed.is_being_made)
    }
}

impl Claim<'_> {
    /// There is no such name, and its owner is about to make it.
    pub(crate) fn begin_making(&self) {
        if let Some(claimed) = lock(&self.shard.names).find(self.dir, self.name) {
            claimed.is_being_made = true;
        }
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut names = lock(&self.shard.names);
        names.claimed.retain(|claimed| !claimed.is(self.dir, self.name));
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
    pub(crate) fn enter(&self, side: Side) -> Inside<'_> {
        let side = side as usize;
        let mut state = lock(&self.state);
        if !state.may_enter(side) {
            state.waiting[side] += 1;
            while !state.may_enter(side) {
                if state.inside[1 - side] > 0 {
                    // Those who are in leave, and nobody follows them (C2).
                    state.turn = side;
                }
                state = self.left.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            state.waiting[side] -= 1;
        }
        state.inside[side] += 1;
        Inside { sides: self, side }
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.sides.state);
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
        let (sides, inside) = (Sides::default(), AtomicI32::new(0));
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (sides, inside) = (&sides, &inside);
                scope.spawn(move || {
                    let (side, sign) = if thread % 2 == 0 { (Side::Change, 1) } else { (Side::List, -1) };
                    for _ in 0..2000 {
                        let _inside = sides.enter(side);
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
        let first = sides.enter(Side::List);
        let (told, hear) = mpsc::channel();
        std::thread::scope(|scope| {
            let (sides, waiting) = (&sides, told.clone());
            scope.spawn(move || {
                let _change = sides.enter(Side::Change);
                waiting.send("change").unwrap();
            });
            while lock(&sides.state).waiting == [0, 0] {
                std::thread::yield_now();
            }
            scope.spawn(move || {
                let _list = sides.enter(Side::List);
                told.send("list").unwrap();
            });
            while lock(&sides.state).waiting != [1, 1] {
                std::thread::yield_now();
            }
            drop(first);
        });
        assert_eq!(hear.iter().collect::<Vec<_>>(), ["change", "list"]);
    }
}
