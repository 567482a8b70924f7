//! Random operations against a list of pairs.

use dentree_mbcache::{BYTES_PER_ENTRY, Inserted, MbCache};
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
enum Operation {
    Insert(u32, u64, bool),
    Delete(u32, u64),
    Reusable(u32, u64, bool),
    Find(u32),
}

fn operation() -> impl Strategy<Value = Operation> {
    let (key, value) = (0..40u32, 0..12u64);
    prop_oneof![
        4 => (key.clone(), value.clone(), any::<bool>()).prop_map(|(k, v, r)| Operation::Insert(k, v, r)),
        2 => (key.clone(), value.clone()).prop_map(|(k, v)| Operation::Delete(k, v)),
        1 => (key.clone(), value, any::<bool>()).prop_map(|(k, v, r)| Operation::Reusable(k, v, r)),
        3 => key.prop_map(Operation::Find),
    ]
}

proptest! {
    #[test]
    fn the_cache_holds_what_a_list_of_pairs_would(operations in prop::collection::vec(operation(), 1..400)) {
        let cache = MbCache::new(1 << 20);
        let mut model: BTreeMap<(u32, u64), bool> = BTreeMap::new();
        for operation in operations {
            match operation {
                Operation::Insert(key, value, reusable) => {
                    let new = !model.contains_key(&(key, value));
                    let expected = if new { Inserted::Yes } else { Inserted::Duplicate };
                    prop_assert_eq!(cache.insert(key, value, reusable), expected);
                    model.entry((key, value)).or_insert(reusable);
                }
                Operation::Delete(key, value) => {
                    prop_assert!(cache.delete_or_get(key, value).is_none());
                    model.remove(&(key, value));
                }
                Operation::Reusable(key, value, reusable) => {
                    let found = cache.get(key, value);
                    prop_assert_eq!(found.is_some(), model.contains_key(&(key, value)));
                    if let Some(entry) = found {
                        entry.set_reusable(reusable);
                        model.insert((key, value), reusable);
                    }
                }
                Operation::Find(key) => {
                    let mut found = Vec::new();
                    let mut next = cache.find_first(key);
                    while let Some(entry) = next {
                        prop_assert_eq!(entry.key(), key);
                        found.push(entry.value());
                        next = entry.find_next();
                    }
                    found.sort_unstable();
                    let all = model.range((key, 0)..=(key, u64::MAX));
                    let reusable: Vec<u64> = all.filter(|(_, reusable)| **reusable).map(|(pair, _)| pair.1).collect();
                    prop_assert_eq!(found, reusable);
                }
            }
            prop_assert_eq!(cache.len(), model.len());
        }
    }
}

#[test]
fn a_budget_is_never_exceeded_however_many_are_inserted() {
    for budget in [1 << 12, 1 << 16, 1 << 20] {
        let cache = MbCache::new(budget);
        for number in 0..100_000u32 {
            assert_eq!(cache.insert(number.wrapping_mul(0x9E37_79B9), number.into(), true), Inserted::Yes);
        }
        assert!(cache.bytes() <= budget + 4096, "{} of {budget}", cache.bytes());
        assert!(cache.len() > budget / 72, "{} entries in {budget} bytes", cache.len());
    }
}

#[test]
fn an_entry_that_is_held_outlives_every_shrink() {
    let cache = MbCache::new(1 << 16);
    for number in 0..1000 {
        cache.insert(number, u64::from(number), true);
    }
    let held = cache.get(17, 17).expect("just inserted");
    assert_eq!(cache.shrink_to(0), 999);
    assert_eq!((held.key(), held.value(), cache.len()), (17, 17, 1));
    drop(held);
    assert_eq!(cache.shrink_to(0), 1);
}

#[test]
fn a_cache_that_shrinks_to_so_many_bytes_keeps_what_these_have_room_for() {
    let cache = MbCache::new(1 << 20);
    for number in 0..1000 {
        cache.insert(number, u64::from(number), true);
    }
    assert_eq!((cache.shrink_to(700 * BYTES_PER_ENTRY), cache.len()), (300, 700));
    assert_eq!((cache.shrink_to(700 * BYTES_PER_ENTRY), cache.len()), (0, 700));
    let held: Vec<_> = (0..1000).filter_map(|number| cache.get(number, number.into())).take(10).collect();
    // Held entries stay, whatever the limit.
    assert_eq!((cache.shrink_to(5 * BYTES_PER_ENTRY), cache.len()), (690, 10));
    assert!(held.iter().all(|entry| cache.get(entry.key(), entry.value()).is_some()));
    assert_eq!((cache.shrink(4), cache.len()), (0, 10));
    drop(held);
    assert_eq!((cache.shrink(4), cache.len()), (4, 6));
}

#[test]
fn a_full_cache_of_held_entries_refuses_to_grow() {
    let cache = MbCache::new(0);
    assert_eq!(cache.insert(1, 1, true), Inserted::Yes);
    let _held = cache.get(1, 1);
    assert_eq!(cache.insert(2, 2, true), Inserted::Full);
}

#[test]
fn an_entry_that_was_touched_outlives_one_that_was_not() {
    let cache = MbCache::new(1 << 16);
    for number in 0..100 {
        cache.insert(number, 0, true);
    }
    assert_eq!(cache.shrink(0), 0);
    cache.shrink(50); // after one round of the hand no entry is referenced
    let survivors: Vec<u32> = (0..100).filter(|&number| cache.get(number, 0).is_some()).collect();
    let kept = *survivors.last().expect("half are left");
    cache.get(kept, 0).expect("it survived").touch();
    cache.shrink(survivors.len() - 1);
    assert!(cache.get(kept, 0).is_some());
}
