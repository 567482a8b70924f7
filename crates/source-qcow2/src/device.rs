//! qcow2 images as block devices.

use std::any::Any;
use std::io;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use dentree_blockdev::{Access, BlockDevice, Done, FileDevice, Transfers, check_range};
use imago::file::File;
use imago::qcow2::Qcow2;
use imago::storage::{DynStorage, StorageOpenOptions};
use imago::{FormatAccess, FormatDriverBuilder, Mapping};

use crate::backing::BackingFiles;
use crate::contained::contained;
use crate::storage::DeviceStorage;
use crate::{Error, refcounts};

pub(crate) type Storage = Box<dyn DynStorage>;

/// A qcow2 image, or an overlay.
pub struct Qcow2Device {
    /// Shared for reads and writes, which lock within; exclusive for discards, which would
    /// invalidate mappings in use.
    image: RwLock<FormatAccess<Storage>>,
    size: u64,
    /// Keeps written files locked.
    below: Vec<Arc<dyn BlockDevice>>,
}

impl Qcow2Device {
    /// Opens an image in a file, with its backing files.
    ///
    /// # Errors
    /// [`Error::Format`].
    pub fn open(file: Arc<FileDevice>, access: Access) -> Result<Self, Error> {
        let at = file.path().display().to_string();
        let open = || {
            let storage: Storage = match access {
                Access::ReadOnly => Box::new(DeviceStorage::of_file(file.clone())?),
                Access::ReadWrite => growing(&file)?,
            };
            let builder = Qcow2::<Storage>::builder(storage).write(access == Access::ReadWrite);
            builder.open(BackingFiles::new())
        };
        let image = contained(open).map_err(|source| Error::Format { at, source })?;
        Ok(Qcow2Device::new(image, vec![file]))
    }

    /// Opens an image on a device for reading; `at` names it in errors.
    ///
    /// # Errors
    /// [`Error::Format`], also for an image with a backing file.
    pub fn over(device: Arc<dyn BlockDevice>, at: &str) -> Result<Self, Error> {
        let storage: Storage = Box::new(DeviceStorage::new(device.clone()));
        let image = contained(|| Qcow2::<Storage>::builder(storage).open(BackingFiles::new()));
        let image = image.map_err(|source| Error::Format { at: at.to_owned(), source })?;
        Ok(Qcow2Device::new(image, vec![device]))
    }

    pub(crate) fn new(image: Qcow2<Storage>, below: Vec<Arc<dyn BlockDevice>>) -> Self {
        let image = FormatAccess::new(image);
        Qcow2Device { size: image.size(), image: RwLock::new(image), below }
    }

    fn image(&self) -> RwLockReadGuard<'_, FormatAccess<Storage>> {
        self.image.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The run below that holds the whole range, if it takes submitted reads.
    fn run(&self, offset: u64, len: u64) -> Option<(Arc<dyn BlockDevice>, u64)> {
        let image = self.image();
        let (mapping, run) = contained(|| image.get_mapping(offset, len)).ok()?;
        match mapping {
            Mapping::Raw { storage, offset, .. } if run == len => {
                let storage: &dyn Any = &**storage;
                let device = &storage.downcast_ref::<DeviceStorage>()?.device;
                check_range(offset, len, device.size()).ok()?;
                Some((Arc::clone(device), offset))
            }
            _ => None,
        }
    }
}

/// Storage for writing, which grows unlike a device.
pub(crate) fn growing(file: &FileDevice) -> io::Result<Storage> {
    if file.size() > 0 {
        refcounts::check(file)?;
    }
    let options = StorageOpenOptions::new().filename(file.path().canonicalize()?).write(true);
    Ok(Box::new(File::from_open_file(file.try_clone_file()?, options)?))
}

impl BlockDevice for Qcow2Device {
    fn size(&self) -> u64 {
        self.size
    }

    /// That of its file.
    fn identity(&self) -> Option<String> {
        self.below.first()?.identity()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        check_range(offset, buf.len() as u64, self.size)?;
        contained(|| self.image().read(buf, offset))
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        check_range(offset, buf.len() as u64, self.size)?;
        contained(|| self.image().write(buf, offset))
    }

    /// Data before tables, then everything durable.
    fn flush(&self) -> io::Result<()> {
        let image = self.image();
        contained(|| image.flush().and_then(|()| image.sync()))
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        check_range(offset, len, self.size)?;
        let mut image = self.image.write().unwrap_or_else(PoisonError::into_inner);
        contained(|| image.discard_to_any(offset, len))
    }

    fn transfers(&self) -> Option<Transfers> {
        self.below.iter().find_map(|device| device.transfers())
    }

    fn submit(self: Arc<Self>, offset: u64, mut buf: Vec<u8>, done: Done) {
        match self.run(offset, buf.len() as u64) {
            Some((device, offset)) => device.submit(offset, buf, done),
            None => done(self.read_at(offset, &mut buf).map(|()| buf)),
        }
    }
}
