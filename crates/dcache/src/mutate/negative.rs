//! Entries that become negative, and positive again, in their place: d_delete and d_instantiate.
//!
//! A file that is removed and made again, as build trees and mail queues do all the time, keeps its
//! slot, its place in the index and in its directory. Nothing is allocated, retired or moved
//! between buckets.
//!
//! # What may change in place
//! An entry whose handle is a word ([`Flags::INLINE_HANDLE`]) and that has nothing below it, and
//! only while no other thread holds it: the last reference is exchanged for DEAD, so that no walk
//! can take one meanwhile. Its record changes under its sequence count as in a rename: a walk
//! believes what it read of the record only if the count is the same at its end.
//!
//! # Why no grace period is needed
//! A walk that has met the entry may still be reading it. It reads the record, which is atomic and
//! checked by the count, and never the handle in the dentry: that is read for a positive record
//! without an inline handle, or by a holder of the entry. What owns memory is no word. All ids of
//! the removed file become stale: the generation moves on under the same count.
//!
//! A reference that is taken after the change is one to another entry in the same slot. So each
//! that is taken without a lock is followed by the question whether the entry is still the one that
//! was found: [`hold_if`](Core::hold_if), or the read set at the end of a walk.

use crate::Handle;
use crate::core::Core;
use crate::hash::name::Name;
use crate::mutate::tree::{Cleanup, Entry};
use crate::table::id::Id;
use crate::table::record::Flags;

impl<H: Handle> Core<H> {
    /// Makes a linked entry negative if it may become so in place, and no one but `users` callers
    /// holds it. Returns the negative entry that has to go for it, if there is one. [dir lock]
    pub(crate) fn become_negative(&self, dir: Id, id: Id, users: u64) -> Option<Option<Id>> {
        let (record, dentry) = (self.record(id), self.dentry(id));
        let flags = record.flags();
        let may = flags.has(Flags::INLINE_HANDLE)
            && !std::mem::needs_drop::<H>()
            // In a complete directory a negative entry would be of no use.
            && !self.record(dir).flags().has(Flags::COMPLETE)
            && dentry.begin_change(users);
        if !may {
            return None;
        }
        record.set_deadline(0);
        let rewrite = self.rewrite(id);
        rewrite.next_generation();
        rewrite.flags(Flags::linked(None, 0, flags.name_len()));
        drop(rewrite);
        dentry.end_change(0);
        self.mark(id).touch();
        self.memory.add_negative();
        Some(self.enlist_negative(id))
    }

    /// Gives a linked negative entry the inode of `entry`, if it may have it in place, and a
    /// reference. Returns the entry where it may not. [dir lock]
    pub(crate) fn become_positive(&self, id: Id, name: &Name<'_>, entry: Entry<H>) -> Result<(), Entry<H>> {
        let (record, dentry) = (self.record(id), self.dentry(id));
        let word = entry.child.as_ref().and_then(|(kind, handle, _)| Some((*kind, handle.to_word()?)));
        let may = record.flags().is_negative() && entry.ttl.is_none() && !std::mem::needs_drop::<H>();
        let Some((kind, word)) = word.filter(|_| may) else { return Err(entry) };
        if !dentry.begin_change(0) {
            return Err(entry);
        }
        let search = self.may_search_all(&entry);
        let handle = entry.child.map(|(_, handle, _)| handle);
        // SAFETY: DEAD keeps everyone from taking a reference, and unheld readers do not look at a
        // word's handle (the module's text). What was here before is a word, or nothing.
        unsafe { dentry.set_handle(handle) };
        record.set_deadline(0);
        let rewrite = self.rewrite(id);
        rewrite.next_generation();
        rewrite.inline_handle(word);
        rewrite.flags(Flags::linked(Some(kind), search | Flags::INLINE_HANDLE, name.bytes.len()));
        drop(rewrite);
        self.memory.drop_negative();
        self.mark(id).touch();
        self.count_held(1);
        dentry.end_change(1);
        Ok(())
    }

    /// Says that a held entry has lost its name. It becomes negative where only the caller holds
    /// it, and stays what it is, nameless, otherwise.
    pub(crate) fn delete(&self, id: Id) {
        self.count_change();
        loop {
            let dir = self.record(id).parent();
            let (bytes, done) = {
                let _dir = self.lock_dir(dir);
                if self.record(id).parent() != dir {
                    continue;
                }
                let flags = self.record(id).flags();
                if !flags.is_linked() || flags.is_negative() {
                    return;
                }
                let bytes = self.name_of_linked(id);
                let done = self.name_in(dir, &bytes).and_then(|name| self.unlink_in_place(dir, &name, id, 1));
                (bytes, done)
            };
            match done {
                Some(evict) => self.clean_up(Cleanup::evicting(evict)),
                None => self.unlink_entry(dir, &bytes, Some(id)),
            }
            return;
        }
    }

    /// Makes an entry that has lost its name negative in place, if it may. Returns what has to go
    /// for it. [dir lock]
    pub(crate) fn unlink_in_place(&self, dir: Id, name: &Name<'_>, id: Id, users: u64) -> Option<Option<Id>> {
        let evict = self.become_negative(dir, id, users)?;
        self.in_lookups.overtake(dir, name);
        self.dentry(dir).note_change();
        Some(evict)
    }
}
