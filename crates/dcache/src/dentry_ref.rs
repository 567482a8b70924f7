//! Held entries.

use crate::core::Core;
use crate::table::id::Id;
use crate::types::{DentryId, Handle, Kind};
use std::{fmt, sync::Arc};

/// A directory entry cache. See the [crate documentation](crate).
pub struct Dcache<H: Handle> {
    pub(crate) core: Core<H>,
}

/// A counted reference to a positive entry. While it lives the entry is neither evicted nor reused
/// (G6), even if its name is unlinked. Dropping it is `dput`. [`Dcache::delete`] by its last holder
/// makes the entry negative.
pub struct DentryRef<'c, H: Handle> {
    cache: &'c Dcache<H>,
    id: Id,
}

impl<'c, H: Handle> DentryRef<'c, H> {
    /// Takes over a reference that is counted already.
    pub(crate) fn adopt(cache: &'c Dcache<H>, id: Id) -> Self {
        DentryRef { cache, id }
    }

    /// Leaks the reference; [`from_raw`](Self::from_raw) takes it back. The number is unique while
    /// the entry is held; the root's is 1.
    pub fn into_raw(self) -> u32 {
        std::mem::ManuallyDrop::new(self).id.0
    }

    /// Takes back a reference that [`into_raw`](Self::into_raw) leaked.
    ///
    /// # Safety
    /// `raw` came from a reference of this cache and is taken back once.
    pub unsafe fn from_raw(cache: &'c Dcache<H>, raw: u32) -> Self {
        Self::adopt(cache, Id(raw))
    }

    pub(crate) fn raw_id(&self) -> Id {
        self.id
    }

    /// The id for [`Dcache::get`], valid while the entry is cached.
    pub fn id(&self) -> DentryId {
        DentryId::new(self.id, self.cache.core.record(self.id).generation())
    }

    /// The inode.
    #[inline]
    pub fn handle(&self) -> &H {
        // SAFETY: held. An entry that becomes negative while it is held keeps its handle.
        unsafe { self.cache.core.dentry(self.id).handle() }
    }

    /// The inode's type.
    pub fn kind(&self) -> Kind {
        // A held entry keeps its kind.
        self.cache.core.record(self.id).flags().kind().unwrap_or(Kind::Other)
    }

    /// The name as of now, or the last one of an unlinked entry; empty for the root.
    pub fn name(&self) -> Vec<u8> {
        self.cache.core.name_of_held(self.id)
    }

    /// The directory that has, or last had, the entry; the root's is itself.
    pub fn parent(&self) -> DentryRef<'c, H> {
        DentryRef::adopt(self.cache, self.cache.core.hold_parent(self.id))
    }

    /// The path from the root, without a leading slash, at one instant during the call. `None` if
    /// the entry is not [reachable](Self::is_reachable).
    ///
    /// ```
    /// # use dentree_dcache::*;
    /// let cache = Dcache::builder().build(Child::directory(2_u64));
    /// let etc = cache.create(&cache.root(), b"etc", Child::directory(11));
    /// let hosts = cache.create(&etc, b"hosts", Child::other(12));
    /// assert_eq!(hosts.path(), Some(b"etc/hosts".to_vec()));
    /// ```
    pub fn path(&self) -> Option<Vec<u8>> {
        self.cache.core.path_of(self.id)
    }

    /// Whether the entry has become negative: its only holder [deleted](Dcache::delete) it. It
    /// keeps the handle of the deleted file.
    pub fn is_negative(&self) -> bool {
        self.cache.core.record(self.id).flags().is_negative()
    }

    /// Whether the entry has a name. Its directory may have none: see
    /// [`is_reachable`](Self::is_reachable).
    pub fn is_linked(&self) -> bool {
        let flags = self.cache.core.record(self.id).flags();
        flags.is_linked() && !flags.is_negative()
    }

    /// Whether a walk from the root leads to this entry: it and all directories above it have a
    /// name.
    ///
    /// Other entries are *detached*, or below a detached directory. Detached are entries that were
    /// removed, replaced or [invalidated](Dcache::invalidate), and results that are not cached
    /// ([`Fill::NotCached`](crate::Fill::NotCached), or overtaken by a change of the name). The
    /// file system may still have such a file, cached in another entry: report changes through the
    /// entry that a lookup from the root returns.
    ///
    /// ```
    /// # use dentree_dcache::*;
    /// let cache = Dcache::builder().build(Child::directory(2_u64));
    /// let etc = cache.create(&cache.root(), b"etc", Child::directory(11));
    /// let hosts = cache.create(&etc, b"hosts", Child::other(12));
    /// assert!(hosts.is_reachable());
    /// cache.invalidate(&cache.root(), b"etc");
    /// assert!(hosts.is_linked() && !hosts.is_reachable());
    /// ```
    pub fn is_reachable(&self) -> bool {
        self.cache.core.is_reachable(self.id)
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

/// A reference that also owns its cache, for example for open files, which outlive the borrow of a
/// [`DentryRef`].
///
/// ```
/// # use dentree_dcache::*;
/// # use std::sync::Arc;
/// let cache = Arc::new(Dcache::builder().build(Child::directory(2_u64)));
/// let etc = OwnedDentry::new(&cache, &cache.create(&cache.root(), b"etc", Child::directory(11)));
/// let inode = std::thread::spawn(move || *etc.entry().handle());
/// assert_eq!(inode.join().unwrap(), 11);
/// ```
pub struct OwnedDentry<H: Handle> {
    cache: Arc<Dcache<H>>,
    id: Id,
}

impl<H: Handle> OwnedDentry<H> {
    /// A reference to an entry of this cache.
    ///
    /// # Panics
    /// If the entry is another cache's.
    pub fn new(cache: &Arc<Dcache<H>>, entry: &DentryRef<'_, H>) -> Self {
        assert!(std::ptr::eq(&**cache, entry.cache), "an entry of another cache");
        cache.core.hold_again(entry.id);
        OwnedDentry { cache: cache.clone(), id: entry.id }
    }

    /// The entry.
    pub fn entry(&self) -> DentryRef<'_, H> {
        self.cache.core.hold_again(self.id);
        DentryRef::adopt(&self.cache, self.id)
    }
}

impl<H: Handle> Clone for OwnedDentry<H> {
    fn clone(&self) -> Self {
        OwnedDentry::new(&self.cache, &self.entry())
    }
}

impl<H: Handle> Drop for OwnedDentry<H> {
    fn drop(&mut self) {
        self.cache.core.release(self.id);
    }
}

impl<H: Handle> fmt::Debug for OwnedDentry<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.entry().fmt(f)
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
