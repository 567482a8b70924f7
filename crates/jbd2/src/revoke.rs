use std::collections::HashMap;

use crate::tid::Tid;

/// The last transaction that revoked each block, for blocks with a copy. Others are left out, to
/// bound memory.
#[derive(Default)]
pub(crate) struct Revokes(HashMap<u64, Option<Tid>>);

impl Revokes {
    /// Adds a block with a copy, before its revokes.
    pub(crate) fn expect(&mut self, block: u64) {
        self.0.entry(block).or_default();
    }

    pub(crate) fn insert(&mut self, block: u64, tid: Tid) {
        if let Some(last) = self.0.get_mut(&block)
            && last.is_none_or(|last| tid.is_after(last))
        {
            *last = Some(tid);
        }
    }

    /// Whether this copy is revoked.
    pub(crate) fn covers(&self, block: u64, tid: Tid) -> bool {
        self.0.get(&block).copied().flatten().is_some_and(|last| !tid.is_after(last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revoke_voids_copies_up_to_its_own_transaction_also_across_the_wrap() {
        let mut revokes = Revokes::default();
        revokes.expect(7);
        revokes.insert(7, Tid(1));
        revokes.insert(7, Tid(u32::MAX));
        for (tid, covered) in
            [(Tid(u32::MAX - 1), true), (Tid(u32::MAX), true), (Tid(1), true), (Tid(2), false)]
        {
            assert_eq!(revokes.covers(7, tid), covered, "{tid}");
        }
        revokes.insert(8, Tid(5));
        assert!(!revokes.covers(8, Tid(0)));
    }
}
