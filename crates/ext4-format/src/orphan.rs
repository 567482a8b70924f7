//! Blocks of the orphan file: inode numbers, 0 in free slots, and a tail. Source: kernel document
//! `orphan.rst`.

use crate::raw::raw_layout;
use crate::{BlockNumber, ChecksumSeed, Problem};
use zerocopy::{FromBytes, IntoBytes, little_endian as le};

const MAGIC: u32 = 0x0b10_ca04;
const SLOT_LEN: usize = 4;

raw_layout! {
    /// `struct ext4_orphan_block_tail`.
    RawTail, size 8 {
        0x0 ob_magic: le::U32,
        0x4 ob_checksum: le::U32,
    }
}

/// Inode numbers, 0 in free slots.
pub fn orphan_slots(bytes: &[u8]) -> impl Iterator<Item = u32> {
    let room = bytes.len().saturating_sub(size_of::<RawTail>());
    let slots = bytes.get(..room).unwrap_or_default();
    slots.as_chunks::<SLOT_LEN>().0.iter().copied().map(u32::from_le_bytes)
}

/// Writes slot `at`: an inode number, or 0. No effect after the last slot.
pub fn set_orphan(bytes: &mut [u8], at: usize, ino: u32) {
    let room = bytes.len().saturating_sub(size_of::<RawTail>());
    let slots = bytes.get_mut(..room).unwrap_or_default();
    if let Some(slot) = slots.as_chunks_mut::<SLOT_LEN>().0.get_mut(at) {
        *slot = ino.to_le_bytes();
    }
}

/// Writes block `number`'s tail. `inode_seed`: of the orphan file, with metadata_csum.
pub fn write_orphan_tail(bytes: &mut [u8], number: BlockNumber, inode_seed: Option<ChecksumSeed>) {
    let sum = inode_seed.map_or(0, |seed| checksum(bytes, number, seed));
    let tail = RawTail { ob_magic: le::U32::new(MAGIC), ob_checksum: le::U32::new(sum) };
    let at = bytes.len().saturating_sub(size_of::<RawTail>());
    // A block has space for the tail.
    let _ = tail.write_to_suffix(bytes.get_mut(at..).unwrap_or_default());
}

/// Checks block `number`'s magic number, and its checksum with metadata_csum.
pub fn verify_orphan_block(
    bytes: &[u8],
    number: BlockNumber,
    inode_seed: Option<ChecksumSeed>,
) -> Result<(), Problem> {
    let (_, tail) = RawTail::ref_from_suffix(bytes).map_err(|_| Problem::Short {
        what: "a block of the orphan file",
        need: size_of::<RawTail>(),
        have: bytes.len(),
    })?;
    if tail.ob_magic.get() != MAGIC {
        return Err(Problem::Magic { found: u64::from(tail.ob_magic.get()), expected: u64::from(MAGIC) });
    }
    match inode_seed {
        Some(seed) => Problem::check_sum(tail.ob_checksum.get(), checksum(bytes, number, seed)),
        None => Ok(()),
    }
}

/// Over the block's number and its slots.
fn checksum(bytes: &[u8], number: BlockNumber, seed: ChecksumSeed) -> u32 {
    let room = bytes.len().saturating_sub(size_of::<RawTail>());
    let of_number = seed.sum(le::U64::new(number.0).as_bytes());
    ChecksumSeed(of_number).sum(bytes.get(..room).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_read_as_written_and_covered_by_the_tail() {
        let (seed, number) = (Some(ChecksumSeed(5)), BlockNumber(9));
        let mut block = vec![0; 1024];
        set_orphan(&mut block, 253, 77);
        set_orphan(&mut block, 254, 78);
        write_orphan_tail(&mut block, number, seed);
        assert_eq!(orphan_slots(&block).count(), 254);
        assert_eq!(orphan_slots(&block).last(), Some(77));
        assert_eq!(verify_orphan_block(&block, number, seed), Ok(()));
        assert!(verify_orphan_block(&block, BlockNumber(8), seed).is_err());
        set_orphan(&mut block, 0, 1);
        assert!(verify_orphan_block(&block, number, seed).is_err());
        assert!(verify_orphan_block(&block, number, None).is_ok());
        assert!(verify_orphan_block(&[0; 1024], number, None).is_err());
        assert!(verify_orphan_block(&[], number, None).is_err());
    }
}
