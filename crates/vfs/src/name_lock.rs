//! Per-name locks and the group lock of a directory.
//!
//! Operations on different names of a directory run in parallel; operations on one name do not.
//! Listings exclude changes, because inode numbers that they report must not be reused meanwhile.
//!
//! | state                            | protected by                          |
//! |----------------------------------|---------------------------------------|
//! | locked names                     | the shard's mutex (leaf)              |
//! | changers, listers, waiting queue | the group lock's mutex (leaf)         |
//! | the reader bias                  | switched under the group lock's mutex |
//!
//! Both are taken with the directory's inode lock shared; the exclusive inode lock replaces them.
//! After many changes in a row the inode lock is biased ([`ReaderBias`]): a change then takes a
//! reader slot in place of inode lock and group lock. A change turns the bias on, if there is no
//! lister; a lister or an exclusive lock turns it off.
//!
//! A name lock is a 62-bit keyed digest of (directory, name). Names with equal digests block each
//! other, and creating one hides the other; for a pair of names the probability is 2^-62.
//!
//! # Guarantees
//! - C1: at most one thread holds the lock of a name. No thread holds two: no order is needed.
//! - C2: the group lock is fair: later arrivals of a group queue behind waiters of the other.
//! - C3: lookups take neither. [`NameLocks::is_being_created`] hides a name whose inode is not
//!   cached yet.

use crate::Ino;
use dentree_sync::{Condvar, Mutex, ReaderBias};
use std::hash::{BuildHasher, RandomState};
use std::iter;

const SHARDS: usize = 128;

pub(crate) struct NameLocks {
    shards: Box<[Shard]>,
    hasher: RandomState,
}

#[derive(Default)]
#[repr(align(64))]
struct Shard {
    names: Mutex<Names>,
    freed: Condvar,
}

// Apple's locks are larger.
#[cfg(not(target_vendor = "apple"))]
const _: () = assert!(size_of::<Shard>() == 64);

#[derive(Default)]
struct Names {
    /// 0: none.
    first: u64,
    /// Other locked names.
    more: Vec<u64>,
    /// Waiters; at 0, notifications are skipped.
    waiting: u32,
}

/// Flags in the two bits outside of a digest. A locked name has `LOCKED`.
const LOCKED: u64 = 1;
const BEING_CREATED: u64 = 2;

impl Names {
    fn find(&mut self, digest: u64) -> Option<&mut u64> {
        iter::once(&mut self.first)
            .chain(&mut self.more)
            .find(|word| **word & !BEING_CREATED == digest | LOCKED)
    }

    fn add(&mut self, digest: u64) {
        match self.first {
            0 => self.first = digest | LOCKED,
            _ => self.more.push(digest | LOCKED),
        }
    }

    fn remove(&mut self, digest: u64) {
        if let Some(word) = self.find(digest) {
            *word = 0;
            self.more.retain(|&word| word != 0);
        }
    }
}

pub(crate) struct NameLock<'a> {
    shard: &'a Shard,
    digest: u64,
}

impl NameLocks {
    pub(crate) fn new() -> NameLocks {
        NameLocks { shards: (0..SHARDS).map(|_| Shard::default()).collect(), hasher: RandomState::new() }
    }

    fn digest(&self, dir: Ino, name: &[u8]) -> (&Shard, u64) {
        let hash = self.hasher.hash_one((dir.0, name));
        (&self.shards[(hash >> 32) as usize % SHARDS], hash & !(LOCKED | BEING_CREATED))
    }

    /// `name` is folded.
    pub(crate) fn lock(&self, dir: Ino, name: &[u8]) -> NameLock<'_> {
        let (shard, digest) = self.digest(dir, name);
        let mut names = shard.names.lock();
        while names.find(digest).is_some() {
            names.waiting += 1;
            names = shard.freed.wait(names);
            names.waiting -= 1;
        }
        names.add(digest);
        NameLock { shard, digest }
    }

    /// The file system may have the name, but its inode is not cached and must not be loaded.
    /// `false` after the name was seen: the inode is cached.
    pub(crate) fn is_being_created(&self, dir: Ino, name: &[u8]) -> bool {
        let (shard, digest) = self.digest(dir, name);
        shard.names.lock().find(digest).is_some_and(|word| *word & BEING_CREATED != 0)
    }
}

impl NameLock<'_> {
    /// Marks a new name.
    pub(crate) fn begin_creating(&self) {
        if let Some(word) = self.shard.names.lock().find(self.digest) {
            *word |= BEING_CREATED;
        }
    }
}

impl Drop for NameLock<'_> {
    fn drop(&mut self) {
        let mut names = self.shard.names.lock();
        names.remove(self.digest);
        if names.waiting > 0 {
            self.shard.freed.notify_all();
        }
    }
}

