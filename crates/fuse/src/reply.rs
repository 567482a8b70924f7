//! What is returned to the kernel.

use crate::abi;
use rustix::io::Errno;
use std::time::Duration;
use zerocopy::{Immutable, IntoBytes};

/// Longest reply with a fixed length.
const FIXED_MAX: usize = size_of::<abi::CreateOut>();

/// Finds a reply on another thread.
pub(crate) type Find = Box<dyn FnOnce() -> Reply + Send>;

/// The outcome of a request.
pub(crate) enum Reply {
    Error(Errno),
    Fixed {
        bytes: [u8; FIXED_MAX],
        len: usize,
    },
    Bytes(Vec<u8>),
    /// That many bytes already lie in the space for the reply.
    InPlace(usize),
    /// The kernel waits for no reply.
    Nothing,
    /// A thread that serves no requests has to `find` it: it waits for other requests. Where too
    /// many requests wait like that, `instead` is a poorer reply.
    Later {
        find: Box<dyn FnOnce() -> Reply + Send>,
        instead: Box<Reply>,
    },
}

impl Reply {
    /// Success that says nothing more.
    pub(crate) const DONE: Reply = Reply::InPlace(0);

    pub(crate) fn fixed<T: IntoBytes + Immutable>(value: &T) -> Reply {
        const { assert!(size_of::<T>() <= FIXED_MAX) };
        let (value, mut bytes) = (value.as_bytes(), [0; FIXED_MAX]);
        bytes[..value.len()].copy_from_slice(value);
        Reply::Fixed { bytes, len: value.len() }
    }
}

impl Reply {
    /// Puts the reply's body into `space`. Returns the error and the length; `None` where nothing
    /// is replied.
    pub(crate) fn put(self, space: &mut [u8]) -> Option<(i32, usize)> {
        let bytes = match self {
            Reply::Nothing => return None,
            Reply::Error(errno) => return Some((-errno.raw_os_error(), 0)),
            Reply::InPlace(len) => return Some((0, len)),
            Reply::Later { instead, .. } => return instead.put(space),
            Reply::Fixed { ref bytes, len } => &bytes[..len],
            Reply::Bytes(ref bytes) => bytes,
        };
        let Some(place) = space.get_mut(..bytes.len()) else {
            return Some((-Errno::IO.raw_os_error(), 0));
        };
        place.copy_from_slice(bytes);
        Some((0, bytes.len()))
    }
}

/// Seconds and nanoseconds of a lifetime.
fn lifetime(ttl: Duration) -> (u64, u32) {
    (ttl.as_secs(), ttl.subsec_nanos())
}

pub(crate) fn entry(node: u64, generation: u64, ttl: Duration, attr: abi::Attr) -> abi::EntryOut {
    let (seconds, nanos) = lifetime(ttl);
    abi::EntryOut {
        nodeid: node,
        generation,
        entry_valid: seconds,
        attr_valid: seconds,
        entry_valid_nsec: nanos,
        attr_valid_nsec: nanos,
        attr,
    }
}

pub(crate) fn attributes(ttl: Duration, attr: abi::Attr) -> Reply {
    let (attr_valid, attr_valid_nsec) = lifetime(ttl);
    Reply::fixed(&abi::AttrOut { attr_valid, attr_valid_nsec, dummy: 0, attr })
}

pub(crate) fn written(size: u32) -> Reply {
    Reply::fixed(&abi::WriteOut { size, padding: 0 })
}

/// The length for a probe (`size` 0), ERANGE where the caller's buffer is too small, else the
/// bytes.
pub(crate) fn xattr(size: u32, bytes: Vec<u8>) -> Reply {
    match u32::try_from(bytes.len()) {
        Ok(len) if size == 0 => Reply::fixed(&abi::GetxattrOut { size: len, padding: 0 }),
        Ok(len) if len <= size => Reply::Bytes(bytes),
        _ => Reply::Error(Errno::RANGE),
    }
}

pub(crate) fn ioctl(bytes: &[u8]) -> Reply {
    Reply::Bytes([abi::IoctlOut::default().as_bytes(), bytes].concat())
}

/// Entries of a listing, in the space for a reply.
pub(crate) struct Listing<'a> {
    space: &'a mut [u8],
    len: usize,
}

impl<'a> Listing<'a> {
    /// An empty listing in the first `size` bytes of `space`.
    pub(crate) fn new(space: &'a mut [u8], size: u32) -> Self {
        let size = space.len().min(size as usize);
        Listing { space: &mut space[..size], len: 0 }
    }

    /// Adds an entry, with its attributes if `plus`. Returns whether there was no room.
    pub(crate) fn add(
        &mut self,
        plus: Option<&abi::EntryOut>,
        (ino, offset, mode): (u64, u64, u32),
        name: &[u8],
    ) -> bool {
        let dirent = abi::Dirent { ino, off: offset, namelen: name.len() as u32, kind: mode >> 12 };
        let plus = plus.map_or(&[][..], |entry| entry.as_bytes());
        let len = plus.len() + size_of::<abi::Dirent>() + name.len();
        let padded = len.next_multiple_of(8);
        let Some(place) = self.space.get_mut(self.len..self.len + padded) else { return true };
        let (entry, rest) = place.split_at_mut(plus.len());
        entry.copy_from_slice(plus);
        let (head, rest) = rest.split_at_mut(size_of::<abi::Dirent>());
        head.copy_from_slice(dirent.as_bytes());
        let (text, padding) = rest.split_at_mut(name.len());
        text.copy_from_slice(name);
        padding.fill(0);
        self.len += padded;
        false
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn finish(self) -> Reply {
        Reply::InPlace(self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_ends_before_the_entry_that_does_not_fit() {
        let mut space = [0xff; 100];
        let mut listing = Listing::new(&mut space, 72);
        assert!(!listing.add(None, (12, 1, 0o040_755), b"ab"));
        assert!(!listing.add(None, (13, 2, 0o100_644), b"12345678"));
        assert!(listing.add(None, (14, 3, 0o100_644), b"c"));
        assert!(matches!(listing.finish(), Reply::InPlace(64)));
        assert_eq!(space[16..32], [2, 0, 0, 0, 4, 0, 0, 0, b'a', b'b', 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn an_attribute_that_does_not_fit_is_out_of_range() {
        assert!(matches!(xattr(3, vec![1; 4]), Reply::Error(Errno::RANGE)));
        assert!(matches!(xattr(4, vec![1; 4]), Reply::Bytes(_)));
        assert!(matches!(xattr(0, vec![1; 4]), Reply::Fixed { len: 8, .. }));
    }
}
