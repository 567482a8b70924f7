//! Errors, and the structures that they name.

use dentree_ext4_format::{BlockNumber, GroupNumber, InodeNumber, LogicalBlock, Problem};
use std::fmt;
use std::io;

/// Result of an ext4 operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no superblock and no intact backup.
    #[error(
        "this is no ext2, ext3 or ext4 file system, and no backup superblock was found: {0}. \
             For a partitioned disk give the partition or its offset"
    )]
    NotExt4(Problem),
    /// The image is damaged.
    #[error("damaged: {place}: {problem}. `e2fsck -fn` tells more")]
    Corrupt {
        /// The damaged structure.
        place: Place,
        /// The check that failed.
        problem: Problem,
    },
    /// The image is intact but has features that this crate lacks.
    #[error("not supported: {0}")]
    Unsupported(String),
    /// The device failed to read.
    #[error("reading {place}: {source}")]
    Io {
        /// What was being read.
        place: Place,
        /// The device's error.
        source: io::Error,
    },
    /// The device failed to write.
    #[error("writing {place}: {source}")]
    Write {
        /// What was being written.
        place: Place,
        /// The device's error.
        source: io::Error,
    },
    /// An inode without names was removed, but its blocks could not be freed.
    #[error("inode {ino} is removed, but its blocks stay in use until e2fsck frees them: {cause}")]
    BlocksLost {
        /// The inode.
        ino: InodeNumber,
        /// The damage in its block map or attributes.
        cause: Box<Error>,
    },
    /// The journal failed.
    #[error(transparent)]
    Journal(#[from] dentree_jbd2::Error),
    /// The file system is read-only.
    #[error("the file system was opened for reading, or an error has made it so")]
    ReadOnly,
    /// No free inode or block, or no room in a directory's index.
    #[error("no space left on the file system")]
    NoSpace,
    /// The inode has the maximum number of links.
    #[error("inode {0} has as many names as it can have")]
    TooManyLinks(InodeNumber),
    /// A directory to remove or replace has entries.
    #[error("directory {0} is not empty")]
    NotEmpty(InodeNumber),
    /// The file system does not accept the name.
    #[error("the name is not valid Unicode 12.1 text in UTF-8, or it is too long")]
    InvalidName,
    /// The file would be too long.
    #[error("inode {0} cannot hold a file that long")]
    FileTooLarge(InodeNumber),
    /// No such extended attribute.
    #[error("no such attribute")]
    NoAttribute,
    /// The extended attribute exists already.
    #[error("the attribute exists already")]
    AttributeExists,
    /// The value is no access control list.
    #[error("not an access control list: {0}")]
    InvalidValue(Problem),
    /// The content is encrypted.
    #[error("inode {0} is encrypted")]
    Encrypted(InodeNumber),
}

/// A structure of an image, as errors name it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The kind.
    pub structure: Structure,
    /// The inode that it belongs to.
    pub inode: Option<InodeNumber>,
    /// The block that it lies in, or starts at.
    pub block: Option<BlockNumber>,
}

/// The kinds of structure that can be damaged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Structure {
    /// The superblock.
    Superblock,
    /// A group descriptor.
    GroupDescriptor(GroupNumber),
    /// The block bitmap of a group.
    BlockBitmap(GroupNumber),
    /// Blocks to be freed.
    FreedBlocks,
    /// Free blocks.
    FreeBlocks,
    /// An inode.
    Inode,
    /// A block of the inode table.
    InodeTable,
    /// The inode bitmap of a group.
    InodeBitmap(GroupNumber),
    /// The orphan file.
    OrphanFile,
    /// A node of an extent tree.
    ExtentNode,
    /// A block of block pointers.
    IndirectBlock,
    /// File content.
    Content,
    /// A leaf block of a directory.
    DirectoryLeaf(LogicalBlock),
    /// An entry of a directory.
    DirectoryEntry,
    /// A block of a directory's htree index.
    DirectoryIndex(LogicalBlock),
    /// Content or entries in the inode.
    InlineData,
    /// The target of a symbolic link.
    SymlinkTarget,
    /// Extended attributes in the inode.
    InodeXattrs,
    /// A block of extended attributes.
    XattrBlock,
    /// The value of an extended attribute in an inode of its own.
    XattrValue,
    /// The journal.
    Journal,
}

