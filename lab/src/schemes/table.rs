//! What all schemes share: an arena of entries, hash chains, lists, counts. Callers lock.
//!
//! | field | contents | readers without a lock |
//! |---|---|---|
//! | `heads`, `chain.node` | hash chains | yes: linked when complete, `next` stays when unlinked |
//! | `key`, `name`, `long` | the name; set by `set_key` | yes: they retry by a count or lock |
//! | `written.count` | references, one per child among them | yes: read-modify-writes only |
//! | `written.children`, `sibling` | the tree | no |
//! | `aliases`, `written.alias` | entries by inode | no |
//! | `lru`, `written.lru` | unused entries, the latest first | no |
//! | `slab` | free numbers; a lock of its own, taken last | - |

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, OnceLock};

use crossbeam_epoch as epoch;
use dentree_lockmeter::{Class, SpinLock};

use super::entry::{COUNT, DEAD, Dentry, ENTRIES_MAX, HASHED, Layout, Link, ON_LRU, REFERENCED, UNLINKED};
use super::{Config, Inode, NAME_MAX, Usage, interleave};
use crate::words::words;

/// The name that a lookup wants.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    pub(super) parent: Dentry,
    pub(super) name: &'a [u8],
    pub(super) hash: u32,
}

impl<'a> Wanted<'a> {
    /// Hashes the parent's number and the name, as `d_hash`.
    #[inline]
    pub(super) fn new(parent: Dentry, name: &'a [u8]) -> Self {
        const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut hash = (u64::from(parent.0) + 1).wrapping_mul(FACTOR);
        for word in words(name) {
            hash = (hash.rotate_left(23) ^ word).wrapping_mul(FACTOR);
            hash ^= hash >> 32;
        }
        Self { parent, name, hash: (hash ^ name.len() as u64) as u32 }
    }
}

/// A list of entries through their `lru` nodes, the latest first.
#[derive(Debug, Default)]
pub(super) struct Lru {
    first: Link,
    last: Link,
    len: AtomicUsize,
}

impl Lru {
    pub(super) fn len(&self) -> usize {
        self.len.load(Relaxed)
    }

    /// The entry that was added first.
    pub(super) fn last(&self) -> Option<Dentry> {
        self.last.get()
    }
}

/// See the module.
#[derive(Debug)]
pub struct Table<L> {
    pub(super) layout: L,
    heads: Box<[Link]>,
    aliases: Box<[Link]>,
    pub(super) lru: Lru,
    long: LongNames,
    slab: SpinLock<Slab>,
    prefetch: bool,
}

/// Free entry numbers.
#[derive(Debug)]
struct Slab {
    returned: Vec<Dentry>,
    fresh: u32, // never used, from here on
    end: u32,
}

impl<L: Layout> Table<L> {
    /// A table with the root in it, which is referenced and has inode 1.
    pub(super) fn new(config: Config) -> Arc<Self> {
        let entries = config.entries.clamp(1, ENTRIES_MAX);
        let links = |count: usize| std::iter::repeat_with(Link::default).take(count).collect();
        let table = Self {
            layout: L::new(entries),
            heads: links(config.heads.max(1).next_power_of_two()),
            aliases: links(entries.next_power_of_two()),
            lru: Lru::default(),
            long: LongNames::new(entries),
            slab: SpinLock::new(
                Class::named("slab"),
                Slab { returned: Vec::new(), fresh: 1, end: u32::try_from(entries).unwrap_or(u32::MAX) },
            ),
            prefetch: config.prefetch,
        };
        let root = table.layout.written(Dentry::ROOT);
        root.count.store(1, Relaxed);
        root.inode.store(1, Relaxed);
        Arc::new(table)
    }

    pub(super) fn usage(&self, on_lru: usize) -> Usage {
        let slab = self.slab.lock();
        Usage { entries: slab.fresh as usize - slab.returned.len(), on_lru, entry_bytes: L::BYTES }
    }

    // ---- entries

