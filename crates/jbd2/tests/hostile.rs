//! Malicious journals: each ends in an error or a replay, in bounded time, without a panic.
#![cfg(not(loom))]

use std::sync::Arc;

use dentree_blockdev::{BlockDevice, MemoryDevice};
use dentree_bufcache::BufCache;
use dentree_jbd2::{Damage, Error, Journal, JournalLocation, JournalOptions, Recovered, recover};
use proptest::prelude::*;

const BLOCK: usize = 1024;
const BLOCKS: u64 = 64;
/// The device's second half.
const JOURNAL: u64 = 32;
const MAGIC: u32 = 0xC03B_3998;

/// A journal with this superblock, as words from `s_header`, and this log from block 1.
fn device(superblock: &[u32], log: &[Vec<u32>]) -> MemoryDevice {
    let device = MemoryDevice::new(BLOCKS as usize * BLOCK);
    let write = |block: u64, words: &[u32]| {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).take(BLOCK).collect();
        device.write_at((JOURNAL + block) * BLOCK as u64, &bytes).unwrap();
    };
    write(0, superblock);
    for (block, words) in (1..BLOCKS - JOURNAL).zip(log) {
        write(block, words);
    }
    device
}

/// Version 2, no features, the log in blocks 1 to 31, transaction 1 at block 1.
const SUPERBLOCK: [u32; 9] = [MAGIC, 4, 0, BLOCK as u32, 32, 1, 1, 1, 0];

fn location() -> JournalLocation {
    JournalLocation { block_size: BLOCK, runs: vec![(JOURNAL, 10), (JOURNAL + 10, 22)] }
}

fn replay(device: &MemoryDevice) -> Result<Recovered, Error> {
    recover(Arc::new(device.clone()), &location())
}

fn descriptor(tid: u32, targets: &[u32]) -> Vec<u32> {
    let mut block = vec![MAGIC, 1, tid];
    for (at, &target) in targets.iter().enumerate() {
        block.extend([target, if at + 1 == targets.len() { 2 | 8 } else { 2 }]);
    }
    block
}

fn commit(tid: u32) -> Vec<u32> {
    vec![MAGIC, 2, tid]
}

#[test]
fn a_made_journal_replays() {
    let log =
        [descriptor(1, &[5, 6]), vec![50], vec![60], commit(1), descriptor(2, &[5]), vec![51], commit(2)];
    let recovered = replay(&device(&SUPERBLOCK, &log)).unwrap();
    assert_eq!((recovered.transactions, recovered.blocks), (2, 2));
    for (block, expected) in [(5, 51), (6, 60)] {
        let mut word = [0; 4];
        recovered.device.read_at(block * BLOCK as u64, &mut word).unwrap();
        assert_eq!(u32::from_be_bytes(word), expected);
    }
}

#[test]
fn a_transaction_longer_than_the_log_never_happened() {
    // 31 copies wrap onto their descriptor.
    let targets: Vec<u32> = (0..30).collect();
    let recovered = replay(&device(&SUPERBLOCK, &[descriptor(1, &targets)])).unwrap();
    assert_eq!(recovered.transactions, 0);
    // Only revoke blocks.
    let revokes = vec![vec![MAGIC, 5, 1, 16]; 31];
    assert_eq!(replay(&device(&SUPERBLOCK, &revokes)).unwrap().transactions, 0);
}

#[test]
fn a_copy_for_a_block_past_the_device_is_damage() {
    let log = [descriptor(1, &[BLOCKS as u32]), vec![1], commit(1)];
    let error = replay(&device(&SUPERBLOCK, &log)).err().unwrap();
    assert!(
        matches!(error, Error::Corrupt { damage: Damage::Copy { target: BLOCKS, block: 2, .. } }),
        "{error}"
    );
}

#[test]
fn a_superblock_that_makes_no_sense_is_damage() {
    for (word, value) in [(0, 7), (1, 2), (3, 2048), (4, 33), (4, 0), (5, 0), (5, 32), (7, 32), (7, u32::MAX)]
    {
        let mut superblock = SUPERBLOCK;
        superblock[word] = value;
        let error = replay(&device(&superblock, &[])).err().unwrap();
        assert!(matches!(error, Error::Corrupt { .. }), "word {word} is {value}: {error}");
    }
}

#[test]
fn a_location_that_leads_nowhere_is_an_error() {
    for runs in [vec![], vec![(0, 0)], vec![(u64::MAX, 1)], vec![(u64::MAX, u64::MAX), (1, u64::MAX)]] {
        for block_size in [0, 1, 1024, 65536, usize::MAX] {
            let location = JournalLocation { block_size, runs: runs.clone() };
            let device = device(&SUPERBLOCK, &[]);
            assert!(recover(Arc::new(device), &location).is_err());
        }
    }
}

/// Words with a meaning, and others.
fn word() -> impl Strategy<Value = u32> {
    prop_oneof![Just(MAGIC), 0u32..6, 0u32..70, Just(8 | 2), Just(u32::MAX), any::<u32>()]
}

/// Log blocks of each kind with a plausible number, and random ones.
fn log_block() -> impl Strategy<Value = Vec<u32>> {
    let rest = || prop::collection::vec(word(), 0..40);
    prop_oneof![
        4 => (1u32..6, 1u32..4, rest()).prop_map(|(kind, tid, rest)| [vec![MAGIC, kind, tid], rest].concat()),
        2 => (1u32..4, prop::collection::vec(0u32..66, 1..4)).prop_map(|(tid, targets)| descriptor(tid, &targets)),
        2 => (1u32..4).prop_map(commit),
        1 => rest(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_journal_ends_in_an_error_or_a_readable_device(
        patches in prop::collection::vec((3usize..22, word()), 0..3),
        features in (0u32..2, 0u32..64, any::<bool>()),
        log in prop::collection::vec(log_block(), 0..31),
    ) {
        let mut superblock = SUPERBLOCK.to_vec();
        superblock.resize(256, 0);
        if features.2 {
            superblock[9..11].copy_from_slice(&[features.0, features.1 & !0x18]);
        }
        for (word, value) in patches {
            superblock[word] = value;
        }
        let device = device(&superblock, &log);
        let before = device.to_vec();
        if let Ok(recovered) = replay(&device) {
            prop_assert!(recovered.blocks <= 31);
            let mut all = vec![0; BLOCKS as usize * BLOCK];
            recovered.device.read_at(0, &mut all).unwrap();
        }
        prop_assert_eq!(device.to_vec(), before);

        let device: Arc<dyn BlockDevice> = Arc::new(device);
        let location = location();
        let Ok(replayed) = dentree_jbd2::replay(&device, &location) else { return Ok(()) };
        prop_assert!(replayed.blocks <= 31);
        prop_assert_eq!(dentree_jbd2::replay(&device, &location).map(|again| again.transactions).ok(), Some(0));
        let cache = Arc::new(BufCache::new(Arc::clone(&device), BLOCK, 1 << 16));
        let options = JournalOptions { has_checksums: true, ..JournalOptions::default() };
        if let Ok(journal) = Journal::open(cache, &location, options) {
            for block in 0..20 {
                let Ok(mut handle) = journal.start(1) else { break };
                let _ = handle.create(block, |bytes| bytes.fill(7));
                let _ = journal.wait_commit(handle.stop());
            }
            let _ = journal.close();
        }
    }
}
