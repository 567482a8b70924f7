//! Entries that become negative and positive in place: d_delete and d_instantiate.
//!
//! A file that is removed and created again keeps its slot and its place in index and directory.
//! Nothing is allocated, retired or moved.
//!
//! # What may change in place
//! An entry whose handle is a word ([`Flags::INLINE_HANDLE`]), that has no children and that no
//! other thread holds: a compare-and-swap replaces the last reference by DEAD, so that no walk can
//! take one. The record changes under its sequence count, as in a rename.
//!
//! # Why no grace period is needed
//! A walk may still be reading the entry. It reads the record, which is atomic and checked by the
//! count. It reads the dentry's handle only of a positive record without inline handle, or of an
//! entry that it holds. A handle that owns memory is not a word. The generation changes under the
//! same count, so the removed file's ids become stale.
//!
//! A reference taken after the change belongs to another entry. So each one taken without a lock is
//! followed by a check: [`hold_if`](Core::hold_if), or the read set of a walk.

use crate::Handle;
use crate::core::Core;
use crate::hash::name::Name;
use crate::mutate::tree::{Cleanup, Entry};
use crate::table::id::Id;
use crate::table::record::Flags;

impl<H: Handle> Core<H> {
    /// Makes a linked entry negative in place, if it may and only `users` callers hold it. Returns
    /// the negative entry to evict for it. [dir lock]
    pub(crate) fn become_negative(&self, dir: Id, id: Id, users: u64) -> Option<Option<Id>> {
        let (record, dentry) = (self.record(id), self.dentry(id));
        let flags = record.flags();
        let may = flags.has(Flags::INLINE_HANDLE)
            && !std::mem::needs_drop::<H>()
            && !self.record(dir).flags().has(Flags::COMPLETE)
            && dentry.begin_change(users);
        if !may {
            return None;
        }
        let rewrite = self.rewrite(id);
        rewrite.next_generation();
        rewrite.flags(Flags::linked(None, 0, flags.name_len()));
        drop(rewrite);
        if dentry.end_change(0) && users == 0 {
            self.count_held(1);
        }
        self.mark(id).touch();
        self.memory.negatives.add(1);
        Some(self.enlist_negative(id))
    }

    /// Makes a linked negative entry positive in place, with a reference. Returns `entry` if it may
    /// not. [dir lock]
    pub(crate) fn become_positive(&self, id: Id, name: &Name<'_>, entry: Entry<H>) -> Result<(), Entry<H>> {
        let (record, dentry) = (self.record(id), self.dentry(id));
        let word = entry.child.as_ref().and_then(|child| Some((child.kind, child.handle.to_word()?)));
        let may = record.flags().is_negative() && !std::mem::needs_drop::<H>();
        let Some((kind, word)) = word.filter(|_| may) else { return Err(entry) };
        if !dentry.begin_change(0) {
            return Err(entry);
        }
        let search = self.may_search_all(&entry);
        let handle = entry.child.map(|child| child.handle);
        // SAFETY: DEAD excludes new references, and readers that hold none do not read the dentry's
        // handle of a word (module text). The old one is a word, or none.
        unsafe { dentry.set_handle(handle) };
        let rewrite = self.rewrite(id);
        rewrite.next_generation();
        rewrite.inline_handle(word);
        rewrite.flags(Flags::linked(Some(kind), search | Flags::INLINE_HANDLE, name.bytes.len()));
        drop(rewrite);
        self.memory.negatives.sub(1);
        self.mark(id).touch();
        if dentry.end_change(1) {
            self.count_held(1);
        }
        Ok(())
    }

    /// A held entry has lost its name: it becomes negative without another holder, else detached.
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
                // SAFETY: the parent is locked.
                let bytes = unsafe { self.name_of(id) };
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

    /// Makes an entry that lost its name negative in place, if it may. Returns as
    /// `become_negative`. [dir lock]
    pub(crate) fn unlink_in_place(&self, dir: Id, name: &Name<'_>, id: Id, users: u64) -> Option<Option<Id>> {
        let evict = self.become_negative(dir, id, users)?;
        self.in_lookups.overtake(dir, name);
        self.dentry(dir).note_change();
        Some(evict)
    }
}
