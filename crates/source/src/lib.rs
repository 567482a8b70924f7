//! Opens an image by its address, wherever it is.
//!
//! ```no_run
//! use dentree_source::{Options, open};
//!
//! let device = open("https://example.org/disk.img", &Options::default())?;
//! println!("{} bytes", device.size());
//! # Ok::<(), dentree_source::Error>(())
//! ```
//!
//! # Features
//! `object-stores`: `https`, `http`, `s3`, `gs` and `az`, read only.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

use dentree_blockdev::{Access, BlockDevice};
use std::sync::Arc;

/// How an image is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// For reading alone, or for writing too.
    pub access: Access,
    /// The server of an object store, instead of the cloud's own.
    pub endpoint: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Options { access: Access::ReadOnly, endpoint: None }
    }
}

/// Why an image could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No source has this scheme.
    #[error("no images are opened at addresses of {scheme}:// (but at: {})", known())]
    Scheme {
        /// What stands before `://`.
        scheme: String,
    },
    /// This build has no source for the scheme.
    #[error("this build opens no addresses of {scheme}:// (cargo feature `{feature}`)")]
    NotBuilt {
        /// What stands before `://`.
        scheme: String,
        /// The cargo feature that adds it.
        feature: &'static str,
    },
    /// What is there cannot be written.
    #[error("images at addresses of {scheme}:// are read only: copy it to a local file, and change that")]
    ReadOnly {
        /// What stands before `://`.
        scheme: String,
    },
    /// The object store or server.
    #[cfg(feature = "object-stores")]
    #[error(transparent)]
    Object(#[from] dentree_source_object::Error),
}

type Open = fn(&str, &Options) -> Result<Arc<dyn BlockDevice>, Error>;

/// Sources that images come from.
struct Family {
    schemes: &'static [&'static str],
    feature: &'static str,
    writable: bool,
    /// `None`: left out of this build.
    open: Option<Open>,
}

const FAMILIES: &[Family] = &[Family {
    schemes: &["https", "http", "s3", "gs", "az"],
    feature: "object-stores",
    writable: false,
    #[cfg(feature = "object-stores")]
    open: Some(object),
    #[cfg(not(feature = "object-stores"))]
    open: None,
}];

/// What stands before the `://` of an address; `None` for a local name.
pub fn scheme(name: &str) -> Option<&str> {
    let (scheme, _) = name.split_once("://")?;
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'+';
    (scheme.len() > 1 && scheme.bytes().all(is_letter)).then_some(scheme)
}

/// Opens the image at an address.
///
/// # Errors
/// See [`Error`].
pub fn open(address: &str, options: &Options) -> Result<Arc<dyn BlockDevice>, Error> {
    let scheme = scheme(address).unwrap_or_default().to_owned();
    let Some(family) = FAMILIES.iter().find(|family| family.schemes.contains(&&*scheme)) else {
        return Err(Error::Scheme { scheme });
    };
    let Some(open) = family.open else {
        return Err(Error::NotBuilt { scheme, feature: family.feature });
    };
    if options.access == Access::ReadWrite && !family.writable {
        return Err(Error::ReadOnly { scheme });
    }
    open(address, options)
}

/// All schemes, for a message.
fn known() -> String {
    FAMILIES.iter().flat_map(|family| family.schemes).copied().collect::<Vec<_>>().join(", ")
}

#[cfg(feature = "object-stores")]
fn object(address: &str, options: &Options) -> Result<Arc<dyn BlockDevice>, Error> {
    let within = dentree_source_object::Options { endpoint: options.endpoint.clone() };
    Ok(Arc::new(dentree_source_object::ObjectDevice::open(address, &within)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_scheme() {
        assert_eq!(scheme("s3://bucket/x"), Some("s3"));
        assert_eq!(scheme("nbd+unix:///x?socket=y"), Some("nbd+unix"));
        for name in ["c://x", "./a://b", "disk.img:/etc", "://x"] {
            assert_eq!(scheme(name), None, "{name}");
        }
    }

    #[test]
    fn what_is_read_only_is_refused_for_writing_before_any_request() {
        let options = Options { access: Access::ReadWrite, ..Options::default() };
        let refused = open("s3://bucket/disk.img", &options).err().unwrap().to_string();
        assert!(refused.contains("read only"), "{refused}");
        let refused = open("gopher://x/y", &Options::default()).err().unwrap().to_string();
        assert!(refused.contains("https, http, s3"), "{refused}");
    }
}

// The example on the crate's page compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
