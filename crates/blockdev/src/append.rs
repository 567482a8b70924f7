//! Appends a partition to a table.
//!
//! The `gpt` crate writes used entries side by side: a GPT with unused entries in between is
//! refused, because its partitions would be renumbered.

use std::fmt;
use std::io::{self, Write};

use gpt::disk::LogicalBlockSize;
use gpt::mbr::{PartRecord, ProtectiveMBR};
use gpt::{GptConfig, GptDisk, partition_types};

use crate::partition::{TABLE, content};
use crate::table::{MAX_PARTITIONS, PROTECTIVE, SECTOR, View};
use crate::{BlockDevice, Error};

/// Of new partitions.
const ALIGNMENT: u64 = 1 << 20;

/// MBR type of Linux file systems.
const LINUX: u8 = 0x83;

enum Table<'a> {
    Gpt(Box<GptDisk<View<'a>>>),
    /// And the first unused record.
    Mbr(Box<ProtectiveMBR>, usize),
}

/// First byte after all partitions where a new one can start.
///
/// # Errors
/// [`Error::NotAppended`]: no table with 512-byte sectors, a full one, or one that would change.
pub fn end_of_partitions(device: &dyn BlockDevice) -> Result<u64, Error> {
    let sectors = match open(device)? {
        Table::Gpt(disk) => {
            let last = disk.partitions().values().map(|partition| partition.last_lba).max();
            last.map_or(Some(0), |last| last.checked_add(1))
        }
        Table::Mbr(boot, _) => {
            records(&boot).map(|record| u64::from(record.lb_start) + u64::from(record.lb_size)).max()
        }
    };
    let end = sectors.and_then(|sectors| sectors.checked_mul(SECTOR));
    let aligned = end.and_then(|end| end.max(ALIGNMENT).checked_next_multiple_of(ALIGNMENT));
    aligned.ok_or_else(|| refused("a partition ends beyond all disks"))
}

/// Appends a Linux partition of `len` bytes at `start`; returns its number. Moves the backup GPT to
/// the end of the device.
///
/// # Errors
/// Those of [`end_of_partitions`]; [`Error::NotAppended`] if the partition does not fit.
pub fn append_partition(device: &dyn BlockDevice, start: u64, len: u64) -> Result<u32, Error> {
    let (first, sectors) = (start / SECTOR, len / SECTOR);
    let number = match open(device)? {
        Table::Gpt(disk) => append_to_gpt(device, *disk, first, sectors)?,
        Table::Mbr(mut boot, index) => {
            let fits = first.checked_add(sectors).is_some_and(|end| end <= device.size() / SECTOR);
            let (Ok(lb_start), Ok(lb_size), true) = (u32::try_from(first), u32::try_from(sectors), fits)
            else {
                return Err(refused("it does not fit on the disk, or not into an MBR"));
            };
            // Beyond the range of cylinders.
            let record = PartRecord {
                start_head: 0xFF,
                start_sector: 0xFF,
                start_track: 0xFF,
                os_type: LINUX,
                lb_start,
                lb_size,
                ..PartRecord::new_protective(None)
            };
            boot.set_partition(index, record);
            boot.overwrite_lba0(&mut View::new(device)).map_err(refused)?;
            index as u32 + 1
        }
    };
    device.flush().map_err(refused)?;
    Ok(number)
}

fn append_to_gpt(
    device: &dyn BlockDevice,
    mut disk: GptDisk<View<'_>>,
    first: u64,
    sectors: u64,
) -> Result<u32, Error> {
    let number = u32::try_from(disk.partitions().len() + 1).map_err(refused)?;
    // Recomputes the usable space.
    disk.update_partitions(disk.partitions().clone()).map_err(refused)?;
    disk.add_partition_at("", number, first, sectors, partition_types::LINUX_FS, 0).map_err(refused)?;
    let mut view = disk.write().map_err(refused)?;
    let mut boot = ProtectiveMBR::from_disk(&mut view, LogicalBlockSize::Lb512).map_err(refused)?;
    let all = u32::try_from(device.size() / SECTOR - 1).unwrap_or(u32::MAX);
    boot.set_partition(0, PartRecord::new_protective(Some(all)));
    boot.overwrite_lba0(&mut view).map_err(refused)?;
    Ok(number)
}

fn open(device: &dyn BlockDevice) -> Result<Table<'_>, Error> {
    if content(device)? != Some(TABLE) {
        return Err(refused("the disk has no partitions; `sfdisk` makes a first one"));
    }
    let view = View::new(device);
    let boot = ProtectiveMBR::from_disk(&mut View::new(device), LogicalBlockSize::Lb512).map_err(refused)?;
    let kinds: Vec<u8> = records(&boot).map(|record| record.os_type).collect();
    if kinds == [PROTECTIVE, 0, 0, 0] {
        return open_gpt(view).map(|disk| Table::Gpt(Box::new(disk)));
    }
    if kinds.contains(&PROTECTIVE) {
        return Err(refused("the disk has a GPT and an MBR with partitions; `sfdisk` shows both"));
    }
    match kinds.iter().position(|kind| *kind == 0) {
        Some(index) => Ok(Table::Mbr(Box::new(boot), index)),
        None => Err(refused("all four records of the MBR are used")),
    }
}

fn records(boot: &ProtectiveMBR) -> impl Iterator<Item = PartRecord> {
    [0, 1, 2, 3].into_iter().filter_map(|index| boot.partition(index))
}

fn open_gpt(mut view: View<'_>) -> Result<GptDisk<View<'_>>, Error> {
    let header = gpt::header::read_header_from_arbitrary_device(&mut view, LogicalBlockSize::Lb512);
    let header = header.map_err(refused)?;
    // The crate trusts the count.
    if header.part_size != 128 || header.num_parts as usize > MAX_PARTITIONS {
        return Err(refused("the table has entries of another size, or too many"));
    }
    let mut disk = GptConfig::new().writable(true).open_from_device(view).map_err(refused)?;
    let mut used = disk.take_partitions();
    used.retain(|_, partition| partition.is_used());
    if used.len() >= header.num_parts as usize {
        return Err(refused("the table is full"));
    }
    if used.keys().zip(1..).any(|(number, expected)| *number != expected) {
        return Err(refused("numbers of partitions are missing, and others would move there"));
    }
    disk.update_partitions(used).map_err(refused)?;
    Ok(disk)
}

fn refused(why: impl fmt::Display) -> Error {
    Error::NotAppended { problem: why.to_string() }
}

impl fmt::Debug for View<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View").finish_non_exhaustive()
    }
}

impl Write for View<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.device.write_at(self.base + self.position, buf)?;
        self.position += buf.len() as u64;
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.device.flush()
    }
}
