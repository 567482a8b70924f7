//! Finds the part of a device that holds the file system.

use std::sync::Arc;

use crate::format::recognise;
use crate::listing::{Listing, Partition};
use crate::table::partitions;
use crate::{BlockDevice, Error, Format, Slice};

/// Choice of a part of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// The device if it starts with an ext file system, else its only ext partition.
    #[default]
    Auto,
    /// A partition by number.
    Partition(u32),
    /// From this byte to the end.
    Offset(u64),
}

/// Opens the chosen part.
///
/// # Errors
/// [`Error::Foreign`]: another known format. [`Error::NoExt`], [`Error::SeveralExt`] or
/// [`Error::NoSuchPartition`], with the partitions: the choice is not unique.
/// [`Error::OutOfRange`]: it starts past the end. Also those of [`partitions`].
pub fn locate(device: Arc<dyn BlockDevice>, choice: Choice) -> Result<Slice, Error> {
    let size = device.size();
    match choice {
        Choice::Offset(start) => {
            refuse_foreign(&*device, start)?;
            Slice::new(device, start, size.saturating_sub(start))
        }
        Choice::Partition(number) => {
            let part = open_partition(device.clone(), number)?;
            refuse_foreign(&*device, part.start())?;
            Ok(part)
        }
        Choice::Auto if is_ext(&*device, 0)? => Slice::new(device, 0, size),
        Choice::Auto => {
            let all = partitions(&*device)?;
            let mut ext = Vec::new();
            for partition in &all {
                if is_ext(&*device, partition.start)? {
                    ext.push(partition.clone());
                }
            }
            match &ext[..] {
                [only] => open(device, only),
                [] => {
                    refuse_foreign(&*device, 0)?;
                    Err(Error::NoExt { found: listing(&*device, all)? })
                }
                _ => Err(Error::SeveralExt { found: listing(&*device, ext)? }),
            }
        }
    }
}

/// Opens a partition with any content.
///
/// # Errors
/// [`Error::NoSuchPartition`], and those of [`partitions`].
pub fn open_partition(device: Arc<dyn BlockDevice>, number: u32) -> Result<Slice, Error> {
    let all = partitions(&*device)?;
    match all.iter().find(|partition| partition.number == number) {
        Some(partition) => open(device, partition),
        None => Err(Error::NoSuchPartition { number, found: listing(&*device, all)? }),
    }
}

pub(crate) const TABLE: &str = "a partition table";

/// Content that a new file system would destroy, if recognized.
///
/// # Errors
/// [`Error::Read`].
pub fn content(device: &dyn BlockDevice) -> Result<Option<&'static str>, Error> {
    if is_ext(device, 0)? {
        return Ok(Some("an ext2, ext3 or ext4 file system"));
    }
    if let Some(format) = recognise(device, 0).map_err(Error::Read)? {
        return Ok(Some(format.name));
    }
    // Including a damaged table.
    Ok(partitions(device).map_or(true, |found| !found.is_empty()).then_some(TABLE))
}

fn listing(device: &dyn BlockDevice, partitions: Vec<Partition>) -> Result<Listing, Error> {
    let with_format = |partition: Partition| match is_ext(device, partition.start)? {
        true => Ok((partition, None)),
        false => recognise(device, partition.start).map(|format| (partition, format)).map_err(Error::Read),
    };
    partitions.into_iter().map(with_format).collect::<Result<_, _>>().map(Listing)
}

/// The format at byte `start`, if known and not ext.
///
/// # Errors
/// [`Error::Read`].
pub fn foreign(device: &dyn BlockDevice, start: u64) -> Result<Option<Format>, Error> {
    if is_ext(device, start)? {
        return Ok(None);
    }
    recognise(device, start).map_err(Error::Read)
}

/// Fails for a known format other than ext.
fn refuse_foreign(device: &dyn BlockDevice, start: u64) -> Result<(), Error> {
    foreign(device, start)?.map_or(Ok(()), |format| Err(Error::Foreign { format }))
}

/// Up to the end of the device: images may be truncated.
fn open(device: Arc<dyn BlockDevice>, partition: &Partition) -> Result<Slice, Error> {
    let there = device.size().saturating_sub(partition.start);
    Slice::new(device, partition.start, partition.len.min(there))
}

fn is_ext(device: &dyn BlockDevice, start: u64) -> Result<bool, Error> {
    /// `s_magic`, at 0x38 of the superblock.
    const MAGIC_AT: u64 = 1024 + 0x38;
    let mut magic = [0; 2];
    match start.checked_add(MAGIC_AT) {
        Some(at) if at + 2 <= device.size() => device.read_at(at, &mut magic).map_err(Error::Read)?,
        _ => return Ok(false),
    }
    Ok(u16::from_le_bytes(magic) == 0xEF53)
}
