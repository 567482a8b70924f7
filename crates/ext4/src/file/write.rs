//! Writes to memory.

use super::content::{Block, Content};
use super::{FILE_BUDGET, TOTAL_BUDGET};
use crate::alloc::ReservationClass;
use crate::inode::{Snapshot, SnapshotRef};
use crate::map::{Mapping, Run};
use crate::{Error, Ext4, Node, Result, Structure};
use dentree_ext4_format::{InodeFlags, LogicalBlock};
use std::sync::atomic::Ordering::Relaxed;

/// The last run, and the block where it starts.
type LastRun = Option<(u32, Run)>;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Times {
    Now,
    Kept,
}

impl Ext4 {
    /// Writes at `offset` or at the end. Returns where, and how many bytes: fewer on ENOSPC, at the
    /// maximum file size, or if a partly changed block is unreadable. The next write returns the
    /// error.
    pub(crate) fn write_file(
        &self,
        node: &Node,
        offset: Option<u64>,
        data: &[u8],
        times: Times,
    ) -> Result<(u64, usize)> {
        let written = self.retry_after_commit(|| {
            let may_be_inline = self.lock_for_inline(node, offset, data.len());
            let mut content = node.content_mut();
            let snapshot = node.snapshot();
            self.check_changeable(&snapshot)?;
            let offset = offset.unwrap_or(snapshot.inode.size);
            let room = self.max_size(&snapshot).saturating_sub(offset);
            let data =
                data.get(..usize::try_from(room).unwrap_or(usize::MAX).min(data.len())).unwrap_or_default();
            if data.is_empty() {
                let too_large = room == 0;
                return if too_large { Err(Error::FileTooLarge(snapshot.ino)) } else { Ok((offset, 0)) };
            }
            if may_be_inline.is_some() && self.write_inline(node, &mut content, (offset, data), times)? {
                return Ok((offset, data.len()));
            }
            let mut snapshot = self.convert_inline(node, snapshot)?;
            if self.dirty_bytes(&content) >= FILE_BUDGET {
                self.write_back_locked(node, &mut content)?;
                snapshot = node.snapshot();
            }
            if offset > snapshot.inode.size {
                self.zero_tail(&mut content, &snapshot)?;
            }
            let direct = self.write_direct(node, &mut content, offset, data);
            let rest = data.get(direct..).unwrap_or_default();
            let behind = offset + u64::try_from(direct).unwrap_or(u64::MAX);
            let done = match self.write_blocks(&mut content, &node.snapshot(), behind, rest) {
                Err(_) if direct > 0 => Ok(direct),
                done => done.map(|done| direct + done),
            };
            self.update_after_write(node, &mut content, offset, *done.as_ref().unwrap_or(&0), times)?;
            Ok((offset, done?))
        });
        self.balance_dirty()?;
        written
    }

    fn dirty_bytes(&self, content: &Content) -> u64 {
        u64::try_from(content.blocks.len()).unwrap_or(u64::MAX) << self.sb.block_size.log2()
    }

    fn balance_dirty(&self) -> Result<()> {
        let dirty = &self.writer()?.dirty;
        if dirty.bytes() <= TOTAL_BUDGET {
            return Ok(());
        }
        for node in dirty.nodes_to_write() {
            // The file's fsync or the next sync reports the error.
            let _ = self.write_back(&node);
            if dirty.bytes() <= TOTAL_BUDGET / 2 {
                break;
            }
        }
        Ok(())
    }

    fn update_after_write(
        &self,
        node: &Node,
        content: &mut Content,
        offset: u64,
        len: usize,
        times: Times,
    ) -> Result<()> {
        let now = self.writer()?.now();
        let end = offset + u64::try_from(len).unwrap_or(0);
        if len > 0 {
            content.is_inode_dirty = true;
            node.change(|snapshot| {
                snapshot.set_size(end.max(snapshot.inode.size), true);
                if times == Times::Now {
                    (snapshot.inode.mtime, snapshot.inode.ctime) = (now, now);
                }
            });
        }
        self.update_dirty_list(node, content)
    }

