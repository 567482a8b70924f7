//! The resize inode, which maps the blocks that are reserved for descriptors.
//!
//! Its doubly indirect block points to the reserved blocks after the first superblock, each of them
//! to its counterparts after the backups. A pointer's slot is its block's index among all
//! descriptor blocks.

use crate::{Error, Ext4, Result, Structure};
use dentree_ext4_format::{BlockNumber, Compat, GroupNumber, Inode, InodeNumber, Problem, Superblock};
use std::collections::BTreeMap;
use std::ops::Range;

pub(super) const RESIZE: InodeNumber = InodeNumber(7);
/// The doubly indirect pointer in `i_block`.
pub(super) const DOUBLY: Range<usize> = 13 * 4..14 * 4;

/// Starts of the groups with a backup of the superblock.
fn backups(sb: &Superblock) -> Vec<u64> {
    let groups = (1..sb.groups).map(GroupNumber).filter(|&group| sb.group_has_superblock(group));
    groups.map(|group| sb.group_start(group).0).collect()
}

/// The doubly indirect block of the resize inode.
fn top_of(fs: &Ext4, inode: &Inode) -> Result<BlockNumber> {
    let mut word = [0; 4];
    word.copy_from_slice(&inode.block[DOUBLY]);
    let top = BlockNumber(u64::from(u32::from_le_bytes(word)));
    let place = Structure::IndirectBlock.of(RESIZE).at(top);
    let checked = fs.sb.check_blocks("the doubly indirect pointer", top, 1);
    checked.map(|()| top).map_err(|problem| place.corrupt(problem))
}

/// Checks every pointer of the resize inode.
pub(crate) fn verify(fs: &Ext4, inode: &Inode) -> Result<()> {
    let sb = &fs.sb;
    let (first, backups) = (u64::from(sb.first_data_block) + 1, backups(sb));
    let others = inode.block[..DOUBLY.start].iter().chain(&inode.block[DOUBLY.end..]);
    if others.copied().any(|byte| byte != 0) {
        let because = "has more than the doubly indirect pointer";
        let problem = Problem::Value { field: "i_block", value: 0, because };
        return Err(Structure::Inode.of(RESIZE).corrupt(problem));
    }
    let top = Pointers::read(fs, top_of(fs, inode)?)?;
    for index in indices(sb) {
        let reserved = first + u64::from(index);
        top.expect(top.slot(u64::from(index)), reserved)?;
        let copies = Pointers::read(fs, BlockNumber(reserved))?;
        for (slot, start) in backups.iter().enumerate() {
            copies.expect(slot, start + 1 + u64::from(index))?;
        }
    }
    Ok(())
}

