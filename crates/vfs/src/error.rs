//! Errors, and their errno.

#[cfg(unix)]
use rustix::io::Errno;
use std::error::Error as StdError;

/// The file system's or device's error: structure, inode and block.
pub type ErrorSource = Box<dyn StdError + Send + Sync + 'static>;

/// Result of an operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No such name.
    #[error("no such file or directory")]
    NotFound,
    /// A component is not a directory.
    #[error("not a directory")]
    NotADirectory,
    /// Not for directories.
    #[error("is a directory")]
    IsADirectory,
    /// More than 40 symbolic links, or one where none is allowed.
    #[error("too many levels of symbolic links")]
    Loop,
    /// A component exceeds 255 bytes.
    #[error("file name too long")]
    NameTooLong,
    /// Denied by permissions.
    #[error("permission denied")]
    AccessDenied,
    /// Denied regardless of permissions.
    #[error("operation not permitted")]
    NotPermitted,
    /// A beneath-only walk left its root.
    #[error("the path leaves its starting directory")]
    Escapes,
    /// Opened read-only, or read-only after an error.
    #[error("read-only file system")]
    ReadOnly,
    /// No such extended attribute.
    #[error("no such attribute")]
    NoAttribute,
    /// No data or hole after the offset.
    #[error("no data or hole at this offset")]
    NoExtent,
    /// The name exists.
    #[error("the name already exists")]
    Exists,
    /// The directory has entries.
    #[error("directory not empty")]
    NotEmpty,
    /// The root, `.` or `..`.
    #[error("in use by the file system")]
    Busy,
    /// No free space.
    #[error("no space left on the file system")]
    NoSpace,
    /// The file exceeds the maximum size.
    #[error("file too large")]
    FileTooLarge,
    /// The inode has the maximum of names.
    #[error("too many links")]
    TooManyLinks,
    /// A name or value is too long.
    #[error("out of range")]
    Range,
    /// Invalid argument.
    #[error("invalid argument")]
    Invalid,
    /// The inode is gone. In this crate also: the name was removed during its lookup; `Vfs::retry`
    /// repeats that.
    #[error("stale handle")]
    Stale,
    /// Encrypted, without a key.
    #[error("the content is encrypted, and dentree has no keys: mount the image where the key is available")]
    Encrypted,
    /// The image is damaged.
    #[error(transparent)]
    Corrupt(ErrorSource),
    /// An unsupported feature.
    #[error(transparent)]
    Unsupported(ErrorSource),
    /// The device failed.
    #[error(transparent)]
    Io(ErrorSource),
}

/// Only on Linux.
#[cfg(target_os = "linux")]
const NO_KEY: Errno = Errno::NOKEY;
#[cfg(target_os = "linux")]
const DAMAGED: Errno = Errno::UCLEAN;
#[cfg(all(unix, not(target_os = "linux")))]
const NO_KEY: Errno = Errno::ACCESS;
#[cfg(all(unix, not(target_os = "linux")))]
const DAMAGED: Errno = Errno::IO;

#[cfg(unix)]
impl Error {
    /// The errno.
    pub fn errno(&self) -> Errno {
        match self {
            Error::NotFound => Errno::NOENT,
            Error::NotADirectory => Errno::NOTDIR,
            Error::IsADirectory => Errno::ISDIR,
            Error::Loop => Errno::LOOP,
            Error::NameTooLong => Errno::NAMETOOLONG,
            Error::AccessDenied => Errno::ACCESS,
            Error::NotPermitted => Errno::PERM,
            Error::Escapes => Errno::XDEV,
            Error::ReadOnly => Errno::ROFS,
            Error::NoAttribute => Errno::NODATA,
            Error::NoExtent => Errno::NXIO,
            Error::Exists => Errno::EXIST,
            Error::NotEmpty => Errno::NOTEMPTY,
            Error::Busy => Errno::BUSY,
            Error::NoSpace => Errno::NOSPC,
            Error::FileTooLarge => Errno::FBIG,
            Error::TooManyLinks => Errno::MLINK,
            Error::Range => Errno::RANGE,
            Error::Invalid => Errno::INVAL,
            Error::Stale => Errno::STALE,
            Error::Encrypted => NO_KEY,
            Error::Corrupt(_) => DAMAGED,
            Error::Unsupported(_) => Errno::OPNOTSUPP,
            Error::Io(_) => Errno::IO,
        }
    }
}
