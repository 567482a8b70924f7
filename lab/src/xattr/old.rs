//! The metadata block cache before 2016, written from the message of the change that replaced it
//! and from its observed behaviour: an entry can be in several indexes, it has its own
//! reader-writer lock, one cache serves several file systems, and one lock guards all lists.
//!
//! # Locking
//! The list lock guards everything: the table by block, the tables by key, the list of unused
//! entries, and the word that is each entry's own lock. The original's spins with preemption off,
//! which a user thread cannot do. Here it is a mutex: a preempted holder does not make the others
//! spin for the rest of their time slices.
//!
//! # An entry's own lock
//! A search by key locks the entry shared; a search by block, which ends every use of the block,
//! locks it exclusively. Readers are counted before they wait, and so precede writers. All waiters,
//! for any entry, sleep in one queue; the release of an entry with waiters wakes all of them.

use dentree_sync::{Condvar, Mutex, MutexGuard};

use super::{BlockCache, Joined, Left, Uses};

const BUCKETS: usize = 1 << 10;
/// The end of a list.
const END: usize = usize::MAX;
/// In the count of holders: an exclusive holder.
const WRITER: u32 = 1 << 16;

/// Neighbours in a list.
#[derive(Clone, Copy)]
struct Links {
    before: usize,
    behind: usize,
}

const UNLINKED: Links = Links { before: END, behind: END };

/// An entry's chain in a table, and its neighbours there.
#[derive(Clone, Copy)]
struct Position {
    bucket: usize,
    links: Links,
}

const UNPLACED: Position = Position { bucket: 0, links: UNLINKED };

#[derive(Clone, Copy)]
struct Index {
    key: usize,
    place: Position,
}

/// Thirteen words with one index, as many as the original's.
#[derive(Clone, Copy)]
pub struct Entry<const INDEXES: usize> {
    unused: Links,
    by_block: Position,
    by_key: [Index; INDEXES],
    device: usize,
    block: u64,
    /// Holders, with readers that wait for a writer; see [`WRITER`].
    holders: u32,
    /// Threads that sleep on this entry.
    queued: u32,
    is_in_tables: bool,
}

/// The list of an entry's links.
#[derive(Clone, Copy)]
enum Chain {
    Unused,
    Block(usize),
    /// A bucket of an index.
    Key(usize, usize),
}

/// The entry waited for is gone: the search restarts.
struct Gone;

/// See the [module](self).
pub struct Old<const INDEXES: usize> {
    lists: Mutex<Lists<INDEXES>>,
    queue: Condvar,
}

type Locked<'a, const INDEXES: usize> = MutexGuard<'a, Lists<INDEXES>>;

struct Lists<const INDEXES: usize> {
    entries: Vec<Entry<INDEXES>>,
    /// Free positions in `entries`.
    free: Vec<usize>,
    /// First entries of the chains.
    blocks: Vec<usize>,
    keys: [Vec<usize>; INDEXES],
    /// Entries without holders, the least recently used first.
    oldest: usize,
    newest: usize,
    most: usize,
    waits: u64,
}

impl<const INDEXES: usize> Old<INDEXES> {
    /// A cache of at most this many entries, not counting held ones.
    pub fn new(most: usize) -> Self {
        let lists = Lists {
            entries: Vec::new(),
            free: Vec::new(),
            blocks: vec![END; BUCKETS],
            keys: std::array::from_fn(|_| vec![END; BUCKETS]),
            oldest: END,
            newest: END,
            most,
            waits: 0,
        };
        Old { lists: Mutex::new(lists), queue: Condvar::new() }
    }

    /// Sleeps on held entries.
    pub fn waits(&self) -> u64 {
        self.lock().waits
    }

