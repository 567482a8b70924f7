//! Complete directories: once all entries are cached, a miss is ENOENT (`DIR_COMPLETE` of Tsai et
//! al., SOSP 2015).
//!
//! A scan remembers the directory's change count, which increases with whatever is evicted,
//! unlinked, renamed away or invalidated; new entries are linked anyway. In a complete directory
//! the same events clear the flag, before the entry leaves the index.

use dentree_sync::MutexGuard;

use crate::core::Core;
use crate::hash::name::INLINE;
use crate::lookup::validity::Revocations;
use crate::mutate::tree::Entry;
use crate::table::id::Id;
use crate::table::record::Flags;
use crate::{Child, Handle};

/// A scan in progress.
pub(crate) struct Scan {
    pub(crate) dir: Id,
    changes: u32,
    revocations: Revocations,
    cannot_complete: bool,
}

impl<H: Handle> Core<H> {
    pub(crate) fn begin_complete(&self, dir: Id) -> Scan {
        let _dir = self.lock_dir(dir);
        Scan {
            dir,
            changes: self.dentry(dir).changes(),
            revocations: self.validity.revocations(),
            cannot_complete: false,
        }
    }

    /// Inserts an entry, cold.
    pub(crate) fn insert_scanned(&self, scan: &mut Scan, bytes: &[u8], child: Child<H>) {
        let dir = scan.dir;
        let Some(name) = self.name_in(dir, bytes) else {
            scan.cannot_complete = true;
            return;
        };
        let id = self.allocate(bytes.len());
        let entry = Entry { cold: true, held: false, ..Entry::positive(child, scan.revocations) };
        // If it was not linked it is dropped after the lock (G7).
        let linked: Result<_, Entry<H>> = {
            let _dir = self.lock_dir(dir);
            let old = self.find_locked(dir, &name);
            // The name may have been removed or replaced since it was read.
            scan.cannot_complete |= self.dentry(dir).changes() != scan.changes || !self.is_in_tree(dir);
            // Changes are reported, so a cached entry is at least as new.
            if scan.cannot_complete || old.is_some() {
                Err(entry)
            } else {
                Ok(self.link_instead(dir, &name, None, id, entry))
            }
        };
        match linked {
            Ok(cleanup) => self.clean_up(cleanup),
            Err(_unused) => self.cancel(id, bytes.len()),
        }
    }

    /// Marks the directory complete if nothing was lost. Returns whether it is complete.
    pub(crate) fn finish_complete(&self, scan: Scan) -> bool {
        let Scan { dir, changes, cannot_complete, .. } = scan;
        let _dir = self.lock_dir(dir);
        let is_complete = self.dentry(dir).changes() == changes && !cannot_complete && self.is_in_tree(dir);
        if is_complete {
            self.rewrite(dir).change_flags(Flags::COMPLETE, 0);
        }
        is_complete
    }

    /// # Safety
    /// The parent is locked, or the caller is inside the epoch and checks the record's count
    /// afterwards.
    pub(crate) unsafe fn name_of(&self, id: Id) -> Vec<u8> {
        // SAFETY: as the caller promises, the name is not freed.
        match unsafe { self.dentry(id).long_name() } {
            Some(long) => long.to_vec(),
            None => {
                let record = self.record(id);
                record.inline_name()[..record.flags().name_len().min(INLINE)].to_vec()
            }
        }
    }

    /// As of an instant during the call.
    pub(crate) fn name_of_held(&self, id: Id) -> Vec<u8> {
        let _dir = self.lock_parent(id);
        // SAFETY: the parent is locked.
        unsafe { self.name_of(id) }
    }

    pub(crate) fn lock_parent(&self, id: Id) -> MutexGuard<'_, ()> {
        loop {
            let parent = self.record(id).parent();
            let dir = self.lock_dir(parent);
            // Renames need this lock, so the check is final.
            if self.record(id).parent() == parent {
                return dir;
            }
        }
    }
}
