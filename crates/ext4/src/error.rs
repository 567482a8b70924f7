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
        "no ext2, ext3 or ext4 file system, and no backup superblock: {0}. \
             For a partitioned disk, give the partition or its offset"
    )]
    NotExt4(Problem),
    /// The image is damaged.
    #[error("damaged: {place}: {problem}. For details run `e2fsck -fn`")]
    Corrupt {
        /// The damaged structure.
        place: Place,
        /// The check that failed.
        problem: Problem,
    },
    /// The image has features that this crate lacks.
    #[error("not supported: {0}")]
    Unsupported(String),
    /// A read failed.
    #[error("reading {place}: {source}")]
    Io {
        /// What was read.
        place: Place,
        /// The device's error.
        source: io::Error,
    },
    /// A write failed.
    #[error("writing {place}: {source}")]
    Write {
        /// What was written.
        place: Place,
        /// The device's error.
        source: io::Error,
    },
    /// An inode without links was removed, but its blocks were not freed.
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
    #[error("the file system is read-only: opened for reading, or stopped by an error")]
    ReadOnly,
    /// No free inode or block, or a full directory index.
    #[error("no space left on the file system")]
    NoSpace,
    /// The inode has the maximum number of links.
    #[error("inode {0} has the maximum number of links")]
    TooManyLinks(InodeNumber),
    /// A directory to remove or replace has entries.
    #[error("directory {0} is not empty")]
    NotEmpty(InodeNumber),
    /// The file system does not accept the name.
    #[error("the name is not valid Unicode 12.1 text in UTF-8, or it is too long")]
    InvalidName,
    /// The file would be too long.
    #[error("inode {0} cannot grow to that size")]
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

/// A structure of an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Its kind.
    pub structure: Structure,
    /// Its inode.
    pub inode: Option<InodeNumber>,
    /// Its block, or its first.
    pub block: Option<BlockNumber>,
}

/// The kinds of structure that errors name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Structure {
    /// The superblock.
    Superblock,
    /// A group's descriptor.
    GroupDescriptor(GroupNumber),
    /// A group's block bitmap.
    BlockBitmap(GroupNumber),
    /// Blocks to be freed.
    FreedBlocks,
    /// Free blocks.
    FreeBlocks,
    /// An inode.
    Inode,
    /// A block of the inode table.
    InodeTable,
    /// A group's inode bitmap.
    InodeBitmap(GroupNumber),
    /// The orphan file.
    OrphanFile,
    /// A node of an extent tree.
    ExtentNode,
    /// An indirect block.
    IndirectBlock,
    /// File content.
    Content,
    /// A directory leaf.
    DirectoryLeaf(LogicalBlock),
    /// A directory entry.
    DirectoryEntry,
    /// A block of an htree index.
    DirectoryIndex(LogicalBlock),
    /// Content or entries in the inode.
    InlineData,
    /// The target of a symbolic link.
    SymlinkTarget,
    /// Extended attributes in the inode.
    InodeXattrs,
    /// A block of extended attributes.
    XattrBlock,
    /// An attribute value in an inode of its own.
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
            Structure::DirectoryLeaf(block) => return write!(f, "directory leaf (file block {block})"),
            Structure::DirectoryEntry => "directory entry",
            Structure::DirectoryIndex(block) => return write!(f, "directory index (file block {block})"),
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
    pub(crate) fn of(self, inode: InodeNumber) -> Place {
        Place { structure: self, inode: Some(inode), block: None }
    }

    pub(crate) fn at(self, block: BlockNumber) -> Place {
        Place { structure: self, inode: None, block: Some(block) }
    }
}

impl Place {
    pub(crate) fn at(self, block: BlockNumber) -> Place {
        Place { block: Some(block), ..self }
    }

    pub(crate) fn corrupt(self, problem: Problem) -> Error {
        Error::Corrupt { place: self, problem }
    }

    pub(crate) fn io_write(self, source: io::Error) -> Error {
        Error::Write { place: self, source }
    }

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
