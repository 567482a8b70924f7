//! Block devices over object stores and HTTP servers, read only.
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
//! An object is fetched by ranges, as [`dentree_source_blocks`] plans them. What an object is, is
//! fixed at opening ([`ObjectIdentity`]); where it changes, reads fail. With a cache on disk
//! ([`CacheOptions`]) a later run asks only whether the object is still the same.
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

/// How an object is opened.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The server of the store, instead of the cloud's own: `http://127.0.0.1:9000`.
    pub endpoint: Option<String>,
    /// Where blocks are kept for later runs; `None`: nowhere.
    pub cache: Option<CacheOptions>,
}

// The example on the crate's page compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
