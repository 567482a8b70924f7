//! Scheme 11: today's kernel, as its documents describe it (path-lookup, 3.x to 6.x).
//!
//! A walk takes no lock and no reference on its way (RCU-walk). It reads the sequence count of each
//! component, and checks the parent's again before it trusts the child. The one reference, on the
//! last component, is taken by compare and swap on the `lockref`: the count with its lock bit.
//! After a changed count or a name that is not cached it continues as a ref-walk, one referenced
//! lookup per component.
//!
//! | field | guard |
//! |---|---|
//! | key, membership in a chain | `rename_lock` and `d_lock`; hits read `d_seq`, misses `renames` |
//! | a chain | the bit lock in its head |
//! | children and their parent | `d_lock` of the parent |
//! | aliases, inode | `i_lock` of the inode, and `d_lock` |
//! | the LRU list | `lru_lock` |
//! | count | atomic while `d_lock` is free; steps from zero to one and to [`DEAD`] only under it |
//! | memory | grace periods |
//!
//! Lock order: `rename_lock`; `i_lock`; `d_lock`, several by address; chain bits and `lru_lock`.
//! Freeing an entry takes its parent's `d_lock` and then its own, whichever address is lower: the
//! second is a trylock, and failure releases all.
//!
//! The LRU is lazy: a lookup leaves the entry on the list, and `dput` sets its referenced flag. So
//! `dput` of an entry on the list with the flag set takes no lock.
//!
//! Simpler than the kernel: one LRU list instead of one per node; `select_parent` collects a
//! directory's children under its `d_lock` instead of handing the lock down the tree, and may miss
//! a directory that is renamed meanwhile.

use std::array;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::thread;

use crossbeam_epoch as epoch;
use dentree_lockmeter::{BitGuard, BitLock, Class, SpinGuard, SpinLock};

use super::entry::{COUNT, COUNT_LOCK_BIT, DEAD, Dentry, LINK_LOCK_BIT, Layout, ON_LRU, REFERENCED};
use super::table::{Table, Wanted};
use super::{Config, Inode, Path, Scheme, Usage, Walked, make_room, sequence, walk_on};

/// Inode locks. Inodes share one if their alias buckets are equal modulo this.
const I_LOCKS: usize = 1024;

/// See the module.
#[derive(Debug)]
pub struct SeqCount<L> {
    table: Arc<Table<L>>,
    rename_lock: SpinLock<()>,
    renames: AtomicU32, // odd while `rename_lock` is held
    i_locks: [SpinLock<()>; I_LOCKS],
    d_lock: BitLock,
    chain_lock: BitLock,
    lru_lock: SpinLock<()>,
}

impl<L: Layout> SeqCount<L> {
    /// An empty cache: the root alone.
    pub fn new(config: Config) -> Self {
        let i_lock = Class::named("i_lock");
        Self {
            table: Table::new(config),
            rename_lock: SpinLock::new(Class::named("rename_lock"), ()),
            renames: AtomicU32::new(0),
            i_locks: array::from_fn(|_| SpinLock::new(i_lock, ())),
            d_lock: BitLock::new(Class::named("d_lock"), COUNT_LOCK_BIT),
            chain_lock: BitLock::new(Class::named("d_hash"), LINK_LOCK_BIT),
            lru_lock: SpinLock::new(Class::named("lru_lock"), ()),
        }
    }

    fn lockref(&self, dentry: Dentry) -> &AtomicU32 {
        &self.table.layout.written(dentry).count
    }

    fn d_seq(&self, dentry: Dentry) -> &AtomicU32 {
        &self.table.layout.chain(dentry).seq
    }

