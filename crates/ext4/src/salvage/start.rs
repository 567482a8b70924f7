//! The superblock: the first one, a backup, or a copy anywhere on the device.

use super::reader::read_past_damage;
use crate::open::{backup_offsets, lies_at};
use dentree_blockdev::BlockDevice;
use dentree_ext4_format::{
    BlockSize, Compat, GroupNumber, Problem, RoCompat, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock, crc32c,
};
use std::collections::BTreeSet;
use std::ops::ControlFlow;

/// Bytes that are searched at once.
const CHUNK: usize = 1 << 20;
const MAGIC_AT: usize = 0x38;
const MAGIC: [u8; 2] = [0x53, 0xEF];
const CHECKSUM_AT: usize = 0x3FC;
/// mke2fs makes no smaller groups.
const LEAST_BLOCKS_PER_GROUP: u32 = 256;

/// A superblock, and where it was found.
#[derive(Clone, Debug)]
pub(super) struct Start {
    pub(super) sb: Superblock,
    /// In bytes from the start of the file system.
    pub(super) offset: u64,
    /// What is wrong with the first superblock, if it is another one.
    pub(super) problem: Option<Problem>,
    /// Whether its sizes were guessed.
    pub(super) is_guessed: bool,
}

/// The best superblock. `goes_on` is asked now and then while the device is searched.
pub(super) fn find(device: &dyn BlockDevice, goes_on: &dyn Fn(u64) -> bool) -> Option<Start> {
    let problem = match superblock_at(device, SUPERBLOCK_OFFSET) {
        Ok(sb) => return Some(Start { sb, offset: SUPERBLOCK_OFFSET, problem: None, is_guessed: false }),
        Err(problem) => Some(problem),
    };
    let at = |offset| superblock_at(device, offset).ok().filter(|sb| lies_at(sb, offset));
    let backup = places_of_backups(device.size()).into_iter().find_map(|offset| Some((at(offset)?, offset)));
    let found = backup.or_else(|| search(device, goes_on));
    // The last resort: one whose checksum is wrong.
    let found = found.or_else(|| {
        let offsets = std::iter::once(SUPERBLOCK_OFFSET).chain(places_of_backups(device.size()));
        offsets.into_iter().find_map(|offset| Some((unsummed_at(device, offset)?, offset)))
    });
    found.map(|(sb, offset)| Start { sb, offset, problem, is_guessed: false })
}

/// The superblock at byte `offset`, if it can be one.
fn superblock_at(device: &dyn BlockDevice, offset: u64) -> Result<Superblock, Problem> {
    plausible(Superblock::parse(&bytes_at(device, offset)?)?, device.size())
}

/// Like [`superblock_at`], whatever its checksum.
fn unsummed_at(device: &dyn BlockDevice, offset: u64) -> Option<Superblock> {
    let mut bytes = bytes_at(device, offset).ok()?;
    let sum = crc32c(!0, bytes.get(..CHECKSUM_AT)?).to_le_bytes();
    bytes.get_mut(CHECKSUM_AT..)?.copy_from_slice(&sum);
    let sb = plausible(Superblock::parse(&bytes).ok()?, device.size()).ok()?;
    (offset == SUPERBLOCK_OFFSET || lies_at(&sb, offset)).then_some(sb)
}

fn bytes_at(device: &dyn BlockDevice, offset: u64) -> Result<[u8; SUPERBLOCK_SIZE], Problem> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    match device.read_at(offset, &mut bytes) {
        Ok(()) => Ok(bytes),
        Err(_) => Err(Problem::Missing { what: "a superblock that can be read" }),
    }
}

/// Refuses sizes that no mke2fs makes.
fn plausible(sb: Superblock, size: u64) -> Result<Superblock, Problem> {
    let per_group = u64::from(sb.blocks_per_group);
    let most = (u64::from(sb.block_size.bytes()) * 8) << sb.log_cluster_ratio;
    Problem::check_range("s_blocks_per_group", per_group, u64::from(LEAST_BLOCKS_PER_GROUP), most)?;
    // Half an image is one, too. A thousandth is none.
    let blocks = size >> sb.block_size.log2();
    Problem::check_range("s_blocks_count", sb.blocks_count, 1, blocks.saturating_mul(1024).max(1 << 16))?;
    Ok(sb)
}

/// Byte positions of backups: for groups of the usual sizes those of sparse_super, and the last
/// group for sparse_super2.
fn places_of_backups(size: u64) -> BTreeSet<u64> {
    let mut places: BTreeSet<u64> = backup_offsets().collect();
    for block_size in (0..=6).filter_map(BlockSize::from_log_block_size) {
        let mut sb = Superblock::new(block_size, [0; 16]);
        sb.compat = Compat(0);
        sb.ro_compat = RoCompat::SPARSE_SUPER;
        let group_bytes = u64::from(sb.blocks_per_group) << block_size.log2();
        let groups = u32::try_from(size.div_ceil(group_bytes)).unwrap_or(u32::MAX);
        let powers = [3_u32, 5, 7]
            .into_iter()
            .flat_map(|base| std::iter::successors(Some(base), move |power| power.checked_mul(base)));
        let last = [groups.saturating_sub(1), groups.saturating_sub(2)];
        for group in powers.chain(last).filter(|group| *group < groups) {
            places.insert(sb.group_start(GroupNumber(group)).0 << block_size.log2());
        }
    }
    places.into_iter().filter(|place| *place > 0 && *place < size).collect()
}

/// Searches the device for superblocks. One in its place is better than a copy in the journal.
fn search(device: &dyn BlockDevice, goes_on: &dyn Fn(u64) -> bool) -> Option<(Superblock, u64)> {
    let (mut in_place, mut elsewhere) = (None, None);
    each_chunk(device, goes_on, &mut |offset, bytes| {
        for (at, bytes) in (offset..).step_by(SUPERBLOCK_SIZE).zip(bytes.as_chunks::<SUPERBLOCK_SIZE>().0) {
            if bytes.get(MAGIC_AT..MAGIC_AT + 2) != Some(&MAGIC) {
                continue;
            }
            let parsed = Superblock::parse(bytes).and_then(|sb| plausible(sb, device.size()));
            let Ok(sb) = parsed else { continue };
            if lies_at(&sb, at) {
                in_place = Some((sb, at));
                return ControlFlow::Break(());
            }
            if sb.block_group_nr == 0 {
                elsewhere = Some((sb, at));
            }
        }
        ControlFlow::Continue(())
    });
    in_place.or(elsewhere)
}

/// Calls `each` for all of a device in pieces, zeros where it cannot be read, until `each` breaks
/// or `goes_on` returns `false`.
pub(super) fn each_chunk(
    device: &dyn BlockDevice,
    goes_on: &dyn Fn(u64) -> bool,
    each: &mut dyn FnMut(u64, &[u8]) -> ControlFlow<()>,
) {
    let size = device.size();
    let mut buf = vec![0; CHUNK];
    let mut offset = 0;
    while offset < size {
        let len = usize::try_from(size - offset).unwrap_or(CHUNK).min(CHUNK);
        let Some(piece) = buf.get_mut(..len) else { return };
        read_past_damage(device, offset, piece, &mut |_| {});
        if each(offset, piece).is_break() || !goes_on(len as u64) {
            return;
        }
        offset += len as u64;
    }
}
