//! Opening: first request and disk cache.

use crate::disk::DiskCache;
use crate::host::HAS_SPARSE_FILES;
use crate::object::{First, Object};
use crate::{Error, Options, address};
use dentree_source_blocks::{BLOCK, Blocks, FIRST, runtime};

/// An object as a read-only device.
///
/// Reads fail if the object changes after opening.
pub type ObjectDevice = Blocks<Object, DiskCache>;

/// Opens `https://…`, `http://…`, `s3://BUCKET/KEY`, `gs://BUCKET/KEY` or `az://CONTAINER/KEY`.
///
/// # Errors
/// See [`Error`].
pub fn open(address: &str, options: &Options) -> Result<ObjectDevice, Error> {
    if options.cache.is_some() && !HAS_SPARSE_FILES {
        let problem = "there is no cache on disk on this system: leave its directory out".to_owned();
        return Err(Error::Settings { problem });
    }
    // Another part of the program may have chosen the same already. Before the clients are made: it
    // chooses their TLS.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let threads = |error: std::io::Error| Error::Threads { problem: error.to_string() };
    let places = address::places(address, options)?;
    let known = options.cache.as_ref().and_then(|cache| DiskCache::known(cache, address));
    let identity = known.as_ref().map(|known| &known.identity);
    let opening = Object::open(places, FIRST * BLOCK, identity);
    let (object, first) = runtime().map_err(threads)?.block_on(opening)?;
    let make = |cache| DiskCache::make(cache, address, &object.identity).ok();
    let disk = match known.filter(|known| known.identity == object.identity) {
        Some(known) => Some(known),
        None => options.cache.as_ref().filter(|_| object.identity.is_telling()).and_then(make),
    };
    let first = match first {
        First::Bytes(bytes) => Some(bytes),
        First::Unchanged => None,
    };
    Blocks::new(object, disk, first).map_err(threads)
}
