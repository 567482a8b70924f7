//! Scheme 12: Dentree's own cache, `dentree_dcache`.
//!
//! The trait names a held entry by a number: the reference's `into_raw`, less one, because the root
//! is 1 there and 0 here. No state is kept outside the cache.
//!
//! Differences from the kernel's dcache:
//! - Only positive entries are referenced. All negative results are one number, [`ABSENT`], which
//!   references nothing. [`create`](Scheme::create) looks the name up again, so
//!   [`instantiate`](Scheme::instantiate) has no caller.
//! - A deleted directory has no inode for its remaining holders.
//! - There are no alias lists (see the cache's limits): [`keeps_aliases`](Scheme::keeps_aliases) is
//!   false.
//! - The limit is in bytes, not in entries.

#![allow(unsafe_code)]

use std::mem::ManuallyDrop;
use std::num::NonZeroU64;

use dentree_dcache::{Child, Dcache, DentryRef, Fill, Handle, Kind, PrefetchMode, Reason, Walk, WalkOptions};

use super::entry::Dentry;
use super::{Config, Inode, OwnLocks, Path, Resolved, Scheme, Usage, Walked, walk_on};

/// Bytes of budget per entry: the size of one, doubled for growth of the index.
const BUDGET_PER_ENTRY: usize = 300;
/// Entries that the cache's minimum budget holds.
const ENTRIES_MIN: usize = 512;
/// A negative result.
const ABSENT: Dentry = Dentry(u32::MAX);

impl Handle for Inode {
    fn to_word(&self) -> Option<u64> {
        Some(self.0.get())
    }

    fn from_word(word: u64) -> Option<Self> {
        NonZeroU64::new(word).map(Inode)
    }
}

type Held<'c> = DentryRef<'c, Inode>;

/// See the module.
#[derive(Debug)]
pub struct Dentree {
    cache: Dcache<Inode>,
    entries: usize,
}

impl Dentree {
    /// An empty cache: the root alone.
    pub fn new(config: Config) -> Self {
        let prefetch = if config.prefetch { PrefetchMode::On } else { PrefetchMode::Auto };
        let cache = Dcache::builder()
            .memory(config.entries.max(ENTRIES_MIN) * BUDGET_PER_ENTRY)
            .prefetch(prefetch)
            .seed(0x5eed)
            .build(Child::directory(Inode(NonZeroU64::MIN)));
        Self { cache, entries: config.entries }
    }

    /// The reference behind a number, which stays the caller's.
    fn held(&self, dentry: Dentry) -> ManuallyDrop<Held<'_>> {
        debug_assert_ne!(dentry, ABSENT);
        // SAFETY: the trait's callers pass numbers of references that they hold; the result is not
        // dropped.
        ManuallyDrop::new(unsafe { Held::from_raw(&self.cache, dentry.0 + 1) })
    }

    fn keep(entry: Held<'_>) -> Dentry {
        Dentry(entry.into_raw() - 1)
    }

    fn child(inode: Inode) -> Child<Inode> {
        if inode.is_file() { Child::other(inode) } else { Child::directory(inode) }
    }

    /// Whether no further entry may be held. A cache smaller than [`ENTRIES_MIN`] counts them,
    /// because the minimum budget would hold more.
    fn is_full(&self) -> bool {
        self.entries < ENTRIES_MIN && self.cache.stats().held + 1 >= self.entries as u64
    }
}

/// The number of components that begin before a position of the text.
fn depth(path: &[&[u8]], place: usize) -> usize {
    let ends = path.iter().scan(0, |at, name| {
        *at += name.len() + 1;
        Some(*at)
    });
    ends.take_while(|end| *end <= place).count()
}

impl Scheme for Dentree {
    fn lookup(&self, parent: Dentry, name: &[u8]) -> Option<Dentry> {
        let found = self.cache.lookup(&self.held(parent), name)?;
        Some(found.map_or(ABSENT, Self::keep))
    }

    fn walk(&self, path: Path<'_>) -> Walked {
        match self.cache.walk(&self.cache.root(), path.text(), WalkOptions::default(), |_| true) {
            Walk::Found(entry) => Walked { dentry: Self::keep(entry), depth: path.len() },
            Walk::Negative { at, .. } => Walked { dentry: ABSENT, depth: depth(&path, at) + 1 },
            Walk::Stopped(stopped) if matches!(stopped.why, Reason::Miss | Reason::NotADirectory) => {
                Walked { dentry: Self::keep(stopped.dir), depth: depth(&path, stopped.rest) }
            }
            // Concurrent changes: look up component by component.
            Walk::Stopped(_) => walk_on(self, path, Walked { dentry: Dentry::ROOT, depth: 0 }),
        }
    }

