//! Discarding free blocks.

use crate::{Error, Ext4, Result, Structure};
use dentree_ext4_format::{BlockNumber, GroupNumber, Problem, free_runs};
use std::io;
use std::ops::Range;

impl Ext4 {
    /// Discards the free blocks within `bytes` of the file system, in runs of at least `least`
    /// bytes. Returns how many bytes.
    ///
    /// Each group's lock is held, so no thread allocates a block that is being discarded.
    /// Uncommitted frees are left out, as a crash brings their file back, and so are preallocations
    /// of directories, which are written soon.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the device cannot discard.
    pub(crate) fn trim_free(&self, bytes: Range<u64>, least: u64) -> Result<u64> {
        let log2 = self.sb.block_size.log2();
        let (start, end) = (bytes.start >> log2, (bytes.end >> log2).min(self.sb.blocks_count));
        let mut discarded = 0;
        for group in (0..self.sb.groups).map(GroupNumber) {
            let first = self.sb.group_start(group).0;
            let within =
                |block: u64| block.saturating_sub(first).min(u64::from(self.sb.blocks_in_group(group)));
            let blocks = within(start)..within(end);
            if !blocks.is_empty() {
                discarded += self.trim_group(group, blocks, (least >> log2).max(1))?;
            }
        }
        Ok(discarded << log2)
    }

    /// Like [`trim_free`](Ext4::trim_free), for bits of one group. Returns how many blocks.
    fn trim_group(&self, group: GroupNumber, blocks: Range<u64>, least: u64) -> Result<u64> {
        let space = &self.writer()?.space;
        let [from, to] = [blocks.start, blocks.end].map(|block| usize::try_from(block).unwrap_or(usize::MAX));
        let first = self.sb.group_start(group).0;
        self.look_at_group(group, |desc| {
            let bitmap = self.block_bitmap(group, desc)?;
            let covered = space.group(group).with_unavailable(&bitmap);
            let mut discarded = 0;
            for run in free_runs(covered.as_deref().unwrap_or(&bitmap), from, to) {
                let count = u64::try_from(run.len).unwrap_or(0);
                let start = BlockNumber(first + u64::try_from(run.first).unwrap_or(0));
                if count < least {
                    continue;
                }
                if let Some(system) = space.system.within(start, count).next() {
                    let (field, because) = ("block", "is free in the bitmap, and holds metadata");
                    let problem = Problem::Value { field, value: system.start, because };
                    return Err(Structure::BlockBitmap(group).at(desc.block_bitmap).corrupt(problem));
                }
                self.discard(start, count)?;
                discarded += count;
            }
            Ok(discarded)
        })
    }

    fn discard(&self, first: BlockNumber, count: u64) -> Result<()> {
        let log2 = self.sb.block_size.log2();
        self.device.discard(first.0 << log2, count << log2).map_err(|source| match source.kind() {
            io::ErrorKind::Unsupported => Error::Unsupported("the device cannot discard blocks".to_owned()),
            _ => Structure::FreeBlocks.at(first).io_write(source),
        })
    }
}
