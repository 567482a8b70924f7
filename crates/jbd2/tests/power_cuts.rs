//! Power cuts after every write of a small journal: a replay finds exactly the transactions up to
//! one, which is not before the last acknowledged one.
#![cfg(not(loom))]

use std::collections::HashMap;
use std::sync::Arc;

use dentree_blockdev::{BlockDevice, MemoryDevice, RecordingDevice, Step};
use dentree_bufcache::BufCache;
use dentree_jbd2::{Journal, JournalLocation, JournalOptions, recover, replay};

const BLOCK: usize = 1024;
/// Blocks to change.
const TARGETS: u64 = 40;
const JOURNAL: u64 = TARGETS;
const JOURNAL_LEN: u64 = 48;
const MAGIC: u32 = 0xC03B_3998;

fn location() -> JournalLocation {
    JournalLocation { block_size: BLOCK, runs: vec![(JOURNAL, 17), (JOURNAL + 17, JOURNAL_LEN - 17)] }
}

/// An empty journal with these features.
fn image(compat: u32, incompat: u32) -> Vec<u8> {
    let mut bytes = vec![0; (JOURNAL + JOURNAL_LEN) as usize * BLOCK];
    // The sequence number will wrap.
    let words = [MAGIC, 4, 0, BLOCK as u32, JOURNAL_LEN as u32, 1, u32::MAX - 5, 0, 0, compat, incompat];
    let at = JOURNAL as usize * BLOCK;
    for (field, word) in bytes[at..].chunks_mut(4).zip(words) {
        field.copy_from_slice(&word.to_be_bytes());
    }
    bytes
}

/// A pseudorandom generator with a fixed seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// A block's content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Content {
    /// Of a transaction; contains the block's number, or looks like a log block.
    Metadata(u64),
    /// Written past the journal in this step.
    Data(u64),
    /// Freed: arbitrary.
    Nothing,
}

fn fill(bytes: &mut [u8], number: u64) {
    bytes.fill(number as u8);
    bytes[8..16].copy_from_slice(&number.to_le_bytes());
    if number.is_multiple_of(3) {
        bytes[..4].copy_from_slice(&MAGIC.to_be_bytes());
    }
}

fn filled(number: u64) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK];
    fill(&mut bytes, number);
    bytes
}

struct Run {
    device: Arc<RecordingDevice>,
    /// The content after each transaction, from the initial one.
    states: Vec<HashMap<u64, Content>>,
    /// Positions of the device.
    acknowledged: Vec<usize>,
    begun: Vec<usize>,
}

fn run(compat: u32, incompat: u32, options: JournalOptions, transactions: u64, seed: u64) -> Run {
    let device = Arc::new(RecordingDevice::new(image(compat, incompat)));
    let cache = Arc::new(BufCache::new(device.clone(), BLOCK, 1 << 20));
    let journal = Journal::open(Arc::clone(&cache), &location(), options).unwrap();
    let mut numbers = Numbers(seed);
    let mut state: HashMap<u64, Content> = HashMap::new();
    let mut run =
        Run { device: device.clone(), states: vec![state.clone()], acknowledged: vec![0], begun: vec![0] };
    for transaction in 1..=transactions {
        run.begun.push(device.position());
        let mut handle = journal.start(10).unwrap();
        let mut freed = Vec::new();
        // More than is free, beyond their credits.
        let changes = if transaction.is_multiple_of(5) { 60 } else { numbers.below(9) };
        for _ in 0..changes {
            let (block, number) = (numbers.below(TARGETS), transaction << 8 | numbers.below(256));
            match state.get(&block) {
                _ if freed.contains(&block) => {}
                Some(Content::Metadata(_)) if numbers.below(3) == 0 => {
                    handle.forget(block, 1);
                    freed.push(block);
                    state.insert(block, Content::Nothing);
                }
                Some(Content::Metadata(_)) => {
                    handle.update(block, |bytes| fill(bytes, number)).unwrap();
                    state.insert(block, Content::Metadata(number));
                }
                _ => {
                    handle.create(block, |bytes| fill(bytes, number)).unwrap();
                    state.insert(block, Content::Metadata(number));
                }
            }
        }
        journal.wait_commit(handle.stop()).unwrap();
        run.states.push(state.clone());
        run.acknowledged.push(device.position());
        // Freed blocks become data.
        for block in freed {
            let number = transaction << 8 | 0xFFFF << 32;
            device.write_at(block * BLOCK as u64, &filled(number)).unwrap();
            state.insert(block, Content::Data(number));
        }
    }
    assert!(journal.overdrafts() > 0);
    run
}

/// The latest possible transaction whose state is in `bytes`.
fn shown(run: &Run, steps: usize, bytes: &[u8]) -> Option<usize> {
    let last_acknowledged = run.acknowledged.iter().rposition(|&at| at <= steps).unwrap();
    let last_begun = run.begun.iter().rposition(|&at| at <= steps).unwrap();
    let block_of = |block: u64| &bytes[block as usize * BLOCK..][..BLOCK];
    (last_acknowledged..=last_begun).rev().find(|&last| {
        (0..TARGETS).all(|block| match run.states[last].get(&block) {
            None => last > 0 || block_of(block).iter().all(|&byte| byte == 0),
            Some(Content::Metadata(number)) => block_of(block) == filled(*number),
            // Written after the acknowledgement of its freeing: the next commit flushes it.
            Some(Content::Data(number)) => {
                let written = (number >> 8 & 0xFFFF) as usize;
                last <= written || block_of(block) == filled(*number)
            }
            Some(Content::Nothing) => true,
        })
    })
}