    /// A new entry with one reference, on no list.
    ///
    /// # Panics
    /// If the name is longer than [`NAME_MAX`].
    pub(super) fn alloc(&self, wanted: &Wanted<'_>) -> Option<Dentry> {
        assert!(wanted.name.len() <= NAME_MAX, "a name of {} bytes", wanted.name.len());
        let dentry = {
            let mut slab = self.slab.lock();
            let fresh = slab.fresh;
            match slab.returned.pop() {
                Some(dentry) => dentry,
                None if fresh < slab.end => {
                    slab.fresh += 1;
                    Dentry(fresh)
                }
                None => return None,
            }
        };
        let written = self.layout.written(dentry);
        written.count.store(1, Relaxed);
        written.flags.store(0, Relaxed);
        written.inode.store(0, Relaxed);
        written.children.set(None);
        self.layout.key(dentry).state.store(0, Relaxed);
        self.set_key(dentry, wanted);
        Some(dentry)
    }

    /// Frees an entry that is on no list and that no reader can reach.
    pub(super) fn release(&self, dentry: Dentry) {
        self.drop_long_name(dentry);
        self.slab.lock().returned.push(dentry);
    }

    /// `call_rcu`: frees an entry that is on no list when its readers have ended.
    pub(super) fn release_after_grace(self: &Arc<Self>, dentry: Dentry) {
        let table = Arc::clone(self);
        epoch::pin().defer(move || table.release(dentry));
    }

    /// Sets the entry's name. A sequence count or `d_lock` must warn readers without a lock.
    pub(super) fn set_key(&self, dentry: Dentry, wanted: &Wanted<'_>) {
        self.drop_long_name(dentry);
        let key = self.layout.key(dentry);
        key.hash.store(wanted.hash, Relaxed);
        interleave::here();
        key.parent.set(Some(wanted.parent));
        interleave::here();
        key.length.store(wanted.name.len() as u32, Relaxed);
        let inline = self.layout.name(dentry);
        if wanted.name.len() <= 8 * inline.len() {
            write_words(inline, wanted.name);
        } else {
            inline[0].store(self.long.store(wanted.name), Relaxed);
        }
    }

    fn drop_long_name(&self, dentry: Dentry) {
        let length = self.layout.key(dentry).length.swap(0, Relaxed) as usize;
        let inline = self.layout.name(dentry);
        if length > 8 * inline.len() {
            self.long.release(inline[0].load(Relaxed));
        }
    }

    /// Whether the entry has this name. Without a lock the result is a hint.
    #[inline]
    pub(super) fn matches(&self, dentry: Dentry, wanted: &Wanted<'_>) -> bool {
        let key = self.layout.key(dentry);
        if key.hash.load(Relaxed) != wanted.hash
            || key.parent.get() != Some(wanted.parent)
            || key.length.load(Relaxed) as usize != wanted.name.len()
        {
            return false;
        }
        interleave::here();
        let inline = self.layout.name(dentry);
        if wanted.name.len() <= 8 * inline.len() {
            same_words(inline, wanted.name)
        } else {
            self.long.is(inline[0].load(Relaxed), wanted.name)
        }
    }

    /// The entry's parent; the root is its own.
    pub(super) fn parent(&self, dentry: Dentry) -> Dentry {
        self.layout.key(dentry).parent.get().unwrap_or(Dentry::ROOT)
    }

    pub(super) fn hash(&self, dentry: Dentry) -> u32 {
        let hash = self.layout.key(dentry).hash.load(Acquire);
        interleave::here();
        hash
    }

    pub(super) fn inode(&self, dentry: Dentry) -> Option<Inode> {
        std::num::NonZeroU64::new(self.layout.written(dentry).inode.load(Acquire)).map(Inode)
    }

    // ---- counts

    pub(super) fn count(&self, dentry: Dentry) -> u32 {
        let count = self.layout.written(dentry).count.load(Acquire) & COUNT;
        interleave::here();
        count
    }

    /// Takes a reference at any count. The caller holds one, or the lock under which counts leave
    /// zero.
    pub(super) fn get(&self, dentry: Dentry) {
        self.layout.written(dentry).count.fetch_add(1, Relaxed);
        interleave::here();
    }

    /// Takes a reference unless the count is zero, when nothing keeps the entry.
    pub(super) fn get_unless_zero(&self, dentry: Dentry) -> bool {
        interleave::here();
        let count = &self.layout.written(dentry).count;
        count
            .try_update(AcqRel, Relaxed, |word| (word & COUNT != 0 && word & DEAD == 0).then_some(word + 1))
            .is_ok()
    }

