//! Scheme 12: Dentree's own cache, `dentree_dcache`.
//!
//! Its users hold entries by `DentryRef`, a value that ends by itself, and say names when they change something. The trait's callers
//! name entries by number and say `dput`. Between them stands a slot for each number: the variable in which a user would have kept
//! the reference. The slots are no part of the cache, so their locks are not metered; [`resolve`](Scheme::resolve), which keeps nothing,
//! goes past them.
//!
//! | field | guard |
//! |---|---|
//! | a slot | its mutex; one at a time, none while the cache is called but to ask a held entry for its names |
//! | numbers of negative answers | `spare` |
//!
//! What differs from the kernel's:
//! * Only positive entries are held. A negative answer gets a number of its own, which remembers where and what was asked for.
//! * No list of an inode's entries is kept (the cache's own limits say why): [`keeps_aliases`](Scheme::keeps_aliases) is false.
//! * There is no `select_parent`: a subtree is expired in constant time instead, and its memory comes back as others need it. Here,
//!   where unused entries have to be gone, all of the cache's are evicted.
//! * The bound is on bytes, not on entries.

use std::num::NonZeroU64;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError};

use dentree_dcache::{Child, Dcache, DentryRef, Fill, Handle, PrefetchMode, Reason, Walk, WalkOptions};
use self_cell::self_cell;

use super::entry::Dentry;
use super::{Config, Inode, OwnLocks, Resolved, Scheme, Usage, Walked, walk_on};

/// Bytes of budget for an entry: what one takes, and as much again for a spell of growth.
const BUDGET_PER_ENTRY: usize = 300;
/// Negative answers that can be held at a time.
const NEGATIVES: usize = 4096;
/// Paths up to this length are put together on the stack.
const PATH_BYTES: usize = 256;

impl Handle for Inode {
    fn to_word(&self) -> Option<u64> {
        Some(self.0.get())
    }

    fn from_word(word: u64) -> Option<Self> {
        NonZeroU64::new(word).map(Inode)
    }
}

type Cache = Dcache<Inode>;
type Held<'c> = DentryRef<'c, Inode>;

self_cell!(
    struct Owned {
        owner: Cache,
        #[not_covariant]
        dependent: Slots,
    }
);

struct Slots<'c> {
    slots: Box<[Mutex<Slot<'c>>]>,
    spare: Mutex<Vec<u32>>,
    used: Counter, // slots with an entry
    changes: Counter,
}

/// A count that threads do not meet on, as long as they work on different entries.
#[derive(Default)]
struct Counter([Line; 16]);

#[derive(Default)]
#[repr(align(64))]
struct Line(AtomicU64);

impl Counter {
    fn add(&self, by: Dentry, more: u64) {
        self.0[by.index() % self.0.len()].0.fetch_add(more, Relaxed);
    }

    fn sum(&self) -> u64 {
        self.0.iter().fold(0, |sum, line| sum.wrapping_add(line.0.load(Relaxed)))
    }
}

/// What a number stands for while somebody holds it.
#[derive(Default)]
struct Slot<'c> {
    count: usize,
    entry: Option<Held<'c>>,
    /// Deleted while nobody else held it: negative from then on.
    deleted: bool,
    /// The directory and the name that a negative answer was about.
    absent: Option<(Held<'c>, Vec<u8>)>,
}

impl<'c> Slots<'c> {
    fn slot(&self, dentry: Dentry) -> MutexGuard<'_, Slot<'c>> {
        self.slots[dentry.index()].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spare(&self) -> MutexGuard<'_, Vec<u32>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a reference for the caller.
    fn keep(&self, entry: Held<'c>) -> Dentry {
        // The root's number is 1, and it is our 0.
        let dentry = Dentry((entry.id().to_bits() as u32).wrapping_sub(1));
        let mut slot = self.slot(dentry);
        slot.count += 1;
        if slot.entry.is_none() {
            slot.entry = Some(entry);
            self.used.add(dentry, 1);
        }
        dentry
    }

    /// A number for a name that is not there. `None` where too many are held: the caller then knows nothing, which is right too.
    fn keep_absent(&self, directory: Held<'c>, name: &[u8]) -> Option<Dentry> {
        let dentry = Dentry(self.spare().pop()?);
        let mut slot = self.slot(dentry);
        slot.count = 1;
        slot.absent = Some((directory, name.to_vec()));
        Some(dentry)
    }

    fn entry(&self, dentry: Dentry) -> Option<Held<'c>> {
        self.slot(dentry).entry.clone()
    }

