//! Every interleaving of small cases. Run with `RUSTFLAGS="--cfg loom" cargo test --release --test
//! loom`.
#![cfg(loom)]

use dentree_mbcache::{BYTES_PER_ENTRY, Inserted, MbCache, Users};
use loom::sync::{Arc, Mutex};
use loom::thread;
use std::convert::Infallible;

/// Explores interleavings with at most three preemptions: enough for every published bug of such
/// lists.
fn explore(case: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(case);
}

fn cache_of(entries: usize) -> Arc<MbCache> {
    Arc::new(MbCache::new(entries * BYTES_PER_ENTRY))
}

#[test]
fn a_reader_never_takes_a_slot_in_another_life_for_what_it_looked_for() {
    explore(|| {
        // One slot, which the next insertion reuses.
        let cache = cache_of(1);
        cache.insert(1, 10, true);
        let reader = {
            let cache = cache.clone();
            thread::spawn(move || {
                if let Some(entry) = cache.find_first(1) {
                    assert_eq!((entry.key(), entry.value()), (1, 10));
                }
            })
        };
        if cache.delete_or_get(1, 10).is_none() {
            assert_eq!(cache.insert(2, 20, true), Inserted::Yes);
            let entry = cache.get(2, 20).expect("no thread deletes it");
            assert_eq!((entry.key(), entry.value()), (2, 20));
        }
        reader.join().unwrap();
    });
}

#[test]
fn two_who_insert_the_same_pair_leave_one_entry() {
    explore(|| {
        let cache = cache_of(2);
        let other = {
            let cache = cache.clone();
            thread::spawn(move || cache.insert(1, 10, true))
        };
        let mine = cache.insert(1, 10, true);
        let theirs = other.join().unwrap();
        assert!(matches!(
            (mine, theirs),
            (Inserted::Yes, Inserted::Duplicate) | (Inserted::Duplicate, Inserted::Yes)
        ));
        assert_eq!(cache.len(), 1);
        assert!(cache.delete_or_get(1, 10).is_none());
        assert_eq!(cache.len(), 0);
    });
}

#[test]
fn a_deleter_and_a_pruner_forget_an_entry_once() {
    explore(|| {
        let cache = cache_of(1);
        cache.insert(1, 10, true);
        cache.shrink(0);
        let pruner = {
            let cache = cache.clone();
            thread::spawn(move || cache.shrink(1))
        };
        let deleted = cache.delete_or_get(1, 10).is_none();
        pruner.join().unwrap();
        assert!(!deleted || cache.is_empty());
        cache.shrink(1);
        assert_eq!(cache.len(), 0);
        assert_eq!(cache.insert(2, 20, true), Inserted::Yes);
    });
}

#[test]
fn a_waiter_is_woken_by_the_last_holder() {
    explore(|| {
        let cache = cache_of(1);
        cache.insert(1, 10, true);
        let other = cache.clone();
        let mine = cache.get(1, 10).expect("just inserted");
        let holder = thread::spawn(move || drop(other.get(1, 10)));
        mine.wait_unused();
        holder.join().unwrap();
    });
}

#[test]
fn a_reader_finds_an_entry_while_the_table_grows() {
    explore(|| {
        let cache = cache_of(4);
        cache.insert(1, 10, true);
        cache.insert(2, 20, true);
        let grower = {
            let cache = cache.clone();
            thread::spawn(move || cache.insert(3, 30, true))
        };
        assert!(cache.get(1, 10).is_some() || cache.get(1, 10).is_some());
        grower.join().unwrap();
        for (key, value) in [(1, 10), (2, 20), (3, 30)] {
            assert!(cache.get(key, value).is_some(), "{key}");
        }
    });
}

/// A block, its owner's count of users (0: free), and its cache.
struct Sharing {
    cache: MbCache,
    users: Mutex<u32>,
}

const KEY: u32 = 1;
const BLOCK: u64 = 10;

impl Sharing {
    fn of(users: u32, is_known: bool) -> Arc<Sharing> {
        let cache = MbCache::new(BYTES_PER_ENTRY);
        if is_known {
            cache.insert(KEY, BLOCK, true);
        }
        Arc::new(Sharing { cache, users: Mutex::new(users) })
    }

    /// Becomes a user of the block if it is found.
    fn join(&self) -> bool {
        let found = self.cache.find_first(KEY);
        if let Some(entry) = &found {
            let mut users = self.users.lock().unwrap();
            assert!(*users > 0, "block {} was found, and is gone", entry.value());
            *users += 1;
        }
        found.is_some()
    }

    /// Stops being a user. Returns whether the block was freed.
    fn leave(&self) -> bool {
        let left = self.cache.leave(KEY, BLOCK, |is_hidden| {
            let mut users = self.users.lock().unwrap();
            assert!(*users > 0, "a thread leaves a block that is free");
            Ok::<_, Infallible>(match (*users, is_hidden) {
                (1, hidden) => {
                    *users -= u32::from(hidden);
                    Users::Alone
                }
                (_, hidden) => {
                    *users -= u32::from(!hidden);
                    Users::Others { reusable: true }
                }
            })
        });
        let Ok(left) = left;
        left
    }

    fn users(&self) -> u32 {
        *self.users.lock().unwrap()
    }
}

#[test]
fn a_lookup_while_the_last_user_leaves_is_counted_or_misses() {
    explore(|| {
        let sharing = Sharing::of(1, true);
        let other = sharing.clone();
        let joiner = thread::spawn(move || other.join());
        let is_gone = sharing.leave();
        let joined = joiner.join().unwrap();
        assert_eq!((is_gone, sharing.users()), (!joined, u32::from(joined)));
        // A block with a user can be joined; a freed one cannot.
        assert_eq!(sharing.join(), joined);
    });
}

#[test]
fn of_two_who_leave_a_block_the_last_ends_it_once() {
    for is_known in [true, false] {
        explore(move || {
            let sharing = Sharing::of(2, is_known);
            let other = sharing.clone();
            let leaver = thread::spawn(move || other.leave());
            let mine = sharing.leave();
            let theirs = leaver.join().unwrap();
            assert!(mine != theirs, "the block ended {}", if mine { "twice" } else { "never" });
            assert_eq!(sharing.users(), 0);
            assert!(!sharing.join());
        });
    }
}

#[test]
fn who_joins_and_leaves_while_the_last_user_leaves_ends_the_block_with_him() {
    explore(|| {
        let sharing = Sharing::of(1, true);
        let other = sharing.clone();
        let visitor = thread::spawn(move || other.join() && other.leave());
        let mine = sharing.leave();
        let theirs = visitor.join().unwrap();
        assert!(mine != theirs, "the block ended {}", if mine { "twice" } else { "never" });
        assert_eq!(sharing.users(), 0);
        assert!(!sharing.join());
    });
}
