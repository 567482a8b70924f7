//! Numbers of entries.

/// The number of an entry's slot, in records and dentries alike.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord, Default)]
pub(crate) struct Id(pub(crate) u32);

impl Id {
    pub(crate) const NONE: Id = Id(0);
    pub(crate) const ROOT: Id = Id(1);
}