    fn release(&self, dentry: Dentry, negatives_from: usize) {
        let mut slot = self.slot(dentry);
        slot.count -= 1;
        if slot.count > 0 {
            return;
        }
        let last = std::mem::take(&mut *slot);
        drop(slot);
        if last.entry.is_some() {
            self.used.add(dentry, u64::MAX);
        }
        if dentry.index() >= negatives_from {
            self.spare().push(dentry.0);
        }
    }
}

/// See the module.
pub struct Dentree {
    owned: Owned,
    entries: usize,
    /// Numbers from here on are of negative answers.
    negatives_from: usize,
}

impl std::fmt::Debug for Dentree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dentree").field("cache", self.owned.borrow_owner()).finish_non_exhaustive()
    }
}

impl Dentree {
    /// A cache with nothing in it but the root.
    pub fn new(config: Config) -> Self {
        let prefetch = if config.prefetch { PrefetchMode::On } else { PrefetchMode::Auto };
        let root = Inode(std::num::NonZeroU64::MIN);
        // The least budget that the cache takes is enough for this many.
        let entries = config.entries.max(512);
        let cache = Cache::builder()
            .memory(entries * BUDGET_PER_ENTRY)
            .prefetch(prefetch)
            .seed(0x5eed)
            .build(Child::directory(root));
        // Numbers are dense; those that wait for a grace period have not come back yet.
        let negatives_from = 4 * entries;
        let owned = Owned::new(cache, |cache| {
            let slots = std::iter::repeat_with(Mutex::default).take(negatives_from + NEGATIVES).collect();
            let spare = (negatives_from..negatives_from + NEGATIVES).map(|number| number as u32);
            let slots = Slots {
                slots,
                spare: Mutex::new(spare.collect()),
                used: Counter::default(),
                changes: Counter::default(),
            };
            slots.keep(cache.root());
            slots
        });
        Self { owned, entries: config.entries, negatives_from }
    }

    fn with<R>(&self, work: impl for<'c> FnOnce(&'c Cache, &Slots<'c>) -> R) -> R {
        self.owned.with_dependent(|cache, slots| work(cache, slots))
    }

    /// Makes the entry, or says that the name does not exist; whichever, held. `None` where too much is held already.
    fn enter<'c>(
        &self,
        cache: &'c Cache,
        slots: &Slots<'c>,
        directory: Held<'c>,
        name: &[u8],
        inode: Option<Inode>,
    ) -> Option<Dentry> {
        if slots.used.sum() >= self.entries as u64 {
            return None;
        }
        if let Some(inode) = inode {
            slots.changes.add(Dentry(inode.0.get() as u32), 1);
            return Some(slots.keep(cache.create(&directory, name, Child::directory(inode))));
        }
        let absent = || Ok::<_, std::convert::Infallible>(Fill::Negative { ttl: None });
        match cache.lookup_or_fill(&directory, name, absent) {
            Ok(Some(found)) => Some(slots.keep(found)),
            _ => slots.keep_absent(directory, name),
        }
    }
}

/// A path as one string, and where its components begin.
struct Joined {
    bytes: [u8; PATH_BYTES],
    long: Vec<u8>,
    len: usize,
}

impl Joined {
    fn new(path: &[&[u8]]) -> Self {
        let len = path.iter().map(|name| name.len() + 1).sum::<usize>();
        let mut joined = Self { bytes: [0; PATH_BYTES], long: Vec::new(), len };
        if len > PATH_BYTES {
            joined.long = path.join(&b'/');
            joined.len = joined.long.len();
            return joined;
        }
        let mut at = 0;
        for name in path {
            joined.bytes[at..at + name.len()].copy_from_slice(name);
            joined.bytes[at + name.len()] = b'/';
            at += name.len() + 1;
        }
        joined.len = len.saturating_sub(1);
        joined
    }

    fn bytes(&self) -> &[u8] {
        if self.long.is_empty() { &self.bytes[..self.len] } else { &self.long }
    }

    /// How many components begin before a place.
    fn depth(path: &[&[u8]], place: usize) -> usize {
        let ends = path.iter().scan(0, |at, name| {
            *at += name.len() + 1;
            Some(*at)
        });
        ends.take_while(|end| *end <= place).count()
    }
}

impl Scheme for Dentree {
    fn lookup(&self, parent: Dentry, name: &[u8]) -> Option<Dentry> {
        self.with(|cache, slots| {
            let directory = slots.entry(parent)?;
            loop {
                return match cache.walk(&directory, name, WalkOptions::default(), |_| true) {
                    Walk::Found(entry) => Some(slots.keep(entry)),
                    Walk::Negative { .. } => slots.keep_absent(directory, name),
                    Walk::Stopped(stopped) if stopped.why == Reason::Busy => continue,
                    Walk::Stopped(_) => None,
                };
            }
        })
    }

