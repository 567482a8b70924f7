//! Which blocks must not be replayed, and up to which transaction.

use std::collections::HashMap;

use crate::tid::Tid;

/// For each block that has a copy in the journal, the last transaction that revoked it. Other
/// blocks are not kept: a journal full of revoke records would cost many times its size.
#[derive(Default)]
pub(crate) struct Revokes(HashMap<u64, Option<Tid>>);

impl Revokes {
    /// Notes that the journal has a copy of `block`. To be called before its revokes are inserted.
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

    /// Whether a copy of `block` in transaction `tid` is void. One journalled after the revoke is
    /// not.
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
