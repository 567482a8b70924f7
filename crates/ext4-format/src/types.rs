//! Number types.

use std::fmt;

/// A block of the file system, from the start of the device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BlockNumber(pub u64);

/// A block of a file, from its start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LogicalBlock(pub u32);

/// An inode number, from 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct InodeNumber(pub u32);

/// A block group, from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GroupNumber(pub u32);

impl InodeNumber {
    /// The root directory.
    pub const ROOT: InodeNumber = InodeNumber(2);
}

macro_rules! display_as_number {
    ($($type:ty),*) => {$(
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}
display_as_number!(BlockNumber, LogicalBlock, InodeNumber, GroupNumber);

/// Block size: a power of two from 1 KiB to 64 KiB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockSize {
    log2: u32,
}

impl BlockSize {
    /// `None` above 64 KiB.
    pub fn from_log_block_size(s_log_block_size: u32) -> Option<BlockSize> {
        (s_log_block_size <= 6).then(|| BlockSize { log2: 10 + s_log_block_size })
    }

    /// Base-2 logarithm.
    pub fn log2(self) -> u32 {
        self.log2
    }

    /// Bytes.
    pub fn bytes(self) -> u32 {
        1 << self.log2
    }

    /// Bytes.
    pub fn in_memory(self) -> usize {
        1_usize << self.log2
    }

    /// Blocks for so many bytes, rounded up.
    pub fn blocks_for(self, bytes: u64) -> u64 {
        bytes.div_ceil(1 << self.log2)
    }

    /// File block and offset within it; `None` above the maximum file size.
    pub fn split(self, offset: u64) -> Option<(LogicalBlock, usize)> {
        let block = u32::try_from(offset >> self.log2).ok()?;
        let within = usize::try_from(offset & u64::from(self.bytes() - 1)).ok()?;
        Some((LogicalBlock(block), within))
    }
}
