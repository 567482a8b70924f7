//! The log: committed transactions whose blocks are not all written in place.
//!
//! # Data
//! The log is a ring. `live` has its transactions, from the tail. `latest` has each block's last
//! transaction, and the version to write in place. Older versions are not written in place: a
//! replay would override them.
//!
//! # Order on stable storage
//! 1. Descriptors, copies, revokes, a zeroed commit block, the superblock if it was marked clean,
//!    and earlier data: before the commit block.
//! 2. The commit block: before any waiter returns.
//! 3. Blocks in place: before the superblock excludes their transaction from a replay.
//! 4. That superblock: before the freed part of the log is reused. A replay from the old tail would
//!    end there, and lose later transactions.
//!
//! # History
//! A new log begins where the last one ended, as the kernel's does from Linux 6.4 on: what was
//! committed before stays readable ([`History`](crate::History)) until the ring comes around.
//!
//! # Freed blocks
//! A freed block with a copy in a live transaction is revoked, so that a replay does not overwrite
//! its new content. It can be reallocated after the commit, from which on its version is not
//! written in place.

use std::collections::{HashMap, VecDeque};
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use dentree_blockdev::BlockDevice;
use dentree_bufcache::{BufCache, Buffer, PinId};
use foldhash::fast::RandomState;

use crate::encode::{Encoder, LogBlock};
use crate::error::{Cause, Error};
use crate::reader::{JournalLocation, LogReader};
use crate::superblock::Superblock;
use crate::tid::Tid;
use crate::write_back;

/// How a journal is written.
#[derive(Clone, Copy, Debug, Default)]
pub struct JournalOptions {
    /// Longest time between commits. `None`: only on request, or when the transaction is large.
    pub interval: Option<Duration>,
    /// Use checksums, for `metadata_csum`.
    pub has_checksums: bool,
    /// Use 64-bit block numbers, for `64bit`.
    pub is_64bit: bool,
}

pub(crate) struct LockedTransaction {
    pub(crate) tid: Tid,
    /// Ascending, without freed blocks.
    pub(crate) blocks: Vec<(u64, Buffer)>,
    /// Freed runs: first block and count.
    pub(crate) freed: Vec<(u64, u64)>,
}

pub(crate) struct Log {
    cache: Arc<BufCache>,
    reader: LogReader,
    encoder: Encoder,
    superblock: Superblock,
    /// In the device's superblock: position and number. `None`: clean.
    tail: Option<(u32, Tid)>,
    /// Position of the next transaction.
    head: u32,
    /// End of the preallocated space.
    filled: u32,
    /// Number of the next transaction. Empty ones have none.
    next: Tid,
    live: VecDeque<CheckpointTransaction>,
    latest: HashMap<u64, Latest, RandomState>,
    /// Blocks to be written in place.
    waiting: usize,
    last_commit: Duration,
}

struct CheckpointTransaction {
    tid: Tid,
    start: u32,
    len: u32,
    blocks: Vec<u64>,
}

struct Latest {
    tid: Tid,
    /// Until written in place or freed.
    version: Option<(Buffer, PinId)>,
}

pub(crate) enum Stage {
    /// One flush is left.
    Done,
    /// The log has no space yet.
    NoSpace(LogRecord),
    /// Without its commit block.
    Written { record: LogRecord, end: End, is_flushed: bool },
}

pub(crate) struct LogRecord {
    locked: LockedTransaction,
    revokes: Vec<u64>,
    len: usize,
}

/// A commit block to write, and the version 1 checksum.
pub(crate) struct End {
    at: u32,
    sum: u32,
}

impl Stage {
    pub(crate) fn flushed(&mut self) {
        if let Stage::Written { is_flushed, .. } = self {
            *is_flushed = true;
        }
    }
}

/// Bytes to preallocate at once.
const FILLED_AHEAD: u64 = 1 << 20;

/// A full log has head ≠ tail.
const SPARE: usize = 1;

impl Log {
    pub(crate) fn open(
        cache: Arc<BufCache>,
        location: &JournalLocation,
        options: JournalOptions,
    ) -> Result<Log, Error> {
        let reader = LogReader::open(Arc::clone(cache.device()), location)?;
        if reader.tail.is_some() {
            return Err(Error::NotClean);
        }
        let mut superblock = Superblock::new(&reader);
        let features = superblock.enable(options.has_checksums, options.is_64bit)?;
        let (seed, block_size) = (reader.seed, reader.block_size);
        let encoder = Encoder { features, seed, uuid: superblock.uuid(), block_size };
        Ok(Log {
            tail: None,
            head: reader.head,
            filled: reader.head,
            next: reader.first_tid,
            live: VecDeque::new(),
            latest: HashMap::default(),
            waiting: 0,
            last_commit: Duration::ZERO,
            cache,
            reader,
            encoder,
            superblock,
        })
    }

    pub(crate) fn next(&self) -> Tid {
        self.next
    }

    /// A quarter of the log, and of the cache.
    pub(crate) fn most_credits(&self) -> u32 {
        let of_cache = u32::try_from(self.cache.capacity() / 4).unwrap_or(u32::MAX).max(1024);
        (self.reader.log_len() / 4).clamp(1, of_cache)
    }

