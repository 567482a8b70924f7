//! The content of files, with the ranges that are missing.

use super::Salvage;
use super::map::{self, Piece};
use super::reader::read_past_damage;
use crate::inode::Snapshot;
use dentree_ext4_format::InodeFlags;
use std::ops::{ControlFlow, Range};
use std::sync::atomic::Ordering;

/// Bytes that are read at once.
const CHUNK: u64 = 1 << 20;
/// Ranges that are told of a file. Those behind them are joined to the last.
const MOST_RANGES: usize = 10_000;

/// Receives pieces of content with their offsets.
type Each<'e, E> = &'e mut dyn FnMut(u64, &[u8]) -> Result<(), E>;

/// What could not be read of a file's content.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Missing {
    /// In bytes of the file, ascending and disjoint.
    pub ranges: Vec<Range<u64>>,
    /// The checksum of a part of its block map is wrong: other ranges may be of another file.
    pub is_doubtful: bool,
}

impl Missing {
    /// Whether nothing is missing.
    pub fn is_nothing(&self) -> bool {
        self.ranges.is_empty() && !self.is_doubtful
    }

    fn add(&mut self, range: Range<u64>) {
        let is_full = self.ranges.len() >= MOST_RANGES;
        match self.ranges.last_mut() {
            Some(last) if range.start <= last.end || is_full => last.end = last.end.max(range.end),
            _ if range.is_empty() => {}
            _ => self.ranges.push(range),
        }
    }
}

impl Salvage {
    /// Passes on the content of a file, piece by piece with its offset. Holes, and what is missing,
    /// are left out.
    pub(super) fn content_of<E>(&self, node: &Snapshot, each: Each<'_, E>) -> Result<Missing, E> {
        let (mut missing, size) = (Missing::default(), node.inode.size);
        if node.has(InodeFlags::INLINE_DATA) {
            let Ok((first, rest)) = self.fs.inline_parts(node) else {
                missing.add(0..size);
                return Ok(missing);
            };
            let all = [&first[..], rest].concat();
            let len = usize::try_from(size).unwrap_or(usize::MAX).min(all.len());
            missing.add(len as u64..size);
            each(0, all.get(..len).unwrap_or_default())?;
            return Ok(missing);
        }
        let mut failed = None;
        let is_proved = map::walk(&self.fs, self.before.as_ref(), node, &mut |piece| match self.piece(
            &piece,
            size,
            &mut missing,
            each,
        ) {
            Ok(flow) => flow,
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        });
        missing.is_doubtful = !is_proved;
        failed.map_or(Ok(missing), Err)
    }

    /// Passes on one part of a file.
    fn piece<E>(
        &self,
        piece: &Piece,
        size: u64,
        missing: &mut Missing,
        each: Each<'_, E>,
    ) -> Result<ControlFlow<()>, E> {
        let log = self.fs.sb.block_size.log2();
        let bytes = |range: Range<u64>| (range.start << log).min(size)..(range.end << log).min(size);
        match piece {
            Piece::Lost(blocks) => missing.add(bytes(blocks.clone())),
            Piece::Data { logical, start, len } => {
                let range = bytes(*logical..logical + len);
                if range.is_empty() {
                    return Ok(ControlFlow::Break(()));
                }
                let mut at = range.start;
                while at < range.end {
                    let len = CHUNK.min(range.end - at);
                    let from = (start.0 << log) + (at - range.start);
                    self.chunk(from, at..at + len, missing, each)?;
                    at += len;
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Passes on bytes of a file, at `from` of the device, but for those that cannot be read.
    fn chunk<E>(
        &self,
        from: u64,
        range: Range<u64>,
        missing: &mut Missing,
        each: Each<'_, E>,
    ) -> Result<(), E> {
        let len = range.end - range.start;
        // Relaxed: a count that guards nothing else.
        let left = |left: u64| left.checked_sub(len);
        let is_allowed = self.content_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left).is_ok();
        if !is_allowed || from >= self.fs.device.size() {
            missing.add(range);
            return Ok(());
        }
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
        let (mut gaps, mut good) = (Vec::new(), 0);
        read_past_damage(&*self.fs.device, from, &mut bytes, &mut |gap| gaps.push(gap));
        let within =
            |at: u64| usize::try_from(at.saturating_sub(from)).unwrap_or(usize::MAX).min(bytes.len());
        for gap in gaps {
            let (start, end) = (within(gap.start), within(gap.end));
            missing.add(range.start + start as u64..range.start + end as u64);
            if good < start {
                each(range.start + good as u64, bytes.get(good..start).unwrap_or_default())?;
            }
            good = end;
        }
        if good < bytes.len() {
            each(range.start + good as u64, bytes.get(good..).unwrap_or_default())?;
        }
        Ok(())
    }
}