    /// Drops a reference unless it is the last. Release: the thread that drops the last one sees
    /// what was done under this one.
    pub(super) fn put_unless_last(&self, dentry: Dentry) -> bool {
        interleave::here();
        let count = &self.layout.written(dentry).count;
        count.try_update(Release, Relaxed, |word| (word & COUNT > 1).then(|| word - 1)).is_ok()
    }

    /// Drops a reference; returns whether it was the last.
    pub(super) fn put(&self, dentry: Dentry) -> bool {
        interleave::here();
        self.layout.written(dentry).count.fetch_sub(1, AcqRel) & COUNT == 1
    }

    // ---- flags

    pub(super) fn has(&self, dentry: Dentry, flag: u32) -> bool {
        self.layout.written(dentry).flags.load(Relaxed) & flag != 0
    }

    fn raise(&self, dentry: Dentry, flag: u32) {
        self.layout.written(dentry).flags.fetch_or(flag, Relaxed);
    }

    fn lower(&self, dentry: Dentry, flag: u32) {
        self.layout.written(dentry).flags.fetch_and(!flag, Relaxed);
    }

    /// Sets the flag of entries that were looked up, if it is clear.
    #[inline]
    pub(super) fn set_referenced(&self, dentry: Dentry) {
        if !self.has(dentry, REFERENCED) {
            self.raise(dentry, REFERENCED);
        }
    }

    /// Clears the flag; returns whether it was set.
    pub(super) fn take_referenced(&self, dentry: Dentry) -> bool {
        let noted = self.has(dentry, REFERENCED);
        if noted {
            self.lower(dentry, REFERENCED);
        }
        noted
    }

    // ---- hash chains

    pub(super) fn heads(&self) -> usize {
        self.heads.len()
    }

    /// The number of a hash's chain.
    pub(super) fn bucket(&self, hash: u32) -> usize {
        hash as usize & (self.heads.len() - 1)
    }

    pub(super) fn head(&self, hash: u32) -> &Link {
        &self.heads[self.bucket(hash)]
    }

    pub(super) fn is_hashed(&self, dentry: Dentry) -> bool {
        interleave::here();
        self.layout.key(dentry).state.load(Acquire) & HASHED != 0
    }

    /// The entry of this name.
    #[inline]
    pub(super) fn find(&self, wanted: &Wanted<'_>) -> Option<Dentry> {
        self.find_by(
            wanted,
            |dentry| self.layout.chain(dentry).node.next.get(),
            |dentry| self.matches(dentry, wanted),
        )
    }

    /// The first entry of the chain for which `is` holds; `next` follows the chain.
    #[inline]
    pub(super) fn find_by(
        &self,
        wanted: &Wanted<'_>,
        next: impl Fn(Dentry) -> Option<Dentry>,
        is: impl Fn(Dentry) -> bool,
    ) -> Option<Dentry> {
        let mut at = self.head(wanted.hash).get();
        while let Some(dentry) = at {
            interleave::here();
            at = next(dentry);
            if let (true, Some(ahead)) = (self.prefetch, at) {
                self.layout.prefetch(ahead);
            }
            if is(dentry) {
                return Some(dentry);
            }
        }
        None
    }

    /// Adds the entry at the head of its chain.
    pub(super) fn rehash(&self, dentry: Dentry) {
        let head = self.head(self.hash(dentry));
        let chain = self.layout.chain(dentry);
        let first = head.get();
        chain.node.next.set(first);
        interleave::here();
        chain.node.prev.set(None);
        self.layout.key(dentry).state.store(HASHED, Release);
        if let Some(first) = first {
            self.layout.chain(first).node.prev.set(Some(dentry));
        }
        head.set(Some(dentry));
    }

    /// `list_del`: removes the entry from its chain, if it is in one. Its `next` stays for readers
    /// on it.
    pub(super) fn unhash(&self, dentry: Dentry) {
        let state = &self.layout.key(dentry).state;
        if state.load(Relaxed) & HASHED == 0 {
            return;
        }
        state.store(0, Release);
        interleave::here();
        let node = &self.layout.chain(dentry).node;
        let (next, prev) = (node.next.get(), node.prev.get());
        match prev {
            Some(prev) => self.layout.chain(prev).node.next.set(next),
            None => self.head(self.hash(dentry)).set(next),
        }
        if let Some(next) = next {
            self.layout.chain(next).node.prev.set(prev);
        }
    }

