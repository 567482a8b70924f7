//! Complete directories: all their names are cached, so that a miss needs no lookup in the file
//! system.
//!
//! Searches for missing names (a search path, a compiler's include path, `.gitignore` at every
//! level) look for other names each time, and each one calls the file system. One listing replaces
//! them. So after enough negative lookups a directory is listed into the cache, if that costs no
//! more than the lookups did; a larger directory again when their number has doubled. The total
//! cost is at most twice that of the lookups. A client's listing of a directory with negative
//! lookups inserts the names as well, one without (`find`) nothing.
//!
//! The names are inserted like those of a scan, to be evicted first. Eviction of one ends
//! completeness. Names do not change during a listing ([`Inode::lock_for_listing`]).

use crate::dentry::{Dentry, child};
use crate::{DirEntry, FileSystem, Inode, ReaddirStart, Result, Vfs};
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

/// Negative lookups before the first listing. A power of two.
const MIN_NEGATIVE_LOOKUPS: u32 = 16;
/// Entries listed and inserted in the time of one lookup: 0.3 µs each, where a lookup in an ext4
/// directory takes 4 µs and more.
const LISTED_PER_LOOKUP: u32 = 16;
/// Approximate maximum size of an entry. A listing's beginning may need reads of the whole
/// directory.
const ENTRY_BYTES: u64 = 64;
/// Maximum number of entries to list, which take about a millisecond.
const MAX_ENTRIES: u32 = 4096;
/// Part of the name cache for one directory's names.
const CACHE_FRACTION: usize = 16;
/// Approximate size of a cached name.
const NAME_BYTES: usize = 160;

impl<F: FileSystem> Vfs<F> {
    /// Lists a directory into the cache after enough negative lookups. Ignores errors, which a
    /// client's next listing reports.
    pub(crate) fn complete_if_worthwhile(&self, entry: &Dentry<'_>, dir: &Inode<F>) {
        // Relaxed: a thread that misses the exact count leaves the listing to a later power of two.
        let misses = dir.negative_lookups.load(Ordering::Relaxed);
        let mut left = misses.saturating_mul(LISTED_PER_LOOKUP);
        if misses < MIN_NEGATIVE_LOOKUPS || !misses.is_power_of_two() || left > MAX_ENTRIES {
            return;
        }
        if dir.attr().size / ENTRY_BYTES > left.into() {
            return;
        }
        let _names = dir.lock_for_listing();
        if !dir.is_removed() && self.is_current(entry) {
            let _ = self.list_and_complete(dir, &mut |_| {
                left = left.saturating_sub(1);
                if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
        }
    }

    /// Lists a directory from its first entry into the cache; at the end it is complete. [group
    /// lock of `dir`, as a lister]
    pub(crate) fn list_and_complete(
        &self,
        dir: &Inode<F>,
        each: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        // A case-insensitive directory is cached under folded names.
        let ignores_case = self.fs().fold_name(dir.node(), b"").is_some();
        let entry = self.cached_dentry(dir).filter(|_| !ignores_case);
        let mut completion = entry.as_ref().map(|entry| self.names.begin_complete(entry));
        let mut quota = self.name_budget / CACHE_FRACTION / NAME_BYTES;
        self.fs().readdir(dir.node(), ReaddirStart::First, &mut |listed| {
            // An entry without a type would need a read of its inode.
            let found = listed.kind.filter(|_| quota > 0).map(|kind| child(listed.ino, kind));
            match (found, &mut completion) {
                (Some(child), Some(completion)) => {
                    quota -= 1;
                    completion.enter(listed.name, child);
                }
                _ => completion = None,
            }
            let flow = each(listed);
            if flow.is_break() {
                completion = None;
            }
            flow
        })?;
        if completion.is_some_and(|completion| completion.finish()) {
            dir.negative_lookups.store(0, Ordering::Relaxed);
        }
        Ok(())
    }
}