    /// Negative, or 0.
    pub(crate) fn recorded_error(&mut self) -> i32 {
        self.superblock.error()
    }

    fn device(&self) -> &dyn BlockDevice {
        &**self.cache.device()
    }

    fn flush(&self) -> Result<(), Cause> {
        write_back::flush(self.device())
    }

    fn free(&self) -> usize {
        let log_len = self.reader.log_len();
        let Some(oldest) = self.live.front() else { return log_len as usize };
        // Head ≠ tail: one block is spare.
        let free = oldest.start.checked_sub(self.head);
        free.unwrap_or_else(|| log_len - (self.head - oldest.start)) as usize
    }

    /// Writes all but the commit block, if there is space.
    pub(crate) fn begin_commit(&mut self, locked: LockedTransaction) -> Result<Stage, Cause> {
        let revokes = self.revokes(&locked.freed);
        if locked.blocks.is_empty() && revokes.is_empty() {
            return Ok(Stage::Done);
        }
        let len = self.encoder.log_blocks(locked.blocks.len(), revokes.len());
        let most = self.reader.log_len() as usize - SPARE;
        if len > most {
            return Err(Cause::Overgrown { blocks: locked.blocks.len(), most });
        }
        let record = LogRecord { locked, revokes, len };
        let has_room = self.free() >= len + SPARE && self.waiting <= self.cache.capacity();
        if has_room { self.write(record) } else { Ok(Stage::NoSpace(record)) }
    }

    /// The caller flushes afterwards.
    pub(crate) fn write_commit_record(&mut self, stage: Stage) -> Result<(), Cause> {
        let (record, end, is_flushed) = match stage {
            Stage::Done => return Ok(()),
            Stage::NoSpace(record) => {
                self.make_room_for(record.len)?;
                let stage = self.write(record)?;
                return self.write_commit_record(stage);
            }
            Stage::Written { record, end, is_flushed } => (record, end, is_flushed),
        };
        if !is_flushed {
            self.flush()?;
        }
        // Never decreases: a scan tells earlier rounds by it.
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.last_commit = self.last_commit.max(now);
        let commit = LogBlock::Made(self.encoder.commit_block(self.next, self.last_commit, end.sum));
        self.append(end.at, &[commit]).map_err(Cause::during("writing a commit to the journal"))?;
        self.record(record);
        Ok(())
    }

    fn make_room_for(&mut self, len: usize) -> Result<(), Cause> {
        if self.free() < len + SPARE {
            // Half the log, because each checkpoint costs two flushes.
            self.make_room((len + SPARE).max(self.reader.log_len() as usize / 2))
        } else {
            self.retire(self.live.len())
        }
    }

    /// The freed blocks with a copy in the log.
    fn revokes(&self, freed: &[(u64, u64)]) -> Vec<u64> {
        let mut revokes = Vec::new();
        for &(first, count) in freed {
            let run = first..first.saturating_add(count);
            if count > self.latest.len() as u64 {
                revokes.extend(self.latest.keys().copied().filter(|block| run.contains(block)));
            } else {
                revokes.extend(run.filter(|block| self.latest.contains_key(block)));
            }
        }
        revokes.sort_unstable();
        revokes.dedup();
        revokes
    }

    fn write(&mut self, record: LogRecord) -> Result<Stage, Cause> {
        if self.live.is_empty() {
            self.set_tail(Some(self.head), self.next)?;
        }
        let (mut blocks, sum) = self.encoder.transaction(self.next, &record.locked.blocks, &record.revokes);
        // The log's length is a u32.
        let at = self.reader.advance(self.head, blocks.len() as u32);
        // A torn commit block must not end in old content, which a scan takes for damage. Zeros
        // complete the commit or invalidate it.
        blocks.push(LogBlock::Made(vec![0; self.reader.block_size]));
        self.fill_ahead(blocks.len());
        self.append(self.head, &blocks).map_err(Cause::during("writing to the journal"))?;
        Ok(Stage::Written { record, end: End { at, sum }, is_flushed: false })
    }

    /// Preallocates the log in its first round. Otherwise each flush writes the allocation: on a
    /// sparse file on ext4 an fsync took a third longer.
    fn fill_ahead(&mut self, blocks: usize) {
        let block_size = self.reader.block_size as u64;
        // The start, after a wrap, is allocated.
        let until = u64::from(self.head) + blocks as u64;
        while u64::from(self.filled) < until
            && let Some((physical, room @ 1..)) = self.reader.run_at(self.filled)
        {
            let ahead = (FILLED_AHEAD / block_size).clamp(1, u64::from(room));
            // Writing the log fails then.
            let _ = self.device().fill_holes(physical.saturating_mul(block_size), ahead * block_size);
            // At most `room`, a u32.
            self.filled += ahead as u32;
        }
    }