    /// `list_del_init` as in `dcache_rcu`: clears `next`. The entry is marked and its `next` saved
    /// before.
    pub(super) fn unhash_saving_next(&self, dentry: Dentry) {
        let chain = self.layout.chain(dentry);
        if !self.is_hashed(dentry) {
            return;
        }
        chain.saved_next.set(chain.node.next.get());
        self.unhash(dentry);
        // Both release: partners of the acquire loads in `next_or_saved`. A reader that sees `next`
        // cleared sees the mark, and with the mark the saved link; a reader that sees the old
        // `next` needs neither.
        self.layout.key(dentry).state.store(UNLINKED, Release);
        chain.node.next.set(None);
    }

    /// Marks the entry as having a name, for an index other than the chains.
    pub(super) fn mark_hashed(&self, dentry: Dentry) {
        self.layout.key(dentry).state.store(HASHED, Release);
    }

    /// Marks the entry as having no name; returns whether it had one.
    pub(super) fn mark_unhashed(&self, dentry: Dentry) -> bool {
        self.layout.key(dentry).state.swap(0, AcqRel) & HASHED != 0
    }

    /// The entry's name. The caller holds the lock under which names change.
    pub(super) fn name(&self, dentry: Dentry) -> Vec<u8> {
        let length = self.layout.key(dentry).length.load(Relaxed) as usize;
        let inline = self.layout.name(dentry);
        let words: &[AtomicU64] =
            if length <= 8 * inline.len() { inline } else { self.long.block(inline[0].load(Relaxed)) };
        let bytes = words.iter().flat_map(|word| word.load(Relaxed).to_le_bytes());
        bytes.take(length).collect()
    }

    /// The next entry of the chain, for a reader that may be on an unlinked entry.
    #[inline]
    pub(super) fn next_or_saved(&self, dentry: Dentry) -> Option<Dentry> {
        let chain = self.layout.chain(dentry);
        let next = chain.node.next.get();
        if self.layout.key(dentry).state.load(Acquire) & UNLINKED != 0 {
            chain.saved_next.get()
        } else {
            next
        }
    }

    // ---- the tree

    pub(super) fn add_child(&self, dentry: Dentry) {
        let first = &self.layout.written(self.parent(dentry)).children;
        let sibling = &self.layout.written(dentry).sibling;
        sibling.prev.set(None);
        interleave::here();
        sibling.next.set(first.get());
        if let Some(first) = first.get() {
            self.layout.written(first).sibling.prev.set(Some(dentry));
        }
        first.set(Some(dentry));
    }

    pub(super) fn remove_child(&self, dentry: Dentry) {
        let sibling = &self.layout.written(dentry).sibling;
        interleave::here();
        let (next, prev) = (sibling.next.get(), sibling.prev.get());
        match prev {
            Some(prev) => self.layout.written(prev).sibling.next.set(next),
            None => self.layout.written(self.parent(dentry)).children.set(next),
        }
        if let Some(next) = next {
            self.layout.written(next).sibling.prev.set(prev);
        }
    }

    pub(super) fn children(&self, dentry: Dentry) -> impl Iterator<Item = Dentry> {
        let first = self.layout.written(dentry).children.get();
        std::iter::successors(first, |child| self.layout.written(*child).sibling.next.get())
    }

    /// Everything below an entry, parents before children, without recursion: down, along, and up
    /// by the parent links.
    pub(super) fn below(&self, top: Dentry) -> impl Iterator<Item = Dentry> {
        let written = |dentry| self.layout.written(dentry);
        let mut at = written(top).children.get();
        std::iter::from_fn(move || {
            let found = at?;
            let mut up = Some(found);
            at = written(found).children.get();
            while let (None, Some(dentry)) = (at, up) {
                at = written(dentry).sibling.next.get();
                up = Some(self.parent(dentry)).filter(|parent| *parent != top);
            }
            Some(found)
        })
    }

    // ---- aliases

    pub(super) fn alias_bucket(&self, inode: Inode) -> usize {
        let spread = inode.0.get().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        spread as usize & (self.aliases.len() - 1)
    }

    /// Gives the entry an inode.
    pub(super) fn add_alias(&self, dentry: Dentry, inode: Inode) {
        let head = &self.aliases[self.alias_bucket(inode)];
        let written = self.layout.written(dentry);
        written.inode.store(inode.0.get(), Release);
        written.alias.prev.set(None);
        written.alias.next.set(head.get());
        if let Some(first) = head.get() {
            self.layout.written(first).alias.prev.set(Some(dentry));
        }
        head.set(Some(dentry));
    }