    fn lock(&self) -> Locked<'_, INDEXES> {
        self.lists.lock()
    }

    /// Adds a block of a file system under its keys, unless it is present.
    pub fn insert(&self, device: usize, block: u64, keys: [u32; INDEXES]) -> bool {
        let mut lists = self.lock();
        if lists.of_block(device, block).is_some() {
            return false;
        }
        let number = lists.take();
        let by_key = keys.map(|key| Index { key: key as usize, place: UNPLACED });
        let entry = &mut lists.entries[number];
        (entry.device, entry.block, entry.by_key, entry.holders) = (device, block, by_key, WRITER + 1);
        lists.link_in_tables(number);
        drop(lists);
        self.release(number);
        true
    }

    /// The first entry of a file system with this key in an index, or the next after a held one,
    /// which is released. It is held shared.
    fn find(
        &self,
        (index, device, key): (usize, usize, u32),
        after: Option<usize>,
    ) -> Result<Option<(usize, u64)>, Gone> {
        let mut lists = self.lock();
        let mut next = match after {
            Some(number) => lists.entries[number].by_key[index].place.links.behind,
            None => lists.keys[index][bucket_of(0, u64::from(key))],
        };
        while next != END {
            let entry = &lists.entries[next];
            if entry.device == device && entry.by_key[index].key == key as usize {
                break;
            }
            next = entry.by_key[index].place.links.behind;
        }
        if let Some(number) = after {
            self.let_go(&mut lists, number);
        }
        if next == END {
            return Ok(None);
        }
        lists.use_entry(next);
        lists.entries[next].holders += 1;
        while lists.entries[next].holders >= WRITER {
            lists = self.sleep(lists, next);
        }
        if lists.entries[next].is_in_tables {
            return Ok(Some((next, lists.entries[next].block)));
        }
        self.let_go(&mut lists, next);
        Err(Gone)
    }

    /// The entry of a block, held exclusively.
    fn get(&self, device: usize, block: u64) -> Option<usize> {
        let mut lists = self.lock();
        loop {
            let number = lists.of_block(device, block)?;
            lists.use_entry(number);
            while lists.entries[number].holders > 0 {
                lists = self.sleep(lists, number);
            }
            lists.entries[number].holders = WRITER + 1;
            if lists.entries[number].is_in_tables {
                return Some(number);
            }
            self.let_go(&mut lists, number);
        }
    }

    /// Releases an entry that is held, shared or exclusively.
    fn release(&self, number: usize) {
        self.let_go(&mut self.lock(), number);
    }

    /// Takes an entry that is held exclusively out of all tables, and releases it.
    fn free(&self, number: usize) {
        let mut lists = self.lock();
        lists.unlink_from_tables(number);
        self.let_go(&mut lists, number);
    }

    fn let_go(&self, lists: &mut Lists<INDEXES>, number: usize) {
        let entry = &mut lists.entries[number];
        entry.holders -= if entry.holders >= WRITER { WRITER + 1 } else { 1 };
        if entry.queued > 0 {
            self.queue.notify_all();
        } else if entry.holders == 0 {
            match entry.is_in_tables {
                true => lists.append_unused(number),
                false => lists.free.push(number),
            }
        }
    }

    /// Sleeps in the one queue, counted for an entry.
    fn sleep<'a>(&self, mut lists: Locked<'a, INDEXES>, number: usize) -> Locked<'a, INDEXES> {
        lists.waits += 1;
        lists.entries[number].queued += 1;
        let mut lists = self.queue.wait(lists);
        lists.entries[number].queued -= 1;
        lists
    }
}

impl<const INDEXES: usize> Lists<INDEXES> {
    fn of_block(&self, device: usize, block: u64) -> Option<usize> {
        let mut number = self.blocks[bucket_of(device, block)];
        while number != END {
            let entry = &self.entries[number];
            if (entry.device, entry.block) == (device, block) {
                return Some(number);
            }
            number = entry.by_block.links.behind;
        }
        None
    }

    /// A position for an entry: the least recently used one's if the cache is full.
    fn take(&mut self) -> usize {
        let oldest = self.oldest;
        if self.entries.len() - self.free.len() >= self.most && oldest != END {
            self.use_entry(oldest);
            self.unlink_from_tables(oldest);
            return oldest;
        }
        self.free.pop().unwrap_or_else(|| {
            self.entries.push(Entry {
                unused: UNLINKED,
                by_block: UNPLACED,
                by_key: [Index { key: 0, place: UNPLACED }; INDEXES],
                device: 0,
                block: 0,
                holders: 0,
                queued: 0,
                is_in_tables: false,
            });
            self.entries.len() - 1
        })
    }

    /// Before an entry is held: takes it off the unused list if it is on it.
    fn use_entry(&mut self, number: usize) {
        let entry = &self.entries[number];
        if entry.is_in_tables && entry.holders == 0 && entry.queued == 0 {
            self.unlink(Chain::Unused, number);
        }
    }

    fn append_unused(&mut self, number: usize) {
        self.entries[number].unused = Links { before: self.newest, behind: END };
        match self.newest {
            END => self.oldest = number,
            newest => self.entries[newest].unused.behind = number,
        }
        self.newest = number;
    }

    fn link_in_tables(&mut self, number: usize) {
        let Entry { device, block, by_key, .. } = self.entries[number];
        self.link(Chain::Block(bucket_of(device, block)), number);
        for (index, indexed) in by_key.iter().enumerate() {
            self.link(Chain::Key(index, bucket_of(0, indexed.key as u64)), number);
        }
        self.entries[number].is_in_tables = true;
    }

