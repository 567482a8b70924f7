//! Copies of the writes that are acknowledged and not flushed.
//!
//! A server that dies loses what it had not made durable, and its clients cannot tell what that
//! is. So after a lost connection these writes are made again, before anything else: a flush that
//! returns without an error covers every write that it promises, however often the server died.
//! The other way, an error of the next flush, would end every mount whose server restarts.
//!
//! Trims are not kept: the content of trimmed bytes is unspecified.

use std::collections::VecDeque;
use std::sync::Arc;

/// Most bytes that are kept. A writer that exceeds it flushes, which empties the log.
pub(crate) const LIMIT: usize = 64 << 20;

#[derive(Default)]
pub(crate) struct WriteLog {
    /// In the order of acknowledgement.
    writes: VecDeque<Logged>,
    /// Number of the first write.
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

    /// A position: all writes up to now.
    pub(crate) fn end(&self) -> u64 {
        self.first + self.writes.len() as u64
    }

    /// The writes before position `end` are durable.
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

    /// The writes in groups of at most `most`. A server may make the writes of a group in any
    /// order: none overlaps another.
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
