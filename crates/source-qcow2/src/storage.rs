//! A block device as read-only storage of `imago`.
//!
//! The trait's methods are unsafe because they bypass alignment and write blockers. A device has no
//! alignment and read-only storage needs no blockers; no operation here is unsafe.
#![allow(unsafe_code)]

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dentree_blockdev::{BlockDevice, FileDevice};
use imago::Storage;
use imago::io_buffers::{IoVector, IoVectorMut};
use imago::storage::drivers::CommonStorageHelper;

/// See the file header.
pub(crate) struct DeviceStorage {
    pub(crate) device: Arc<dyn BlockDevice>,
    /// Base of relative backing file names.
    dir: Option<PathBuf>,
    helper: CommonStorageHelper,
}

impl DeviceStorage {
    pub(crate) fn new(device: Arc<dyn BlockDevice>) -> Self {
        DeviceStorage { device, dir: None, helper: CommonStorageHelper::default() }
    }

    pub(crate) fn of_file(file: Arc<FileDevice>) -> io::Result<Self> {
        let dir = file.path().canonicalize()?.parent().map(Path::to_owned);
        Ok(DeviceStorage { dir, ..DeviceStorage::new(file) })
    }
}

impl Storage for DeviceStorage {
    fn size(&self) -> io::Result<u64> {
        Ok(self.device.size())
    }

    /// Only local images may have backing files.
    fn resolve_relative_path<P: AsRef<Path>>(&self, name: P) -> io::Result<PathBuf> {
        match &self.dir {
            Some(dir) => Ok(dir.join(name)),
            None => Err(io::Error::other("it needs another file, which is not read from there")),
        }
    }

    /// Zeros past the end, as the trait requires.
    unsafe fn pure_readv(&self, bufs: IoVectorMut<'_>, mut offset: u64) -> io::Result<()> {
        for mut buf in bufs.into_inner() {
            let there = self.device.size().saturating_sub(offset).min(buf.len() as u64) as usize;
            let (data, past_end) = buf.split_at_mut(there);
            if !data.is_empty() {
                self.device.read_at(offset, data)?;
            }
            past_end.fill(0);
            offset += buf.len() as u64;
        }
        Ok(())
    }

    unsafe fn pure_writev(&self, _: IoVector<'_>, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    unsafe fn invalidate_cache(&self) -> io::Result<()> {
        Ok(())
    }

    fn get_storage_helper(&self) -> &CommonStorageHelper {
        &self.helper
    }
}

impl fmt::Debug for DeviceStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for DeviceStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a device of {} bytes", self.device.size())
    }
}
