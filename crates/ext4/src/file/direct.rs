//! Large writes go to the device at once, from where they are.
//!
//! What a front door has gathered gains nothing by being gathered here again, and costs a copy and memory for it; but for files that are removed
//! before anybody stores them. So it is for those that are longer than what is gathered of one: they would be stored in any case.

use super::Content;
use super::source::{Given, Source};
use crate::map::Mapping;
use crate::{Ext4, Node, Result};
use dentree_ext4_format::LogicalBlock;

/// So many blocks in one write are not gathered: to take space for them and map it costs less than copying them does.
const AT_ONCE: u32 = 32;

/// What lies before this file block is gathered: 8 MiB with blocks of 4 KiB. Of the files that dbench makes, and removes again, two thirds of the bytes so
/// never reach the device.
const FROM: u32 = 2048;

/// Most blocks that are stored under one handle: who commits waits for it.
const MOST_BLOCKS: u32 = 4096;

impl Ext4 {
    /// Stores the whole blocks that a large write begins with, as if they had been written and stored; answers how many bytes. The rest is to be written as any
    /// other: all where the write is small or nothing is gained, and what is behind a failure, which who stores that will meet again. The caller has the
    /// content lock, and has made zeros of what lies behind the end of file.
    pub(super) fn write_at_once(
        &self,
        node: &Node,
        content: &mut Content,
        offset: u64,
        data: &[u8],
    ) -> usize {
        let Some((LogicalBlock(first), 0)) = self.sb.block_size.split(offset) else { return 0 };
        let block_size = self.sb.block_size.in_memory();
        let count = u32::try_from(data.len() / block_size).unwrap_or(u32::MAX);
        if first < FROM || count < AT_ONCE {
            return 0;
        }
        // In the order in which it was written, so that the length on the device passes nothing that is in memory alone, zeros above all.
        if !content.blocks.is_empty() && self.store_content(node, content).is_err() {
            return 0;
        }
        let given = Given { first, bytes: data, block_size };
        let end = first.saturating_add(count);
        let mut at = first;
        while at < end
            && let Ok(stored @ 1..) = self.store_given(node, given, at, end - at)
        {
            at += stored;
        }
        usize::try_from(at - first).unwrap_or(usize::MAX) * block_size
    }

    /// Stores up to `count` blocks that are mapped alike; answers how many.
    fn store_given(&self, node: &Node, given: Given<'_>, first: u32, count: u32) -> Result<u32> {
        let before = node.snapshot();
        let run = self.map(&before, LogicalBlock(first))?;
        let count = u32::try_from(run.len).unwrap_or(u32::MAX).min(count).min(MOST_BLOCKS);
        let source = Source::Given(given);
        if let Mapping::Data(start) = run.mapping {
            self.write_run(&before, source, first, count, start)?;
            return Ok(count);
        }
        let promised = if run.mapping == Mapping::Hole { u64::from(count) } else { 0 };
        let space = &self.writer()?.space;
        space.reserve(promised, self.reservation_class(node))?;
        // On the device the length moves with the map.
        let end = u64::from(first + count) << self.sb.block_size.log2();
        node.change(|snapshot| snapshot.set_size(end.max(snapshot.inode.size), true));
        let stored = self.store_run(node, &node.snapshot(), source, first, count, run);
        let done = *stored.as_ref().unwrap_or(&0);
        if promised > 0 {
            space.release(promised - u64::from(done));
        }
        if done < count {
            let end = u64::from(first + done) << self.sb.block_size.log2();
            let size = if done == 0 { before.inode.size } else { end.max(before.inode.size) };
            node.change(|snapshot| {
                snapshot.set_size(size, true);
                snapshot.stored_size = snapshot.stored_size.filter(|&stored| stored < size);
            });
        }
        stored
    }
}
