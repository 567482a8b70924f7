//! Every interleaving of small cases. Run with `RUSTFLAGS="--cfg loom" cargo test --release --test loom`.
#![cfg(loom)]

use dentree_mbcache::{BYTES_PER_ENTRY, Inserted, MbCache};
use loom::sync::Arc;
use loom::thread;

/// Explores the interleavings with at most three preemptions: enough for every published bug of such lists.
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
        // One slot: whatever is inserted next reuses it.
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
            let entry = cache.get(2, 20).expect("nobody deletes it");
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
