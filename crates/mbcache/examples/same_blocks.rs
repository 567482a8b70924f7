//! Keeps blocks, equal ones once. `same_blocks FILE…` keeps files in blocks of 4 KiB with a thread
//! per file, prints the number of blocks, drops the files, and finds no entry left. Two threads
//! that add the same new block at once both keep it.
//!
//! A store needs this much of [`MbCache`]: [`Store::keep`] looks for a block with the same hash and
//! compares; [`Store::leave`] frees a block with its last user.

use dentree_mbcache::{MbCache, Users};
use dentree_sync::{Mutex, MutexGuard};
use std::convert::Infallible;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

const BLOCK: usize = 4096;

struct Store {
    cache: MbCache,
    /// By number, with the number of users of each; 0 for a freed block.
    blocks: Mutex<Vec<(Vec<u8>, u32)>>,
}

impl Store {
    /// Becomes a user of a block with this content, found or new.
    fn keep(&self, content: &[u8]) -> u64 {
        let key = key(content);
        let mut candidate = self.cache.find_first(key);
        while let Some(entry) = candidate {
            // While the entry is held its block does not change.
            let (there, users) = &mut self.blocks()[entry.value() as usize];
            if there == content {
                *users += 1;
                entry.touch();
                return entry.value();
            }
            candidate = entry.find_next();
        }
        let number = self.add(content);
        self.cache.insert(key, number, true);
        number
    }

    fn add(&self, content: &[u8]) -> u64 {
        let mut blocks = self.blocks();
        blocks.push((content.to_vec(), 1));
        blocks.len() as u64 - 1
    }

    /// Stops using the block.
    fn leave(&self, number: u64, content: &[u8]) {
        let left = self.cache.leave(key(content), number, |is_hidden| {
            let mut blocks = self.blocks();
            let (bytes, users) = &mut blocks[number as usize];
            let is_alone = *users == 1;
            // The last user frees the block once it is hidden; others leave before.
            *users -= u32::from(is_alone == is_hidden);
            if *users == 0 {
                *bytes = Vec::new();
            }
            Ok::<_, Infallible>(if is_alone { Users::Alone } else { Users::Others { reusable: true } })
        });
        let Ok(_was_last) = left;
    }

    /// Number of blocks and of users.
    fn counts(&self) -> (usize, u64) {
        let blocks = self.blocks();
        let used = blocks.iter().filter(|(_, users)| *users > 0);
        (used.clone().count(), used.map(|(_, users)| u64::from(*users)).sum())
    }

    fn blocks(&self) -> MutexGuard<'_, Vec<(Vec<u8>, u32)>> {
        self.blocks.lock()
    }
}

fn key(content: &[u8]) -> u32 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(content) as u32
}

fn main() -> std::io::Result<()> {
    let files = std::env::args_os().skip(1).map(std::fs::read).collect::<Result<Vec<_>, _>>()?;
    let store = &Store { cache: MbCache::new(1 << 20), blocks: Mutex::default() };
    let kept: Vec<Vec<u64>> = std::thread::scope(|scope| {
        let keep =
            |file| scope.spawn(move || <[u8]>::chunks(file, BLOCK).map(|block| store.keep(block)).collect());
        let threads: Vec<_> = files.iter().map(|file| keep(file)).collect();
        threads.into_iter().flat_map(|thread| thread.join()).collect()
    });
    let (kept_once, all) = store.counts();
    println!("{all} blocks of {BLOCK} bytes, {kept_once} kept");
    std::thread::scope(|scope| {
        for (file, numbers) in files.iter().zip(&kept) {
            scope.spawn(move || {
                file.chunks(BLOCK).zip(numbers).for_each(|(block, number)| store.leave(*number, block))
            });
        }
    });
    println!("{} are left, and {} entries in the cache", store.counts().0, store.cache.len());
    Ok(())
}
