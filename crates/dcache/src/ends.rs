//! Results of a walk.

use crate::dentry_ref::DentryRef;
use crate::types::{Handle, Reason};

/// Result of a walk.
#[derive(Debug)]
pub enum Walk<'c, H: Handle, F = DentryRef<'c, H>> {
    /// The entry of the path. At some instant during the call every component was linked as the
    /// path says (G1).
    Found(F),
    /// A name that did not exist at some instant during the call (G2).
    Negative {
        /// Start of the name in the path.
        at: usize,
        /// End of the name in the path; only slashes follow the last one.
        end: usize,
    },
    /// The cache alone cannot continue.
    Stopped(Stopped<'c, H>),
}

/// Where and why a walk stopped.
#[derive(Debug)]
pub struct Stopped<'c, H: Handle> {
    /// The deepest directory reached; for [`Reason::NotADirectory`] at the start, the entry there.
    pub dir: DentryRef<'c, H>,
    /// The link, for [`Reason::Symlink`].
    pub link: Option<DentryRef<'c, H>>,
    /// Start of the unresolved part of the path: the component that stopped the walk, or the part
    /// after the link.
    pub rest: usize,
    /// The reason.
    pub why: Reason,
}
