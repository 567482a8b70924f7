//! Whether a directory is reachable from the root; `expiry.rs` says why that matters.

use crate::Handle;
use crate::core::Core;
use crate::table::id::Id;
use crate::table::record::order_reads;
use dentree_sync::Backoff;

impl<H: Handle> Core<H> {
    /// Whether a held entry and all directories above it have a name, up to the root.
    pub(crate) fn is_reachable(&self, id: Id) -> bool {
        let mut backoff = Backoff::default();
        loop {
            match self.reach(id) {
                Some(is_reachable) => return is_reachable,
                None => backoff.wait(),
            }
        }
    }

    /// The same at an instant during the call; `None` if something on the path changed meanwhile.
    pub(crate) fn reach(&self, id: Id) -> Option<bool> {
        let (mut path, mut at) = (Vec::new(), id);
        let is_reachable = loop {
            if at == Id::ROOT {
                break true;
            }
            let record = self.record(at);
            path.push((at, record.begin()));
            if !record.flags().is_linked() {
                break false;
            }
            at = record.parent();
        };
        order_reads();
        let is_unchanged = |&(id, seq): &(Id, u32)| seq & 1 == 0 && self.record(id).is_unchanged(seq);
        path.iter().all(is_unchanged).then_some(is_reachable)
    }

    /// Whether the cached entries below a directory are valid. [dir lock]
    pub(crate) fn is_in_tree(&self, dir: Id) -> bool {
        !self.expiry.any_detached() || self.is_reachable(dir)
    }

    /// The same without waiting: `false` also if the path is being changed.
    #[inline]
    pub(crate) fn is_surely_in_tree(&self, dir: Id) -> bool {
        dir == Id::ROOT || !self.expiry.any_detached() || self.reach(dir) == Some(true)
    }
}
