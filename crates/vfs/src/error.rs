//! What can go wrong, and the one place where an errno is made of it.

use rustix::io::Errno;
use std::error::Error as StdError;

/// The cause below: the file system's or the device's own error, which names structure, inode and block.
pub type Cause = Box<dyn StdError + Send + Sync + 'static>;

/// Result of a file system operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation did not succeed.
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
    /// More than 40 symbolic links on the way, or a link where none may be followed.
    #[error("too many levels of symbolic links")]
    Loop,
    /// A component of more than 255 bytes.
    #[error("file name too long")]
    NameTooLong,
    /// The identity may not do this.
    #[error("permission denied")]
    AccessDenied,
    /// Not for this identity whatever the permission bits say.
    #[error("operation not permitted")]
    NotPermitted,
    /// A beneath-only walk would have left its root.
    #[error("the path leaves the directory that it must stay beneath")]
    Escapes,
    /// The file system was opened for reading, or an error has made it so.
    #[error("read-only file system")]
    ReadOnly,
    /// No such extended attribute.
    #[error("no such attribute")]
    NoAttribute,
    /// Seek past the last data or hole.
    #[error("no data or hole there")]
    NoExtent,
    /// The name is already there.
    #[error("the name exists already")]
    Exists,
    /// A directory that must be empty has entries.
    #[error("directory not empty")]
    NotEmpty,
    /// The root, or `.` or `..`, which cannot be removed or renamed.
    #[error("in use by the file system itself")]
    Busy,
    /// No space for it, or no space that this identity may use.
    #[error("no space left on the file system")]
    NoSpace,
    /// A file longer than the file system can hold.
    #[error("file too large")]
    FileTooLarge,
    /// More names than an inode can have.
    #[error("too many links")]
    TooManyLinks,
    /// A name or value that is too long for what it is meant for.
    #[error("out of range")]
    Range,
    /// An argument that means nothing here.
    #[error("invalid argument")]
    Invalid,
    /// A handle whose inode is gone.
    #[error("stale handle")]
    Stale,
    /// The content is encrypted and no key is here.
    #[error("the content is encrypted; dentree has no keys: mount it where the key is")]
    Encrypted,
    /// The image is damaged.
    #[error(transparent)]
    Corrupt(Cause),
    /// The image uses something that Dentree does not know.
    #[error(transparent)]
    Unsupported(Cause),
    /// The device failed.
    #[error(transparent)]
    Io(Cause),
}

impl Error {
    /// The errno that `open(2)`, FUSE and the like answer with.
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
            Error::Encrypted => Errno::NOKEY,
            Error::Corrupt(_) => Errno::UCLEAN,
            Error::Unsupported(_) => Errno::OPNOTSUPP,
            Error::Io(_) => Errno::IO,
        }
    }
}