    /// Adjacent blocks go in one request.
    fn append(&self, mut at: u32, mut blocks: &[LogBlock]) -> io::Result<()> {
        while !blocks.is_empty() {
            let (physical, room) = self.reader.run_at(at).ok_or(io::ErrorKind::UnexpectedEof)?;
            let len = blocks.len().min(room as usize).min(write_back::MOST_BLOCKS);
            let (run, rest) = blocks.split_at(len);
            let bufs: Vec<_> = run.iter().map(|block| IoSlice::new(block)).collect();
            self.device().write_vectored_at(physical.saturating_mul(self.reader.block_size as u64), &bufs)?;
            // At most `room`, a u32.
            at = self.reader.advance(at, len as u32);
            blocks = rest;
        }
        Ok(())
    }

    fn record(&mut self, LogRecord { locked, revokes, len }: LogRecord) {
        for block in revokes {
            if let Some(latest) = self.latest.get_mut(&block) {
                self.waiting -= usize::from(latest.version.take().is_some());
            }
        }
        let tid = self.next;
        let pin = write_back::pin(locked.tid);
        let blocks = locked.blocks.iter().map(|&(block, _)| block).collect();
        for (block, version) in locked.blocks {
            let old = self.latest.insert(block, Latest { tid, version: Some((version, pin)) });
            self.waiting += usize::from(old.is_none_or(|old| old.version.is_none()));
        }
        // The log's length is a u32.
        let len = len as u32;
        self.live.push_back(CheckpointTransaction { tid, start: self.head, len, blocks });
        self.head = self.reader.advance(self.head, len);
        self.next = tid.next();
    }

    /// Whether commits would soon wait for a checkpoint.
    pub(crate) fn needs_checkpoint(&self) -> bool {
        self.pins_much() || self.free() < self.reader.log_len() as usize / 2
    }

    fn pins_much(&self) -> bool {
        self.waiting > self.cache.capacity() / 2
    }

    /// Before commits wait for it.
    pub(crate) fn checkpoint_early(&mut self) -> Result<(), Cause> {
        if self.pins_much() {
            return self.retire(self.live.len());
        }
        let log_len = self.reader.log_len() as usize;
        if self.free() < log_len / 2 { self.make_room(log_len / 2) } else { Ok(()) }
    }

    /// Writes all committed blocks in place, and marks the journal clean.
    pub(crate) fn checkpoint(&mut self) -> Result<(), Cause> {
        self.retire(self.live.len())?;
        if self.tail.is_some() {
            self.superblock.set_head(self.head);
            self.set_tail(None, self.next)?;
            self.flush()?;
        }
        Ok(())
    }

    /// Oldest first, until `wanted` blocks are free.
    fn make_room(&mut self, wanted: usize) -> Result<(), Cause> {
        let mut free = self.free();
        let enough = |live: &CheckpointTransaction| {
            free += live.len as usize;
            free >= wanted
        };
        let count = self.live.iter().position(enough).map_or(self.live.len(), |last| last + 1);
        self.retire(count)
    }

    /// Checkpoints the oldest `count` transactions.
    fn retire(&mut self, count: usize) -> Result<(), Cause> {
        let Some(last) = count.checked_sub(1).and_then(|last| self.live.get(last)) else { return Ok(()) };
        let last = last.tid;
        let mut versions: Vec<(u64, Buffer)> = Vec::new();
        for live in self.live.iter().take(count) {
            for block in &live.blocks {
                if let Some(Latest { tid, version: Some((buffer, _)) }) = self.latest.get(block)
                    && *tid == live.tid
                {
                    versions.push((*block, buffer.clone()));
                }
            }
        }
        versions.sort_unstable_by_key(|&(block, _)| block);
        write_back::write(self.device(), self.reader.block_size, &versions)
            .map_err(Cause::during("writing blocks in place"))?;
        self.flush()?;
        let (start, tid) = self.live.get(count).map_or((self.head, self.next), |live| (live.start, live.tid));
        self.set_tail(Some(start), tid)?;
        self.flush()?;
        for (block, _) in versions {
            if let Some((_, pin)) = self.latest.get_mut(&block).and_then(|latest| latest.version.take()) {
                self.cache.unpin(block, pin);
                self.waiting -= 1;
            }
        }
        for live in self.live.drain(..count) {
            for block in live.blocks {
                if self.latest.get(&block).is_some_and(|latest| !latest.tid.is_after(last)) {
                    self.latest.remove(&block);
                }
            }
        }
        Ok(())
    }

    fn set_tail(&mut self, start: Option<u32>, tid: Tid) -> Result<(), Cause> {
        let tail = start.map(|start| (start, tid));
        if tail.is_none() || tail != self.tail {
            self.superblock.set_tail(start, tid);
            self.superblock
                .write(&**self.cache.device())
                .map_err(Cause::during("writing the journal's superblock"))?;
            self.tail = tail;
        }
        Ok(())
    }

    /// If the device still works.
    pub(crate) fn record_abort(&mut self) {
        const EIO: i32 = 5;
        self.superblock.set_error(-EIO);
        // All callers have the first cause.
        let _ = self.superblock.write(&**self.cache.device()).and_then(|()| self.device().flush());
    }
}
