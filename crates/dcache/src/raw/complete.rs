//! Complete directories: once all entries are cached, a miss is ENOENT and a listing needs no I/O.
//!
//! Gathering notes the directory's count of changes at its beginning. Whatever is evicted, unlinked, renamed away
//! or invalidated below the directory moves the count on, so that the end finds out; what is created meanwhile is
//! linked anyway. From then on the same events clear the flag, before the entry leaves the index.
//!
//! Nothing that may change behind the cache's back is ever complete: an entry with a time to live spoils it.

use super::{Core, Id, expiry::Asked, record::Shape, tree::Aftermath, tree::Entry};
use crate::sync::{MutexGuard, Ordering};
use crate::{Child, DentryId, Handle, ListCursor, Listed};

/// A scan of a directory in progress.
pub(crate) struct Gathering {
    pub(crate) dir: Id,
    changes: u32,
    /// The directory's order: still this one if nothing but this scan has moved its entries.
    order: u32,
    asked: Asked,
    spoilt: bool,
}

impl<H: Handle> Core<H> {
    pub(crate) fn begin_complete(&self, dir: Id) -> Gathering {
        let _dir = self.lock_dir(dir);
        Gathering {
            dir,
            changes: self.dentry(dir).changes(),
            order: self.dentry(dir).disturb_order(),
            asked: self.expiry.ask(),
            spoilt: self.dentry(dir).deadline() != 0,
        }
    }

    /// Enters what a scan has seen, cold.
    pub(crate) fn gather(&self, gathering: &mut Gathering, bytes: &[u8], child: Child<H>, position: u64) {
        let dir = gathering.dir;
        gathering.spoilt |= child.ttl.is_some();
        let Some(name) = self.name_in(dir, bytes) else {
            gathering.spoilt = true;
            return;
        };
        let id = self.allocate(bytes.len());
        let entry = Entry {
            cold: true,
            position: Some(position),
            held: false,
            ..Entry::positive(child, gathering.asked)
        };
        // Dropped at the end, outside of the lock, where it was not linked (G7).
        let linked: Result<_, Entry<H>> = {
            let _dir = self.lock_dir(dir);
            let old = self.find_locked(dir, &name);
            if self.dentry(dir).order() != gathering.order {
                // Another scan has its entries in order by now.
                self.dentry(dir).disturb_order();
            }
            if !self.is_still(gathering) {
                // The name may have gone since it was seen, or mean something else.
                gathering.spoilt = true;
                Err(entry)
            } else if let Some(old) = old.filter(|&old| self.renew(dir, old, &entry)) {
                self.dentry(old).set_position(position);
                self.move_child_to_end(dir, old);
                Err(entry)
            } else if old.is_some_and(|old| !self.has_expired(dir, old)) {
                // Of what is told here it has been told since it was seen, or soon will be.
                self.dentry(dir).disturb_order();
                Err(entry)
            } else {
                Ok(self.link_instead(dir, &name, old, id, entry))
            }
        };
        match linked {
            Ok(aftermath) => self.settle(aftermath),
            Err(_unused) => self.cancel(id, bytes.len()),
        }
    }

    /// Whether nothing of the directory was lost or expired since the beginning. [dir lock]
    fn is_still(&self, Gathering { dir, changes, asked, .. }: &Gathering) -> bool {
        self.dentry(*dir).changes() == *changes && self.expiry.stamp() == asked.stamp
    }

    /// Declares the directory complete if nothing of it was lost since the beginning; tells whether it is. What had
    /// expired and was not seen is gone then.
    pub(crate) fn finish_complete(&self, gathering: Gathering) -> bool {
        let (dir, mut aftermath) = (gathering.dir, Aftermath::default());
        let guard = self.lock_dir(dir);
        // Before the look whether all is as it was: what is expired from here on was not expired when it was seen.
        let horizon = self.record(dir).horizon().max(self.horizon_above(dir));
        let is_complete = self.is_still(&gathering) && !gathering.spoilt && self.is_believed(dir);
        if is_complete {
            let is_gone = |&id: &Id| {
                let (record, deadline) = (self.record(id), self.dentry(id).deadline());
                let is_outdated = record.stamp() < horizon || deadline != 0 && self.expiry.is_past(deadline);
                is_outdated && !record.shape().is_negative()
            };
            let gone: Vec<Id> = self.children(dir).filter(is_gone).collect();
            gone.into_iter().for_each(|id| self.detach(dir, id, &mut aftermath));
            self.rewrite(dir).flags(Shape::COMPLETE, 0);
            if self.dentry(dir).order() == gathering.order {
                self.dentry(dir).restore_order();
            }
        }
        drop(guard);
        self.settle(aftermath);
        is_complete
    }

