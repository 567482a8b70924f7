//! qcow2 images as block devices, and overlays that keep the changes of a device.
//!
//! ```no_run
//! use std::sync::Arc;
//! use dentree_blockdev::{Access, BlockDevice, FileDevice};
//! use dentree_source_qcow2::Qcow2Device;
//!
//! let file = Arc::new(FileDevice::open("disk.qcow2", Access::ReadOnly)?);
//! let disk = Qcow2Device::open(file, Access::ReadOnly)?;
//! let mut superblock = [0; 1024];
//! disk.read_at(1024, &mut superblock)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The crate `imago` implements the format. Compressed clusters and backing chains are supported
//! for reading; LUKS, zstd and external data files are refused ([`Error::Format`]).
#![deny(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod backing;
mod base_identity;
mod contained;
mod device;
mod error;
mod overlay;
mod refcounts;
mod storage;

use dentree_blockdev::BlockDevice;
use std::io;

pub use device::Qcow2Device;
pub use error::Error;
pub use overlay::Base;

/// Whether the device starts like a qcow2 image.
///
/// # Errors
/// Those of the device.
pub fn is_image(device: &dyn BlockDevice) -> io::Result<bool> {
    const MAGIC: [u8; 4] = *b"QFI\xfb";
    let mut found = [0; MAGIC.len()];
    if device.size() < found.len() as u64 {
        return Ok(false);
    }
    device.read_at(0, &mut found)?;
    Ok(found == MAGIC)
}

// Tests the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