    /// Returns how many bytes. An error means none.
    fn write_blocks(
        &self,
        content: &mut Content,
        snapshot: &Snapshot,
        offset: u64,
        data: &[u8],
    ) -> Result<usize> {
        let size = self.sb.block_size.in_memory();
        let mut last = None;
        let mut done = 0;
        while let Some(rest) = data.get(done..).filter(|rest| !rest.is_empty()) {
            let at = offset + u64::try_from(done).unwrap_or(u64::MAX);
            let too_large = || Error::FileTooLarge(snapshot.ino);
            let (block, within) = self.sb.block_size.split(at).ok_or_else(too_large)?;
            let len = rest.len().min(size - within);
            let part = rest.get(..len).unwrap_or_default();
            match self.write_block(content, snapshot, block, within, part, &mut last) {
                Ok(()) => done += len,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn write_block(
        &self,
        content: &mut Content,
        snapshot: &Snapshot,
        block: LogicalBlock,
        within: usize,
        part: &[u8],
        last: &mut LastRun,
    ) -> Result<()> {
        let whole = part.len() == self.sb.block_size.in_memory();
        let mapping = match content.blocks.contains_key(&block.0) {
            true => None,
            false => Some(self.mapping_of(snapshot, block, last)?),
        };
        if let Some(mapping) = mapping {
            let initial = if whole { Some(part) } else { None };
            self.load_block(content, snapshot, block, mapping, initial)?;
            if whole {
                return Ok(());
            }
        }
        let held = content.blocks.get_mut(&block.0).and_then(|held| held.bytes.get_mut(within..));
        held.unwrap_or_default().iter_mut().zip(part).for_each(|(to, from)| *to = *from);
        Ok(())
    }

    fn mapping_of(&self, snapshot: &Snapshot, block: LogicalBlock, last: &mut LastRun) -> Result<Mapping> {
        let run = match last {
            Some((first, run)) if u64::from(block.0.wrapping_sub(*first)) < run.len => {
                return Ok(run.mapping_at(block.0 - *first));
            }
            _ => self.map(snapshot, block)?,
        };
        if let Mapping::Data(start) | Mapping::Unwritten(start) = run.mapping {
            self.check_content_place(snapshot.place(Structure::Content).at(start), start, run.len)?;
        }
        *last = Some((block.0, run));
        Ok(run.mapping)
    }

    /// Takes the content from `initial` or the device, zeroed past the end of file.
    fn load_block(
        &self,
        content: &mut Content,
        snapshot: &Snapshot,
        block: LogicalBlock,
        mapping: Mapping,
        initial: Option<&[u8]>,
    ) -> Result<()> {
        let writer = self.writer()?;
        let size = self.sb.block_size.in_memory();
        let bytes: Box<[u8]> = match (mapping, initial) {
            (_, Some(initial)) => initial.into(),
            (Mapping::Data(start), None) => {
                let mut bytes = vec![0; size];
                let place = snapshot.place(Structure::Content).at(start);
                let at = start.0 << self.sb.block_size.log2();
                self.device.read_at(at, &mut bytes).map_err(|source| place.io(source))?;
                let left =
                    snapshot.inode.size.saturating_sub(u64::from(block.0) << self.sb.block_size.log2());
                let valid = usize::try_from(left).unwrap_or(usize::MAX).min(size);
                bytes.get_mut(valid..).unwrap_or_default().fill(0);
                bytes.into()
            }
            _ => vec![0; size].into(),
        };
        let is_reserved = mapping == Mapping::Hole;
        if is_reserved {
            writer.space.reserve(1, ReservationClass::of_owner(snapshot.inode.uid))?;
        }
        content.reserved += u64::from(is_reserved);
        content.blocks.insert(block.0, Block { bytes, is_reserved });
        writer.dirty.bytes.fetch_add(u64::from(self.sb.block_size.bytes()), Relaxed);
        Ok(())
    }

    /// The bytes are in one block. Does nothing if it is unmapped.
    pub(super) fn zero_part(
        &self,
        content: &mut Content,
        snapshot: &Snapshot,
        from: u64,
        end: u64,
    ) -> Result<()> {
        let Some((block, within)) = self.sb.block_size.split(from) else { return Ok(()) };
        if !content.blocks.contains_key(&block.0) {
            let mapping = self.map(snapshot, block)?.mapping;
            if !matches!(mapping, Mapping::Data(_)) {
                return Ok(());
            }
            self.load_block(content, snapshot, block, mapping, None)?;
        }
        let len = usize::try_from(end - from).unwrap_or(usize::MAX);
        let held = content.blocks.get_mut(&block.0).and_then(|held| held.bytes.get_mut(within..within + len));
        held.unwrap_or_default().fill(0);
        Ok(())
    }

    /// Zeroes the rest of the last block, before the file grows.
    pub(super) fn zero_tail(&self, content: &mut Content, snapshot: &Snapshot) -> Result<()> {
        let size = snapshot.inode.size;
        let end = self.sb.block_size.blocks_for(size) << self.sb.block_size.log2();
        if size == end { Ok(()) } else { self.zero_part(content, snapshot, size, end) }
    }

    pub(super) fn convert_inline(&self, node: &Node, snapshot: SnapshotRef) -> Result<SnapshotRef> {
        if !snapshot.has(InodeFlags::INLINE_DATA) {
            return Ok(snapshot);
        }
        self.move_inline_out(node, &snapshot)?;
        Ok(node.snapshot())
    }
}
