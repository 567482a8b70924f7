//! Partition tables.
//!
//! The `gpt` crate checks records and checksums; this file bounds the work for hostile tables and
//! follows extended partitions. As in Linux, a GPT needs a protective MBR, logical partitions start
//! at 5, and MBR sectors have 512 bytes. GPT headers are expected at 512, then at 4096.

use std::io::{self, Read, Seek, SeekFrom};

use gpt::disk::LogicalBlockSize;
use gpt::mbr::PartRecord;

use crate::listing::Partition;
use crate::{BlockDevice, Error};

pub(crate) const SECTOR: u64 = 512;
pub(crate) const PROTECTIVE: u8 = 0xEE;
const EXTENDED: [u8; 3] = [0x05, 0x0F, 0x85];
/// Linux's limit per disk; bounds the work.
pub(crate) const MAX_PARTITIONS: usize = 256;

/// Partitions in table order; empty without a table.
///
/// # Errors
/// [`Error::PartitionTable`] for damage; [`Error::Read`].
///
/// ```
/// use dentree_blockdev::{MemoryDevice, partitions};
///
/// let mut disk = vec![0; 1 << 20];
/// disk[446 + 4] = 0x83; // type
/// disk[446 + 8] = 1; // first sector
/// disk[446 + 12] = 9; // sectors
/// disk[510..512].copy_from_slice(&[0x55, 0xaa]);
/// let found = partitions(&MemoryDevice::from(disk))?;
/// assert_eq!((found[0].number, found[0].start, found[0].len), (1, 512, 9 * 512));
/// # Ok::<(), dentree_blockdev::Error>(())
/// ```
pub fn partitions(device: &dyn BlockDevice) -> Result<Vec<Partition>, Error> {
    let Some(records) = boot_record(device, 0)? else { return Ok(Vec::new()) };
    if records.iter().any(|record| record.os_type == PROTECTIVE) {
        return gpt_partitions(device);
    }
    let mut found = Vec::new();
    for (record, number) in records.iter().zip(1..) {
        found.extend(mbr_partition(record, number, 0));
    }
    for extended in records.iter().filter(|record| EXTENDED.contains(&record.os_type)) {
        logical_partitions(device, u64::from(extended.lb_start), &mut found)?;
    }
    Ok(found)
}

/// The records of a sector's boot record, if any.
fn boot_record(device: &dyn BlockDevice, sector: u64) -> Result<Option<[PartRecord; 4]>, Error> {
    let offset = sector * SECTOR;
    if device.size() < offset + SECTOR {
        return Ok(None);
    }
    let mut bytes = [0; SECTOR as usize];
    device.read_at(offset, &mut bytes).map_err(Error::Read)?;
    if bytes[510..] != [0x55, 0xAA] {
        return Ok(None);
    }
    let mut records = [PartRecord::zero(); 4];
    for (record, bytes) in records.iter_mut().zip(bytes[446..510].chunks_exact(16)) {
        *record = PartRecord::from_bytes(bytes)
            .map_err(|error| Error::PartitionTable { table: "MBR", problem: error.to_string() })?;
    }
    Ok(Some(records))
}

/// `start` counts from sector `base`.
fn mbr_partition(record: &PartRecord, number: u32, base: u64) -> Option<Partition> {
    let used = record.os_type != 0 && record.lb_size != 0;
    (used && !EXTENDED.contains(&record.os_type)).then(|| Partition {
        number,
        start: (base + u64::from(record.lb_start)) * SECTOR,
        len: u64::from(record.lb_size) * SECTOR,
        kind: format!("0x{:02x}", record.os_type),
        name: String::new(),
    })
}

