//! A held entry.

use crate::{Dcache, DentryId, Handle, Kind, raw::Id};
use std::fmt;

/// A counted reference to an entry. While it lives the entry is neither evicted nor reused (G6), also if its name
/// is unlinked. Dropping it is `dput`.
///
/// Only positive entries are ever held.
pub struct DentryRef<'c, H: Handle> {
    cache: &'c Dcache<H>,
    id: Id,
}

impl<'c, H: Handle> DentryRef<'c, H> {
    /// Takes over a reference that was counted already.
    pub(crate) fn adopt(cache: &'c Dcache<H>, id: Id) -> Self {
        DentryRef { cache, id }
    }

    pub(crate) fn raw_id(&self) -> Id {
        self.id
    }

    /// The id under which [`Dcache::get`] finds the entry again, as long as it is cached.
    pub fn id(&self) -> DentryId {
        DentryId::new(self.id, self.cache.core.dentry(self.id).generation())
    }

    /// The inode.
    #[inline]
    pub fn handle(&self) -> &H {
        // SAFETY: held, and only positive entries are.
        unsafe { self.cache.core.dentry(self.id).handle() }
    }

    /// The inode's type.
    pub fn kind(&self) -> Kind {
        // A held entry keeps its kind, and it is not negative.
        self.cache.core.record(self.id).shape().kind().unwrap_or(Kind::Other)
    }

    /// The name as of now, or the last one if it has been unlinked; the root has none.
    pub fn name(&self) -> Vec<u8> {
        self.cache.core.name_of_held(self.id)
    }

    /// The directory that the entry is in, or was in last; the root is in itself.
    pub fn parent(&self) -> DentryRef<'c, H> {
        DentryRef::adopt(self.cache, self.cache.core.hold_parent(self.id))
    }

    /// Whether the entry still has a name.
    pub fn is_linked(&self) -> bool {
        self.cache.core.record(self.id).shape().is_linked()
    }

    /// Whether all entries of this directory are cached.
    pub fn is_complete(&self) -> bool {
        self.cache.core.is_complete(self.id)
    }

    /// The cache that the entry is in.
    pub fn cache(&self) -> &'c Dcache<H> {
        self.cache
    }
}

impl<H: Handle> Clone for DentryRef<'_, H> {
    fn clone(&self) -> Self {
        self.cache.core.hold_again(self.id);
        DentryRef { cache: self.cache, id: self.id }
    }
}

impl<H: Handle> Drop for DentryRef<'_, H> {
    #[inline]
    fn drop(&mut self) {
        self.cache.core.release(self.id);
    }
}

impl<H: Handle> PartialEq for DentryRef<'_, H> {
    /// Whether both are the same entry of the same cache.
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.cache, other.cache) && self.id == other.id
    }
}

impl<H: Handle> Eq for DentryRef<'_, H> {}

impl<H: Handle> fmt::Debug for DentryRef<'_, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name();
        let name = String::from_utf8_lossy(&name);
        f.debug_struct("DentryRef").field("name", &name).field("kind", &self.kind()).finish_non_exhaustive()
    }
}