    /// Makes the entry negative.
    pub(super) fn remove_alias(&self, dentry: Dentry) {
        let Some(inode) = self.inode(dentry) else { return };
        let written = self.layout.written(dentry);
        let (next, prev) = (written.alias.next.get(), written.alias.prev.get());
        match prev {
            Some(prev) => self.layout.written(prev).alias.next.set(next),
            None => self.aliases[self.alias_bucket(inode)].set(next),
        }
        if let Some(next) = next {
            self.layout.written(next).alias.prev.set(prev);
        }
        written.inode.store(0, Release);
    }

    /// The entries of an inode.
    pub(super) fn aliases_of(&self, inode: Inode) -> impl Iterator<Item = Dentry> {
        let first = self.aliases[self.alias_bucket(inode)].get();
        std::iter::successors(first, |dentry| self.layout.written(*dentry).alias.next.get())
            .filter(move |dentry| self.inode(*dentry) == Some(inode))
    }

    // ---- LRU lists

    /// Adds the entry as the latest, unless it is on a list.
    pub(super) fn lru_add(&self, lru: &Lru, dentry: Dentry) {
        if self.has(dentry, ON_LRU) {
            return;
        }
        interleave::here();
        let node = &self.layout.written(dentry).lru;
        node.prev.set(None);
        node.next.set(lru.first.get());
        match lru.first.get() {
            Some(first) => self.layout.written(first).lru.prev.set(Some(dentry)),
            None => lru.last.set(Some(dentry)),
        }
        lru.first.set(Some(dentry));
        self.lru_counts(lru, dentry, 1);
    }

    /// Adds the entry as the next to be pruned, unless it is on a list.
    pub(super) fn lru_add_last(&self, lru: &Lru, dentry: Dentry) {
        if self.has(dentry, ON_LRU) {
            return;
        }
        let node = &self.layout.written(dentry).lru;
        node.next.set(None);
        node.prev.set(lru.last.get());
        match lru.last.get() {
            Some(last) => self.layout.written(last).lru.next.set(Some(dentry)),
            None => lru.first.set(Some(dentry)),
        }
        lru.last.set(Some(dentry));
        self.lru_counts(lru, dentry, 1);
    }

    /// Removes the entry from the list, if it is on it.
    pub(super) fn lru_remove(&self, lru: &Lru, dentry: Dentry) {
        if !self.has(dentry, ON_LRU) {
            return;
        }
        interleave::here();
        let node = &self.layout.written(dentry).lru;
        let (next, prev) = (node.next.get(), node.prev.get());
        match prev {
            Some(prev) => self.layout.written(prev).lru.next.set(next),
            None => lru.first.set(next),
        }
        match next {
            Some(next) => self.layout.written(next).lru.prev.set(prev),
            None => lru.last.set(prev),
        }
        self.lru_counts(lru, dentry, 0);
    }

    /// The list, the latest first.
    pub(super) fn lru_entries(&self, lru: &Lru) -> impl Iterator<Item = Dentry> {
        std::iter::successors(lru.first.get(), |dentry| self.layout.written(*dentry).lru.next.get())
    }

    fn lru_counts(&self, lru: &Lru, dentry: Dentry, on: usize) {
        let len = lru.len.load(Relaxed);
        if on == 1 {
            self.raise(dentry, ON_LRU);
            lru.len.store(len + 1, Relaxed);
        } else {
            self.lower(dentry, ON_LRU);
            lru.len.store(len.saturating_sub(1), Relaxed);
        }
    }
}

fn write_words(to: &[AtomicU64], name: &[u8]) {
    to.iter().zip(words(name)).for_each(|(to, word)| to.store(word, Relaxed));
}

#[inline]
fn same_words(ours: &[AtomicU64], name: &[u8]) -> bool {
    ours.iter().zip(words(name)).all(|(ours, word)| ours.load(Relaxed) == word)
}

/// Names that are too long for their entries, in blocks that are reused but never freed.
#[derive(Debug)]
struct LongNames {
    chunks: Box<[OnceLock<Box<[LongName]>>]>,
    free: SpinLock<(Vec<u64>, u64)>, // returned blocks, and the first that was never used
}

type LongName = [AtomicU64; NAME_MAX.div_ceil(8)];

const CHUNK: usize = 256;

