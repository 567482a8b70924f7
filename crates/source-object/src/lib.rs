//! Read-only block devices over object stores and HTTP servers.
//!
//! ```no_run
//! use dentree_blockdev::BlockDevice;
//! use dentree_source_object::{Options, open};
//!
//! let device = open("https://example.org/disk.img", &Options::default())?;
//! let mut superblock = [0; 1024];
//! device.read_at(1024, &mut superblock)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Objects are fetched in ranges planned by [`dentree_source_blocks`]. The [`ObjectIdentity`] is
//! fixed at opening; reads fail if it changes. With a disk cache ([`CacheOptions`]) later runs only
//! revalidate.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod address;
mod disk;
mod error;
mod host;
mod identity;
mod object;
mod open;
mod profile;

pub use disk::{CacheOptions, Cached, cached};
pub use error::Error;
pub use identity::ObjectIdentity;
pub use open::{ObjectDevice, open};

/// Options for opening an object.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Server of the store instead of the cloud's: `http://127.0.0.1:9000`.
    pub endpoint: Option<String>,
    /// Disk cache, if any.
    pub cache: Option<CacheOptions>,
}

// Tests the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
