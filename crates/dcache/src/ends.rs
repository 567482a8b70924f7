//! How a walk ends.

use crate::dentry_ref::DentryRef;
use crate::types::{Handle, Reason};

/// How a walk ended.
#[derive(Debug)]
pub enum Walk<'c, H: Handle, F = DentryRef<'c, H>> {
    /// At the entry that the path names. At some instant during the call every component was linked
    /// as the path says (G1).
    Found(F),
    /// At a name that does not exist, and did not at some instant during the call (G2).
    Negative {
        /// Where in the path the name begins.
        at: usize,
        /// Where it ends: there is nothing but slashes behind it if it is the last one.
        end: usize,
    },
    /// Where the cache cannot go on by itself.
    Stopped(Stopped<'c, H>),
}

/// Where and why a walk stopped.
#[derive(Debug)]
pub struct Stopped<'c, H: Handle> {
    /// The deepest directory reached (or what stands in a directory's place, for
    /// [`Reason::NotADirectory`] at the very start).
    pub dir: DentryRef<'c, H>,
    /// The link, for [`Reason::Symlink`].
    pub link: Option<DentryRef<'c, H>>,
    /// Where in the path that begins which has not been resolved: the component that stopped the
    /// walk, or what is behind the link.
    pub rest: usize,
    /// What stopped it.
    pub why: Reason,
}
