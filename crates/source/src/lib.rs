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
//! `object-stores`: `https`, `http`, `s3`, `gs` and `az`, read only. `nbd`: `nbd`, `nbds` and both
//! with `+unix`, and local files of other formats by [`open_file`]. `qcow2`: qcow2 images wherever
//! they are, and overlays. Android sparse images are read without any.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod android;
mod overlay;

use dentree_blockdev::{Access, BlockDevice, FileDevice};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

#[cfg(feature = "object-stores")]
use dentree_source_object::CacheOptions;
#[cfg(feature = "object-stores")]
pub use dentree_source_object::{Cached, cached};

/// How an image is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// For reading alone, or for writing too.
    pub access: Access,
    /// The server of an object store, instead of the cloud's own.
    pub endpoint: Option<String>,
    /// Where what is fetched is kept for later runs; `None`: nowhere.
    pub cache_dir: Option<PathBuf>,
    /// Bytes that may be kept there.
    pub cache_size: u64,
    /// A file that keeps the changes: what is opened is only read.
    pub overlay: Option<PathBuf>,
}

impl Options {
    /// How what lies below an overlay is opened.
    fn access_below(&self) -> Access {
        if self.overlay.is_some() { Access::ReadOnly } else { self.access }
    }
}

impl Default for Options {
    fn default() -> Self {
        Options {
            access: Access::ReadOnly,
            endpoint: None,
            cache_dir: None,
            cache_size: 1 << 30,
            overlay: None,
        }
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
    /// An Android sparse image that is damaged, or of another version.
    #[error("cannot be read as an Android sparse image: {0}; compare simg2img")]
    Sparse(io::Error),
    /// An Android sparse image was to be written.
    #[error("an Android sparse image is read only: `simg2img` makes a raw image of it; or name an overlay")]
    SparseReadOnly,
    /// This build has no overlays.
    #[error("this build has no overlays (cargo feature `qcow2`)")]
    NoOverlays,
    /// What is there cannot be written.
    #[error("images at addresses of {scheme}:// are read only: copy it to a local file, or name an overlay")]
    ReadOnly {
        /// What stands before `://`.
        scheme: String,
    },
    /// The local file.
    #[error(transparent)]
    File(#[from] dentree_blockdev::Error),
    /// The NBD server, or the program that serves another format.
    #[cfg(feature = "nbd")]
    #[error(transparent)]
    Nbd(#[from] dentree_source_nbd::Error),
    /// The qcow2 image, or the overlay.
    #[cfg(feature = "qcow2")]
    #[error(transparent)]
    Qcow2(#[from] dentree_source_qcow2::Error),
    /// The object store or server.
    #[cfg(feature = "object-stores")]
    #[error(transparent)]
    Object(#[from] dentree_source_object::Error),
}

impl Error {
    /// Whether another build, another program or a local copy opens it.
    pub fn is_unsupported(&self) -> bool {
        match self {
            Error::File(_) | Error::Sparse(_) => false,
            Error::Scheme { .. }
            | Error::NotBuilt { .. }
            | Error::NoOverlays
            | Error::ReadOnly { .. }
            | Error::SparseReadOnly => true,
            #[cfg(feature = "nbd")]
            Error::Nbd(error) => matches!(error, dentree_source_nbd::Error::Missing { .. }),
            #[cfg(feature = "qcow2")]
            Error::Qcow2(error) => matches!(error, dentree_source_qcow2::Error::Format { .. }),
            #[cfg(feature = "object-stores")]
            Error::Object(_) => false,
        }
    }
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

const FAMILIES: &[Family] = &[
    Family {
        schemes: &["https", "http", "s3", "gs", "az"],
        feature: "object-stores",
        writable: false,
        #[cfg(feature = "object-stores")]
        open: Some(object),
        #[cfg(not(feature = "object-stores"))]
        open: None,
    },
    Family {
        schemes: &["nbd", "nbds", "nbd+unix", "nbds+unix"],
        feature: "nbd",
        writable: true,
        #[cfg(feature = "nbd")]
        open: Some(nbd),
        #[cfg(not(feature = "nbd"))]
        open: None,
    },
];

/// What stands before the `://` of an address; `None` for a local name.
pub fn scheme(name: &str) -> Option<&str> {
    let (scheme, _) = name.split_once("://")?;
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'+';
    (scheme.len() > 1 && scheme.bytes().all(is_letter)).then_some(scheme)
}

/// Opens the image at an address; a qcow2 image as the disk in it.
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
    let access = options.access_below();
    if access == Access::ReadWrite && !family.writable {
        return Err(Error::ReadOnly { scheme });
    }
    let device = open(address, &Options { access, ..options.clone() })?;
    if android::is_sparse(&*device).map_err(dentree_blockdev::Error::Read)? {
        return overlay::lay_over(unpacked(device, access)?, "raw", address, options);
    }
    #[cfg(feature = "qcow2")]
    if access == Access::ReadOnly
        && dentree_source_qcow2::is_image(&*device).map_err(dentree_blockdev::Error::Read)?
    {
        let disk = Arc::new(dentree_source_qcow2::Qcow2Device::over(device, address)?);
        return overlay::lay_over(disk, "qcow2", address, options);
    }
    overlay::lay_over(device, "raw", address, options)
}

/// Opens a local file, by `open`; one of another format as what is in it, where this build or a
/// program reads it.
///
/// # Errors
/// See [`Error`].
pub fn open_file(
    open: impl FnOnce(Access) -> Result<FileDevice, dentree_blockdev::Error>,
    options: &Options,
) -> Result<Arc<dyn BlockDevice>, Error> {
    let access = options.access_below();
    let file = Arc::new(open(access)?);
    let name = file.path().canonicalize().unwrap_or_else(|_| file.path().to_owned());
    if android::is_sparse(&*file).map_err(dentree_blockdev::Error::Read)? {
        return overlay::lay_over(unpacked(file, access)?, "raw", &name.to_string_lossy(), options);
    }
    let (device, format) = disk_in(file, access)?;
    overlay::lay_over(device, format, &name.to_string_lossy(), options)
}

/// The disk in an Android sparse image.
fn unpacked(file: Arc<dyn BlockDevice>, access: Access) -> Result<Arc<dyn BlockDevice>, Error> {
    if access == Access::ReadWrite {
        return Err(Error::SparseReadOnly);
    }
    Ok(Arc::new(android::SparseDevice::open(file).map_err(Error::Sparse)?))
}

/// The disk in a file, and what qemu calls the file's format.
#[cfg(any(feature = "nbd", feature = "qcow2"))]
fn disk_in(file: Arc<FileDevice>, access: Access) -> Result<(Arc<dyn BlockDevice>, &'static str), Error> {
    use dentree_blockdev::Engine;
    let Some(format) = dentree_blockdev::foreign(&*file, 0)? else { return Ok((file, "raw")) };
    #[cfg(feature = "qcow2")]
    if format.engine == Some(Engine::QemuNbd("qcow2")) {
        match dentree_source_qcow2::Qcow2Device::open(Arc::clone(&file), access) {
            Ok(device) => return Ok((Arc::new(device), "qcow2")),
            // A part of the format that the program may read.
            Err(_) if cfg!(all(feature = "nbd", unix)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    // The programs need Unix sockets.
    #[cfg(all(feature = "nbd", unix))]
    if let Some(engine) = format.engine {
        let name = if let Engine::QemuNbd(name) = engine { name } else { "raw" };
        return Ok((Arc::new(dentree_source_nbd::open_foreign(file, &format, engine, access)?), name));
    }
    Ok((file, "raw"))
}

/// The file as it is: this build reads no other format.
#[cfg(not(any(feature = "nbd", feature = "qcow2")))]
fn disk_in(file: Arc<FileDevice>, _: Access) -> Result<(Arc<dyn BlockDevice>, &'static str), Error> {
    Ok((file, "raw"))
}

/// All schemes, for a message.
fn known() -> String {
    FAMILIES.iter().flat_map(|family| family.schemes).copied().collect::<Vec<_>>().join(", ")
}

#[cfg(feature = "nbd")]
fn nbd(address: &str, options: &Options) -> Result<Arc<dyn BlockDevice>, Error> {
    use dentree_source_nbd::{NbdDevice, Patience};
    let device = NbdDevice::open(&address.parse()?, options.access, Patience::default())?;
    Ok(match options.access {
        Access::ReadOnly => Arc::new(device.in_blocks()?),
        Access::ReadWrite => Arc::new(device),
    })
}

#[cfg(feature = "object-stores")]
fn object(address: &str, options: &Options) -> Result<Arc<dyn BlockDevice>, Error> {
    let cache = options.cache_dir.clone().map(|dir| CacheOptions { dir, size: options.cache_size });
    let within = dentree_source_object::Options { endpoint: options.endpoint.clone(), cache };
    Ok(Arc::new(dentree_source_object::open(address, &within)?))
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