impl LongNames {
    fn new(entries: usize) -> Self {
        // Renames hold two blocks for a moment: a few more than entries.
        let chunks = entries.div_ceil(CHUNK) + 4;
        Self {
            chunks: std::iter::repeat_with(OnceLock::new).take(chunks).collect(),
            free: SpinLock::new(Class::named("long names"), (Vec::new(), 0)),
        }
    }

    fn block(&self, number: u64) -> &LongName {
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        let chunk = self.chunks[number / CHUNK].get_or_init(|| {
            std::iter::repeat_with(|| std::array::from_fn(|_| AtomicU64::new(0))).take(CHUNK).collect()
        });
        &chunk[number % CHUNK]
    }

    fn store(&self, name: &[u8]) -> u64 {
        let number = {
            let mut free = self.free.lock();
            free.0.pop().unwrap_or_else(|| {
                free.1 += 1;
                free.1 - 1
            })
        };
        write_words(self.block(number), name);
        number
    }

    fn release(&self, number: u64) {
        self.free.lock().0.push(number);
    }

    /// A reader without a lock may pass a number that is no block: part of a short name.
    fn is(&self, number: u64, name: &[u8]) -> bool {
        number < (self.chunks.len() * CHUNK) as u64 && same_words(self.block(number), name)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Standard;
    use super::*;

    fn table(entries: usize, heads: usize) -> Arc<Table<Standard>> {
        Table::new(Config { entries, heads, prefetch: true })
    }

    #[test]
    fn names_spread_over_the_chains() {
        let table = table(1, 4096);
        let mut lengths = vec![0; table.heads()];
        for parent in 0..64 {
            for number in 0..64 {
                let name = format!("file{number:03}.c");
                lengths[table.bucket(Wanted::new(Dentry(parent), name.as_bytes()).hash)] += 1;
            }
        }
        let longest = lengths.iter().max();
        assert!(
            longest <= Some(&8),
            "4096 names on 4096 chains, {longest:?} on one; 6 to 8 is what chance does"
        );
    }

    #[test]
    fn names_of_every_length_are_distinguished() {
        let table = table(300, 1);
        let text = [b'x'; NAME_MAX];
        let entries: Vec<_> = (1..=NAME_MAX)
            .map(|length| {
                let wanted = Wanted::new(Dentry::ROOT, &text[..length]);
                let dentry = table.alloc(&wanted).expect("room");
                table.rehash(dentry);
                dentry
            })
            .collect();
        for (index, dentry) in entries.iter().enumerate() {
            assert_eq!(table.find(&Wanted::new(Dentry::ROOT, &text[..=index])), Some(*dentry));
        }
        let mut other = text;
        other[NAME_MAX - 1] = b'y';
        assert_eq!(table.find(&Wanted::new(Dentry::ROOT, &other)), None);
    }

    #[test]
    fn a_reader_on_an_unlinked_entry_finds_the_rest_of_the_chain() {
        let table = table(8, 1);
        let add = |name: &[u8]| {
            let dentry = table.alloc(&Wanted::new(Dentry::ROOT, name)).expect("room");
            table.rehash(dentry);
            dentry
        };
        let (last, middle, first) = (add(b"last"), add(b"middle"), add(b"first"));
        table.unhash_saving_next(middle);
        assert_eq!(table.next_or_saved(middle), Some(last));
        assert_eq!(table.layout.chain(middle).node.next.get(), None);
        assert_eq!(table.next_or_saved(first), Some(last));
        table.rehash(middle);
        assert_eq!(table.next_or_saved(middle), Some(first));
    }

    #[test]
    fn everything_below_a_directory_is_visited_once_parents_first() {
        let table = table(16, 4);
        let add = |parent: Dentry, name: &[u8]| {
            let dentry = table.alloc(&Wanted::new(parent, name)).expect("room");
            table.add_child(dentry);
            dentry
        };
        let a = add(Dentry::ROOT, b"a");
        let (b, c) = (add(a, b"b"), add(a, b"c"));
        let (d, e) = (add(c, b"d"), add(Dentry::ROOT, b"e"));
        assert_eq!(table.below(Dentry::ROOT).collect::<Vec<_>>(), [e, a, c, d, b]);
        assert_eq!(table.below(a).collect::<Vec<_>>(), [c, d, b]);
        assert_eq!(table.below(e).count(), 0);
    }
}