    #[track_caller]
    fn d_lock(&self, dentry: Dentry) -> BitGuard<'_> {
        self.d_lock.lock(self.lockref(dentry))
    }

    #[track_caller]
    fn i_lock(&self, inode: Inode) -> SpinGuard<'_, ()> {
        self.i_locks[self.table.alias_bucket(inode) % I_LOCKS].lock()
    }

    /// Locks the chain that the entry is in, or will be.
    #[track_caller]
    fn chain_lock(&self, dentry: Dentry) -> BitGuard<'_> {
        self.chain_lock.lock(self.table.head(self.table.hash(dentry)).word())
    }

    fn is_dead(&self, dentry: Dentry) -> bool {
        self.lockref(dentry).load(Acquire) & DEAD != 0
    }

    /// `__d_drop`, under `d_lock`. Readers that found the entry by name see its sequence count
    /// change.
    fn drop_name(&self, dentry: Dentry) {
        sequence::change(self.d_seq(dentry), || {
            let _chain = self.chain_lock(dentry);
            self.table.unhash(dentry);
        });
    }

    /// `lockref_get_not_dead`: by compare and swap if `d_lock` is free.
    fn get_not_dead(&self, dentry: Dentry) -> bool {
        let free = |word: u32| (word & !COUNT == 0).then_some(word + 1);
        if self.lockref(dentry).try_update(AcqRel, Relaxed, free).is_ok() {
            return true;
        }
        let _d_lock = self.d_lock(dentry);
        let alive = !self.is_dead(dentry);
        if alive {
            self.table.get(dentry);
        }
        alive
    }

    /// `__d_lookup_rcu`: the entry and its sequence count, without a reference.
    fn find_rcu(&self, wanted: &Wanted<'_>) -> Option<(Dentry, u32)> {
        let seq = Cell::new(0);
        let next = |dentry| self.table.layout.chain(dentry).node.next.get();
        let is = |dentry| loop {
            seq.set(sequence::begin(self.d_seq(dentry)));
            let same = self.table.is_hashed(dentry) && self.table.matches(dentry, wanted);
            if !sequence::changed(self.d_seq(dentry), seq.get()) {
                return same;
            }
        };
        self.table.find_by(wanted, next, is).map(|dentry| (dentry, seq.get()))
    }

    /// RCU-walk, as far as the cache goes; `None` after a concurrent change.
    fn rcu_walk(&self, path: Path<'_>) -> Option<Walked> {
        let mut at = Walked { dentry: Dentry::ROOT, depth: 0 };
        let mut seq = sequence::begin(self.d_seq(at.dentry));
        for name in path.iter() {
            if self.table.inode(at.dentry).is_none() {
                break;
            }
            let Some((next, next_seq)) = self.find_rcu(&Wanted::new(at.dentry, name)) else { break };
            // The parent was unchanged while the child was found in it.
            if sequence::changed(self.d_seq(at.dentry), seq) {
                return None;
            }
            (at, seq) = (Walked { dentry: next, depth: at.depth + 1 }, next_seq);
        }
        if !self.get_not_dead(at.dentry) {
            return None;
        }
        if sequence::changed(self.d_seq(at.dentry), seq) {
            self.dput(at.dentry);
            return None;
        }
        Some(at)
    }

    /// Drops one reference. If that freed the entry, returns its parent, whose reference is to be
    /// dropped.
    fn put(&self, dentry: Dentry) -> Option<Dentry> {
        if self.table.put_unless_last(dentry) {
            return None;
        }
        let last = |word: u32| (word == 1).then_some(0);
        let held = if self.lockref(dentry).try_update(AcqRel, Relaxed, last).is_ok() {
            if self.table.is_hashed(dentry)
                && self.table.has(dentry, ON_LRU)
                && self.table.has(dentry, REFERENCED)
            {
                return None;
            }
            let held = self.d_lock(dentry);
            // Since the count was zero another thread may have referenced or freed the entry.
            if self.table.count(dentry) > 0 || self.is_dead(dentry) {
                return None;
            }
            held
        } else {
            let held = self.d_lock(dentry);
            if !self.table.put(dentry) {
                return None;
            }
            held
        };
        if !self.table.is_hashed(dentry) {
            drop(held);
            return self.kill_unused(dentry);
        }
        if self.table.has(dentry, ON_LRU) {
            self.table.set_referenced(dentry);
        } else {
            let _lru = self.lru_lock.lock();
            self.table.lru_add(&self.table.lru, dentry);
        }
        None
    }

    /// `__dentry_kill`: frees the entry if it is still unused, and returns its parent. The caller
    /// is in a read-side critical section: the number is not reused even if another thread frees
    /// the entry first.
    fn kill_unused(&self, dentry: Dentry) -> Option<Dentry> {
        loop {
            let (parent, inode) = (self.table.parent(dentry), self.table.inode(dentry));
            let _i_lock = inode.map(|inode| self.i_lock(inode));
            let _parent = self.d_lock(parent);
            let Some(_d_lock) = self.d_lock.try_lock(self.lockref(dentry)) else {
                thread::yield_now();
                continue;
            };
            if self.table.count(dentry) > 0 || self.is_dead(dentry) {
                return None;
            }
            if (self.table.parent(dentry), self.table.inode(dentry)) != (parent, inode) {
                continue;
            }
            self.lockref(dentry).fetch_or(DEAD, Relaxed);
            if self.table.has(dentry, ON_LRU) {
                let _lru = self.lru_lock.lock();
                self.table.lru_remove(&self.table.lru, dentry);
            }
            self.drop_name(dentry);
            self.table.remove_child(dentry);
            self.table.remove_alias(dentry);
            self.table.release_after_grace(dentry);
            return Some(parent);
        }
    }

    /// Frees those of `entries` that are still unused; returns their number.
    fn kill_all(&self, entries: Vec<Dentry>) -> usize {
        let parents: Vec<_> = entries.into_iter().filter_map(|dentry| self.kill_unused(dentry)).collect();
        parents.iter().for_each(|parent| self.dput(*parent));
        parents.len()
    }

    /// Takes up to `wanted` unused entries off the LRU list, and the used ones that it meets.
    /// `d_lock` is a trylock, against the lock order.
    fn isolate(&self, wanted: usize) -> Vec<Dentry> {
        let _lru = self.lru_lock.lock();
        let mut chances = self.table.lru.len();
        let mut unused = Vec::new();
        while let (true, Some(dentry)) = (unused.len() < wanted, self.table.lru.last()) {
            let held = self.d_lock.try_lock(self.lockref(dentry));
            if held.is_some() && self.table.count(dentry) > 0 {
                self.table.lru_remove(&self.table.lru, dentry);
            } else if held.is_none() || chances > 0 && self.table.take_referenced(dentry) {
                if chances == 0 {
                    break;
                }
                chances -= 1;
                self.table.lru_remove(&self.table.lru, dentry);
                self.table.lru_add(&self.table.lru, dentry);
            } else {
                self.table.lru_remove(&self.table.lru, dentry);
                unused.push(dentry);
            }
        }
        unused
    }

    /// The unused entries below a directory.
    fn unused_below(&self, parent: Dentry) -> Vec<Dentry> {
        let (mut directories, mut unused) = (vec![parent], Vec::new());
        while let Some(directory) = directories.pop() {
            let _d_lock = self.d_lock(directory);
            for child in self.table.children(directory) {
                if self.table.children(child).next().is_some() {
                    directories.push(child);
                } else if self.table.count(child) == 0 {
                    unused.push(child);
                }
            }
        }
        unused
    }

    /// Locks up to four entries, by address.
    fn d_locks(&self, mut entries: Vec<Dentry>) -> Vec<BitGuard<'_>> {
        entries.sort_by_key(|dentry| std::ptr::from_ref(self.lockref(*dentry)).addr());
        entries.dedup();
        entries.into_iter().map(|dentry| self.d_lock(dentry)).collect()
    }
}

