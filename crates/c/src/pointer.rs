//! Pointers of C: all that is dereferenced of a caller's is dereferenced here.

use crate::error::Failure;
use rustix::io::Errno;
use std::ffi::{CStr, c_char, c_void};

fn null(what: &str) -> Failure {
    Failure::new(Errno::FAULT, format!("{what} is a null pointer"))
}

/// The bytes of a string.
///
/// # Safety
/// `text` is null or a string that ends with a zero, and is not changed for `'a`.
pub(crate) unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a [u8], Failure> {
    if text.is_null() {
        return Err(null(what));
    }
    // SAFETY: as the caller says.
    Ok(unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// What a handle stands for.
///
/// # Safety
/// `handle` is null, or came from [`give`] and is not taken back for `'a`.
pub(crate) unsafe fn handle<'a, T>(handle: *const T, what: &str) -> Result<&'a T, Failure> {
    // SAFETY: as the caller says.
    unsafe { handle.as_ref() }.ok_or_else(|| null(what))
}

/// Gives a value to a caller, until [`take`].
///
/// # Safety
/// `place` is null or may be written.
pub(crate) unsafe fn give<T>(place: *mut *mut T, value: T, what: &str) -> Result<(), Failure> {
    // SAFETY: the pointer that is written is valid, and what it points to is made here.
    unsafe { set(place, Box::into_raw(Box::new(value)), what) }
}

/// Takes a value back. Null is none.
///
/// # Safety
/// `handle` is null, or came from [`give`], and nothing uses it any more.
pub(crate) unsafe fn take<T>(handle: *mut T) -> Option<Box<T>> {
    // SAFETY: as the caller says.
    (!handle.is_null()).then(|| unsafe { Box::from_raw(handle) })
}

/// Writes a value to a caller's place.
///
/// # Safety
/// `place` is null or may be written.
pub(crate) unsafe fn set<T>(place: *mut T, value: T, what: &str) -> Result<(), Failure> {
    if place.is_null() {
        return Err(null(what));
    }
    // SAFETY: as the caller says. The place may hold no value yet, which is not dropped.
    unsafe { place.write(value) };
    Ok(())
}

/// Copies as much of `bytes` as fits.
///
/// # Safety
/// `place` is null or `len` bytes there may be written.
pub(crate) unsafe fn copy(bytes: &[u8], place: *mut c_void, len: usize, what: &str) -> Result<(), Failure> {
    let len = len.min(bytes.len());
    if len == 0 {
        return Ok(());
    }
    if place.is_null() {
        return Err(null(what));
    }
    // SAFETY: as the caller says; both have `len` bytes, and `bytes` is memory of ours.
    unsafe { place.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), len) };
    Ok(())
}