/// Adds the changed blocks for another size: those that become descriptors are left out, those that
/// were descriptors are added, and all get their counterparts in the groups that there are then.
pub(super) fn update(fs: &Ext4, sb: &Superblock, changed: &mut BTreeMap<u64, Vec<u8>>) -> Result<()> {
    let old = &fs.sb;
    if !sb.compat.has(Compat::RESIZE_INODE) || old.reserved_gdt_blocks == 0 {
        return Ok(());
    }
    let (had, has) = (backups(old), backups(sb));
    let (was, is) = (indices(old), indices(sb));
    if (&was, had.len()) == (&is, has.len()) {
        return Ok(());
    }
    let mut inode = fs.read_inode(RESIZE)?.inode.clone();
    let top_at = top_of(fs, &inode)?;
    let place = Structure::IndirectBlock.of(RESIZE).at(top_at);
    let mut top = Pointers::read(fs, top_at)?;
    let first = u64::from(old.first_data_block) + 1;
    let mut known = BTreeMap::new();
    for index in was {
        let reserved = first + u64::from(index);
        let slot = top.slot(u64::from(index));
        top.expect(slot, reserved)?;
        let copies = Pointers::read(fs, BlockNumber(reserved))?;
        for (slot, start) in had.iter().enumerate() {
            copies.expect(slot, start + 1 + u64::from(index))?;
        }
        // Those that become descriptors stay so.
        top.set(slot, 0)?;
        known.insert(index, copies);
    }
    for index in is {
        let reserved = first + u64::from(index);
        top.set(top.slot(u64::from(index)), reserved)?;
        let mut copies = known.remove(&index).unwrap_or_else(|| Pointers::empty(fs, reserved));
        for slot in has.len()..had.len() {
            copies.set(slot, 0)?;
        }
        for (slot, start) in has.iter().enumerate() {
            copies.set(slot, start + 1 + u64::from(index))?;
        }
        changed.insert(reserved, copies.bytes);
    }
    changed.insert(top_at.0, top.bytes);
    let sectors = u64::from(old.block_size.bytes() / 512);
    let blocks =
        |kept: u16, copies: usize| u64::from(kept) * (1 + u64::try_from(copies).unwrap_or(0)) * sectors;
    let without = inode.sectors.checked_sub(blocks(old.reserved_gdt_blocks, had.len()));
    let Some(without) = without else {
        return Err(place.corrupt(Problem::Missing { what: "some of its blocks in i_blocks" }));
    };
    inode.sectors = without + blocks(sb.reserved_gdt_blocks, has.len());
    put_inode(fs, &inode, changed)
}

/// The indices of the reserved blocks among all descriptor blocks.
fn indices(sb: &Superblock) -> Range<u32> {
    sb.desc_blocks()..sb.desc_blocks() + u32::from(sb.reserved_gdt_blocks)
}

fn put_inode(fs: &Ext4, inode: &Inode, changed: &mut BTreeMap<u64, Vec<u8>>) -> Result<()> {
    let (block, within) = fs.find_inode(RESIZE)?;
    let mut bytes = fs.metadata(block, Structure::Inode.of(RESIZE))?.to_vec();
    let size = usize::try_from(fs.sb.inode_size).unwrap_or(usize::MAX);
    if let Some(place) = bytes.chunks_exact_mut(size).nth(within) {
        inode.encode(place, &fs.sb);
    }
    changed.insert(block.0, bytes);
    Ok(())
}

/// A block of pointers.
struct Pointers {
    at: BlockNumber,
    bytes: Vec<u8>,
}

impl Pointers {
    fn read(fs: &Ext4, at: BlockNumber) -> Result<Pointers> {
        let bytes = fs.metadata(at, Structure::IndirectBlock.of(RESIZE))?.to_vec();
        Ok(Pointers { at, bytes })
    }

    /// One that points nowhere yet.
    fn empty(fs: &Ext4, at: u64) -> Pointers {
        Pointers { at: BlockNumber(at), bytes: vec![0; fs.sb.block_size.in_memory()] }
    }

    /// The slot of the block with this index.
    fn slot(&self, index: u64) -> usize {
        usize::try_from(index).unwrap_or(usize::MAX) % (self.bytes.len() / 4)
    }

    fn expect(&self, slot: usize, expected: u64) -> Result<()> {
        let word = self.bytes.chunks_exact(4).nth(slot).and_then(|word| word.first_chunk());
        let value = word.map_or(0, |word| u64::from(u32::from_le_bytes(*word)));
        Problem::check_range("a pointer to a reserved descriptor block", value, expected, expected)
            .map_err(|problem| Structure::IndirectBlock.of(RESIZE).at(self.at).corrupt(problem))
    }

    fn set(&mut self, slot: usize, block: u64) -> Result<()> {
        let too_many = || Error::Unsupported("the resize inode has no place for so many backups".to_owned());
        let place = self.bytes.chunks_exact_mut(4).nth(slot).ok_or_else(too_many)?;
        // Numbers of such a file system have 32 bits.
        place.copy_from_slice(&u32::try_from(block).map_err(|_| too_many())?.to_le_bytes());
        Ok(())
    }
}
