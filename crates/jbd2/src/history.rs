//! All transactions in the log, including those before its tail.
//!
//! A transaction stays in the log after its checkpoint until it is overwritten. Blocks are read in
//! device order: all but copies have a magic number. Overwritten copies are left out, and those
//! with a wrong checksum.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use dentree_blockdev::BlockDevice;

use crate::checksum::Seed;
use crate::error::Error;
use crate::format::{BlockType, Commit, Features, MAGIC, Tag, Tags, header, revoked_blocks};
use crate::overlay::{Logged, Overlay};
use crate::reader::{JournalLocation, LogReader};
use crate::tid::Tid;

/// A transaction in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedTransaction {
    /// Sequence number.
    pub tid: Tid,
    /// Commit time in seconds since 1970. `None`: there is no commit block.
    pub committed: Option<u64>,
    /// First block, in the journal.
    pub first: u32,
    /// Not before the log's tail: a replay applies it.
    pub is_pending: bool,
    /// Copies.
    pub copies: Vec<LoggedCopy>,
    /// Freed blocks: earlier copies are not replayed.
    pub revoked: Vec<u64>,
}

/// A transaction's copy of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggedCopy {
    /// Block of the file system.
    pub block: u64,
    /// Block of the journal.
    pub at: u32,
    tid: Tid,
    tag: Tag,
}

/// The transactions in a log.
pub struct History {
    journal: LogReader,
    transactions: Vec<LoggedTransaction>,
}

impl History {
    /// Reads the log.
    ///
    /// # Errors
    /// The journal cannot be opened, or [`Error::Read`].
    pub fn read(device: Arc<dyn BlockDevice>, location: &JournalLocation) -> Result<History, Error> {
        let journal = LogReader::open(device, location)?;
        let mut found = BTreeMap::<u32, LoggedTransaction>::new();
        // By block of the copy: its last writer.
        let mut places = HashMap::<u32, Tid>::new();
        for at in journal.first..journal.first + journal.log_len() {
            let block = journal.read(at)?;
            let Some((kind, tid)) = header(&block) else { continue };
            if !is_sound(journal.features, journal.seed, kind, &block) {
                continue;
            }
            let transaction = found.entry(tid.0).or_insert_with(|| LoggedTransaction {
                tid,
                committed: None,
                first: at,
                is_pending: journal.tail.is_some() && !journal.first_tid.is_after(tid),
                copies: Vec::new(),
                revoked: Vec::new(),
            });
            places.insert(at, tid);
            match kind {
                BlockType::Descriptor => {
                    for (tag, behind) in Tags::new(journal.features, &block).zip(1..) {
                        let at = journal.advance(at, behind);
                        let last = places.entry(at).or_insert(tid);
                        *last = last.later(tid);
                        transaction.copies.push(LoggedCopy { block: tag.target, at, tid, tag });
                    }
                }
                BlockType::Revoke => {
                    transaction
                        .revoked
                        .extend(revoked_blocks(journal.features, &block).into_iter().flatten());
                }
                BlockType::Commit => {
                    transaction.committed = Commit::new(&block).map(|commit| commit.seconds);
                }
                BlockType::Superblock | BlockType::Other => {}
            }
        }
        let mut transactions: Vec<LoggedTransaction> = found.into_values().collect();
        let newest = transactions.iter().map(|one| one.tid).reduce(Tid::later).unwrap_or(Tid(0));
        transactions.sort_by_key(|one| std::cmp::Reverse(newest.0.wrapping_sub(one.tid.0)));
        for one in &mut transactions {
            one.copies.retain(|copy| places.get(&copy.at) == Some(&copy.tid));
        }
        Ok(History { journal, transactions })
    }

    /// Oldest first.
    pub fn transactions(&self) -> &[LoggedTransaction] {
        &self.transactions
    }

    /// The device with each block's last copy in place, even of freed blocks.
    pub fn last_copies(&self) -> Arc<dyn BlockDevice> {
        let mut last = HashMap::new();
        for copy in self.transactions.iter().flat_map(|one| &one.copies) {
            if let Some(physical) = self.journal.physical(copy.at) {
                let logged = Logged { block: copy.at, physical, escaped: copy.tag.escaped };
                last.insert(copy.block, logged);
            }
        }
        Arc::new(Overlay::new(Arc::clone(&self.journal.device), self.journal.block_size, last))
    }

    /// A copy's content; `None` if its checksum is wrong.
    ///
    /// # Errors
    /// [`Error::Read`].
    pub fn content(&self, copy: &LoggedCopy) -> Result<Option<Vec<u8>>, Error> {
        let mut bytes = self.journal.read(copy.at)?;
        if !self.journal.seed.copy_is_sound(self.journal.features.sums, copy.tid, &copy.tag, &bytes) {
            return Ok(None);
        }
        if copy.tag.escaped
            && let Some(start) = bytes.first_chunk_mut()
        {
            *start = MAGIC.to_be_bytes();
        }
        Ok(Some(bytes))
    }
}

fn is_sound(features: Features, seed: Seed, kind: BlockType, block: &[u8]) -> bool {
    match kind {
        _ if !features.has_block_sums() => true,
        BlockType::Descriptor | BlockType::Revoke => seed.tail_is_sound(block),
        BlockType::Commit => seed.commit_is_sound(block),
        BlockType::Superblock | BlockType::Other => false,
    }
}
