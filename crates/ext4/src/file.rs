//! File content.

use crate::map::{Mapping, Run};
use crate::{Ext4, Result, Snapshot, Structure};
use dentree_ext4_format::{InodeFlags, LogicalBlock, Problem};
use dentree_vfs::Extent;

impl Ext4 {
    /// Reads content from byte `offset`; answers how many bytes, fewer than asked only at the end.
    pub(crate) fn read_content(&self, node: &Snapshot, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let left = node.inode.size.saturating_sub(offset);
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
        let buf = buf.get_mut(..len).unwrap_or_default();
        if buf.is_empty() {
            return Ok(0);
        }
        if node.has(InodeFlags::INLINE_DATA) {
            self.read_inline(node, offset, buf)?;
            return Ok(len);
        }
        let mut done = 0;
        while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
            done += self.read_run(node, offset + u64::try_from(done).unwrap_or(u64::MAX), rest)?;
        }
        Ok(len)
    }

    /// Fills the beginning of `buf` as far as the file's blocks lie together, in one request.
    fn read_run(&self, node: &Snapshot, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let (block, within) = self.split(node, offset)?;
        let wanted = self.sb.block_size.blocks_for(u64::try_from(within + buf.len()).unwrap_or(u64::MAX));
        let run = self.map_together(node, block, wanted)?;
        let run_bytes = usize::try_from(run.len << self.sb.block_size.log2()).unwrap_or(usize::MAX);
        let len = buf.len().min(run_bytes - within);
        let buf = buf.get_mut(..len).unwrap_or_default();
        match run.mapping {
            Mapping::Data(start) => {
                let within = u64::try_from(within).unwrap_or(u64::MAX);
                let at = (start.0 << self.sb.block_size.log2()) + within;
                let place = node.place(Structure::Content).at(start);
                self.device.read_at(at, buf).map_err(|source| place.io(source))?;
            }
            Mapping::Unwritten(_) | Mapping::Hole => buf.fill(0),
        }
        Ok(len)
    }

    /// The run at `block`, with what follows it in the file and on the device, up to `wanted` blocks.
    fn map_together(&self, node: &Snapshot, block: LogicalBlock, wanted: u64) -> Result<Run> {
        let mut run = self.map(node, block)?;
        while run.len < wanted {
            let Ok(next) = u32::try_from(u64::from(block.0) + run.len) else { break };
            let next = self.map(node, LogicalBlock(next))?;
            if !run.goes_on(&next) {
                break;
            }
            run.len += next.len;
        }
        Ok(run)
    }

    /// Whether the byte at `offset`, before the end of file, is data or hole, and where that run ends.
    pub(crate) fn extent_at(&self, node: &Snapshot, offset: u64) -> Result<Extent> {
        let size = node.inode.size;
        if node.has(InodeFlags::INLINE_DATA) {
            return Ok(Extent::Data(size));
        }
        let (first, _) = self.split(node, offset)?;
        let blocks = self.sb.block_size.blocks_for(size);
        let is_data = |run: &Run| matches!(run.mapping, Mapping::Data(_));
        let run = self.map(node, first)?;
        let data = is_data(&run);
        let mut end = u64::from(first.0) + run.len;
        while end < blocks {
            let Ok(next) = u32::try_from(end) else { break };
            let run = self.map(node, LogicalBlock(next))?;
            if is_data(&run) != data {
                break;
            }
            end += run.len;
        }
        let end = (end << self.sb.block_size.log2()).min(size);
        Ok(if data { Extent::Data(end) } else { Extent::Hole(end) })
    }

    fn split(&self, node: &Snapshot, offset: u64) -> Result<(LogicalBlock, usize)> {
        self.sb.block_size.split(offset).ok_or_else(|| {
            let because = "is more than 2^32 blocks";
            node.place(Structure::Inode).corrupt(Problem::Value {
                field: "i_size",
                value: node.inode.size,
                because,
            })
        })
    }
}
