//! Complete directories: all names are cached, so a miss does not call the file system.
//!
//! Searches for missing names (a search path, include directories, `.gitignore`) miss with a new
//! name each time. After enough misses the directory is listed into the cache, if that costs no
//! more than the misses did, and again when their number has doubled: in all at most twice their
//! cost. A client's listing of a directory with misses inserts the names as well.
//!
//! Names are inserted cold; eviction of one ends completeness. Names do not change during a listing
//! ([`Inode::lock_for_listing`]).

use crate::dentry::{Dentry, child};
use crate::{DirEntry, FileSystem, Inode, ReaddirStart, Result, Vfs};
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

/// Before the first listing. A power of two.
const MIN_NEGATIVE_LOOKUPS: u32 = 16;
/// Entries listed in the time of a lookup: 0.3 µs each; a lookup in ext4 takes 4 µs and more.
const LISTED_PER_LOOKUP: u32 = 16;
/// The first entries may need all blocks.
const ENTRY_BYTES: u64 = 64;
/// About a millisecond.
const MAX_ENTRIES: u32 = 4096;
/// Of the name cache, for one directory.
const CACHE_FRACTION: usize = 16;
/// An estimate.
const NAME_BYTES: usize = 160;

impl<F: FileSystem> Vfs<F> {
    /// A client's listing reports errors.
    pub(crate) fn complete_if_worthwhile(&self, entry: &Dentry<'_>, dir: &Inode<F>) {
        // Relaxed: a missed count leaves the listing to a later power of two.
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

    /// At the end the directory is complete. [group lock of `dir`, as a lister]
    pub(crate) fn list_and_complete(
        &self,
        dir: &Inode<F>,
        each: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        // They are cached under folded names.
        let ignores_case = self.fs().fold_name(dir.node(), b"").is_some();
        let entry = self.cached_dentry(dir).filter(|_| !ignores_case);
        let mut completion = entry.as_ref().map(|entry| self.names.begin_complete(entry));
        let mut quota = self.name_budget / CACHE_FRACTION / NAME_BYTES;
        self.fs().readdir(dir.node(), ReaddirStart::First, &mut |listed| {
            // The type would be in the inode.
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
