//! Large writes bypass the memory: the FUSE or HTTP layer holds them in one buffer already.
//!
//! Removal before write-back is cheap with delayed allocation, so only blocks past the first
//! [`DELAYED_BLOCKS`] are written directly.

use super::content::Content;
use super::content::{CallerBlocks, Source};
use crate::map::Mapping;
use crate::{Ext4, Node, Result};
use dentree_ext4_format::LogicalBlock;

/// From here on, allocation and mapping cost less than copying.
const MIN_BLOCKS: u32 = 32;

/// 8 MiB with blocks of 4 KiB. In dbench two thirds of the bytes of removed files never reach the
/// device.
const DELAYED_BLOCKS: u32 = 2048;

/// Bounds a handle, as a commit waits for it.
const MOST_BLOCKS: u32 = 4096;

impl Ext4 {
    /// Writes and maps leading whole blocks. Returns how many bytes; the caller writes the rest to
    /// memory, also after an error, which write-back will meet again. The caller has the content
    /// lock and has zeroed the last block past the end of file.
    pub(super) fn write_direct(&self, node: &Node, content: &mut Content, offset: u64, data: &[u8]) -> usize {
        let Some((LogicalBlock(first), 0)) = self.sb.block_size.split(offset) else { return 0 };
        let block_size = self.sb.block_size.in_memory();
        let count = u32::try_from(data.len() / block_size).unwrap_or(u32::MAX);
        if first < DELAYED_BLOCKS || count < MIN_BLOCKS {
            return 0;
        }
        // Older dirty data first: the length on disk never passes data that is only in memory,
        // above all zeros.
        if !content.blocks.is_empty() && self.write_back_locked(node, content).is_err() {
            return 0;
        }
        let blocks = CallerBlocks { first, bytes: data, block_size };
        let end = first.saturating_add(count);
        let mut at = first;
        while at < end
            && let Ok(written @ 1..) = self.write_direct_run(node, blocks, at, end - at)
        {
            at += written;
        }
        usize::try_from(at - first).unwrap_or(usize::MAX) * block_size
    }

    /// Blocks of one kind of mapping. Returns how many.
    fn write_direct_run(&self, node: &Node, blocks: CallerBlocks<'_>, first: u32, count: u32) -> Result<u32> {
        let before = node.snapshot();
        let run = self.map(&before, LogicalBlock(first))?;
        let count = u32::try_from(run.len).unwrap_or(u32::MAX).min(count).min(MOST_BLOCKS);
        let source = Source::Direct(blocks);
        if let Mapping::Data(start) = run.mapping {
            self.write_run(&before, source, first, count, start)?;
            return Ok(count);
        }
        let reserved = if run.mapping == Mapping::Hole { u64::from(count) } else { 0 };
        let space = &self.writer()?.space;
        space.reserve(reserved, self.reservation_class(node))?;
        // The length on disk advances with the map.
        let end = u64::from(first + count) << self.sb.block_size.log2();
        node.change(|snapshot| snapshot.set_size(end.max(snapshot.inode.size), true));
        let written = self.write_new_run(node, &node.snapshot(), source, first, count, run);
        let done = *written.as_ref().unwrap_or(&0);
        if reserved > 0 {
            space.release(reserved - u64::from(done));
        }
        if done < count {
            let end = u64::from(first + done) << self.sb.block_size.log2();
            let size = if done == 0 { before.inode.size } else { end.max(before.inode.size) };
            node.change(|snapshot| {
                snapshot.set_size(size, true);
                snapshot.disk_size = snapshot.disk_size.filter(|&disk_size| disk_size < size);
            });
        }
        written
    }
}
