//! Copies of acknowledged, unflushed writes.
//!
//! A server that dies loses an unknown part of these. After a reconnection they are written first,
//! so a successful flush covers every write however often the server died. Failing the next flush
//! instead would end every mount at a server restart.
//!
//! Trims are not kept: trimmed content is unspecified.

use std::collections::VecDeque;
use std::sync::Arc;

/// Limit in bytes; a writer beyond it flushes, which empties the log.
pub(crate) const LIMIT: usize = 64 << 20;

#[derive(Default)]
pub(crate) struct WriteLog {
    /// In order of acknowledgement.
    writes: VecDeque<Logged>,
    /// Number of the first entry.
    first: u64,
    bytes: usize,
}

#[derive(Clone)]
pub(crate) struct Logged {
    pub(crate) offset: u64,
    pub(crate) data: Arc<[u8]>,
}

impl Logged {
    fn overlaps(&self, other: &Logged) -> bool {
        let end = |write: &Logged| write.offset + write.data.len() as u64;
        self.offset < end(other) && other.offset < end(self)
    }
}

impl WriteLog {
    pub(crate) fn push(&mut self, offset: u64, data: Arc<[u8]>) {
        self.bytes += data.len();
        self.writes.push_back(Logged { offset, data });
    }

    /// Position after the last write.
    pub(crate) fn end(&self) -> u64 {
        self.first + self.writes.len() as u64
    }

    /// Writes before `end` are durable.
    pub(crate) fn flushed(&mut self, end: u64) {
        while self.first < end
            && let Some(write) = self.writes.pop_front()
        {
            self.first += 1;
            self.bytes -= write.data.len();
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.bytes > LIMIT
    }

    pub(crate) fn len(&self) -> usize {
        self.writes.len()
    }

    /// Groups of at most `most` writes that do not overlap, because the server may reorder them.
    pub(crate) fn groups(&self, most: usize) -> Vec<Vec<Logged>> {
        let mut groups: Vec<Vec<Logged>> = Vec::new();
        for write in &self.writes {
            match groups.last_mut() {
                Some(group) if group.len() < most && !group.iter().any(|other| write.overlaps(other)) => {
                    group.push(write.clone());
                }
                _ => groups.push(vec![write.clone()]),
            }
        }
        groups
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(writes: &[(u64, usize)]) -> WriteLog {
        let mut log = WriteLog::default();
        writes.iter().for_each(|&(offset, len)| log.push(offset, vec![0; len].into()));
        log
    }

    #[test]
    fn a_flush_forgets_what_was_acknowledged_before_it() {
        let mut log = log(&[(0, 10), (10, 10)]);
        let end = log.end();
        log.push(0, vec![1; 5].into());
        log.flushed(end);
        assert_eq!((log.len(), log.bytes, log.end()), (1, 5, 3));
        log.flushed(end);
        assert_eq!(log.len(), 1, "an older flush that ends later forgets nothing more");
    }

    #[test]
    fn writes_that_overlap_are_in_different_groups_and_in_order() {
        let log = log(&[(0, 10), (10, 10), (19, 2), (0, 1), (40, 1)]);
        let groups = log.groups(2);
        let offsets: Vec<Vec<u64>> =
            groups.iter().map(|group| group.iter().map(|write| write.offset).collect()).collect();
        assert_eq!(offsets, [vec![0, 10], vec![19, 0], vec![40]]);
    }
}
