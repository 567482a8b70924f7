//! `imago` panics on some damaged images, mostly on headers.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Turns a panic into an error.
///
/// `imago`'s locks are released by unwinding and not poisoned. As after an error, a write may be
/// partial.
pub(crate) fn contained<T>(work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the image is damaged in a way that its reader does not know",
        ))
    })
}
