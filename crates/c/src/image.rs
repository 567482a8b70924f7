//! Images: opened and closed.

use crate::error::{Failure, returns};
use crate::pointer::{give, take, text};
use dentree_blockdev::{Choice, FileDevice, locate};
use dentree_ext4::{Ext4, Options};
use dentree_source::{open, open_file, scheme};
use dentree_vfs::{Error, Vfs};
use rustix::io::Errno;
use std::ffi::{OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// No permissions are checked: a process that can read the image can read all of it.
pub(crate) const CALLER: &dentree_vfs::Identity = &dentree_vfs::Identity::Superuser;

pub(crate) type Fs = Arc<Vfs<Ext4>>;

/// An image that is open.
pub struct dentree_image {
    pub(crate) fs: Fs,
}

/// Opens an image to be read: the path of a file or device, or an address (`https://`, `s3://`,
/// `nbd://`, …). qcow2 images are recognised. `partition` is the number of one in its partition
/// table, or 0 for what is there: the file system itself, or the only partition with one. A journal
/// that was not replayed is replayed in memory; nothing is written.
///
/// Returns 0, and an image for `dentree_close`; or a negative errno.
///
/// # Safety
/// `source` is a string, and `image` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dentree_open(
    source: *const c_char,
    partition: u32,
    image: *mut *mut dentree_image,
) -> c_int {
    returns(|| {
        // SAFETY: as this function's caller says.
        let source = unsafe { text(source, "source") }?;
        let opened = opened(source, partition)?;
        // SAFETY: as this function's caller says.
        unsafe { give(image, opened, "image") }?;
        Ok(0)
    })
}

fn opened(source: &[u8], partition: u32) -> Result<dentree_image, Failure> {
    let name = String::from_utf8_lossy(source);
    let failed = |errno, error: &dyn std::fmt::Display| Failure::new(errno, format!("{name}: {error}"));
    let how = dentree_source::Options::default();
    let device = match std::str::from_utf8(source).ok().filter(|name| scheme(name).is_some()) {
        Some(address) => open(address, &how).map_err(|error| failed(Errno::IO, &error))?,
        None => {
            let path = OsStr::from_bytes(source);
            std::fs::metadata(path)
                .map_err(|error| failed(Errno::from_io_error(&error).unwrap_or(Errno::IO), &error))?;
            open_file(|access| FileDevice::open(path, access), &how)
                .map_err(|error| failed(Errno::IO, &error))?
        }
    };
    let choice = if partition == 0 { Choice::Auto } else { Choice::Partition(partition) };
    let part = locate(device, choice).map_err(|error| failed(Errno::INVAL, &error))?;
    let refused = |error: Error| failed(error.errno(), &error);
    let fs = Ext4::open(Arc::new(part), Options::default()).map_err(|error| refused(error.into()))?;
    Ok(dentree_image { fs: Arc::new(Vfs::new(fs).map_err(refused)?) })
}

/// Closes an image. Null is none. Its nodes stay valid until they are put.
///
/// # Safety
/// `image` came from `dentree_open`, and nothing uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dentree_close(image: *mut dentree_image) {
    // SAFETY: as this function's caller says.
    drop(unsafe { take(image) });
}
