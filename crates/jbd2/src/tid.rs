use std::fmt;

/// Sequence number of a transaction. It wraps: the later of two is less than 2^31 ahead.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Tid(pub u32);

impl Tid {
    pub(crate) fn next(self) -> Tid {
        Tid(self.0.wrapping_add(1))
    }

    pub(crate) fn previous(self) -> Tid {
        Tid(self.0.wrapping_sub(1))
    }

    /// Whether this transaction is later.
    pub fn is_after(self, other: Tid) -> bool {
        self.0.wrapping_sub(other.0).cast_signed() > 0
    }

    pub(crate) fn later(self, other: Tid) -> Tid {
        if other.is_after(self) { other } else { self }
    }
}

impl fmt::Display for Tid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_numbers_compare_across_their_wrap() {
        assert!(Tid(1).is_after(Tid(0)) && !Tid(0).is_after(Tid(1)) && !Tid(7).is_after(Tid(7)));
        assert!(Tid(2).is_after(Tid(u32::MAX)) && !Tid(u32::MAX).is_after(Tid(2)));
        assert_eq!(Tid(u32::MAX).next(), Tid(0));
    }
}
