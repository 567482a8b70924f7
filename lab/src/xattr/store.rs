//! Blocks of attributes in memory, shared through a cache: a file system's use of the cache, and
//! nothing else.

use super::bench::{Cell, Setter};
use super::{BlockCache, Joined, Left, Uses};
use dentree_mbcache::{MbCache, Users};
use dentree_sync::Mutex;
use std::convert::Infallible;
use std::sync::atomic::{AtomicU32, Ordering};

/// The most users of a block, as in ext4.
const USERS_MAX: u32 = 1024;
/// The file has no block.
const NONE: u32 = u32::MAX;

/// Blocks in memory, shared through a cache.
pub struct Store<C> {
    cache: C,
    /// Each has its own lock, as a file system's buffers do.
    blocks: Vec<Mutex<Block>>,
    free: Mutex<Vec<u32>>,
    /// The block of each file, by client. A client accesses its own files only.
    files: Vec<Vec<AtomicU32>>,
}

/// Free with 0 users.
#[derive(Clone, Copy, Default)]
struct Block {
    value: u64,
    users: u32,
}

/// One use of a block.
struct Use<'a>(&'a Mutex<Block>);

impl<C: BlockCache> Store<C> {
    /// A store for one cell, without attributes.
    pub fn new(cell: &Cell, cache: C) -> Self {
        let most = cell.clients * (cell.files + 1);
        let files = || (0..cell.files).map(|_| AtomicU32::new(NONE)).collect();
        Store {
            cache,
            blocks: (0..most).map(|_| Mutex::default()).collect(),
            free: Mutex::new((0..most as u32).collect()),
            files: (0..cell.clients).map(|_| files()).collect(),
        }
    }

    /// The cache that the blocks are shared through.
    pub fn cache(&self) -> &C {
        &self.cache
    }

    /// Becomes a user of a block that has this value, space, and users.
    fn join(&self, block: u64, value: u64) -> Joined {
        let mut block = self.blocks[block as usize].lock();
        if block.value != value || !(1..USERS_MAX).contains(&block.users) {
            return Joined::No;
        }
        block.users += 1;
        if block.users < USERS_MAX { Joined::WithRoom } else { Joined::Last }
    }

    /// Whether each block counts as many users as files refer to it, and not too many.
    pub fn is_sound(&self) -> bool {
        let mut users = vec![0; self.blocks.len()];
        for block in self.files.iter().flatten().map(|file| file.load(Ordering::Relaxed)) {
            if block != NONE {
                users[block as usize] += 1;
            }
        }
        let counted = |block: &Mutex<Block>| block.lock().users;
        users.iter().zip(&self.blocks).all(|(users, block)| counted(block) == *users && *users <= USERS_MAX)
    }
}

impl<C: BlockCache> Setter for Store<C> {
    fn set(&self, client: usize, file: usize, value: usize) {
        let (file, value) = (&self.files[client][file], value as u64);
        let old = file.load(Ordering::Relaxed);
        let has = (old != NONE).then(|| self.blocks[old as usize].lock().value);
        if has == Some(value) {
            return;
        }
        let key = key_of(value);
        let new = self.cache.share(key, &|block| self.join(block, value));
        let new = new.map(|block| block as u32).unwrap_or_else(|| {
            let block =
                self.free.lock().pop().expect("there is a block for each file and one for each client");
            *self.blocks[block as usize].lock() = Block { value, users: 1 };
            self.cache.insert(key, u64::from(block));
            block
        });
        file.store(new, Ordering::Relaxed);
        if let Some(has) = has
            && self.cache.leave(key_of(has), u64::from(old), &Use(&self.blocks[old as usize]))
        {
            self.free.lock().push(old);
        }
    }
}

impl Uses for Use<'_> {
    fn one_less(&self) -> Left {
        let mut block = self.0.lock();
        let users = block.users;
        block.users -= u32::from(users > 1);
        match users {
            0 | 1 => Left::Alone,
            USERS_MAX => Left::Full,
            _ => Left::Others,
        }
    }

    fn end(&self) -> bool {
        let mut block = self.0.lock();
        let alone = block.users == 1;
        block.users -= u32::from(alone);
        alone
    }
}

impl BlockCache for MbCache {
    fn share(&self, key: u32, join: &dyn Fn(u64) -> Joined) -> Option<u64> {
        let mut candidate = self.find_first(key);
        while let Some(entry) = candidate {
            let joined = join(entry.value());
            if joined != Joined::No {
                entry.touch();
                if joined == Joined::Last {
                    entry.set_reusable(false);
                }
                return Some(entry.value());
            }
            candidate = entry.find_next();
        }
        None
    }

    fn insert(&self, key: u32, block: u64) {
        MbCache::insert(self, key, block, true);
    }

    fn leave(&self, key: u32, block: u64, uses: &dyn Uses) -> bool {
        let step = |is_hidden| {
            let left = match is_hidden {
                true if uses.end() => Left::Alone,
                true => Left::Others,
                false => uses.one_less(),
            };
            if left == Left::Full {
                self.get(key, block).iter().for_each(|entry| entry.set_reusable(true));
            }
            Ok::<_, Infallible>(match left {
                Left::Alone => Users::Alone,
                Left::Full | Left::Others => Users::Others { reusable: true },
            })
        };
        let Ok(is_last) = MbCache::leave(self, key, block, step);
        is_last
    }
}

/// A hash of the value, as the block's key.
fn key_of(value: u64) -> u32 {
    (value.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u32
}