impl fmt::Display for Structure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Structure::Superblock => "superblock",
            Structure::GroupDescriptor(group) => return write!(f, "descriptor of group {group}"),
            Structure::BlockBitmap(group) => return write!(f, "block bitmap of group {group}"),
            Structure::FreedBlocks => "blocks to be freed",
            Structure::FreeBlocks => "free blocks",
            Structure::Inode => "inode",
            Structure::InodeTable => "inode table",
            Structure::InodeBitmap(group) => return write!(f, "inode bitmap of group {group}"),
            Structure::OrphanFile => "orphan file",
            Structure::ExtentNode => "extent tree node",
            Structure::IndirectBlock => "indirect block",
            Structure::Content => "content",
            Structure::DirectoryLeaf(block) => return write!(f, "directory leaf (block {block} of it)"),
            Structure::DirectoryEntry => "directory entry",
            Structure::DirectoryIndex(block) => return write!(f, "directory index (block {block} of it)"),
            Structure::InlineData => "inline data",
            Structure::SymlinkTarget => "symbolic link target",
            Structure::InodeXattrs => "extended attributes in the inode",
            Structure::XattrBlock => "extended attribute block",
            Structure::XattrValue => "extended attribute value",
            Structure::Journal => "journal",
        })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.structure.fmt(f)?;
        if let Some(inode) = self.inode {
            write!(f, ", inode {inode}")?;
        }
        if let Some(block) = self.block {
            write!(f, ", block {block}")?;
        }
        Ok(())
    }
}

impl Structure {
    /// This structure of `inode`.
    pub(crate) fn of(self, inode: InodeNumber) -> Place {
        Place { structure: self, inode: Some(inode), block: None }
    }

    /// This structure, of no inode, in `block`.
    pub(crate) fn at(self, block: BlockNumber) -> Place {
        Place { structure: self, inode: None, block: Some(block) }
    }
}

impl Place {
    /// This place, in `block`.
    pub(crate) fn at(self, block: BlockNumber) -> Place {
        Place { block: Some(block), ..self }
    }

    /// An error for a failed check.
    pub(crate) fn corrupt(self, problem: Problem) -> Error {
        Error::Corrupt { place: self, problem }
    }

    /// An error for a failed write.
    pub(crate) fn io_write(self, source: io::Error) -> Error {
        Error::Write { place: self, source }
    }

    /// An error for a failed read.
    pub(crate) fn io(self, source: io::Error) -> Error {
        Error::Io { place: self, source }
    }
}

impl From<Error> for dentree_vfs::Error {
    fn from(error: Error) -> dentree_vfs::Error {
        match error {
            Error::NotExt4(_) | Error::Corrupt { .. } | Error::BlocksLost { .. } => {
                dentree_vfs::Error::Corrupt(Box::new(error))
            }
            Error::Unsupported(_) => dentree_vfs::Error::Unsupported(Box::new(error)),
            Error::Journal(ref journal) => match journal {
                dentree_jbd2::Error::Corrupt { .. } => dentree_vfs::Error::Corrupt(Box::new(error)),
                dentree_jbd2::Error::Unsupported { .. } => dentree_vfs::Error::Unsupported(Box::new(error)),
                dentree_jbd2::Error::Read { .. }
                | dentree_jbd2::Error::NotClean
                | dentree_jbd2::Error::Write(_)
                | dentree_jbd2::Error::Aborted(_)
                | dentree_jbd2::Error::TooLarge { .. } => dentree_vfs::Error::Io(Box::new(error)),
            },
            Error::Io { .. } | Error::Write { .. } => dentree_vfs::Error::Io(Box::new(error)),
            Error::ReadOnly => dentree_vfs::Error::ReadOnly,
            Error::NoSpace => dentree_vfs::Error::NoSpace,
            Error::TooManyLinks(_) => dentree_vfs::Error::TooManyLinks,
            Error::NotEmpty(_) => dentree_vfs::Error::NotEmpty,
            Error::InvalidName | Error::InvalidValue(_) => dentree_vfs::Error::Invalid,
            Error::NoAttribute => dentree_vfs::Error::NoAttribute,
            Error::AttributeExists => dentree_vfs::Error::Exists,
            Error::FileTooLarge(_) => dentree_vfs::Error::FileTooLarge,
            Error::Encrypted(_) => dentree_vfs::Error::Encrypted,
        }
    }
}