    /// Up to `max` entries of a complete directory behind `cursor`, which is moved on. `None` where the directory
    /// is not complete, or something was created in it of which the file system's position is not known.
    pub(crate) fn list(&self, dir: Id, cursor: &mut ListCursor, max: usize) -> Option<Vec<Listed<H>>> {
        let _dir = self.lock_dir(dir);
        // Once: with a later one what is believed below would be another moment's.
        let (here, above) = (self.record(dir), self.horizon_above(dir));
        let is_complete = here.shape().has(Shape::COMPLETE) && here.stamp() >= above && self.is_in_tree(dir);
        if !is_complete || !self.dentry(dir).is_ordered() {
            return None;
        }
        let horizon = here.horizon().max(above);
        let mut listed = Vec::new();
        for id in self.behind(dir, *cursor) {
            let (record, dentry) = (self.record(id), self.dentry(id));
            let Some(kind) = record.shape().kind() else { continue };
            // With a time to live; come under a directory that was expired; out of order, as the scan did not see it any
            // more, and its removal is yet to be told.
            let is_doubtful = dentry.deadline() != 0 || record.stamp() < horizon;
            if is_doubtful || cursor.after.is_some_and(|after| dentry.position() <= after) {
                return None;
            }
            if listed.len() == max {
                break;
            }
            // SAFETY: positive, and linked below a locked directory.
            let handle = unsafe { dentry.handle() }.clone();
            listed.push(Listed { name: self.name_of_linked(id), handle, kind, position: dentry.position() });
            cursor.after = Some(dentry.position());
            cursor.hint = Some(DentryId::new(id, dentry.generation()));
        }
        Some(listed)
    }

    /// The entries behind the cursor, from its hint if that is still what it was. Positions ascend
    /// but for what is no longer there. [dir lock]
    fn behind(&self, dir: Id, cursor: ListCursor) -> impl Iterator<Item = Id> {
        let after = cursor.after;
        let hint = cursor.hint.filter(|hint| {
            let (record, dentry) = (self.record(hint.id()), self.dentry(hint.id()));
            record.shape().is_linked()
                && record.parent() == dir
                && dentry.generation() == hint.generation()
                && Some(dentry.position()) == after
        });
        let first = hint.map_or_else(|| self.dentry(dir).first_child(), |hint| hint.id());
        self.siblings_from(first)
            .filter(move |&id| after.is_none_or(|after| self.dentry(id).position() > after))
    }

    /// A linked entry's name. [dir lock of the parent], or the entry is held and retried
    pub(crate) fn name_of_linked(&self, id: Id) -> Vec<u8> {
        // SAFETY: the parent is locked, so the entry is not renamed and its name not retired.
        match unsafe { self.dentry(id).long_name() } {
            Some(long) => long.to_vec(),
            None => self.record(id).inline_name()[..self.record(id).shape().name_len()].to_vec(),
        }
    }

    /// The name of a held entry, as of some moment during the call.
    pub(crate) fn name_of_held(&self, id: Id) -> Vec<u8> {
        let _dir = self.lock_parent(id);
        self.name_of_linked(id)
    }

    /// Locks the directory that a held entry is in.
    pub(crate) fn lock_parent(&self, id: Id) -> MutexGuard<'_, ()> {
        loop {
            let parent = self.record(id).parent();
            let dir = self.lock_dir(parent);
            // Renames need this lock, unless they came before it.
            if self.record(id).parent() == parent {
                return dir;
            }
        }
    }

    /// How many entries were evicted so far.
    pub(crate) fn evictions(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }
}
