//! Where a file system is made: in a file of its own, on a block device, or in a partition.
//!
//! A file gets its name when it is complete. On a device or in a partition what was there is gone
//! at once, as with mke2fs; a file system that is not completed there is no longer recognised. A
//! partition that is added is entered in the table when its file system is complete; until then an
//! end restores the disk's length and its backup table.

use super::ImagePath;
use crate::args::MkfsArgs;
use crate::host::{self, Parent, TempEntry};
use crate::image::Session;
use crate::report::{Problem, Status};
use dentree_blockdev::{
    BlockDevice, FileDevice, FileExt, Slice, append_partition, content, end_of_partitions, open_partition,
};
use std::fs::{File, Metadata};
use std::io;
use std::sync::Arc;

/// What a new table needs behind the last partition: its backup, in whole MiB.
const BEHIND: u64 = 1 << 20;

/// The end of the superblock: without it no file system is recognised.
const SUPERBLOCK_END: usize = 2048;

pub(super) enum Place {
    /// A file of its own, and the one that it replaces, locked against writers.
    File(Option<(FileDevice, Metadata)>),
    /// A device or partition, locked against writers.
    Part(Arc<dyn BlockDevice>),
    /// A partition that is added to a disk, locked against writers, from this byte on.
    Added(FileDevice, u64),
}

/// What the file system is written to, and what is left to do when it is complete.
pub(super) struct Prepared<'p> {
    pub(super) device: Arc<dyn BlockDevice>,
    kind: Kind<'p>,
}

enum Kind<'p> {
    File(TempEntry<'p>, Option<Metadata>),
    Part(Incomplete),
    Added(Longer),
}

impl Place {
    /// Chooses the place, which must hold nothing that is recognised without `--force`.
    pub(super) fn of(session: &Session, path: &ImagePath<'_>, args: &MkfsArgs) -> Result<Place, Problem> {
        let found = std::fs::metadata(path.image);
        let is_device = found.is_ok_and(|found| host::is_block_device(&found));
        let failed = |error: dentree_blockdev::Error| path.problem(Status::Failed, error.to_string());
        let partition = session.options.partition;
        if args.append_partition && (is_device || partition.is_some()) {
            let message = "--append-partition adds one to a disk image, not to a device or a --partition";
            return Err(path.problem(Status::Usage, message));
        }
        if args.append_partition {
            let disk = path.open()?;
            let start = end_of_partitions(&disk).map_err(failed)?;
            return Ok(Place::Added(disk, start));
        }
        if partition.is_none() && !is_device {
            return path.check(args.force).map(Place::File);
        }
        let disk: Arc<dyn BlockDevice> = Arc::new(path.open()?);
        let part: Arc<dyn BlockDevice> = match partition {
            Some(number) => Arc::new(open_partition(disk, number).map_err(failed)?),
            None => disk,
        };
        match content(&*part).map_err(failed)? {
            Some(what) if !args.force => {
                Err(path.problem(Status::Failed, format!("holds data: {what}; --force replaces it")))
            }
            _ => Ok(Place::Part(part)),
        }
    }

    /// The bytes that there are; `None` where there are as many as are wanted.
    pub(super) fn room(&self) -> Option<u64> {
        match self {
            Place::Part(part) => Some(part.size()),
            Place::File(_) | Place::Added(..) => None,
        }
    }

