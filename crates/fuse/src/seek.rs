//! `SEEK_DATA` and `SEEK_HOLE`.
//!
//! A kernel that gathers what programs write asks before it has sent it, and would take new data
//! for a hole. So where a run seems to have no data the kernel is told to let go of its pages
//! there, of which it sends those that were written; and then the run is looked at again.
//!
//! The kernel may be told that while the inode's seek is under way: libfuse's documentation of
//! `fuse_lowlevel_notify_inval_inode` names the requests during which it must not be, and this is
//! none of them. But the thread that tells it waits until others have answered what it sends. So no
//! thread that answers requests does: each such seek has a thread of its own, as many as there are
//! programs that wait for one.

use crate::adapter::{Adapter, Shared};
use dentree_vfs::{Error, Extent, FileSystem, Inode, Result, Vfs};
use fuser::{INodeNo, ReplyLseek};
use std::ops::Range;
use std::sync::Arc;
use std::thread;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    Data,
    Hole,
}

/// What is found of a file as it is here.
#[derive(PartialEq, Eq)]
struct Look {
    /// Where the next run of the wanted kind begins; `None` where the file ends before that.
    answer: Option<u64>,
    /// What was taken to have no data for that.
    empty: Range<u64>,
}

/// Looks for the next data or hole at or behind `offset`.
fn look<F: FileSystem>(vfs: &Vfs<F>, file: &Inode<F>, offset: u64, wanted: Wanted) -> Result<Look> {
    let size = file.attr().size;
    let mut at = offset;
    while at < size {
        // A run that does not advance would hold this thread for good.
        let (is_data, end) = match vfs.extent(file, at)? {
            Extent::Data(end) => (true, end.max(at + 1)),
            Extent::Hole(end) => (false, end.max(at + 1)),
        };
        match wanted {
            Wanted::Data if is_data => return Ok(Look { answer: Some(at), empty: offset..at }),
            Wanted::Hole if !is_data => return Ok(Look { answer: Some(at), empty: at..end }),
            _ => at = end,
        }
    }
    // The end of the file counts as a hole, unless the seek began there.
    let is_hole = wanted == Wanted::Hole && offset < size;
    Ok(Look { answer: is_hole.then_some(size), empty: if is_hole { size } else { offset }..u64::MAX })
}

impl<F: FileSystem> Adapter<F> {
    /// Answers where the next data or hole at or behind `offset` begins.
    pub(crate) fn seek(&self, node: INodeNo, offset: u64, wanted: Wanted, reply: ReplyLseek) {
        let looked = self.inode(node).and_then(|file| Ok((look(&self.vfs, &file, offset, wanted)?, file)));
        let (first, file) = match looked {
            Ok(looked) => looked,
            Err(error) => return reply.error(self.shared.refusal(&error)),
        };
        if !self.writes_back || first.empty.is_empty() {
            return self.shared.send_place(reply, Ok(first.answer));
        }
        let (vfs, shared) = (Arc::clone(&self.vfs), Arc::clone(&self.shared));
        let settle = move || {
            let settled = shared.settle(node, offset, first, || look(&vfs, &file, offset, wanted));
            shared.send_place(reply, settled);
        };
        // Where there is no thread, the answer that is dropped with it says that the seek has
        // failed.
        let _ = thread::Builder::new().name("seek".into()).spawn(settle);
    }
}

impl<F: FileSystem> Shared<F> {
    /// What is found when the kernel has sent what it had of that which seemed to have no data.
    fn settle(
        &self,
        node: INodeNo,
        offset: u64,
        first: Look,
        again: impl Fn() -> Result<Look>,
    ) -> Result<Option<u64>> {
        self.let_go(node, first.empty.clone())?;
        let second = again()?;
        if second == first {
            return Ok(first.answer);
        }
        self.let_go(node, offset..u64::MAX)?;
        Ok(again()?.answer)
    }

    /// Has the kernel send what was written to a part of a file, and forget that part.
    pub(crate) fn let_go(&self, node: INodeNo, part: Range<u64>) -> Result<()> {
        let Some(notifier) = self.notifier.get() else { return Ok(()) };
        let begin = i64::try_from(part.start).map_err(|_| Error::NoExtent)?;
        // 0: all behind `begin`.
        let len = i64::try_from(part.end - part.start).unwrap_or(0);
        notifier.inval_inode(node, begin, len).map_err(|error| Error::Io(Box::new(error)))
    }

    fn send_place(&self, reply: ReplyLseek, found: Result<Option<u64>>) {
        let place = found.and_then(|at| at.and_then(|at| i64::try_from(at).ok()).ok_or(Error::NoExtent));
        match place {
            Ok(at) => reply.offset(at),
            Err(error) => reply.error(self.refusal(&error)),
        }
    }
}
