//! Blocks of directories whose inodes are gone.
//!
//! The first block of a directory says its number. The checksum of a leaf is of the directory's
//! inode: from a leaf and its checksum follows the seed of the directory, and leaves with the same
//! seed are of the same directory. Leaves in the journal are older copies.

use super::start::each_chunk;
use crate::Ext4;
use dentree_ext4_format::{ChecksumSeed, leaf_seed};
use std::collections::{BTreeMap, HashMap};
use std::ops::{ControlFlow, Range};

/// Most leaves that are remembered.
const MOST_LEAVES: usize = 1 << 22;

/// The leaves of directories without an inode, by number. The first one has `.` and `..`.
pub(super) type Leaves = BTreeMap<u32, Vec<u64>>;

/// A block that begins with `.` and `..`.
struct First {
    dir: u32,
    block: u64,
    seed: Option<ChecksumSeed>,
}

/// Searches the device for leaves. `wanted`: the directories, with the parents that name them.
/// `journal`: its blocks, ascending and disjoint.
pub(super) fn find(
    fs: &Ext4,
    wanted: &HashMap<u32, Option<u32>>,
    journal: &[Range<u64>],
    goes_on: &dyn Fn(u64) -> bool,
) -> Leaves {
    let (size, has_sums) = (fs.sb.block_size, fs.sb.has_metadata_csum());
    let (mut firsts, mut others) = (Vec::new(), Vec::<(ChecksumSeed, u64)>::new());
    if wanted.is_empty() {
        return Leaves::new();
    }
    each_chunk(&*fs.device, goes_on, &mut |offset, bytes| {
        for (block, bytes) in (offset >> size.log2()..).zip(bytes.chunks_exact(size.in_memory())) {
            let at = journal.partition_point(|run| run.end <= block);
            if journal.get(at).is_some_and(|run| run.contains(&block)) {
                continue;
            }
            let seed = leaf_seed(bytes).filter(|_| has_sums);
            if has_sums && seed.is_none() {
                continue;
            }
            if let Some((dir, parent)) = own_and_parent(fs, bytes) {
                let is_wanted =
                    wanted.get(&dir).is_some_and(|named| named.is_none_or(|named| named == parent));
                if is_wanted && firsts.len() < MOST_LEAVES {
                    firsts.push(First { dir, block, seed });
                }
            } else if let Some(seed) = seed.filter(|_| others.len() < MOST_LEAVES) {
                others.push((seed, block));
            }
        }
        ControlFlow::Continue(())
    });
    others.sort_unstable_by_key(|(seed, block)| (seed.0, *block));
    let mut found = Leaves::new();
    for First { dir, block, seed } in firsts {
        let blocks = found.entry(dir).or_insert_with(|| vec![block]);
        let Some(seed) = seed else { continue };
        let from = others.partition_point(|(other, _)| other.0 < seed.0);
        let same = others.iter().skip(from).take_while(|(other, _)| *other == seed);
        blocks.extend(same.map(|(_, block)| *block));
        blocks.dedup();
    }
    found
}

/// The numbers that a directory's first block has in `.` and `..`.
fn own_and_parent(fs: &Ext4, bytes: &[u8]) -> Option<(u32, u32)> {
    let mut entries = fs.entries(bytes);
    let own = entries.next()?.ok().filter(|entry| entry.name == b".")?;
    let parent = entries.next()?.ok().filter(|entry| entry.name == b"..")?;
    Some((own.inode.0, parent.inode.0))
}
