//! Directories of which all names are cached: what is missed there does not exist, and the file system is not asked.
//!
//! Whoever looks for names that are not there (a search path, the headers of a compiler, `.gitignore` at every level) looks for others
//! the next time, and each is a question. A listing answers them all. So a directory that has been asked in vain is listed for its names, as
//! far as that costs what the questions have cost; when they have become twice as many, and it was larger, again: at worst
//! it all costs twice what the questions do. And whoever lists a directory in which names have been missed enters them by the way. Where
//! nobody looks names up, as `find` does not, nothing is entered.
//!
//! The names enter the cache as those of a scan do, the first to go. An entry that goes takes the directory's completeness with it. Names do not
//! change while a directory is listed ([`Inode::share_to_list`]).

use crate::entry::{Entry, child};
use crate::{DirEntry, FileSystem, Inode, ReaddirStart, Result, Vfs};
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

/// No directory is listed for its names before it was asked so often in vain. A power of two.
const LEAST: u32 = 16;
/// Entries that are listed and entered in the time of one question: at 0.3 µs each, where a question of an ext4 directory takes 4 µs and more.
const LISTED_PER_QUESTION: u32 = 16;
/// What an entry takes in a directory at most, about. A file system may have to read a whole directory to list its beginning.
const ENTRY_BYTES: u64 = 64;
/// No directory of more entries is listed for its names: for this many it takes about a millisecond.
const LARGEST: u32 = 4096;
/// The part of the name cache that one directory's names may take.
const SHARE: usize = 16;
/// What a cached name takes, about.
const NAME_BYTES: usize = 160;

impl<F: FileSystem> Vfs<F> {
    /// Lists a directory for its names if it has been asked in vain often enough. What goes wrong is told to whoever lists it next.
    pub(crate) fn complete_if_worth(&self, entry: &Entry<'_>, dir: &Inode<F>) {
        // Relaxed: who misses the right moment leaves it to the next.
        let asked = dir.asked_in_vain.load(Ordering::Relaxed);
        let mut left = asked.saturating_mul(LISTED_PER_QUESTION);
        if asked < LEAST || !asked.is_power_of_two() || left > LARGEST {
            return;
        }
        if dir.attr().size / ENTRY_BYTES > left.into() {
            return;
        }
        let _names = dir.share_to_list();
        if !dir.is_removed() && self.is_current(entry) {
            let _ = self.list_and_complete(dir, &mut |_| {
                left = left.saturating_sub(1);
                if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
        }
    }

    /// Lists a directory from its first entry on, and enters what is listed; where that was all of it, it is complete. [list side of `dir`]
    pub(crate) fn list_and_complete(
        &self,
        dir: &Inode<F>,
        each: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        // A directory that ignores case is cached under other names.
        let ignores_case = self.fs().fold_name(dir.node(), b"").is_some();
        let entry = self.remembered_entry(dir).filter(|_| !ignores_case);
        let mut completion = entry.as_ref().map(|entry| self.names.begin_complete(entry));
        let mut room = self.budget_of_names / SHARE / NAME_BYTES;
        self.fs().readdir(dir.node(), ReaddirStart::First, &mut |listed| {
            // A kind that only the inode tells is not worth reading it.
            let found = listed.kind.filter(|_| room > 0).map(|kind| child(listed.ino, kind));
            match (found, &mut completion) {
                (Some(child), Some(completion)) => {
                    room -= 1;
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
            dir.asked_in_vain.store(0, Ordering::Relaxed);
        }
        Ok(())
    }
}
