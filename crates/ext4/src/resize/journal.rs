//! Moving the journal out of the end.
//!
//! The blocks of a log cannot be moved by a transaction of that log: a kernel that replays it goes
//! on with the old map. So the inode is written directly:
//! 1. A session allocates blocks, and nodes of a new map. They have no owner yet, so the
//!    superblock's state first says that e2fsck has to look.
//! 2. With the log closed and empty, the moved blocks get zeros and the log's superblock. A flush.
//! 3. One write of the inode, a flush.
//! 4. A session frees the old blocks.
//!
//! A crash in between leaves blocks marked as in use that nothing uses; either log is whole.

use super::evacuate::session;
use super::{groups, open};
use crate::alloc::{ALLOC_CREDITS, ReservationClass};
use crate::inode::Snapshot;
use crate::layout::Part;
use crate::map::write::{Mapped, STEP_CREDITS, Target};
use crate::txn::{STATE_VALID, change_superblock, extend_or_restart};
use crate::{Ext4, Result, Structure};
use dentree_blockdev::BlockDevice;
use dentree_ext4_format::{BlockNumber, InodeFlags, InodeTime, Superblock, write_extent_leaf};
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

/// Blocks that are freed by one handle.
const MOST_FREED: u64 = 1 << 13;

/// Where the log's blocks are and will be, in the order of the log.
struct Piece {
    from: BlockNumber,
    to: BlockNumber,
    len: u64,
}

/// Moves the journal's blocks, if any, from block `end` on to free ones before it.
pub(super) fn move_below(device: &Arc<dyn BlockDevice>, end: u64, now: InodeTime) -> Result<()> {
    let fs = open(device)?;
    let Some(location) = fs.journal_location()? else { return Ok(()) };
    let ino = fs.sb.journal_inum;
    let (mut parts, mut failed) = (Vec::new(), None);
    let mut each = |part: Part| {
        parts.push(part);
        ControlFlow::Continue(())
    };
    fs.inode_blocks(ino, &mut each, &mut |error| failed = failed.take().or(Some(error)))?;
    if let Some(error) = failed {
        return Err(error);
    }
    if parts.iter().all(|part| part.blocks().end <= end) {
        return Ok(());
    }
    drop(fs);
    let nodes = parts.iter().filter(|part| matches!(part, Part::Tree(_))).map(Part::blocks);
    let beyond = location.runs.iter().map(|&(start, len)| start.max(end)..(start + len).max(end));
    let freed: Vec<Range<u64>> = nodes.chain(beyond).filter(|range| !range.is_empty()).collect();

    let fs = session(device, end, now)?;
    change_superblock(&**device, |sb| sb.state &= !STATE_VALID)?;
    fs.cache.discard(fs.superblock_at.0, 1);
    let (journal, pieces) = fs.map_journal_below(end, &location.runs)?;
    let writer = fs.writer()?;
    writer.journal.close()?;
    // What closing writes to the superblock follows with the next session.
    writer.is_closed.store(true, std::sync::atomic::Ordering::Relaxed);
    prepare_log(device, &fs.sb, &pieces)?;
    put_inode(device, &fs, &journal)?;
    drop(fs);

    let fs = session(device, end, now)?;
    for range in freed {
        for first in range.clone().step_by(usize::try_from(MOST_FREED).unwrap_or(1)) {
            let count = MOST_FREED.min(range.end - first);
            let mut handle = fs.start(fs.credits_to_free(count))?;
            let done = fs.free_blocks(&mut handle, BlockNumber(first), count, false);
            fs.all_or_abort(done)?;
            handle.stop();
        }
    }
    fs.close()
}

impl Ext4 {
    /// Blocks that freeing so many adjacent ones may change.
    fn credits_to_free(&self, count: u64) -> u32 {
        let groups = count / u64::from(self.sb.blocks_per_group) + 2;
        u32::try_from(groups).unwrap_or(u32::MAX).saturating_mul(2)
    }

