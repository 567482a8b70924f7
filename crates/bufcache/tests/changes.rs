//! The cache's guarantees for changed blocks.
#![cfg(not(loom))]

use std::collections::HashMap;
use std::sync::Arc;

use dentree_blockdev::{BlockDevice, MemoryDevice, MeteredDevice};
use dentree_bufcache::{BufCache, PinId};
use proptest::prelude::*;

const BLOCK: usize = 512;
const BLOCKS: u64 = 64;
const OVERHEAD: usize = 192;

/// Every byte of a block is its number.
fn image() -> MemoryDevice {
    MemoryDevice::from((0..BLOCKS).flat_map(|block| [block as u8; BLOCK]).collect::<Vec<u8>>())
}

#[test]
fn readers_keep_the_version_they_have_and_a_change_copies_only_then() {
    let cache = BufCache::new(Arc::new(image()), BLOCK, 1 << 20);
    cache.update(3, PinId(1), |bytes| bytes[0] = 100).unwrap();
    cache.update(3, PinId(1), |bytes| bytes[1] = 101).unwrap();
    assert_eq!((cache.stats().changes, cache.stats().copies), (2, 0));
    let old = cache.get(3).unwrap();
    cache.update(3, PinId(1), |bytes| bytes[0] = 200).unwrap();
    assert_eq!((old[0], old[1], old[2], cache.get(3).unwrap()[0]), (100, 101, 3, 200));
    assert_eq!(cache.stats().copies, 1);
}

#[test]
fn a_created_block_begins_as_zeros_and_is_not_read() {
    let meter = Arc::new(MeteredDevice::new(Arc::new(image())));
    let cache = BufCache::new(meter.clone(), BLOCK, 1 << 20);
    cache.create(7, PinId(1), |bytes| bytes[0] = 1).unwrap();
    let block = cache.get(7).unwrap();
    assert_eq!((block[0], block[1], meter.counts().total_reads()), (1, 0, 0));
    // Also a block in memory.
    cache.get(8).unwrap();
    cache.create(8, PinId(1), |bytes| assert!(bytes.iter().all(|&byte| byte == 0))).unwrap();
    assert_eq!(cache.get(8).unwrap()[5], 0);
    for block in [BLOCKS, u64::MAX] {
        assert!(cache.create(block, PinId(1), |_| panic!("not on the device")).is_err());
        assert!(cache.update(block, PinId(1), |_| panic!("not on the device")).is_err());
    }
}

#[test]
fn more_pinned_blocks_than_the_budget_has_room_for_are_kept_and_reported() {
    let cache = BufCache::new(Arc::new(image()), BLOCK, 8 * (BLOCK + OVERHEAD));
    for block in 0..BLOCKS {
        cache.update(block, PinId(1), |bytes| bytes[1] = 77).unwrap();
    }
    let stats = cache.stats();
    assert_eq!(stats.pinned_bytes, BLOCKS * BLOCK as u64);
    assert_eq!(stats.over_budget_bytes, (BLOCKS - cache.capacity() as u64) * BLOCK as u64);
    for block in 0..BLOCKS {
        let bytes = cache.get(block).unwrap();
        assert_eq!((bytes[0], bytes[1]), (block as u8, 77));
    }
    (0..BLOCKS).for_each(|block| cache.unpin(block, PinId(1)));
    let stats = cache.stats();
    assert_eq!((stats.pinned_bytes, stats.over_budget_bytes), (0, 0));
    assert!(stats.resident_bytes <= 8 * (BLOCK + OVERHEAD) as u64);
}

#[test]
fn a_discarded_block_is_read_again_and_holders_keep_theirs() {
    let cache = BufCache::new(Arc::new(image()), BLOCK, 1 << 20);
    cache.update(3, PinId(1), |bytes| bytes[0] = 100).unwrap();
    let held = cache.get(3).unwrap();
    cache.discard(2, 5);
    assert_eq!((held[0], cache.get(3).unwrap()[0], cache.stats().pinned_bytes), (100, 3, 0));
    // Calls for the dropped block do not affect the new one.
    cache.update(3, PinId(2), |bytes| bytes[0] = 50).unwrap();
    cache.unpin(3, PinId(1));
    assert!(cache.pinned(3, PinId(2)).is_some());
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Read(u64),
    Update(u64, u8),
    Create(u64, u8),
    Written(u64),
    Discard(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let block = 0..BLOCKS;
    prop_oneof![
        3 => block.clone().prop_map(Step::Read),
        3 => (block.clone(), any::<u8>()).prop_map(|(block, byte)| Step::Update(block, byte)),
        1 => (block.clone(), any::<u8>()).prop_map(|(block, byte)| Step::Create(block, byte)),
        2 => block.clone().prop_map(Step::Written),
        1 => block.prop_map(Step::Discard),
    ]
}

proptest! {
    #[test]
    fn any_order_of_changes_is_read_back_whatever_the_budget(
        blocks in 0usize..20,
        steps in prop::collection::vec(step(), 0..300),
    ) {
        let device = image();
        let cache = BufCache::new(Arc::new(device.clone()), BLOCK, blocks * (BLOCK + OVERHEAD));
        let mut changed: HashMap<u64, (Vec<u8>, PinId)> = HashMap::new();
        for (number, step) in (1..).zip(steps) {
            let on_device = |block: u64| device.to_vec()[block as usize * BLOCK..][..BLOCK].to_vec();
            match step {
                Step::Read(block) => {
                    let expected = changed.get(&block).map_or_else(|| on_device(block), |(bytes, _)| bytes.clone());
                    prop_assert_eq!(&cache.get(block).unwrap()[..], &expected[..]);
                }
                Step::Update(block, byte) => {
                    let mut expected = changed.get(&block).map_or_else(|| on_device(block), |(bytes, _)| bytes.clone());
                    expected[number % BLOCK] = byte;
                    cache.update(block, PinId(number as u32), |bytes| bytes[number % BLOCK] = byte).unwrap();
                    changed.insert(block, (expected, PinId(number as u32)));
                }
                Step::Create(block, byte) => {
                    cache.create(block, PinId(number as u32), |bytes| bytes[1] = byte).unwrap();
                    let mut expected = vec![0; BLOCK];
                    expected[1] = byte;
                    changed.insert(block, (expected, PinId(number as u32)));
                }
                Step::Written(block) => {
                    if let Some((bytes, pin)) = changed.remove(&block) {
                        prop_assert_eq!(&cache.pinned(block, pin).unwrap()[..], &bytes[..]);
                        device.write_at(block * BLOCK as u64, &bytes).unwrap();
                        cache.unpin(block, pin);
                    }
                }
                Step::Discard(block) => {
                    changed.remove(&block);
                    cache.discard(block, 1);
                }
            }
            let stats = cache.stats();
            prop_assert_eq!(stats.pinned_bytes, (changed.len() * BLOCK) as u64);
            prop_assert!(stats.over_budget_bytes <= stats.pinned_bytes);
        }
    }
}