    /// Makes room for `size` bytes; `tries` only in a file that gets no name.
    pub(super) fn prepare<'p>(
        self,
        path: &ImagePath<'_>,
        (parent, size, tries): (&'p Parent, u64, bool),
    ) -> Result<Prepared<'p>, Problem> {
        let failed = |error: dentree_blockdev::Error| path.problem(Status::Failed, error.to_string());
        let io = |error: io::Error| path.io(&error);
        match self {
            Place::Part(part) if !tries => {
                let device = Arc::new(Slice::new(part, 0, size).map_err(failed)?);
                let kind = Kind::Part(Incomplete { device: device.clone(), is_begun: false });
                Ok(Prepared { device, kind })
            }
            Place::Added(disk, start) if !tries => {
                let end = start.checked_add(size).filter(|end| *end < 1 << 62);
                let end = end.ok_or(io::ErrorKind::FileTooLarge.into()).map_err(io)?;
                let longer = Longer::new(disk, end).map_err(io)?;
                let device = Arc::new(Slice::new(longer.disk.clone(), start, size).map_err(failed)?);
                Ok(Prepared { device, kind: Kind::Added(longer) })
            }
            place => {
                let mut temp = parent.file().map_err(io)?;
                temp.open().map_or(Ok(()), |file| file.set_len(size)).map_err(io)?;
                let device = Arc::new(temp.device().map_err(failed)?);
                let replaced = if let Place::File(replaced) = place { replaced } else { None };
                Ok(Prepared { device, kind: Kind::File(temp, replaced.map(|(_, found)| found)) })
            }
        }
    }
}

impl Prepared<'_> {
    /// Whether what is not written reads as zeros.
    pub(super) fn reads_as_zeros(&self) -> bool {
        matches!(self.kind, Kind::File(..))
    }

    /// Says that there is a file system, whose content is not complete.
    pub(super) fn begun(&mut self) {
        if let Kind::Part(part) = &mut self.kind {
            part.is_begun = true;
        }
    }

    /// What an end before [`publish`](Self::publish) leaves.
    pub(super) fn left(&self) -> &'static str {
        match self.kind {
            Kind::File(..) | Kind::Added(_) => "nothing was made",
            Kind::Part(_) => "no file system is left there",
        }
    }

    /// Gives a file its name, or enters a partition, whose number it returns.
    pub(super) fn publish(self, path: &ImagePath<'_>) -> Result<Option<u32>, Problem> {
        match self.kind {
            Kind::File(temp, replaced) => {
                path.publish(temp, replaced.as_ref()).map_err(|error| path.io(&error))?;
            }
            Kind::Part(mut part) => part.is_begun = false,
            Kind::Added(mut longer) => {
                let start = longer.end - self.device.size();
                let number = append_partition(&*longer.disk, start, self.device.size());
                let number = number.map_err(|error| path.problem(Status::Failed, error.to_string()))?;
                longer.is_complete = true;
                return Ok(Some(number));
            }
        }
        Ok(None)
    }
}

/// A file system in a place that had other content.
struct Incomplete {
    device: Arc<Slice>,
    is_begun: bool,
}

impl Drop for Incomplete {
    /// Clears the superblock of a file system that lacks content.
    fn drop(&mut self) {
        if self.is_begun {
            // The command has failed already.
            let _ = self.device.write_at(0, &[0; SUPERBLOCK_END]).and_then(|()| self.device.flush());
        }
    }
}

/// A disk image that was made longer.
struct Longer {
    disk: Arc<FileDevice>,
    /// Of the file system.
    end: u64,
    file: File,
    former_len: u64,
    /// The former last bytes, with the backup of the table.
    tail: Vec<u8>,
    is_complete: bool,
}

impl Longer {
    /// Makes room up to byte `end` and for a backup table behind it.
    fn new(mut disk: FileDevice, end: u64) -> io::Result<Self> {
        let file = disk.try_clone_file()?;
        let former_len = disk.size();
        let mut tail = vec![0; BEHIND.min(former_len) as usize];
        disk.read_at(former_len - tail.len() as u64, &mut tail)?;
        disk.set_size(former_len.max(end.next_multiple_of(BEHIND) + BEHIND))?;
        Ok(Longer { disk: Arc::new(disk), end, file, former_len, tail, is_complete: false })
    }
}

impl Drop for Longer {
    fn drop(&mut self) {
        if !self.is_complete {
            // The command has failed already.
            let _ = self.file.set_len(self.former_len);
            let _ = self.file.write_all_at(&self.tail, self.former_len - self.tail.len() as u64);
        }
    }
}
