//! Reads of content.

use super::content::Content;
use crate::inode::Snapshot;
use crate::map::{Mapping, Run};
use crate::{Ext4, Node, Result, Structure};
use dentree_ext4_format::{InodeFlags, LogicalBlock, Problem};
use dentree_vfs::Extent;
use std::ops::ControlFlow;

impl Ext4 {
    /// Short only at the end of file.
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
    pub(crate) fn extent(&self, node: &Node, offset: u64) -> Result<Extent> {
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

    /// Whether block `at` has data, and up to which block.
    fn block_run(&self, content: &Content, snapshot: &Snapshot, at: u64, end: u64) -> Result<(bool, u64)> {
        let next = content.next_block(at, end).map_or(end, u64::from);
        if next == at {
            return Ok((true, at + 1));
        }
        // Below the end of file, so below 2^32.
        let run = self.map(snapshot, LogicalBlock(u32::try_from(at).unwrap_or(u32::MAX)))?;
        Ok((matches!(run.mapping, Mapping::Data(_)), next.min(at + run.len)))
    }

    /// Reads from the device. Short only at the end of file.
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
        let (LogicalBlock(first), within) = self.split(node, offset)?;
        let (LogicalBlock(last), _) =
            self.split(node, offset + u64::try_from(len - 1).unwrap_or(u64::MAX))?;
        let wanted = u64::from(first)..u64::from(last) + 1;
        let (mut rest, mut within, mut together) = (buf, within, None::<Run>);
        self.map_range(node, wanted, &mut |_, run| {
            match &mut together {
                Some(before) if before.goes_on(&run) => before.len += run.len,
                Some(before) => {
                    let before = std::mem::replace(before, run);
                    rest =
                        self.read_run(node, before, std::mem::take(&mut within), std::mem::take(&mut rest))?;
                }
                None => together = Some(run),
            }
            Ok(ControlFlow::Continue(()))
        })?;
        if let Some(last) = together {
            self.read_run(node, last, within, rest)?;
        }
        Ok(len)
    }

    /// Sends one request. Returns the rest of `buf`.
    fn read_run<'a>(
        &self,
        node: &Snapshot,
        run: Run,
        within: usize,
        buf: &'a mut [u8],
    ) -> Result<&'a mut [u8]> {
        let run_bytes = usize::try_from(run.len << self.sb.block_size.log2()).unwrap_or(usize::MAX);
        let (buf, rest) = buf.split_at_mut(buf.len().min(run_bytes.saturating_sub(within)));
        match run.mapping {
            Mapping::Data(start) => {
                let within = u64::try_from(within).unwrap_or(u64::MAX);
                let at = (start.0 << self.sb.block_size.log2()) + within;
                let place = node.place(Structure::Content).at(start);
                self.device.read_at(at, buf).map_err(|source| place.io(source))?;
            }
            Mapping::Unwritten(_) | Mapping::Hole => buf.fill(0),
        }
        Ok(rest)
    }

    /// `buf` ends within the file.
    pub(super) fn read_inline(&self, node: &Snapshot, offset: u64, buf: &mut [u8]) -> Result<()> {
        let (first, rest) = self.inline_parts(node)?;
        let have = first.len() + rest.len();
        let need = usize::try_from(node.inode.size).unwrap_or(usize::MAX);
        if need > have {
            let short = Problem::Short { what: "the file", need, have };
            return Err(node.place(Structure::InlineData).corrupt(short));
        }
        let skip = usize::try_from(offset).unwrap_or(usize::MAX);
        let bytes = first.iter().chain(rest).skip(skip);
        buf.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        Ok(())
    }

    /// [`extent`](Ext4::extent) on the device.
    pub(crate) fn extent_at(&self, node: &Snapshot, offset: u64) -> Result<Extent> {
        let size = node.inode.size;
        if node.has(InodeFlags::INLINE_DATA) {
            return Ok(Extent::Data(size));
        }
        let (first, _) = self.split(node, offset)?;
        let blocks = self.sb.block_size.blocks_for(size);
        let is_data = |run: &Run| matches!(run.mapping, Mapping::Data(_));
        let (mut data, mut end) = (None, u64::from(first.0));
        self.map_range(node, end..blocks, &mut |_, run| {
            if *data.get_or_insert(is_data(&run)) != is_data(&run) {
                return Ok(ControlFlow::Break(()));
            }
            end += run.len;
            Ok(ControlFlow::Continue(()))
        })?;
        let end = (end << self.sb.block_size.log2()).min(size);
        Ok(if data == Some(true) { Extent::Data(end) } else { Extent::Hole(end) })
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
