//! Growing.

use super::change::Change;
use super::{Size, checked, geometry, groups, open, reserved};
use crate::alloc::Space;
use crate::{Error, Ext4, Result};
use dentree_blockdev::BlockDevice;
use dentree_ext4_format::{BlockNumber, Compat, GroupDesc, GroupNumber, InodeTime, Superblock};
use std::sync::Arc;

/// The superblock that [`grow`] would make. Nothing is written, and the device may be smaller.
///
/// # Errors
/// What prevents it: a smaller number, no place for descriptors, damage, a journal that needs
/// recovery or is too small.
pub fn enlarged(device: &Arc<dyn BlockDevice>, size: Size) -> Result<Superblock> {
    let fs = open(device)?;
    Ok(Growth::plan(&fs, size)?.map_or(fs.sb.clone(), |growth| growth.change.sb))
}

/// Makes the file system on `device`, which has no other user, as large as `size`. A last group
/// that would hold little but its own metadata is left out. Returns the superblock.
///
/// # Errors
/// Before anything is written those of [`enlarged`], and a device that is smaller. Then errors of
/// the device.
///
/// ```
/// use dentree_blockdev::{BlockDevice, MemoryDevice, Slice};
/// use dentree_ext4::mkfs::{MkfsOptions, mkfs};
/// use dentree_ext4::{Ext4, InodeTime, Options, Size, grow};
/// use std::sync::Arc;
///
/// let disk: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(32 << 20));
/// let small = Slice::new(disk.clone(), 0, 10 << 20)?;
/// mkfs(&small, &MkfsOptions::new([7; 16], [1, 2, 3, 4], InodeTime::default()))?;
/// let sb = grow(&disk, Size::Bytes(32 << 20), InodeTime::default())?;
/// assert_eq!((sb.blocks_count, sb.groups), (32 << 10, 4));
/// assert_eq!(Ext4::open(disk, Options::default())?.superblock().blocks_count, 32 << 10);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn grow(device: &Arc<dyn BlockDevice>, size: Size, now: InodeTime) -> Result<Superblock> {
    let fs = open(device)?;
    let Some(mut growth) = Growth::plan(&fs, size)? else { return Ok(fs.sb.clone()) };
    let sb = &mut growth.change.sb;
    let (blocks, found) = (sb.blocks_count, device.size() >> sb.block_size.log2());
    if found < blocks {
        return Err(Error::Unsupported(format!("the device has {found} blocks, not {blocks}")));
    }
    sb.write_time = InodeTime { nanos: 0, ..now };
    let Growth { change, new } = growth;
    change.make(|change| write_new_groups(change, &new))
}

struct Growth<'a> {
    change: Change<'a>,
    /// Descriptors of new groups.
    new: Vec<GroupDesc>,
}

impl<'a> Growth<'a> {
    /// Reads and checks what is needed. `None` where nothing changes.
    fn plan(fs: &'a Ext4, size: Size) -> Result<Option<Growth<'a>>> {
        let mut sb = geometry::superblock(&fs.sb, size.in_blocks(&fs.sb))?;
        if sb.blocks_count == fs.sb.blocks_count {
            return Ok(None);
        }
        let groups = |range: std::ops::Range<u32>| range.map(GroupNumber);
        let mut descs =
            groups(0..fs.sb.groups).map(|group| checked(fs, group)).collect::<Result<Vec<_>>>()?;
        let journal = fs.journal_location()?;
        let runs = journal.as_ref().map(|journal| &journal.runs[..]).unwrap_or_default();
        // Fails where metadata overlaps.
        Space::new(fs, &descs, runs)?;
        let new: Vec<GroupDesc> =
            groups(fs.sb.groups..sb.groups).map(|group| groups::new_group(&sb, group)).collect();
        let last = GroupNumber(fs.sb.groups - 1);
        let longer = match descs.last_mut() {
            Some(desc) => groups::lengthen(fs, &sb, last, desc)?,
            None => None,
        };
        let all = || descs.iter().chain(&new);
        sb.free_blocks_count = all().map(|desc| u64::from(desc.free_blocks)).sum();
        sb.free_inodes_count = all().map(|desc| desc.free_inodes).fold(0, u32::wrapping_add);
        let mut change = Change::new(fs, sb, journal)?;
        change.changed.extend(longer);
        for (group, desc) in (last.0..).map(GroupNumber).zip(descs.last().into_iter().chain(&new)) {
            change.put(group, desc);
        }
        change.change_table();
        reserved::update(fs, &change.sb, &mut change.changed)?;
        change.check_journal()?;
        Ok(Some(Growth { change, new }))
    }
}

/// Writes what lies in new groups.
fn write_new_groups(change: &Change<'_>, new: &[GroupDesc]) -> Result<()> {
    let first = change.fs.sb.groups;
    for (group, desc) in (first..).map(GroupNumber).zip(new) {
        groups::write_new_group(&*change.fs.device, &change.sb, (group, desc))?;
        zero_reserved(change, group)?;
    }
    change.write_copies(|group| group.0 >= first, 0)
}

/// Zeroes the reserved blocks in a new group.
fn zero_reserved(change: &Change<'_>, group: GroupNumber) -> Result<()> {
    let sb = &change.sb;
    if !sb.group_has_superblock(group) || !sb.compat.has(Compat::RESIZE_INODE) {
        return Ok(());
    }
    let first = sb.group_start(group).0 + 1 + u64::from(sb.desc_blocks());
    let all = first..first + u64::from(sb.reserved_gdt_blocks);
    all.map(BlockNumber).try_for_each(|block| groups::zero(&*change.fs.device, sb, block))
}
