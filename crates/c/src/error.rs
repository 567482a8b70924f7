//! Failures: a negative errno, and a message for the thread that failed.

use rustix::io::Errno;
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static MESSAGE: RefCell<CString> = RefCell::default();
}

/// Why a call failed.
pub(crate) struct Failure {
    errno: Errno,
    message: String,
}

impl Failure {
    pub(crate) fn new(errno: Errno, message: impl Into<String>) -> Self {
        Failure { errno, message: message.into() }
    }

    /// Of a path within an image.
    pub(crate) fn at(path: &[u8], error: &dentree_vfs::Error) -> Self {
        Failure::new(error.errno(), format!("{}: {error}", String::from_utf8_lossy(path)))
    }
}

/// What `work` returns, or the negative errno of its failure. A panic, which is a fault of this
/// library, fails with `EIO`.
pub(crate) fn returns<T: From<c_int>>(work: impl FnOnce() -> Result<T, Failure>) -> T {
    // What a panic leaves is behind locks that recover, or dropped.
    let done = catch_unwind(AssertUnwindSafe(work));
    let failure = match done {
        Ok(Ok(done)) => return done,
        Ok(Err(failure)) => failure,
        Err(_) => Failure::new(Errno::IO, "a fault of libdentree; please report it"),
    };
    let message = failure.message.replace('\0', "\u{fffd}");
    MESSAGE.set(CString::new(message).unwrap_or_default());
    (-failure.errno.raw_os_error()).into()
}

/// What the last failure of a call of this thread was: path or image, and reason. It is valid until
/// the next failure in this thread, and empty before the first.
#[unsafe(no_mangle)]
pub extern "C" fn dentree_message() -> *const c_char {
    MESSAGE.with_borrow(|message| message.as_ptr())
}