    fn resolve(&self, path: Path<'_>) -> Resolved {
        loop {
            let found = self.cache.find(&self.cache.root(), path.text(), WalkOptions::default(), |_| true);
            return match found {
                Walk::Found(seen) => Resolved { depth: path.len(), inode: Some(seen.handle) },
                Walk::Negative { at, .. } => Resolved { depth: depth(&path, at) + 1, inode: None },
                Walk::Stopped(stopped) if stopped.why == Reason::Busy => continue,
                Walk::Stopped(stopped) => {
                    Resolved { depth: depth(&path, stopped.rest), inode: Some(*stopped.dir.handle()) }
                }
            };
        }
    }

    fn dget(&self, dentry: Dentry) {
        if dentry != ABSENT {
            Self::keep((*self.held(dentry)).clone());
        }
    }

    fn dput(&self, dentry: Dentry) {
        if dentry != ABSENT {
            drop(ManuallyDrop::into_inner(self.held(dentry)));
        }
    }

    fn add(&self, parent: Dentry, name: &[u8], inode: Option<Inode>) -> Option<Dentry> {
        if self.is_full() {
            return None;
        }
        let directory = self.held(parent);
        if let Some(inode) = inode {
            return Some(Self::keep(self.cache.create(&directory, name, Self::child(inode))));
        }
        let absent = || Ok::<_, std::convert::Infallible>(Fill::Negative);
        let Ok(found) = self.cache.lookup_or_fill(&directory, name, absent);
        Some(found.map_or(ABSENT, Self::keep))
    }

    fn instantiate(&self, _dentry: Dentry, _inode: Inode) {
        unreachable!("`create` makes an entry of a name, not of a negative answer");
    }

    fn create(&self, parent: Dentry, name: &[u8], inode: Option<Inode>) -> Option<Dentry> {
        match self.cache.lookup(&self.held(parent), name) {
            Some(Some(known)) => Some(Self::keep(known)),
            _ => self.add(parent, name, inode),
        }
    }

    fn delete(&self, dentry: Dentry) {
        if dentry != ABSENT {
            self.cache.delete(&self.held(dentry));
        }
    }

    fn rename(&self, dentry: Dentry, new_parent: Dentry, name: &[u8]) {
        if self.inode(dentry).is_none() {
            return;
        }
        let entry = self.held(dentry);
        self.cache.rename(&entry.parent(), &entry.name(), &self.held(new_parent), name);
    }

    fn prune_batch(&self) -> usize {
        32
    }

    fn prune(&self, wanted: usize) -> usize {
        self.cache.prune(wanted)
    }

    fn select_parent(&self, parent: Dentry) -> usize {
        let pruned = self.cache.prune_subtree(&self.held(parent));
        if parent == Dentry::ROOT {
            // Pruned entries count until their slots are reusable.
            self.cache.shrink_to(0);
        }
        pruned
    }

    fn aliases(&self, _inode: Inode) -> Vec<Dentry> {
        Vec::new()
    }

    fn keeps_aliases(&self) -> bool {
        false
    }

    fn own_locks(&self) -> Option<OwnLocks> {
        let stats = self.cache.stats();
        Some(OwnLocks { lookups: stats.locked_hits + stats.fills + stats.fill_waits, changes: stats.changes })
    }

    fn inode(&self, dentry: Dentry) -> Option<Inode> {
        if dentry == ABSENT {
            return None;
        }
        let entry = self.held(dentry);
        let is_gone = entry.is_negative() || entry.kind() == Kind::Directory && !entry.is_linked();
        (!is_gone).then(|| *entry.handle())
    }

    fn usage(&self) -> Usage {
        let stats = self.cache.stats();
        let entries = usize::try_from(stats.entries).unwrap_or(usize::MAX).max(1);
        let used = usize::try_from(stats.held).unwrap_or(usize::MAX);
        Usage {
            entries,
            // The root is always in use, and not counted as held.
            on_lru: entries.saturating_sub(used + 1),
            entry_bytes: stats.memory.used / entries,
        }
    }
}
