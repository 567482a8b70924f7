//! Errors, and their conversion to errno.

#[cfg(unix)]
use rustix::io::Errno;
use std::error::Error as StdError;

/// The underlying error of the file system or device, which names structure, inode and block.
pub type ErrorSource = Box<dyn StdError + Send + Sync + 'static>;

/// Result of a file system operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No such name.
    #[error("no such file or directory")]
    NotFound,
    /// A component that must be a directory is something else.
    #[error("not a directory")]
    NotADirectory,
    /// The operation does not apply to directories.
    #[error("is a directory")]
    IsADirectory,
    /// More than 40 symbolic links, or a link where none may be followed.
    #[error("too many levels of symbolic links")]
    Loop,
    /// A component of more than 255 bytes.
    #[error("file name too long")]
    NameTooLong,
    /// The identity may not do this.
    #[error("permission denied")]
    AccessDenied,
    /// Not allowed for this identity, regardless of the permission bits.
    #[error("operation not permitted")]
    NotPermitted,
    /// A beneath-only walk would have left its root.
    #[error("the path leaves the directory that it must stay beneath")]
    Escapes,
    /// Opened read-only, or read-only after an error.
    #[error("read-only file system")]
    ReadOnly,
    /// No such extended attribute.
    #[error("no such attribute")]
    NoAttribute,
    /// Seek past the last data or hole.
    #[error("no data or hole there")]
    NoExtent,
    /// The name exists.
    #[error("the name exists already")]
    Exists,
    /// A directory that must be empty has entries.
    #[error("directory not empty")]
    NotEmpty,
    /// The root, or `.` or `..`, which cannot be removed or renamed.
    #[error("in use by the file system itself")]
    Busy,
    /// No free space, or none that this identity may use.
    #[error("no space left on the file system")]
    NoSpace,
    /// A file longer than the file system can hold.
    #[error("file too large")]
    FileTooLarge,
    /// More names than an inode can have.
    #[error("too many links")]
    TooManyLinks,
    /// A name or value is too long.
    #[error("out of range")]
    Range,
    /// Invalid argument.
    #[error("invalid argument")]
    Invalid,
    /// ESTALE: a handle whose inode is gone. Also, inside this crate, a name that was removed while
    /// it was looked up: `Vfs::retry` repeats that, and only after 64 attempts does it get out.
    #[error("stale handle")]
    Stale,
    /// The content is encrypted; there is no key.
    #[error("the content is encrypted; dentree has no keys: mount it where the key is")]
    Encrypted,
    /// The image is damaged.
    #[error(transparent)]
    Corrupt(ErrorSource),
    /// The image uses a feature that Dentree does not support.
    #[error(transparent)]
    Unsupported(ErrorSource),
    /// The device failed.
    #[error(transparent)]
    Io(ErrorSource),
}

/// Linux alone has errors for these.
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
    /// The errno for system calls and FUSE.
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
