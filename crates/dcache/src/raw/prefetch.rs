//! When to ask for all lines of a walk beforehand.
//!
//! Placeholder for the switch; see `Prefetch`.

use crate::PrefetchMode;

pub(crate) struct Prefetch {
    mode: PrefetchMode,
}

impl Prefetch {
    pub(crate) fn new(mode: PrefetchMode) -> Self {
        Prefetch { mode }
    }

    #[inline]
    pub(crate) fn is_wanted(&self) -> bool {
        self.mode == PrefetchMode::On
    }
}
