//! A chained table as kernels build it: heads, and chains of 64-byte entries, one component after
//! the other.
//!
//! Readers take no lock. Writers serialise on one mutex. Layout: `heads[hash]` → entry number →
//! `next` → …, load at most 1.
//!
//! | field | written under | read by walks |
//! |---|---|---|
//! | `heads`, `next` | `writer` | acquire loads: an entry is complete before it is linked |
//! | the key: `hash` to `name` | `writer`, with `seq` odd | relaxed, between two loads of `seq` |
//! | `renames` | `writer`; odd during a rename | a miss is valid only if it did not change |
//!
//! A reader on an entry that moves to another chain continues in that chain and may miss its name:
//! `renames` shows it, and the walk restarts.

use std::hash::BuildHasher;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64, fence};

use dentree_sync::Mutex;

use super::key::{KeyRef, descend};
use super::{Hasher, NameCache, hasher};
use crate::paths::{Path, Rename};
use crate::tree::{LONGEST_NAME, NodeId, Tree};
use crate::words::padded;

const NAME_WORDS: usize = LONGEST_NAME / 8;
/// End of a chain: the root is in no chain.
const END: u32 = 0;

/// What a lookup reads, in one cache line. An entry's number is that of its node.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Entry {
    next: AtomicU32,
    seq: AtomicU32,
    hash: AtomicU32,
    parent: AtomicU32,
    length: AtomicU32,
    name: [AtomicU64; NAME_WORDS],
}

const _: () = assert!(size_of::<Entry>() == 64);

impl Entry {
    /// Whether the entry has this key, from a consistent view.
    #[inline]
    fn matches(&self, hash: u32, key: KeyRef<'_>) -> bool {
        loop {
            // Acquire: pairs with the release store that ends `write`; the loads below see what it
            // published.
            let before = self.seq.load(Acquire);
            if before % 2 == 1 {
                std::hint::spin_loop();
                continue;
            }
            let same = self.hash.load(Relaxed) == hash
                && self.parent.load(Relaxed) == key.parent.0
                && self.has_name(key.name);
            // Pairs with the release fence in `write`: if a load above saw a value of a later
            // write, the load below sees that write's odd count or a later one.
            fence(Acquire);
            if self.seq.load(Relaxed) == before {
                return same;
            }
        }
    }

    #[inline]
    fn has_name(&self, name: &[u8]) -> bool {
        if self.length.load(Relaxed) as usize != name.len() {
            return false;
        }
        let (words, rest) = name.as_chunks::<8>();
        words.iter().zip(&self.name).all(|(ours, theirs)| u64::from_le_bytes(*ours) == theirs.load(Relaxed))
            && (rest.is_empty() || padded(rest) == self.name[words.len()].load(Relaxed))
    }

    /// Sets the entry's key. The caller holds the writer's lock.
    fn write(&self, hash: u32, key: KeyRef<'_>) {
        let seq = self.seq.load(Relaxed);
        self.seq.store(seq.wrapping_add(1), Relaxed);
        fence(Release); // pairs with the acquire fence in `matches`
        self.hash.store(hash, Relaxed);
        self.parent.store(key.parent.0, Relaxed);
        self.length.store(u32::try_from(key.name.len()).unwrap_or(u32::MAX), Relaxed);
        for (word, bytes) in self.name.iter().zip(key.name.chunks(8)) {
            word.store(padded(bytes), Relaxed);
        }
        self.seq.store(seq.wrapping_add(2), Release);
    }
}

/// Heads and chains.
#[derive(Debug)]
pub struct Chained {
    heads: Box<[AtomicU32]>,
    entries: Box<[Entry]>,
    hasher: Hasher,
    renames: AtomicU32,
    writer: Mutex<()>,
}

impl Chained {
    /// A table of all entries of a tree, with at least as many heads as entries.
    ///
    /// # Panics
    /// If a name is longer than [`LONGEST_NAME`]: entries hold names inline only.
    pub fn build(tree: &Tree) -> Self {
        let heads = tree.len().next_power_of_two();
        let table = Self {
            heads: (0..heads).map(|_| AtomicU32::new(END)).collect(),
            entries: (0..=tree.len()).map(|_| Entry::default()).collect(),
            hasher: hasher(),
            renames: AtomicU32::new(0),
            writer: Mutex::new(()),
        };
        for (node, parent, name) in tree.entries() {
            assert!(
                name.len() <= LONGEST_NAME,
                "the chained table keeps names of at most {LONGEST_NAME} bytes"
            );
            table.link(node, KeyRef { parent, name });
        }
        table
    }

    fn hash(&self, key: KeyRef<'_>) -> u32 {
        (self.hasher.hash_one(key) >> 32) as u32
    }

    fn head(&self, hash: u32) -> &AtomicU32 {
        &self.heads[hash as usize & (self.heads.len() - 1)]
    }

    #[inline]
    fn find(&self, key: KeyRef<'_>) -> Option<NodeId> {
        let hash = self.hash(key);
        // Acquire, here and below: pairs with the release store of the link in `link`.
        let mut at = self.head(hash).load(Acquire);
        while at != END {
            let entry = &self.entries[at as usize];
            if entry.matches(hash, key) {
                return Some(NodeId(at));
            }
            at = entry.next.load(Acquire);
        }
        None
    }

    /// The caller is the only writer.
    fn link(&self, node: NodeId, key: KeyRef<'_>) {
        let hash = self.hash(key);
        let entry = &self.entries[node.index()];
        entry.write(hash, key);
        let head = self.head(hash);
        // Release: pairs with the acquire loads in `find`; a reader that finds the entry sees its
        // key.
        entry.next.store(head.load(Relaxed), Release);
        head.store(node.0, Release);
    }

    /// The caller is the only writer.
    fn unlink(&self, node: NodeId) {
        let entry = &self.entries[node.index()];
        let mut link = self.head(entry.hash.load(Relaxed));
        while link.load(Relaxed) != node.0 {
            link = &self.entries[link.load(Relaxed) as usize].next;
        }
        link.store(entry.next.load(Relaxed), Release);
    }
}

impl NameCache for Chained {
    fn walk(&self, path: Path<'_>) -> Option<u64> {
        loop {
            // Acquire: pairs with the release store that ends a rename; its links are visible.
            let before = self.renames.load(Acquire);
            let found = descend(path, |key| self.find(key));
            // Pairs with the release fence in `rename`, as in `Entry::matches`.
            fence(Acquire);
            if found.is_some() || (before.is_multiple_of(2) && self.renames.load(Relaxed) == before) {
                return found;
            }
        }
    }

    fn rename(&self, rename: &Rename) {
        let _writer = self.writer.lock();
        let count = self.renames.load(Relaxed);
        self.renames.store(count.wrapping_add(1), Relaxed);
        fence(Release); // pairs with the acquire fence in `walk`
        self.unlink(rename.node);
        self.link(rename.node, KeyRef { parent: rename.to_parent, name: rename.to_name() });
        self.renames.store(count.wrapping_add(2), Release);
    }
}
