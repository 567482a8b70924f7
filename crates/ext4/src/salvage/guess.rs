//! Sizes of a file system without any superblock, guessed from what is left of it.
//!
//! With checksums each inode says its number XORed with the seed of the file system. The root of
//! a directory's block says the directory's number: from both follows the seed, and then the number
//! of every inode. Inodes per group are those with which no group has two tables.
//!
//! Without checksums the sizes that mke2fs chooses are tried, until the tables are where they would
//! be and the root directory is in them.

use super::search::{self, INODE_SIZE};
use super::start::Start;
use super::tables::{self, Evidence};
use crate::mkfs::{Features, MkfsOptions, default_superblock};
use crate::{Ext4, Options};
use dentree_blockdev::BlockDevice;
use dentree_ext4_format::{
    BlockSize, Entries, ExtentNode, GroupNumber, Incompat, Inode, InodeNumber, InodeTime, Problem, RoCompat,
    SUPERBLOCK_OFFSET, Superblock,
};
use std::collections::HashMap;
use std::sync::Arc;

/// Most inodes that are remembered.
const MOST_INODES: usize = 1 << 16;
/// Seeds that are tried are those that this many directories agree on.
const LEAST_VOTES: u32 = 2;
/// mke2fs's bytes per inode, by usage type and size.
const BYTES_PER_INODE: [u32; 8] = [16_384, 4096, 8192, 32_768, 65_536, 1 << 20, 4 << 20, 1024];

/// A superblock that fits what is left.
pub(super) fn find(device: &Arc<dyn BlockDevice>, goes_on: &dyn Fn(u64) -> bool) -> Option<Start> {
    let sb = by_checksums(&**device, goes_on).or_else(|| by_defaults(device))?;
    let problem = Some(Problem::Missing { what: "a superblock, or a copy of it" });
    Some(Start { sb, offset: SUPERBLOCK_OFFSET, problem, is_guessed: true })
}

/// An inode that was found, with its number XORed with the seed.
struct Seen {
    at: u64,
    masked: u32,
    /// The first block of a directory.
    directory: Option<u64>,
}

fn by_checksums(device: &dyn BlockDevice, goes_on: &dyn Fn(u64) -> bool) -> Option<Superblock> {
    let mut seen = Vec::new();
    search::each_inode(device, INODE_SIZE, goes_on, &mut |at, masked, bytes| {
        if seen.len() < MOST_INODES {
            seen.push(Seen { at, masked, directory: first_block(bytes) });
        }
    });
    let (block_size, seed) = seed(device, &seen)?;
    let blocks = device.size() >> block_size.log2();
    let mut sb = default_superblock(device.size(), &options(block_size, None, 256)?)?;
    let more = Incompat::CSUM_SEED.0 | Incompat::FLEX_BG.0 | Incompat::BITS64.0;
    sb.incompat = Incompat(sb.incompat.0 | more);
    sb.ro_compat = RoCompat(sb.ro_compat.0 | RoCompat::METADATA_CSUM.0);
    (sb.desc_size, sb.checksum_seed.0, sb.blocks_count) = (64, seed, blocks);
    let places: Vec<(u32, u64)> = seen.iter().map(|seen| (seen.masked ^ seed, seen.at)).collect();
    inodes_per_group(sb, &places)
}

/// The first block of a directory with extents, from its inode's bytes.
fn first_block(bytes: &[u8]) -> Option<u64> {
    let head = Inode::head(bytes).filter(|head| head.mode >> 12 == 4)?;
    let root = ExtentNode::parse_root(&head.block).ok()?;
    root.extents().next().filter(|extent| extent.logical.0 == 0).map(|extent| extent.start.0)
}

/// The block size and the seed on which most directories agree.
fn seed(device: &dyn BlockDevice, seen: &[Seen]) -> Option<(BlockSize, u32)> {
    let mut votes = HashMap::<(u32, u32), u32>::new();
    for log in 0..=6 {
        let Some(block_size) = BlockSize::from_log_block_size(log) else { continue };
        for (seen, block) in seen.iter().filter_map(|seen| Some((seen, seen.directory?))) {
            let mut head = [0; 12];
            let Some(at) = block.checked_mul(u64::from(block_size.bytes())) else { continue };
            if device.read_at(at, &mut head).is_err() {
                continue;
            }
            let first = Entries::new(&head, block_size, u32::MAX).next();
            if let Some(Ok(entry)) =
                first.filter(|entry| entry.as_ref().is_ok_and(|entry| entry.name == b"."))
            {
                *votes.entry((log, seen.masked ^ entry.inode.0)).or_default() += 1;
            }
        }
    }
    let ((log, seed), count) = votes.into_iter().max_by_key(|(key, count)| (*count, *key))?;
    BlockSize::from_log_block_size(log).filter(|_| count >= LEAST_VOTES).map(|block_size| (block_size, seed))
}