/// Each extended boot record has a partition, relative to itself, and a link, relative to the first
/// record.
fn logical_partitions(device: &dyn BlockDevice, first: u64, found: &mut Vec<Partition>) -> Result<(), Error> {
    let mut number = found.iter().map(|partition| partition.number + 1).fold(5, u32::max);
    let mut seen = Vec::new();
    let mut next = Some(first);
    while let Some(sector) = next {
        if seen.contains(&sector) || seen.len() == MAX_PARTITIONS {
            let problem =
                format!("the chain of extended boot records loops or has no end at sector {sector}");
            return Err(Error::PartitionTable { table: "MBR", problem });
        }
        seen.push(sector);
        // It may be empty.
        let Some(records) = boot_record(device, sector)? else { return Ok(()) };
        for record in &records {
            if let Some(partition) = mbr_partition(record, number, sector) {
                found.push(partition);
                number += 1;
            }
        }
        next = records
            .iter()
            .find(|record| EXTENDED.contains(&record.os_type) && record.lb_size != 0)
            .map(|link| first + u64::from(link.lb_start));
    }
    Ok(())
}

/// By the header, or its backup at the end.
fn gpt_partitions(device: &dyn BlockDevice) -> Result<Vec<Partition>, Error> {
    let mut problem = "no GPT header under a protective MBR".to_owned();
    for (size, sector) in [(LogicalBlockSize::Lb512, 512), (LogicalBlockSize::Lb4096, 4096)] {
        let end = device.size() / sector * sector;
        // The crate reads the header from its input's second sector.
        for base in [0, end.saturating_sub(2 * sector)] {
            let mut view = View { device, base, position: 0 };
            match gpt::header::read_header_from_arbitrary_device(&mut view, size) {
                Ok(header) => match gpt_entries(device, &header, size) {
                    Ok(found) => return Ok(found),
                    Err(error) => problem = error,
                },
                Err(gpt::header::HeaderError::InvalidGptSignature) => {}
                Err(error) => problem = error.to_string(),
            }
        }
    }
    Err(Error::PartitionTable { table: "GPT", problem })
}

fn gpt_entries(
    device: &dyn BlockDevice,
    header: &gpt::header::Header,
    size: LogicalBlockSize,
) -> Result<Vec<Partition>, String> {
    // The crate trusts the count and supports only 128-byte entries.
    if header.part_size != 128 || header.num_parts as usize > MAX_PARTITIONS {
        return Err(format!("{} entries of {} bytes in the header", header.num_parts, header.part_size));
    }
    let mut view = View { device, base: 0, position: 0 };
    let entries = gpt::partition::file_read_partitions(&mut view, header, size).map_err(|e| e.to_string())?;
    let sector: u64 = size.into();
    let mut found = Vec::new();
    for (number, entry) in entries {
        let sectors = entry.last_lba.checked_sub(entry.first_lba).and_then(|less| less.checked_add(1));
        let start = entry.first_lba.checked_mul(sector);
        let (Some(start), Some(len)) = (start, sectors.and_then(|sectors| sectors.checked_mul(sector)))
        else {
            return Err(format!(
                "partition {number} lies from sector {} to sector {}",
                entry.first_lba, entry.last_lba
            ));
        };
        let kind = entry.part_type_guid.guid.to_string();
        found.push(Partition { number, start, len, kind, name: entry.name });
    }
    Ok(found)
}

/// A device from `base` on, as a stream.
pub(crate) struct View<'a> {
    pub(crate) device: &'a dyn BlockDevice,
    pub(crate) base: u64,
    pub(crate) position: u64,
}

impl<'a> View<'a> {
    pub(crate) fn new(device: &'a dyn BlockDevice) -> View<'a> {
        View { device, base: 0, position: 0 }
    }

    fn len(&self) -> u64 {
        self.device.size().saturating_sub(self.base)
    }
}

impl Read for View<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let left = self.len().saturating_sub(self.position);
        let len = usize::try_from(left).map_or(buf.len(), |left| left.min(buf.len()));
        if len > 0 {
            self.device.read_at(self.base + self.position, &mut buf[..len])?;
        }
        self.position += len as u64;
        Ok(len)
    }
}

impl Seek for View<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::Current(delta) => self.position.checked_add_signed(delta),
            SeekFrom::End(delta) => self.len().checked_add_signed(delta),
        };
        self.position = position.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.position)
    }
}