    fn walk(&self, path: &[&[u8]]) -> Walked {
        let joined = Joined::new(path);
        let walked = self.with(|cache, slots| {
            match cache.walk(&cache.root(), joined.bytes(), WalkOptions::default(), |_| true) {
                Walk::Found(entry) => Some(Walked { dentry: slots.keep(entry), depth: path.len() }),
                Walk::Stopped(stopped) if stopped.why == Reason::Miss => {
                    let depth = Joined::depth(path, stopped.rest);
                    Some(Walked { dentry: slots.keep(stopped.dir), depth })
                }
                // The end is a name that is not there, or writers were quicker: name by name.
                _ => None,
            }
        });
        walked.unwrap_or_else(|| {
            self.dget(Dentry::ROOT);
            walk_on(self, path, Walked { dentry: Dentry::ROOT, depth: 0 })
        })
    }

    fn resolve(&self, path: &[&[u8]]) -> Resolved {
        let joined = Joined::new(path);
        let cache = self.owned.borrow_owner();
        loop {
            return match cache.walk(&cache.root(), joined.bytes(), WalkOptions::default(), |_| true) {
                Walk::Found(entry) => Resolved { depth: path.len(), inode: Some(*entry.handle()) },
                Walk::Negative { at, .. } => Resolved { depth: Joined::depth(path, at) + 1, inode: None },
                Walk::Stopped(stopped) if stopped.why == Reason::Busy => continue,
                Walk::Stopped(stopped) => {
                    Resolved { depth: Joined::depth(path, stopped.rest), inode: Some(*stopped.dir.handle()) }
                }
            };
        }
    }

    fn dget(&self, dentry: Dentry) {
        self.with(|_, slots| slots.slot(dentry).count += 1);
    }

    fn dput(&self, dentry: Dentry) {
        self.with(|_, slots| slots.release(dentry, self.negatives_from));
    }

    fn add(&self, parent: Dentry, name: &[u8], inode: Option<Inode>) -> Option<Dentry> {
        self.with(|cache, slots| {
            let directory = slots.entry(parent)?;
            self.enter(cache, slots, directory, name, inode)
        })
    }

    fn instantiate(&self, dentry: Dentry, inode: Inode) {
        self.with(|cache, slots| {
            let Some((directory, name)) = slots.slot(dentry).absent.take() else { return };
            let made = cache.create(&directory, &name, Child::directory(inode));
            slots.slot(dentry).entry = Some(made);
            slots.changes.add(dentry, 1);
            slots.used.add(dentry, 1);
        });
    }

    fn delete(&self, dentry: Dentry) {
        self.with(|cache, slots| {
            let mut slot = slots.slot(dentry);
            let Some(entry) = slot.entry.clone() else { return };
            slot.deleted = slot.count == 1;
            drop(slot);
            if entry.is_linked() {
                cache.unlink(&entry.parent(), &entry.name());
                slots.changes.add(dentry, 1);
            }
        });
    }

    fn rename(&self, dentry: Dentry, new_parent: Dentry, name: &[u8]) {
        self.with(|cache, slots| {
            let (Some(entry), Some(to)) = (slots.entry(dentry), slots.entry(new_parent)) else { return };
            cache.rename(&entry.parent(), &entry.name(), &to, name);
            slots.changes.add(dentry, 2);
        });
    }

    fn prune_batch(&self) -> usize {
        32
    }

    fn prune(&self, wanted: usize) -> usize {
        self.owned.borrow_owner().prune(wanted)
    }

    fn select_parent(&self, _parent: Dentry) -> usize {
        let cache = self.owned.borrow_owner();
        std::iter::repeat_with(|| cache.prune(usize::MAX)).take_while(|pruned| *pruned > 0).sum()
    }

    fn aliases(&self, _inode: Inode) -> Vec<Dentry> {
        Vec::new()
    }

    fn keeps_aliases(&self) -> bool {
        false
    }

    fn own_locks(&self) -> Option<OwnLocks> {
        let stats = self.owned.borrow_owner().stats();
        let changes = self.with(|_, slots| slots.changes.sum());
        Some(OwnLocks { look_ups: stats.locked_hits + stats.fills + stats.fill_waits, changes })
    }

    fn inode(&self, dentry: Dentry) -> Option<Inode> {
        self.with(|_, slots| {
            let slot = slots.slot(dentry);
            slot.entry.as_ref().filter(|_| !slot.deleted).map(|entry| *entry.handle())
        })
    }

    fn usage(&self) -> Usage {
        let stats = self.owned.borrow_owner().stats();
        let entries = usize::try_from(stats.entries).unwrap_or(usize::MAX).max(1);
        let used = self.with(|_, slots| slots.used.sum());
        Usage {
            entries,
            on_lru: entries.saturating_sub(used as usize),
            entry_bytes: stats.memory.used / entries,
        }
    }
}
