//! Whether a directory is reachable from the root; `validity.rs` says why that matters.

use crate::Handle;
use crate::core::Core;
use crate::table::id::Id;
use crate::table::record::{Record, order_reads};
use dentree_sync::Backoff;

impl<H: Handle> Core<H> {
    /// Whether a held entry and all directories above it have a name, up to the root.
    pub(crate) fn is_reachable(&self, id: Id) -> bool {
        self.wait_for(|| self.reach(id))
    }

    /// The path from the root at an instant during the call, unless unreachable.
    pub(crate) fn path_of(&self, id: Id) -> Option<Vec<u8>> {
        self.wait_for(|| {
            let _pin = self.epoch.enter();
            let mut names = Vec::new();
            // SAFETY: inside the epoch.
            let is_reachable = self.climb(id, |id| names.push(unsafe { self.name_of(id) }))?;
            names.reverse();
            Some(is_reachable.then(|| names.join(&b'/')))
        })
    }

    fn wait_for<R>(&self, attempt: impl Fn() -> Option<R>) -> R {
        let mut backoff = Backoff::default();
        loop {
            match attempt() {
                Some(result) => return result,
                None => backoff.wait(),
            }
        }
    }

    /// [`is_reachable`](Self::is_reachable) at an instant during the call; `None` if something on
    /// the path changed meanwhile.
    pub(crate) fn reach(&self, id: Id) -> Option<bool> {
        self.climb(id, |_| {})
    }

    /// The same, and calls `visit` for the entry and each directory above it, without the root.
    fn climb(&self, id: Id, mut visit: impl FnMut(Id)) -> Option<bool> {
        let (mut path, mut at) = (Vec::new(), id);
        let is_reachable = loop {
            if at == Id::ROOT {
                break true;
            }
            let record = self.record(at);
            path.push((record, record.begin()));
            if !record.flags().is_linked() {
                break false;
            }
            visit(at);
            at = record.parent();
        };
        order_reads();
        let is_unchanged = |&(record, seq): &(&Record, u32)| seq & 1 == 0 && record.is_unchanged(seq);
        path.iter().all(is_unchanged).then_some(is_reachable)
    }

    /// Whether the cached entries below a directory are valid. [dir lock]
    pub(crate) fn is_in_tree(&self, dir: Id) -> bool {
        !self.validity.any_detached() || self.is_reachable(dir)
    }

    /// The same without waiting: `false` also if the path is being changed.
    #[inline]
    pub(crate) fn is_surely_in_tree(&self, dir: Id) -> bool {
        dir == Id::ROOT || !self.validity.any_detached() || self.reach(dir) == Some(true)
    }
}
