use std::collections::HashMap;
use std::sync::Arc;

use dentree_blockdev::BlockDevice;

use crate::checksum::TransactionSum;
use crate::error::{Damage, Error};
use crate::fast_commit;
use crate::format::{BlockType, Commit, MAGIC, Sums, Tags, header, revoked_blocks};
use crate::overlay::{Logged, Overlay};
use crate::reader::{JournalLocation, LogReader};
use crate::revoke::Revokes;
use crate::superblock::Superblock;
use crate::tid::Tid;
use crate::write_back;

/// A device as after its journal's replay.
pub struct Recovered {
    /// The device. Read-only.
    pub device: Arc<dyn BlockDevice>,
    /// Transactions replayed.
    pub transactions: u32,
    /// Blocks that now read from the journal.
    pub blocks: usize,
    /// Copies not replayed: a later transaction revoked them.
    pub revoked: usize,
}

/// Replays a journal in memory.
///
/// The file system's superblock may still have `needs_recovery` set; ignore it.
///
/// # Errors
/// [`Error::Corrupt`] for damage in a committed transaction, [`Error::Unsupported`] for unsupported
/// features or pending fast commits, and [`Error::Read`].
///
/// ```no_run
/// use std::sync::Arc;
/// use dentree_blockdev::{Access, FileDevice};
/// use dentree_jbd2::{JournalLocation, recover};
///
/// let image = Arc::new(FileDevice::open("disk.img", Access::ReadOnly)?);
/// // From the extents of inode 8.
/// let location = JournalLocation { block_size: 4096, runs: vec![(32_768, 4096)] };
/// let recovered = recover(image, &location)?;
/// println!("{} transactions replayed over {} blocks", recovered.transactions, recovered.blocks);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn recover(device: Arc<dyn BlockDevice>, location: &JournalLocation) -> Result<Recovered, Error> {
    let journal = LogReader::open(Arc::clone(&device), location)?;
    let found = find(&journal)?;
    let (transactions, blocks, revoked) = (found.transactions, found.copies.len(), found.revoked);
    if transactions == 0 {
        return Ok(Recovered { device, transactions, blocks, revoked });
    }
    let overlay = Overlay::new(device, journal.block_size, found.copies);
    Ok(Recovered { device: Arc::new(overlay), transactions, blocks, revoked })
}

/// Result of [`replay`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// Transactions replayed.
    pub transactions: u32,
    /// Blocks written.
    pub blocks: usize,
    /// Copies not replayed: a later transaction revoked them.
    pub revoked: usize,
}

/// Replays a journal onto its device, and marks it clean. An interrupted replay can be repeated. No
/// block of the device may be cached.
///
/// # Errors
/// Those of [`recover`], before anything is written; and [`Error::Write`].
pub fn replay(device: &Arc<dyn BlockDevice>, location: &JournalLocation) -> Result<Replayed, Error> {
    let journal = LogReader::open(Arc::clone(device), location)?;
    let found = find(&journal)?;
    let done =
        Replayed { transactions: found.transactions, blocks: found.copies.len(), revoked: found.revoked };
    if journal.tail.is_none() {
        return Ok(done);
    }
    let mut copies: Vec<_> = found.copies.into_iter().collect();
    copies.sort_unstable_by_key(|&(block, _)| block);
    let mut run = Vec::new();
    for (block, copy) in copies {
        if run.len() == write_back::MOST_BLOCKS {
            write_back::write(&**device, journal.block_size, &run).map_err(Error::Write)?;
            run.clear();
        }
        let offset = copy.physical.saturating_mul(journal.block_size as u64);
        let mut bytes = vec![0; journal.block_size];
        let failed = |source| Error::Read { block: copy.block, physical: copy.physical, source };
        device.read_at(offset, &mut bytes).map_err(failed)?;
        if copy.escaped {
            bytes[..4].copy_from_slice(&MAGIC.to_be_bytes());
        }
        run.push((block, bytes));
    }
    write_back::write(&**device, journal.block_size, &run).map_err(Error::Write)?;
    device.flush().map_err(Error::Write)?;
    let mut superblock = Superblock::new(&journal);
    superblock.set_head(found.end);
    // Skips a number: blocks of an incomplete transaction may have the next one.
    superblock.set_tail(None, Tid(journal.first_tid.0.wrapping_add(found.transactions)).next());
    superblock.write(&**device).and_then(|()| device.flush()).map_err(Error::Write)?;
    Ok(done)
}

struct Found {
    transactions: u32,
    /// Behind the last of them, in the journal.
    end: u32,
    copies: HashMap<u64, Logged>,
    revoked: usize,
}