/// Sets the inodes per group with which the most inodes lie in one table of their group.
fn inodes_per_group(sb: Superblock, places: &[(u32, u64)]) -> Option<Superblock> {
    let per_block = sb.block_size.bytes() / sb.inode_size;
    let by_ratio = BYTES_PER_INODE.into_iter().filter_map(|ratio| {
        let bytes = sb.blocks_count << sb.block_size.log2();
        let options = options(sb.block_size, Some(ratio), sb.inode_size)?;
        default_superblock(bytes, &options).map(|sb| sb.inodes_per_group)
    });
    let step = usize::try_from(per_block.max(8)).ok()?;
    let all = (per_block.max(8)..=sb.block_size.bytes() * 8).step_by(step);
    let mut best: Option<(u64, u32)> = None;
    let most = u64::from(sb.block_size.bytes()) * 8 * u64::from(sb.groups);
    let sound = places.iter().filter(|(ino, _)| (1..=most).contains(&u64::from(*ino))).count() as u64;
    // Those of mke2fs come first, and others must be better.
    for per_group in by_ratio.chain(all) {
        let score = score(&sb, per_group, places);
        if best.is_none_or(|(known, _)| score > known) {
            best = Some((score, per_group));
        }
        // Some are copies in the journal.
        if score > sound / 20 * 19 {
            break;
        }
    }
    let (_, per_group) = best.filter(|(score, _)| *score > 0)?;
    let mut sb = sb;
    sb.inodes_per_group = per_group;
    sb.inodes_count = per_group.checked_mul(sb.groups)?;
    Some(sb)
}

/// How many inodes lie in the table of their group that most of them lie in.
fn score(sb: &Superblock, per_group: u32, places: &[(u32, u64)]) -> u64 {
    let Some(count) = per_group.checked_mul(sb.groups) else { return 0 };
    let mut tables = HashMap::<(u32, u64), u64>::new();
    for (ino, at) in places {
        let place = search::table_of(sb, (per_group, count), *ino, *at);
        // A table lies in its flex group.
        if let Some((group, start)) = place
            && sb.group_start(GroupNumber(group / sb.groups_per_flex * sb.groups_per_flex)).0 <= start
        {
            *tables.entry((group, start)).or_default() += 1;
        }
    }
    let mut best = HashMap::<u32, u64>::new();
    for ((group, _), count) in tables {
        let known = best.entry(group).or_default();
        *known = count.max(*known);
    }
    best.values().sum()
}

/// A file system without checksums, of one of the sizes that mke2fs chooses.
fn by_defaults(device: &Arc<dyn BlockDevice>) -> Option<Superblock> {
    let sizes = [0, 2, 1].into_iter().filter_map(BlockSize::from_log_block_size);
    let mut all = sizes.flat_map(|block_size| {
        ["64bit", "^64bit"].into_iter().flat_map(move |word| {
            [256, 128].into_iter().flat_map(move |inode_size| {
                let options = move |ratio| options_with(word, block_size, Some(ratio), inode_size);
                BYTES_PER_INODE.into_iter().filter_map(options)
            })
        })
    });
    all.find_map(|options| {
        let sb = default_superblock(device.size(), &options)?;
        let fs = Ext4::over(device.clone(), sb, SUPERBLOCK_OFFSET, &Options::default()).ok()?;
        let found = tables::find(&fs, 1);
        let table = found.tables.get(&0)?;
        let is_there = tables::evidence(&fs, GroupNumber(0), table.start) == Evidence::Inodes;
        (is_there && has_root(&fs, table.start.0)).then(|| fs.sb.clone())
    })
}

/// Whether the second inode of a table is the root directory.
fn has_root(fs: &Ext4, table: u64) -> bool {
    let log = fs.sb.block_size.log2();
    let mut bytes = vec![0; usize::try_from(fs.sb.inode_size).unwrap_or(0)];
    let at = (table << log) + u64::from(fs.sb.inode_size);
    if fs.device.read_at(at, &mut bytes).is_err() {
        return false;
    }
    let Ok(root) = fs.parse_inode(InodeNumber::ROOT, &bytes, crate::Structure::Inode.of(InodeNumber::ROOT))
    else {
        return false;
    };
    let by_pointer =
        root.inode.block.first_chunk().copied().map(|bytes| u64::from(u32::from_le_bytes(bytes)));
    let Some(first) = first_block(&bytes).or(by_pointer) else { return false };
    let mut head = [0; 12];
    let entry = fs.device.read_at(first << log, &mut head).ok().and_then(|()| {
        Entries::new(&head, fs.sb.block_size, fs.sb.inodes_count).next()?.ok().map(|entry| entry.inode)
    });
    entry == Some(InodeNumber::ROOT)
}

/// Options of mke2fs for the sizes that are known.
fn options(block_size: BlockSize, bytes_per_inode: Option<u32>, inode_size: u32) -> Option<MkfsOptions> {
    options_with("64bit", block_size, bytes_per_inode, inode_size)
}

/// Options of mke2fs with or without the feature 64bit, without checksums.
fn options_with(
    word: &str,
    block_size: BlockSize,
    bytes_per_inode: Option<u32>,
    inode_size: u32,
) -> Option<MkfsOptions> {
    let features = Features::parse(&format!("ext4,^metadata_csum,{word}")).ok()?;
    let options = MkfsOptions::new([0; 16], [0; 4], InodeTime::default());
    Some(MkfsOptions { features, block_size: Some(block_size), bytes_per_inode, inode_size, ..options })
}
