//! `SEEK_DATA` and `SEEK_HOLE`.
//!
//! A kernel that gathers what programs write asks before it has sent it, and would take new data
//! for a hole. So where a run seems to have no data the kernel is told to let go of its pages
//! there, of which it sends those that were written; and then the run is looked at again.
//!
//! The kernel may be told that while the inode's seek is under way: libfuse's documentation of
//! `fuse_lowlevel_notify_inval_inode` names the requests during which it must not be, and this is
//! none of them. But the thread that tells it waits until others have served what it sends. So a
//! thread of the pool does, as many as there are programs that wait for one. A ring has a limit of
//! them; beyond it all is data.

use crate::abi;
use crate::adapter::{Adapter, Shared};
use crate::known::NodeId;
use crate::reply::Reply;
use dentree_vfs::{Error, Extent, FileSystem, Inode, Result, Vfs};
use std::ops::Range;
use std::sync::Arc;

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
    /// Finds where the next data or hole at or behind `offset` begins.
    pub(crate) fn seek(&self, node: NodeId, offset: u64, wanted: Wanted) -> Result<Reply> {
        let file = self.inode(node)?;
        let first = look(&self.vfs, &file, offset, wanted)?;
        if !self.agreed.writes_back || first.empty.is_empty() {
            return Ok(self.shared.place(Ok(first.answer)));
        }
        let (vfs, shared) = (Arc::clone(&self.vfs), Arc::clone(&self.shared));
        // A hole that is taken for data is read as zeros. How long the file is, only the kernel
        // knows.
        let instead = match wanted {
            Wanted::Data => offset,
            Wanted::Hole => file.attr().size.max(offset.saturating_add(1)),
        };
        let instead = Box::new(self.shared.place(Ok(Some(instead))));
        let find = move || {
            let settled = shared.settle(node, offset, first, || look(&vfs, &file, offset, wanted));
            shared.place(settled)
        };
        Ok(Reply::Later { find: Box::new(find), instead })
    }
}

impl<F: FileSystem> Shared<F> {
    /// What is found when the kernel has sent what it had of that which seemed to have no data.
    fn settle(
        &self,
        node: NodeId,
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
    pub(crate) fn let_go(&self, node: NodeId, part: Range<u64>) -> Result<()> {
        let Some(notifier) = self.notifier.get() else { return Ok(()) };
        let begin = i64::try_from(part.start).map_err(|_| Error::NoExtent)?;
        // 0: all behind `begin`.
        let len = i64::try_from(part.end - part.start).unwrap_or(0);
        notifier.inval_inode(node, begin, len)
    }

    fn place(&self, found: Result<Option<u64>>) -> Reply {
        // The kernel takes offsets as signed.
        let place = found.and_then(|at| at.filter(|&at| i64::try_from(at).is_ok()).ok_or(Error::NoExtent));
        place.map_or_else(|error| self.refusal(&error), |offset| Reply::fixed(&abi::LseekOut { offset }))
    }
}
