//! Opens a journal, and maps its blocks to the device.

use std::sync::Arc;

use dentree_blockdev::BlockDevice;
use zerocopy::FromBytes;

use crate::checksum::{Seed, superblock_is_sound};
use crate::error::{Damage, Error};
use crate::format::{BlockType, CRC32C, Features, RawSuperblock, SUPERBLOCK_LEN, header};
use crate::tid::Tid;

/// Where a journal is on its device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalLocation {
    /// Block size of the file system, in bytes.
    pub block_size: usize,
    /// The journal's extents in file order: first block on the device, and count.
    pub runs: Vec<(u64, u64)>,
}

pub(crate) struct LogReader {
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) block_size: usize,
    /// First block in the journal, first on the device, count.
    runs: Vec<(u64, u64, u64)>,
    pub(crate) features: Features,
    pub(crate) seed: Seed,
    pub(crate) superblock: Vec<u8>,
    pub(crate) first: u32,
    /// End of the log.
    end: u32,
    /// Length of the journal, with fast commits.
    pub(crate) len: u32,
    /// Start of the first transaction. `None`: the journal is clean.
    pub(crate) tail: Option<u32>,
    pub(crate) first_tid: Tid,
    /// Where a clean journal is continued.
    pub(crate) head: u32,
}

/// What 0 in `s_num_fc_blks` means.
const DEFAULT_FAST_COMMIT_BLOCKS: u32 = 256;
/// Fast commits leave the log at least this length.
const MIN_LOG_BLOCKS: u32 = 1024;

impl LogReader {
    pub(crate) fn open(device: Arc<dyn BlockDevice>, location: &JournalLocation) -> Result<LogReader, Error> {
        let block_size = location.block_size;
        if !(1024..=65536).contains(&block_size) {
            return Err(Damage::Superblock { check: "the block size is not 1024 to 65536 bytes" }.into());
        }
        let mut runs = Vec::with_capacity(location.runs.len());
        let mut mapped: u64 = 0;
        for &(physical, count) in &location.runs {
            runs.push((mapped, physical, count));
            mapped = mapped.saturating_add(count);
        }
        let block = read(&*device, &runs, block_size, 0)?;
        let raw = superblock(&block)?;
        let features = raw.features()?;
        check(raw, &block, features, block_size)?;
        let len = raw.s_maxlen.get();
        if mapped < u64::from(len) {
            return Err(Damage::TooShort { superblock: len, inode: mapped }.into());
        }
        let first = raw.s_first.get();
        let end = log_end(raw, features);
        let start = raw.s_start.get();
        if first == 0 || first >= end || start != 0 && !(first..end).contains(&start) {
            return Err(Damage::Superblock { check: "s_first or s_start is outside of the journal" }.into());
        }
        Ok(LogReader {
            seed: Seed::new(&raw.s_uuid),
            superblock: block[..SUPERBLOCK_LEN].to_vec(),
            first_tid: Tid(raw.s_sequence.get()),
            head: Some(raw.s_head.get()).filter(|head| (first..end).contains(head)).unwrap_or(first),
            tail: (start != 0).then_some(start),
            device,
            block_size,
            runs,
            features,
            first,
            end,
            len,
        })
    }

    pub(crate) fn log_len(&self) -> u32 {
        self.end - self.first
    }

    pub(crate) fn advance(&self, block: u32, count: u32) -> u32 {
        let at = u64::from(block - self.first) + u64::from(count);
        let wrapped = at % u64::from(self.log_len());
        // Less than the log's length, a u32.
        self.first + u32::try_from(wrapped).unwrap_or(0)
    }

    /// One block between them and the log is unused.
    pub(crate) fn fast_commits(&self) -> std::ops::Range<u32> {
        self.end.saturating_add(1)..self.len
    }

    pub(crate) fn read(&self, block: u32) -> Result<Vec<u8>, Error> {
        read(&*self.device, &self.runs, self.block_size, block)
    }

    /// Place on the device, and length of the contiguous run.
    pub(crate) fn run_at(&self, block: u32) -> Option<(u64, u32)> {
        let (physical, count) = run_at(&self.runs, block)?;
        Some((physical, u32::try_from(count).unwrap_or(u32::MAX).min(self.end.checked_sub(block)?)))
    }

    /// Place on the device.
    pub(crate) fn physical(&self, block: u32) -> Option<u64> {
        physical(&self.runs, block)
    }
}

fn physical(runs: &[(u64, u64, u64)], block: u32) -> Option<u64> {
    run_at(runs, block).map(|(physical, _)| physical)
}

/// Place on the device, and length of the contiguous run.
fn run_at(runs: &[(u64, u64, u64)], block: u32) -> Option<(u64, u64)> {
    let block = u64::from(block);
    let run = runs.partition_point(|&(first, ..)| first <= block).checked_sub(1)?;
    let (first, physical, count) = runs[run];
    let left = count.checked_sub(block - first).filter(|&left| left > 0)?;
    Some((physical.checked_add(block - first)?, left))
}

fn read(
    device: &dyn BlockDevice,
    runs: &[(u64, u64, u64)],
    block_size: usize,
    block: u32,
) -> Result<Vec<u8>, Error> {
    let Some(physical) = physical(runs, block) else {
        return Err(Damage::TooShort { superblock: block.saturating_add(1), inode: u64::from(block) }.into());
    };
    let mut bytes = vec![0; block_size];
    // An overflow is beyond any device.
    let offset = physical.saturating_mul(block_size as u64);
    device.read_at(offset, &mut bytes).map_err(|source| Error::Read { block, physical, source })?;
    Ok(bytes)
}

fn superblock(block: &[u8]) -> Result<&RawSuperblock, Error> {
    if !matches!(header(block), Some((BlockType::Superblock, _))) {
        return Err(Damage::Superblock { check: "wrong magic number or block type" }.into());
    }
    match RawSuperblock::ref_from_prefix(block) {
        Ok((raw, _)) => Ok(raw),
        Err(_) => Err(Damage::Superblock { check: "the block has fewer than 1024 bytes" }.into()),
    }
}

fn check(raw: &RawSuperblock, block: &[u8], features: Features, block_size: usize) -> Result<(), Error> {
    let damaged = |check| Err(Damage::Superblock { check }.into());
    if raw.s_nr_users.get() > 1 {
        let feature = format!("an external journal (shared by {} file systems)", raw.s_nr_users.get());
        return Err(Error::Unsupported { feature });
    }
    if features.has_block_sums() && raw.s_checksum_type != CRC32C {
        let feature = format!("checksums of type {}", raw.s_checksum_type);
        return Err(Error::Unsupported { feature });
    }
    if features.has_block_sums() && !superblock_is_sound(block) {
        return damaged("checksum mismatch");
    }
    if u64::from(raw.s_blocksize.get()) != block_size as u64 {
        return damaged("the block size differs from the file system's");
    }
    Ok(())
}

/// Fast commits end the log if it stays long enough.
fn log_end(raw: &RawSuperblock, features: Features) -> u32 {
    let len = raw.s_maxlen.get();
    let fast = match raw.s_num_fc_blks.get() {
        0 => DEFAULT_FAST_COMMIT_BLOCKS,
        count => count,
    };
    match len.checked_sub(fast) {
        Some(end) if features.fast_commit && end >= MIN_LOG_BLOCKS => end,
        _ => len,
    }
}
