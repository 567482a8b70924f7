//! Complete directories: once all entries are cached, a miss is ENOENT (`DIR_COMPLETE` of Tsai et
//! al., SOSP 2015).
//!
//! A scan remembers the directory's change count, which increases with whatever is evicted,
//! unlinked, renamed away or invalidated; new entries are linked anyway. In a complete directory
//! the same events clear the flag, before the entry leaves the index.
//!
//! An entry with a time to live prevents completeness, as it may change without a report.

use dentree_sync::atomic::Ordering;
use dentree_sync::{Backoff, MutexGuard};

use crate::core::Core;
use crate::expiry::Revocations;
use crate::hash::name::INLINE;
use crate::mutate::tree::Cleanup;
use crate::mutate::tree::Entry;
use crate::table::id::Id;
use crate::table::record::Flags;
use crate::table::record::order_reads;
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
            revocations: self.expiry.revocations(),
            cannot_complete: self.record(dir).deadline() != 0,
        }
    }

    /// Inserts an entry, cold.
    pub(crate) fn insert_scanned(&self, scan: &mut Scan, bytes: &[u8], child: Child<H>) {
        let dir = scan.dir;
        scan.cannot_complete |= child.ttl.is_some();
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
            if self.dentry(dir).changes() != scan.changes {
                // The name may have been removed or replaced since it was read.
                scan.cannot_complete = true;
                Err(entry)
            } else if old.is_some_and(|old| self.renew(dir, old, &entry) || !self.has_expired(dir, old)) {
                // Changes are reported, so the cached entry is at least as new.
                Err(entry)
            } else {
                Ok(self.link_instead(dir, &name, old, id, entry))
            }
        };
        match linked {
            Ok(cleanup) => self.clean_up(cleanup),
            Err(_unused) => self.cancel(id, bytes.len()),
        }
    }

    /// Marks the directory complete if nothing was lost, and removes expired entries that the scan
    /// did not see. Returns whether it is complete.
    pub(crate) fn finish_complete(&self, scan: Scan) -> bool {
        let Scan { dir, changes, cannot_complete, .. } = scan;
        let mut cleanup = Cleanup::default();
        let guard = self.lock_dir(dir);
        let is_complete = self.dentry(dir).changes() == changes && !cannot_complete && self.is_in_tree(dir);
        if is_complete {
            let is_gone = |&id: &Id| self.is_past_deadline(id) && !self.record(id).flags().is_negative();
            let gone: Vec<Id> = self.children(dir).filter(is_gone).collect();
            gone.into_iter().for_each(|id| self.detach(dir, id, &mut cleanup));
            self.rewrite(dir).change_flags(Flags::COMPLETE, 0);
        }
        drop(guard);
        self.clean_up(cleanup);
        is_complete
    }

    /// [dir lock of the parent], or the entry is held
    pub(crate) fn name_of_linked(&self, id: Id) -> Vec<u8> {
        // SAFETY: the parent is locked, so the entry is not renamed and its name not retired.
        match unsafe { self.dentry(id).long_name() } {
            Some(long) => long.to_vec(),
            None => self.record(id).inline_name()[..self.record(id).flags().name_len()].to_vec(),
        }
    }

    /// As of an instant during the call.
    pub(crate) fn name_of_held(&self, id: Id) -> Vec<u8> {
        let _dir = self.lock_parent(id);
        self.name_of_linked(id)
    }

    /// The path from the root at an instant during the call, unless unreachable.
    pub(crate) fn path_of(&self, id: Id) -> Option<Vec<u8>> {
        let mut backoff = Backoff::default();
        loop {
            let _pin = self.epoch.enter();
            let (mut names, mut records, mut at) = (Vec::new(), Vec::new(), id);
            let is_reachable = loop {
                if at == Id::ROOT {
                    break true;
                }
                let record = self.record(at);
                records.push((record, record.begin()));
                if !record.flags().is_linked() {
                    break false;
                }
                // SAFETY: inside the epoch.
                names.push(match unsafe { self.dentry(at).long_name() } {
                    Some(long) => long.to_vec(),
                    None => record.inline_name()[..record.flags().name_len().min(INLINE)].to_vec(),
                });
                at = record.parent();
            };
            order_reads();
            if records.iter().all(|&(record, seq)| seq & 1 == 0 && record.is_unchanged(seq)) {
                names.reverse();
                return is_reachable.then(|| names.join(&b'/'));
            }
            backoff.wait();
        }
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

    pub(crate) fn evictions(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }
}
