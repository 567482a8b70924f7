//! Where the log lies: preallocated on a sparse image, but not far ahead, and continued after a
//! close.
#![cfg(not(loom))]

use std::io;
use std::sync::{Arc, Mutex};

use dentree_blockdev::{BlockDevice, MemoryDevice};
use dentree_bufcache::BufCache;
use dentree_jbd2::{History, Journal, JournalLocation, JournalOptions, empty_journal, replay};

const BLOCK: usize = 1024;
/// Blocks to change.
const TARGETS: u64 = 16;
const JOURNAL: u64 = TARGETS;
const JOURNAL_LEN: u64 = 5000;
const MAGIC: u32 = 0xC03B_3998;

/// Records which blocks are allocated, and which were written before.
struct Sparse {
    memory: MemoryDevice,
    blocks: Mutex<Blocks>,
}

#[derive(Default)]
struct Blocks {
    has_space: Vec<bool>,
    written_without: Vec<usize>,
    /// Allocations of allocated blocks.
    repeated: usize,
}

impl BlockDevice for Sparse {
    fn size(&self) -> u64 {
        self.memory.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.memory.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        let blocks = &mut *self.blocks.lock().unwrap();
        let first = offset as usize / BLOCK;
        let written = first..first + buf.len().div_ceil(BLOCK);
        blocks.written_without.extend(written.filter(|&block| !blocks.has_space[block]));
        self.memory.write_at(offset, buf)
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn fill_holes(&self, offset: u64, len: u64) -> io::Result<()> {
        let blocks = &mut *self.blocks.lock().unwrap();
        let first = offset as usize / BLOCK;
        for has_space in &mut blocks.has_space[first..first + len as usize / BLOCK] {
            blocks.repeated += usize::from(std::mem::replace(has_space, true));
        }
        Ok(())
    }
}

#[test]
fn a_log_has_its_space_before_it_is_written_and_takes_it_as_it_goes() {
    let mut bytes = vec![0; (JOURNAL + JOURNAL_LEN) as usize * BLOCK];
    let words = [MAGIC, 4, 0, BLOCK as u32, JOURNAL_LEN as u32, 1, 1, 0, 0, 0, 0];
    let at = JOURNAL as usize * BLOCK;
    for (field, word) in bytes[at..].chunks_mut(4).zip(words) {
        field.copy_from_slice(&word.to_be_bytes());
    }
    let log_begin = JOURNAL as usize + 1;
    let blocks = Blocks { has_space: vec![false; bytes.len() / BLOCK], ..Blocks::default() };
    let device = Arc::new(Sparse { memory: MemoryDevice::from(bytes), blocks: Mutex::new(blocks) });
    let cache = Arc::new(BufCache::new(device.clone(), BLOCK, 1 << 20));
    let runs = vec![(JOURNAL, 1700), (JOURNAL + 1700, JOURNAL_LEN - 1700)];
    let location = JournalLocation { block_size: BLOCK, runs };
    let journal = Journal::open(Arc::clone(&cache), &location, JournalOptions::default()).unwrap();
    // Three blocks each: the log wraps.
    for transaction in 0..2000_u64 {
        let mut handle = journal.start(1).unwrap();
        handle.create(transaction % TARGETS, |bytes| bytes[0] = transaction as u8).unwrap();
        let tid = handle.stop();
        journal.wait_commit(tid).unwrap();
        let blocks = device.blocks.lock().unwrap();
        let in_log: Vec<_> = blocks.written_without.iter().filter(|&&block| block >= log_begin).collect();
        assert!(in_log.is_empty(), "transaction {transaction}: {in_log:?}");
        let with_space = blocks.has_space.iter().filter(|&&has_space| has_space).count() as u64;
        assert!(with_space < 3 * transaction + 1100 && blocks.repeated == 0, "{with_space} of {transaction}");
    }
    assert!(device.blocks.lock().unwrap().has_space[log_begin..].iter().all(|&has_space| has_space));
    journal.close().unwrap();
}

#[test]
fn a_log_goes_on_where_the_one_before_ended_or_was_cut_off() {
    const LOG: u64 = 64;
    let mut bytes = vec![0; BLOCK * (TARGETS + LOG) as usize];
    let superblock = empty_journal(BLOCK as u32, LOG as u32, [7; 16]);
    bytes[BLOCK * TARGETS as usize..][..superblock.len()].copy_from_slice(&superblock);
    let mut memory = MemoryDevice::from(bytes);
    let location = JournalLocation { block_size: BLOCK, runs: vec![(TARGETS, LOG)] };
    let mut before = Vec::new();
    // Three blocks a session: the log wraps.
    for session in 0..100u8 {
        let device: Arc<dyn BlockDevice> = Arc::new(memory.clone());
        let cache = Arc::new(BufCache::new(device.clone(), BLOCK, 1 << 20));
        let journal = Journal::open(cache, &location, JournalOptions::default()).unwrap();
        let mut handle = journal.start(1).unwrap();
        handle.create(3, |bytes| bytes[0] = session).unwrap();
        journal.wait_commit(handle.stop()).unwrap();
        if session % 3 == 2 {
            // The power fails before the block is in place.
            memory = MemoryDevice::from(memory.to_vec());
            let device: Arc<dyn BlockDevice> = Arc::new(memory.clone());
            assert_eq!(replay(&device, &location).unwrap().transactions, 1);
        } else {
            journal.close().unwrap();
        }
        let device: Arc<dyn BlockDevice> = Arc::new(memory.clone());
        assert_eq!(memory.to_vec()[3 * BLOCK], session);
        let history = History::read(device, &location).unwrap();
        let contents: Vec<u8> = history
            .transactions()
            .iter()
            .filter_map(|one| history.content(one.copies.first()?).unwrap())
            .map(|bytes| bytes[0])
            .collect();
        before.push(session);
        let kept = before.len().min(20);
        assert!(contents.ends_with(&before[before.len() - kept..]), "{session}: {contents:?}");
    }
}