fn find(journal: &LogReader) -> Result<Found, Error> {
    let Some(tail) = journal.tail else {
        return Ok(Found { transactions: 0, end: journal.head, copies: HashMap::new(), revoked: 0 });
    };
    let mut scan = Scan::new();
    let (transactions, _) = walk(journal, tail, None, &mut scan)?;
    let next = Tid(journal.first_tid.0.wrapping_add(transactions));
    if journal.features.fast_commit && fast_commit::is_pending(journal, next)? {
        return Err(Error::Unsupported { feature: "pending fast commits".into() });
    }
    let mut revokes = scan.targets;
    walk(journal, tail, Some(transactions), &mut revokes)?;
    let mut replay = Replay { revokes, copies: HashMap::new(), revoked: 0 };
    let (_, end) = walk(journal, tail, Some(transactions), &mut replay)?;
    Ok(Found { transactions, end, copies: replay.copies, revoked: replay.revoked })
}

trait Pass {
    fn descriptor(&mut self, journal: &LogReader, at: &At, block: &[u8]) -> Result<(), Error>;
    fn revoke(&mut self, journal: &LogReader, at: &At, block: &[u8]) -> Result<(), Error>;
    fn commit(&mut self, journal: &LogReader, at: &At, block: &[u8]) -> Result<Verdict, Error>;
}

struct At {
    tid: Tid,
    block: u32,
}

impl At {
    fn damage(&self, structure: &'static str, check: &'static str) -> Error {
        Damage::Block { tid: self.tid, structure, block: self.block, check }.into()
    }
}

#[derive(PartialEq, Eq)]
enum Verdict {
    Committed,
    /// A wrong checksum: the log ends before its transaction, unless a later one was committed.
    Unfinished,
    /// Not committed in this round of the log: the log ends before its transaction.
    EndOfLog,
}

/// Passes at most `limit` transactions from `tail` on. Returns the number committed, and the block
/// where it stopped.
///
/// Stops after the log's length: a transaction that wraps onto itself is incomplete.
fn walk(
    journal: &LogReader,
    tail: u32,
    limit: Option<u32>,
    pass: &mut dyn Pass,
) -> Result<(u32, u32), Error> {
    let (mut at, mut count) = (At { tid: journal.first_tid, block: tail }, 0);
    let mut left = journal.log_len();
    let mut is_past_end = false;
    while limit.is_none_or(|limit| count < limit) {
        let block = journal.read(at.block)?;
        let Some((kind, tid)) = header(&block) else { break };
        if tid != at.tid {
            break;
        }
        let mut passed = 1;
        match kind {
            BlockType::Descriptor => {
                let copies = Tags::new(journal.features, &block).count();
                passed += u32::try_from(copies).unwrap_or(u32::MAX - 1);
                if passed > left {
                    break;
                }
                pass.descriptor(journal, &at, &block)?;
            }
            BlockType::Revoke => pass.revoke(journal, &at, &block)?,
            BlockType::Commit => {
                match pass.commit(journal, &at, &block)? {
                    Verdict::Committed => count += u32::from(!is_past_end),
                    Verdict::Unfinished => is_past_end = true,
                    Verdict::EndOfLog => break,
                }
                at.tid = at.tid.next();
            }
            BlockType::Superblock | BlockType::Other => break,
        }
        left = match left.checked_sub(passed) {
            Some(left) if left > 0 => left,
            _ => break,
        };
        at.block = journal.advance(at.block, passed);
    }
    Ok((count, at.block))
}

fn copies<'a>(
    journal: &'a LogReader,
    at: &At,
    block: &'a [u8],
) -> impl Iterator<Item = (crate::format::Tag, u32)> + 'a {
    let first = at.block;
    Tags::new(journal.features, block)
        .zip(1..)
        .map(move |(tag, behind)| (tag, journal.advance(first, behind)))
}

/// Finds the end of the log, and verifies checksums.
struct Scan {
    /// The transaction's first block with a wrong checksum: damage if it was committed in this
    /// round, otherwise a leftover.
    suspect: Option<(&'static str, u32)>,
    unfinished: Option<At>,
    sum: TransactionSum,
    /// Seconds.
    last_commit: u64,
    targets: Revokes,
}

impl Scan {
    fn new() -> Self {
        Scan {
            suspect: None,
            unfinished: None,
            sum: TransactionSum::new(),
            last_commit: 0,
            targets: Revokes::default(),
        }
    }