/// Members hold the lock together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Group {
    Change,
    List,
}

/// Admits many changers, or many listers.
#[derive(Default)]
pub(crate) struct GroupLock {
    state: Mutex<State>,
    /// A group's last member left.
    left: Condvar,
}

#[derive(Default)]
struct State {
    inside: [u32; 2],
    waiting: [u32; 2],
    /// If both wait.
    turn: usize,
}

impl State {
    fn may_enter(&self, group: usize) -> bool {
        let other = 1 - group;
        self.inside[other] == 0 && (self.waiting[other] == 0 || self.turn == group)
    }
}

pub(crate) struct GroupGuard<'a> {
    lock: &'a GroupLock,
    group: usize,
}

impl GroupLock {
    /// A change may turn the reader bias on. After a listing has entered, no change is biased.
    pub(crate) fn enter(&self, group: Group, bias: &ReaderBias) -> GroupGuard<'_> {
        let is_list = group == Group::List;
        let group = group as usize;
        let mut state = self.state.lock();
        if is_list {
            // Here, so that no change finds both the bias on and no lister.
            bias.stop();
        }
        if !state.may_enter(group) {
            state.waiting[group] += 1;
            while !state.may_enter(group) {
                if state.inside[1 - group] > 0 {
                    // None follows the other group's members (C2).
                    state.turn = group;
                }
                state = self.left.wait(state);
            }
            state.waiting[group] -= 1;
        }
        state.inside[group] += 1;
        if is_list {
            drop(state);
            bias.revoke();
        } else if state.waiting[Group::List as usize] == 0 {
            bias.note_slow_read();
        }
        GroupGuard { lock: self, group }
    }
}

impl Drop for GroupGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.lock.state.lock();
        state.inside[self.group] -= 1;
        if state.inside[self.group] == 0 && state.waiting != [0, 0] {
            self.lock.left.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicI32, AtomicU32, Ordering::SeqCst};
    use std::sync::mpsc;

    #[test]
    fn a_name_is_locked_once_and_other_names_do_not_wait() {
        let (name_locks, changes) = (NameLocks::new(), AtomicU32::new(0));
        let first = name_locks.lock(Ino(2), b"a");
        let others = [name_locks.lock(Ino(2), b"b"), name_locks.lock(Ino(3), b"a")];
        assert!(!name_locks.is_being_created(Ino(2), b"a"));
        first.begin_creating();
        assert!(name_locks.is_being_created(Ino(2), b"a") && !name_locks.is_being_created(Ino(2), b"b"));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _second = name_locks.lock(Ino(2), b"a");
                assert_eq!(changes.load(SeqCst), 1, "the first has not ended");
            });
            changes.store(1, SeqCst);
            drop(first);
        });
        assert!(!name_locks.is_being_created(Ino(2), b"a"));
        drop(others);
    }

    #[test]
    fn groups_exclude_each_other_and_none_starves() {
        let (group_lock, bias, inside) = (GroupLock::default(), ReaderBias::default(), AtomicI32::new(0));
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (group_lock, bias, inside) = (&group_lock, &bias, &inside);
                scope.spawn(move || {
                    let (group, sign) = if thread % 2 == 0 { (Group::Change, 1) } else { (Group::List, -1) };
                    for round in 0..2000 {
                        // Pauses between listings let changes turn the bias on.
                        if group == Group::List && round % 100 == 0 {
                            dentree_testing::linger(std::time::Duration::from_micros(500));
                        }
                        let biased = if group == Group::Change { bias.try_read() } else { None };
                        let _inside = biased.is_none().then(|| group_lock.enter(group, bias));
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
    fn a_waiter_is_not_overtaken_by_the_other_group() {
        let group_lock = GroupLock::default();
        let bias = ReaderBias::default();
        let first = group_lock.enter(Group::List, &bias);
        let (sender, receiver) = mpsc::channel();
        std::thread::scope(|scope| {
            let (group_lock, bias, waiting) = (&group_lock, &bias, sender.clone());
            scope.spawn(move || {
                let _change = group_lock.enter(Group::Change, bias);
                waiting.send("change").unwrap();
            });
            while group_lock.state.lock().waiting == [0, 0] {
                std::thread::yield_now();
            }
            scope.spawn(move || {
                let _list = group_lock.enter(Group::List, bias);
                sender.send("list").unwrap();
            });
            while group_lock.state.lock().waiting != [1, 1] {
                std::thread::yield_now();
            }
            drop(first);
        });
        assert_eq!(receiver.iter().collect::<Vec<_>>(), ["change", "list"]);
    }
}