impl<L: Layout> Scheme for SeqCount<L> {
    fn lookup(&self, parent: Dentry, name: &[u8]) -> Option<Dentry> {
        let wanted = Wanted::new(parent, name);
        let _rcu = epoch::pin();
        let next = |dentry| self.table.layout.chain(dentry).node.next.get();
        let get = |dentry| {
            if !self.table.matches(dentry, &wanted) {
                return false; // `renames` reveals a concurrent rename to it
            }
            let _d_lock = self.d_lock(dentry);
            let same = self.table.is_hashed(dentry) && self.table.matches(dentry, &wanted);
            if same {
                self.table.get(dentry);
            }
            same
        };
        sequence::find(&self.renames, || self.table.find_by(&wanted, next, get))
    }

    fn walk(&self, path: Path<'_>) -> Walked {
        let _rcu = epoch::pin();
        let at = self.rcu_walk(path).unwrap_or_else(|| {
            self.dget(Dentry::ROOT);
            Walked { dentry: Dentry::ROOT, depth: 0 }
        });
        walk_on(self, path, at)
    }

    fn dget(&self, dentry: Dentry) {
        self.table.get(dentry);
    }

    fn dput(&self, dentry: Dentry) {
        // At a count of zero other threads may free the entry: the read-side critical section keeps
        // its number.
        let _rcu = epoch::pin();
        let mut at = Some(dentry);
        while let Some(dentry) = at {
            at = self.put(dentry);
        }
    }