    fn check_tail(&mut self, journal: &LogReader, at: &At, structure: &'static str, block: &[u8]) {
        if journal.features.has_block_sums() && !journal.seed.tail_is_sound(block) {
            self.suspect.get_or_insert((structure, at.block));
        }
    }
}

const BAD_SUM: &str = "checksum mismatch";
const NOT_THE_LAST: &str = "checksum mismatch, but a later transaction was committed";

impl Pass for Scan {
    fn descriptor(&mut self, journal: &LogReader, at: &At, block: &[u8]) -> Result<(), Error> {
        self.check_tail(journal, at, "descriptor", block);
        Tags::new(journal.features, block).for_each(|tag| self.targets.expect(tag.target));
        if journal.features.sums == Sums::V1 {
            self.sum.add(block);
            for (_, copy) in copies(journal, at, block) {
                self.sum.add(&journal.read(copy)?);
            }
        }
        Ok(())
    }

    fn revoke(&mut self, journal: &LogReader, at: &At, block: &[u8]) -> Result<(), Error> {
        self.check_tail(journal, at, "revoke block", block);
        Ok(())
    }

    fn commit(&mut self, journal: &LogReader, at: &At, block: &[u8]) -> Result<Verdict, Error> {
        let Some(commit) = Commit::new(block) else { return Ok(Verdict::EndOfLog) };
        let sum = std::mem::replace(&mut self.sum, TransactionSum::new()).finish();
        let is_old = commit.seconds < self.last_commit;
        if let Some((structure, block)) = self.suspect {
            if is_old {
                return Ok(Verdict::EndOfLog);
            }
            return Err(At { tid: at.tid, block }.damage(structure, BAD_SUM));
        }
        if let Some(unfinished) = &self.unfinished {
            if is_old {
                return Ok(Verdict::EndOfLog);
            }
            return Err(unfinished.damage("commit block", NOT_THE_LAST));
        }
        let is_sound = match journal.features.sums {
            Sums::None => true,
            Sums::V1 => commit.matches_v1(sum),
            Sums::V2 | Sums::V3 => journal.seed.commit_is_sound(block),
        };
        if !is_sound {
            if is_old {
                return Ok(Verdict::EndOfLog);
            }
            // An asynchronous commit block may be written before its transaction, which then is not
            // committed. If its version 1 checksum is wrong, a later commit proves damage.
            if journal.features.async_commit {
                self.unfinished = Some(At { tid: at.tid, block: at.block });
                let decides = journal.features.sums == Sums::V1;
                return Ok(if decides { Verdict::Unfinished } else { Verdict::EndOfLog });
            }
            return Err(at.damage("commit block", BAD_SUM));
        }
        self.last_commit = commit.seconds;
        Ok(Verdict::Committed)
    }
}

impl Pass for Revokes {
    fn descriptor(&mut self, _: &LogReader, _: &At, _: &[u8]) -> Result<(), Error> {
        Ok(())
    }

    fn revoke(&mut self, journal: &LogReader, at: &At, block: &[u8]) -> Result<(), Error> {
        let blocks = revoked_blocks(journal.features, block)
            .ok_or_else(|| at.damage("revoke block", "its count exceeds the block"))?;
        blocks.for_each(|block| self.insert(block, at.tid));
        Ok(())
    }

    fn commit(&mut self, _: &LogReader, _: &At, _: &[u8]) -> Result<Verdict, Error> {
        Ok(Verdict::Committed)
    }
}

/// Finds the last copy of each block.
struct Replay {
    revokes: Revokes,
    copies: HashMap<u64, Logged>,
    revoked: usize,
}

impl Pass for Replay {
    fn descriptor(&mut self, journal: &LogReader, at: &At, block: &[u8]) -> Result<(), Error> {
        let device_blocks = journal.device.size() / journal.block_size as u64;
        for (tag, block) in copies(journal, at, block) {
            if self.revokes.covers(tag.target, at.tid) {
                self.revoked += 1;
                continue;
            }
            let damage = |check| Error::from(Damage::Copy { tid: at.tid, target: tag.target, block, check });
            if tag.target >= device_blocks {
                return Err(damage("the target is beyond the end of the device"));
            }
            if journal.features.has_block_sums() {
                let copy = journal.read(block)?;
                if !journal.seed.copy_is_sound(journal.features.sums, at.tid, &tag, &copy) {
                    return Err(damage(BAD_SUM));
                }
            }
            let physical =
                journal.physical(block).ok_or_else(|| damage("the journal's inode does not map the copy"))?;
            self.copies.insert(tag.target, Logged { physical, block, escaped: tag.escaped });
        }
        Ok(())
    }

    fn revoke(&mut self, _: &LogReader, _: &At, _: &[u8]) -> Result<(), Error> {
        Ok(())
    }

    fn commit(&mut self, _: &LogReader, _: &At, _: &[u8]) -> Result<Verdict, Error> {
        Ok(Verdict::Committed)
    }
}