    /// A map of the journal that leaves out the blocks from `end` on, with new ones for them.
    fn map_journal_below(&self, end: u64, runs: &[(u64, u64)]) -> Result<(Snapshot, Vec<Piece>)> {
        let mut journal = self.read_orphan(self.sb.journal_inum)?;
        let (ino, inode) = (journal.ino, &mut journal.inode);
        inode.block.fill(0);
        inode.sectors = 0;
        if inode.flags.has(InodeFlags::EXTENTS) {
            write_extent_leaf(&mut inode.block, &[]);
        }
        let mut file = Mapped { ino, inode };
        let (mut pieces, mut logical) = (Vec::new(), 0);
        let mut goal = self.goal_of(ino);
        for &(start, len) in runs {
            let kept = len.min(end.saturating_sub(start));
            let mut done = 0;
            while done < len {
                let mut handle = self.start(ALLOC_CREDITS + STEP_CREDITS)?;
                let from = BlockNumber(start + done);
                let (to, count) = if done < kept {
                    (from, kept)
                } else {
                    let want = u32::try_from(len - done).unwrap_or(u32::MAX);
                    let class = ReservationClass::Guaranteed;
                    let (to, count) = self.allocate_blocks(&mut handle, goal, want, class)?;
                    goal = BlockNumber(to.0 + u64::from(count));
                    (to, u64::from(count))
                };
                let mut at = 0;
                while at < count {
                    let target = Target { start: BlockNumber(to.0 + at), unwritten: false };
                    let range = logical + at..logical + count;
                    at = self.remap(&mut handle, &mut file, range, Some(target))? - logical;
                    handle = extend_or_restart(handle, STEP_CREDITS)?;
                }
                file.count_blocks(self, i64::try_from(count).unwrap_or(0));
                handle.stop();
                pieces.push(Piece { from, to, len: count });
                done += count;
                logical += count;
            }
        }
        Ok((journal, pieces))
    }
}

/// Writes an empty log to its new blocks.
fn prepare_log(device: &Arc<dyn BlockDevice>, sb: &Superblock, pieces: &[Piece]) -> Result<()> {
    let log2 = sb.block_size.log2();
    let place = |block| Structure::Journal.of(sb.journal_inum).at(block);
    for (number, piece) in pieces.iter().enumerate().filter(|(_, piece)| piece.from != piece.to) {
        for block in (piece.to.0..piece.to.0 + piece.len).map(BlockNumber) {
            groups::zero(&**device, sb, block)?;
        }
        if number == 0 {
            let mut head = vec![0; sb.block_size.in_memory()];
            let (from, to) = (piece.from, piece.to);
            device.read_at(from.0 << log2, &mut head).map_err(|source| place(from).io(source))?;
            device.write_at(to.0 << log2, &head).map_err(|source| place(to).io_write(source))?;
        }
    }
    device.flush().map_err(|source| place(BlockNumber(0)).io_write(source))
}

/// Writes the journal's inode, and then its copy in the superblock.
fn put_inode(device: &Arc<dyn BlockDevice>, fs: &Ext4, journal: &Snapshot) -> Result<()> {
    let (block, within) = fs.find_inode(journal.ino)?;
    let place = journal.place(Structure::Inode).at(block);
    let at = block.0 << fs.sb.block_size.log2();
    let mut bytes = vec![0; fs.sb.block_size.in_memory()];
    device.read_at(at, &mut bytes).map_err(|source| place.io(source))?;
    let size = usize::try_from(fs.sb.inode_size).unwrap_or(usize::MAX);
    if let Some(bytes) = bytes.chunks_exact_mut(size).nth(within) {
        journal.encode(bytes, &fs.sb);
    }
    device.write_at(at, &bytes).map_err(|source| place.io_write(source))?;
    device.flush().map_err(|source| place.io_write(source))?;
    change_superblock(&**device, |sb| {
        if let Some(backup) = &mut sb.journal_backup {
            let words = journal.inode.block.as_chunks().0.iter().copied().map(u32::from_le_bytes);
            backup.iter_mut().zip(words).for_each(|(to, word)| *to = word);
        }
    })
}
