//! Making file systems.
//!
//! [`mkfs`] writes an empty ext2, ext3 or ext4 file system, as mke2fs of e2fsprogs 1.47 would lay it out. Only blocks that are not zero are
//! written, so that a new sparse file stays sparse: of 20 GiB, some hundred blocks. Where group descriptors are summed, groups are left
//! uninitialised; their bitmaps are made by whoever first needs them.
//!
//! The primary superblock is written last, behind a flush: what is cut short is not mounted by mistake.
//!
//! # Where it differs from mke2fs, and why
//! - A group whose inode table reads as zeros says so (`ITABLE_ZEROED`): the kernel need not zero it after the first mount.
//! - Reserved inodes that nobody uses (1, 3 to 6, 9, 10) stay zero instead of getting a checksum and times: nobody reads them.
//! - The tables of a last, short flex group lie close to each other, without gaps for groups that are not there.
//! - The journal lies in one run behind the middle, also where another group has more room.
//! - `lost+found` has 16 KiB also with inline_data, with which mke2fs makes it one block shorter.
//! - `s_kbytes_written` is 0: nothing has been written to the file system yet.

mod content;
mod features;
mod geometry;
mod layout;
mod space;
mod write;

use dentree_blockdev::BlockDevice;
use dentree_ext4_format::{BlockSize, Compat, InodeTime};
use layout::Layout;
use std::io;

pub use features::Features;

/// What to make. [`MkfsOptions::new`] has what mke2fs takes when it is told nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MkfsOptions {
    /// Features.
    pub features: Features,
    /// Size of a block: 1, 2 or 4 KiB. By default 4 KiB, below 512 MiB 1 KiB.
    pub block_size: Option<BlockSize>,
    /// Label, at most 16 bytes.
    pub label: Vec<u8>,
    /// UUID.
    pub uuid: [u8; 16],
    /// Seed of directory hashes: random, so that nobody can aim names at one block of an index.
    pub hash_seed: [u32; 4],
    /// The time that everything was made at. Only whole seconds are kept.
    pub now: InodeTime,
    /// How many of a hundred blocks are for root only; at most 50.
    pub reserved_percent: u8,
    /// Whether the device holds nothing but zeros, as a new sparse file does. Else, what must read as zeros is zeroed, which takes its time.
    pub reads_as_zeros: bool,
}

impl MkfsOptions {
    /// An ext4 file system with this identity, made at `now`, on a device that reads as zeros.
    pub fn new(uuid: [u8; 16], hash_seed: [u32; 4], now: InodeTime) -> MkfsOptions {
        MkfsOptions {
            features: Features::default(),
            block_size: None,
            label: Vec::new(),
            uuid,
            hash_seed,
            now: InodeTime { nanos: 0, ..now },
            reserved_percent: 5,
            reads_as_zeros: true,
        }
    }
}

/// Why no file system was made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MkfsError {
    /// A feature that does not exist.
    #[error("there is no feature {name}; see `man ext4` for those there are")]
    UnknownFeature {
        /// As it was given.
        name: String,
    },
    /// A feature that exists, and is not made here.
    #[error("file systems with {name} are not made here; leave it out, or make the image with mke2fs")]
    NotMade {
        /// As it was given.
        name: String,
    },
    /// A feature without another one that it needs.
    #[error("{feature} needs {needed}: add it, or leave out the other")]
    Needs {
        /// What was asked for.
        feature: &'static str,
        /// What it needs.
        needed: &'static str,
    },
    /// A block size that is not made.
    #[error("blocks of {bytes} bytes are not made; they may have 1024, 2048 or 4096")]
    BlockSize {
        /// What was asked for.
        bytes: u32,
    },
    /// A label that does not fit.
    #[error("a label has at most 16 bytes, this one has {len}")]
    LabelTooLong {
        /// How many it has.
        len: usize,
    },
    /// No room for a file system.
    #[error("{bytes} bytes are too few for a file system with these features")]
    TooSmall {
        /// How many there are.
        bytes: u64,
    },
    /// More than is made here.
    #[error("{bytes} bytes are too many: at most {most} with blocks of this size")]
    TooLarge {
        /// How many there are.
        bytes: u64,
        /// How many there may be.
        most: u64,
    },
    /// The device failed.
    #[error("cannot write {what}: {source}")]
    Device {
        /// What was being written.
        what: &'static str,
        /// The device's own error.
        source: io::Error,
    },
}

/// What was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Made {
    /// Size of a block.
    pub block_size: BlockSize,
    /// Blocks in all. What the device has behind them is too short for a group, and not used.
    pub blocks: u64,
    /// Free blocks.
    pub free_blocks: u64,
    /// Inodes in all.
    pub inodes: u32,
    /// Blocks of the journal; 0 where none was asked for, or the file system is too small for one (less than 2048 blocks).
    pub journal_blocks: u32,
}

/// Makes an empty file system that fills `device`. Everything that was on it is lost.
///
/// # Errors
/// Options that make no sense for a device of this size, before anything is written; and what the device answers.
///
/// ```
/// use dentree_blockdev::MemoryDevice;
/// use dentree_ext4::mkfs::{MkfsOptions, mkfs};
/// use dentree_ext4::{Ext4, InodeTime, Options};
/// use std::sync::Arc;
///
/// let device = MemoryDevice::new(8 << 20);
/// let options = MkfsOptions { label: b"scratch".to_vec(), ..MkfsOptions::new([7; 16], [1, 2, 3, 4], InodeTime::default()) };
/// let made = mkfs(&device, &options)?;
/// assert_eq!((made.blocks, made.journal_blocks), (8192, 1024));
/// assert_eq!(Ext4::open(Arc::new(device), Options::default())?.superblock().volume_name, b"scratch");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn mkfs(device: &dyn BlockDevice, options: &MkfsOptions) -> Result<Made, MkfsError> {
    let mut sb = geometry::superblock(device.size(), options)?;
    let mut layout = Layout::of(&sb, device.size())?;
    let files = content::files(&mut sb, &mut layout, options.now)
        .ok_or(MkfsError::TooSmall { bytes: device.size() })?;
    write::write(device, &mut sb, &mut layout, &files, options.reads_as_zeros)?;
    let has_journal = sb.compat.has(Compat::HAS_JOURNAL);
    Ok(Made {
        block_size: sb.block_size,
        blocks: sb.blocks_count,
        free_blocks: sb.free_blocks_count,
        inodes: sb.inodes_count,
        journal_blocks: if has_journal { geometry::journal_blocks(sb.blocks_count) } else { 0 },
    })
}
