//! `imago` panics at some damaged images, in the parsing of headers above all.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Does `work`, and makes an error of a panic in it.
///
/// The locks of `imago` are released by unwinding and not poisoned. A write that ends this way may
/// have been made in part, as one that ends with an error.
pub(crate) fn contained<T>(work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the image is damaged in a way that its reader does not know",
        ))
    })
}
