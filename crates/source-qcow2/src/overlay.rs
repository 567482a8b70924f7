//! A qcow2 file with the changes of a read-only device.

use std::fs::OpenOptions;
use std::io;
use std::path::Path;
use std::sync::Arc;

use dentree_blockdev::{Access, BlockDevice, FileDevice};
use imago::qcow2::Qcow2;
use imago::raw::Raw;
use imago::{FormatAccess, FormatCreateBuilder, FormatDriverBuilder};

use crate::backing::BackingFiles;
use crate::base_identity::{record, recorded};
use crate::contained::contained;
use crate::device::{Storage, growing};
use crate::storage::DeviceStorage;
use crate::{Error, Qcow2Device};

/// Device under an overlay.
pub struct Base {
    /// Device.
    pub device: Arc<dyn BlockDevice>,
    /// Absolute path or address, recorded in the overlay.
    pub name: String,
    /// Format: `raw` or `qcow2`.
    pub format: &'static str,
}

impl Qcow2Device {
    /// Opens the overlay `path` over `base`. A missing or empty file becomes a new overlay for
    /// writing, and counts as an unchanged one for reading.
    ///
    /// # Errors
    /// [`Error::Overlay`] where the file is the overlay of another device, or of one that has
    /// another size or has changed since; [`Error::File`] where another process writes it;
    /// [`Error::Format`].
    pub fn overlay(path: &Path, base: Base, access: Access) -> Result<Arc<dyn BlockDevice>, Error> {
        let failed = |problem: String| Error::Overlay { at: path.display().to_string(), problem };
        let is_new = std::fs::metadata(path).map_or(true, |file| file.len() == 0);
        if is_new && access == Access::ReadOnly {
            return Ok(base.device);
        }
        if is_new {
            let made = OpenOptions::new().write(true).create(true).truncate(false).open(path);
            made.map_err(|error| failed(format!("cannot be made: {error}")))?;
        }
        let file = Arc::new(FileDevice::open(path, access)?);
        if file.size() == 0 {
            create(&file, &base).map_err(|error| failed(format!("cannot be made: {error}")))?;
        }
        let then = recorded(&*file).map_err(dentree_blockdev::Error::Read)?;
        let storage: io::Result<Storage> = match access {
            Access::ReadOnly => Ok(Box::new(DeviceStorage::new(file.clone()))),
            Access::ReadWrite => growing(&file),
        };
        let opened = contained(|| open(storage?, &base, access));
        let image = opened.map_err(|source| Error::Format { at: path.display().to_string(), source })?;
        match image.implicit_backing_file() {
            Some(name) if *name == base.name => {}
            Some(name) => {
                return Err(failed(format!("it keeps the changes of {name}, not of {}", base.name)));
            }
            None => {
                return Err(failed("it is a disk of its own, and no overlay: name another file".to_owned()));
            }
        }
        let overlay = Qcow2Device::new(image, vec![file, base.device.clone()]);
        if overlay.size() != base.device.size() {
            let (size, now) = (overlay.size(), base.device.size());
            return Err(failed(format!(
                "it keeps the changes of a device of {size} bytes; {} has {now} bytes now",
                base.name
            )));
        }
        if let (Some(then), Some(now)) = (then, base.device.identity())
            && then != now
        {
            return Err(failed(format!(
                "it keeps the changes of {} as it was ({then}), which has changed since ({now}): \
                 bring that back, or name another file",
                base.name
            )));
        }
        Ok(Arc::new(overlay))
    }
}

fn create(file: &FileDevice, base: &Base) -> io::Result<()> {
    let builder = Qcow2::<Storage>::create_builder(growing(file)?).size(base.device.size());
    builder.backing(base.name.clone(), base.format.to_owned()).create()?;
    base.device.identity().map_or(Ok(()), |identity| record(file.try_clone_file()?, &identity))
}

fn open(storage: Storage, base: &Base, access: Access) -> io::Result<Qcow2<Storage>> {
    let below: Storage = Box::new(DeviceStorage::new(base.device.clone()));
    let below = Raw::builder(below).open(BackingFiles::new())?;
    let builder = Qcow2::builder(storage).backing(Some(FormatAccess::new(below)));
    builder.write(access == Access::ReadWrite).open(BackingFiles::new())
}