    fn add(&self, parent: Dentry, name: &[u8], inode: Option<Inode>) -> Option<Dentry> {
        let wanted = Wanted::new(parent, name);
        let dentry = make_room(self, || self.table.alloc(&wanted))?;
        {
            let _d_alloc = self.d_lock(parent);
            self.table.get(parent);
            self.table.add_child(dentry);
        }
        if let Some(inode) = inode {
            self.instantiate(dentry, inode);
        }
        let _d_rehash = self.chain_lock(dentry);
        self.table.rehash(dentry);
        Some(dentry)
    }

    fn instantiate(&self, dentry: Dentry, inode: Inode) {
        let _i_lock = self.i_lock(inode);
        let _d_lock = self.d_lock(dentry);
        sequence::change(self.d_seq(dentry), || self.table.add_alias(dentry, inode));
    }

    fn delete(&self, dentry: Dentry) {
        let _i_lock = self.table.inode(dentry).map(|inode| self.i_lock(inode));
        let _d_lock = self.d_lock(dentry);
        if self.table.count(dentry) > 1 {
            self.drop_name(dentry);
            return;
        }
        sequence::change(self.d_seq(dentry), || self.table.remove_alias(dentry));
    }

    fn rename(&self, dentry: Dentry, new_parent: Dentry, name: &[u8]) {
        let wanted = Wanted::new(new_parent, name);
        let _rcu = epoch::pin();
        let rename = self.rename_lock.lock();
        sequence::start(&self.renames);
        let old_parent = self.table.parent(dentry);
        let target =
            self.table.find(&wanted).filter(|target| *target != dentry && self.get_not_dead(*target));
        let d_locks = self.d_locks([dentry, old_parent, new_parent].into_iter().chain(target).collect());
        target.into_iter().for_each(|target| self.drop_name(target));
        self.table.get(new_parent);
        sequence::start(self.d_seq(dentry));
        {
            let _chain = self.chain_lock(dentry);
            self.table.unhash(dentry);
        }
        self.table.remove_child(dentry);
        self.table.set_key(dentry, &wanted);
        self.table.add_child(dentry);
        {
            let _chain = self.chain_lock(dentry);
            self.table.rehash(dentry);
        }
        sequence::end(self.d_seq(dentry));
        drop(d_locks);
        sequence::end(&self.renames);
        drop(rename);
        self.dput(old_parent);
        target.into_iter().for_each(|target| self.dput(target));
    }

    fn prune(&self, wanted: usize) -> usize {
        let _rcu = epoch::pin();
        let unused = self.isolate(wanted);
        self.kill_all(unused)
    }

    fn select_parent(&self, parent: Dentry) -> usize {
        let mut pruned = 0;
        loop {
            let _rcu = epoch::pin();
            let now = self.kill_all(self.unused_below(parent));
            pruned += now;
            if now == 0 {
                return pruned;
            }
        }
    }

    fn aliases(&self, inode: Inode) -> Vec<Dentry> {
        let _i_lock = self.i_lock(inode);
        let get = |dentry: &Dentry| self.table.is_hashed(*dentry) && self.get_not_dead(*dentry);
        self.table.aliases_of(inode).filter(get).collect()
    }

    fn inode(&self, dentry: Dentry) -> Option<Inode> {
        self.table.inode(dentry)
    }

    fn usage(&self) -> Usage {
        self.table.usage(self.table.lru.len())
    }
}