/// Cuts the power after every step, and keeps all, none or some unflushed writes. Returns the
/// number of cuts.
fn cut_everywhere(run: &Run, what: &str) -> usize {
    let mut numbers = Numbers(7);
    let mut cuts = 0;
    let recording = run.device.recording();
    let mut replayed_to = recording.replay();
    for steps in 0..=run.device.position() {
        for kind in 0..5 {
            let bytes = replayed_to.image_where(steps, |_, _| match kind {
                0 => false,
                1 => true,
                _ => numbers.below(2) == 0,
            });
            cuts += 1;
            let place = || format!("{what}, power cut after step {steps}, kind {kind}");
            let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::from(bytes.clone()));
            let recovered = recover(Arc::clone(&device), &location())
                .unwrap_or_else(|error| panic!("{}: {error}", place()));
            let mut after = vec![0; bytes.len()];
            recovered.device.read_at(0, &mut after).unwrap();
            assert!(shown(run, steps, &after).is_some(), "{}: no transaction's state", place());

            // A written replay has the same result; a second one finds nothing.
            let replayed = replay(&device, &location()).unwrap();
            assert_eq!((replayed.transactions, replayed.blocks), (recovered.transactions, recovered.blocks));
            let mut written = vec![0; bytes.len()];
            device.read_at(0, &mut written).unwrap();
            let targets = TARGETS as usize * BLOCK;
            assert!(written[..targets] == after[..targets], "{}: written back", place());
            assert_eq!(replay(&device, &location()).unwrap().transactions, 0);
        }
    }
    cuts
}

const CHECKSUMS: JournalOptions = JournalOptions { interval: None, has_checksums: true, is_64bit: true };
const NO_CHECKSUMS: JournalOptions = JournalOptions { interval: None, has_checksums: false, is_64bit: false };

#[test]
fn every_cut_shows_a_prefix_with_all_that_was_acknowledged() {
    let kinds = [
        ("no sums", 0, 0, NO_CHECKSUMS),
        ("version 1", 1, 0, NO_CHECKSUMS),
        ("version 3, 64 bits", 0, 0, CHECKSUMS),
    ];
    for (what, compat, incompat, options) in kinds {
        let mut cuts = 0;
        for seed in 0..3 {
            let run = run(compat, incompat, options, 35, seed);
            cuts += cut_everywhere(&run, &format!("{what}, seed {seed}"));
        }
        println!("{what}: {cuts} power cuts");
    }
}

/// A torn commit block ended in the log's old content: e2fsck reported a corrupt transaction, and
/// the kernel refused to mount.
#[test]
fn a_commit_is_written_over_zeros_that_are_on_stable_storage() {
    let run = run(0, 0, CHECKSUMS, 40, 3);
    let recording = run.device.recording();
    let mut cut = recording.replay();
    let mut commits = 0;
    for (at, step) in recording.steps().iter().enumerate() {
        let Step::Write { offset, data } = step else { continue };
        // Magic number and type of a commit block.
        if *offset > JOURNAL * BLOCK as u64 && data[..8] == [0xC0, 0x3B, 0x39, 0x98, 0, 0, 0, 2] {
            let before = cut.image_where(at, |_, _| false);
            assert!(before[*offset as usize..][..BLOCK].iter().all(|&byte| byte == 0));
            commits += 1;
        }
    }
    assert!(commits > 20, "{commits}");
}

#[test]
fn a_replay_that_is_cut_is_done_again_by_the_next() {
    let run = run(0, 0, CHECKSUMS, 40, 11);
    let mut cuts = 0;
    let recording = run.device.recording();
    let mut cut = recording.replay();
    for steps in (0..run.device.position()).step_by(5) {
        let device = Arc::new(RecordingDevice::new(cut.image_where(steps, |_, _| true)));
        replay(&(device.clone() as Arc<dyn BlockDevice>), &location()).unwrap();
        let mut numbers = Numbers(steps as u64);
        let inner_recording = device.recording();
        let mut inner_cut = inner_recording.replay();
        for inner in 0..=device.position() {
            let bytes = inner_cut.image_where(inner, |_, _| numbers.below(2) == 0);
            let again: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::from(bytes));
            replay(&again, &location()).unwrap();
            let mut after = vec![0; again.size() as usize];
            again.read_at(0, &mut after).unwrap();
            assert!(shown(&run, steps, &after).is_some(), "after step {steps}, then {inner}");
            cuts += 1;
        }
    }
    println!("{cuts} power cuts of replays");
}

#[test]
fn a_journal_that_was_closed_is_clean_and_goes_on_where_it_was() {
    let device = MemoryDevice::from(image(0, 0));
    let open = || {
        let cache = Arc::new(BufCache::new(Arc::new(device.clone()), BLOCK, 1 << 20));
        Journal::open(cache, &location(), CHECKSUMS).unwrap()
    };
    let mut last = None;
    for round in 0..20 {
        let journal = open();
        let mut handle = journal.start(3).unwrap();
        (0..3).for_each(|block| handle.update(block, |bytes| bytes[0] += 1).unwrap());
        let tid = handle.stop();
        assert!(last.is_none_or(|last| tid.is_after(last)));
        last = Some(tid);
        journal.close().unwrap();
        let recovered = recover(Arc::new(device.clone()), &location()).unwrap();
        assert_eq!((recovered.transactions, device.to_vec()[2 * BLOCK]), (0, round + 1));
    }
}
