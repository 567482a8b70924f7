//! Reads of content, dirty or on the device.

use super::Content;
use crate::inode::Snapshot;
use crate::map::Mapping;
use crate::{Ext4, Node, Result};
use dentree_ext4_format::{InodeFlags, LogicalBlock};
use dentree_vfs::Extent;

impl Ext4 {
    /// Reads content from byte `offset`. Returns the length, less than requested only at the end of
    /// file.
    pub(crate) fn read_file(&self, node: &Node, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let content = node.content();
        let snapshot = node.snapshot();
        if content.blocks.is_empty() {
            return self.read_content(&snapshot, offset, buf);
        }
        let left = snapshot.inode.size.saturating_sub(offset);
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
        let log2 = self.sb.block_size.log2();
        let end_block = self.sb.block_size.blocks_for(offset + u64::try_from(len).unwrap_or(0));
        let mut done = 0;
        while done < len {
            let at = offset + u64::try_from(done).unwrap_or(u64::MAX);
            let rest = buf.get_mut(done..len).unwrap_or_default();
            let next = content.next_block(at >> log2, end_block);
            done += match next {
                Some(block) if u64::from(block) == at >> log2 => self.copy_block(&content, block, at, rest),
                _ => {
                    // Up to the next dirty block the device is current.
                    let until = next.map_or(u64::MAX, |block| u64::from(block) << log2);
                    let before = usize::try_from(until - at).unwrap_or(usize::MAX).min(rest.len());
                    self.read_content(&snapshot, at, rest.get_mut(..before).unwrap_or_default())?
                }
            };
        }
        Ok(len)
    }

    fn copy_block(&self, content: &Content, block: u32, at: u64, buf: &mut [u8]) -> usize {
        let within = usize::try_from(at & u64::from(self.sb.block_size.bytes() - 1)).unwrap_or(usize::MAX);
        let bytes =
            content.blocks.get(&block).and_then(|block| block.bytes.get(within..)).unwrap_or_default();
        let len = bytes.len().min(buf.len());
        buf.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        len
    }

    /// Whether the byte at `offset`, before the end of file, is data or a hole, and where that run
    /// ends.
    pub(crate) fn extent_of_file(&self, node: &Node, offset: u64) -> Result<Extent> {
        let content = node.content();
        let snapshot = node.snapshot();
        let size = snapshot.inode.size;
        if content.blocks.is_empty() || snapshot.has(InodeFlags::INLINE_DATA) {
            return self.extent_at(&snapshot, offset);
        }
        let log2 = self.sb.block_size.log2();
        let blocks = self.sb.block_size.blocks_for(size);
        let mut at = offset >> log2;
        let (data, end) = self.block_run(&content, &snapshot, at, blocks)?;
        at = end;
        while at < blocks {
            let (next, end) = self.block_run(&content, &snapshot, at, blocks)?;
            if next != data {
                break;
            }
            at = end;
        }
        let end = (at << log2).min(size);
        Ok(if data { Extent::Data(end) } else { Extent::Hole(end) })
    }

    /// Whether block `at` has data, and a block up to which that holds.
    fn block_run(&self, content: &Content, snapshot: &Snapshot, at: u64, end: u64) -> Result<(bool, u64)> {
        let next = content.next_block(at, end).map_or(end, u64::from);
        if next == at {
            return Ok((true, at + 1));
        }
        // Below the end of file, so below 2^32.
        let run = self.map(snapshot, LogicalBlock(u32::try_from(at).unwrap_or(u32::MAX)))?;
        Ok((matches!(run.mapping, Mapping::Data(_)), next.min(at + run.len)))
    }
}
