//! What differs between host systems: names, files, attributes, signals, limits.
//!
//! `unix` has Linux and macOS; its own modules `linux` and `macos` hold what these two do not
//! share. `windows` has the same interface. A host that cannot keep an attribute says so by an
//! error, which a copy counts and reports as a loss.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub(crate) use unix::*;
#[cfg(windows)]
pub(crate) use windows::*;

use dentree_vfs::Attr;

/// The attributes of a local file.
pub(crate) struct Stat {
    pub(crate) attr: Attr,
    /// With the inode number the identity of the file.
    pub(crate) device: u64,
}

impl Stat {
    /// The same for all names of a file.
    pub(crate) fn identity(&self) -> (u64, u64) {
        (self.device, self.attr.ino.0)
    }
}

/// What happens to an existing entry of the name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Existing {
    /// It is replaced, unless it is a directory.
    Replace,
    /// It stays, and publishing fails.
    Keep,
}

/// How a file is copied to a name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// The user gave the name: links are followed.
    pub(crate) named: bool,
    /// Hard links are kept: an existing file with other names is replaced.
    pub(crate) links: bool,
    /// An existing entry is replaced.
    pub(crate) remove: bool,
    /// An existing file that cannot be opened is replaced.
    pub(crate) force: bool,
}

/// Where the content of a file goes.
pub(crate) enum Destination<'a> {
    New(TempEntry<'a>),
    Instead(TempEntry<'a>),
    Through(std::fs::File),
    Stream(std::fs::File),
}

/// An extended attribute: full name and value.
pub(crate) type Xattr = (Vec<u8>, Vec<u8>);