    fn unlink_from_tables(&mut self, number: usize) {
        let Entry { by_block, by_key, .. } = self.entries[number];
        self.unlink(Chain::Block(by_block.bucket), number);
        for (index, indexed) in by_key.iter().enumerate() {
            self.unlink(Chain::Key(index, indexed.place.bucket), number);
        }
        self.entries[number].is_in_tables = false;
    }

    /// Adds an entry at the front of a chain.
    fn link(&mut self, chain: Chain, number: usize) {
        let first = std::mem::replace(self.first(chain), number);
        *self.links(chain, number) = Links { before: END, behind: first };
        if first != END {
            self.links(chain, first).before = number;
        }
        let entry = &mut self.entries[number];
        match chain {
            Chain::Unused => {}
            Chain::Block(bucket) => entry.by_block.bucket = bucket,
            Chain::Key(index, bucket) => entry.by_key[index].place.bucket = bucket,
        }
    }

    fn unlink(&mut self, chain: Chain, number: usize) {
        let Links { before, behind } = *self.links(chain, number);
        match before {
            END => *self.first(chain) = behind,
            before => self.links(chain, before).behind = behind,
        }
        match (behind, chain) {
            (END, Chain::Unused) => self.newest = before,
            (END, _) => {}
            (behind, _) => self.links(chain, behind).before = before,
        }
    }

    fn first(&mut self, chain: Chain) -> &mut usize {
        match chain {
            Chain::Unused => &mut self.oldest,
            Chain::Block(bucket) => &mut self.blocks[bucket],
            Chain::Key(index, bucket) => &mut self.keys[index][bucket],
        }
    }

    fn links(&mut self, chain: Chain, number: usize) -> &mut Links {
        let entry = &mut self.entries[number];
        match chain {
            Chain::Unused => &mut entry.unused,
            Chain::Block(_) => &mut entry.by_block.links,
            Chain::Key(index, _) => &mut entry.by_key[index].place.links,
        }
    }
}

fn bucket_of(device: usize, number: u64) -> usize {
    (((number ^ device as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)) >> 54) as usize
}

/// The benchmark's one file system.
const DEVICE: usize = 1;

impl BlockCache for Old<1> {
    fn share(&self, key: u32, join: &dyn Fn(u64) -> Joined) -> Option<u64> {
        let mut held = None;
        loop {
            match self.find((0, DEVICE, key), held) {
                Ok(Some((number, block))) => {
                    if join(block) != Joined::No {
                        self.release(number);
                        return Some(block);
                    }
                    held = Some(number);
                }
                Ok(None) => return None,
                Err(Gone) => held = None,
            }
        }
    }

    fn insert(&self, key: u32, block: u64) {
        Old::insert(self, DEVICE, block, [key]);
    }

    fn leave(&self, _: u32, block: u64, uses: &dyn Uses) -> bool {
        let entry = self.get(DEVICE, block);
        let is_last = uses.one_less() == Left::Alone && uses.end();
        match entry {
            Some(number) if is_last => self.free(number),
            Some(number) => self.release(number),
            None => {}
        }
        is_last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_thirteen_words() {
        assert_eq!(size_of::<Entry<1>>(), 13 * 8);
    }

    #[test]
    fn an_entry_is_found_in_each_index_of_its_own_file_system_alone() {
        let cache: Old<2> = Old::new(10);
        assert!(cache.insert(1, 70, [3, 4]) && cache.insert(2, 70, [3, 5]) && cache.insert(1, 71, [3, 4]));
        assert!(!cache.insert(1, 70, [6, 6]));
        let all = |what| {
            let mut blocks = Vec::new();
            let mut held = None;
            while let Ok(Some((number, block))) = cache.find(what, held) {
                blocks.push(block);
                held = Some(number);
            }
            blocks
        };
        assert_eq!(all((0, 1, 3)), [71, 70]);
        assert_eq!(all((1, 1, 4)), [71, 70]);
        assert_eq!((all((0, 2, 3)), all((1, 2, 4)), all((1, 1, 5))), (vec![70], vec![], vec![]));
        cache.free(cache.get(1, 71).unwrap());
        assert_eq!((all((0, 1, 3)), all((1, 1, 4))), (vec![70], vec![70]));
    }

    #[test]
    fn the_longest_unused_goes_where_there_are_too_many_and_none_that_is_held() {
        let cache: Old<1> = Old::new(3);
        (0..3).for_each(|block| assert!(cache.insert(1, block, [9])));
        let held = cache.get(1, 0).unwrap();
        assert!(cache.insert(1, 3, [9]));
        assert_eq!(cache.get(1, 1), None);
        cache.release(held);
        for block in [0, 2, 3] {
            cache.release(cache.get(1, block).unwrap());
        }
    }
}
