//! What a check reports.

use super::Code;
use crate::Place;
use dentree_ext4_format::{InodeNumber, Problem};
use std::fmt;
use std::ops::Range;

/// Something that is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// What e2fsck calls it.
    pub code: Code,
    /// Where.
    pub place: Place,
    /// What.
    pub defect: Defect,
}

/// What is wrong with a structure.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Defect {
    /// It fails a check of its own.
    Damaged(Problem),
    /// The device does not give its bytes.
    Unreadable(String),
    /// A count differs from what was counted.
    Count {
        /// What is counted.
        what: &'static str,
        /// As stored.
        stored: u64,
        /// As counted.
        counted: u64,
    },
    /// Blocks that belong to several structures.
    Shared {
        /// The blocks.
        blocks: Range<u64>,
        /// The inodes that have them.
        by: Vec<InodeNumber>,
        /// Whether they are metadata of fixed place, too.
        is_system: bool,
    },
    /// An entry of a directory.
    Entry {
        /// Its name.
        name: Vec<u8>,
        /// The inode that it names.
        inode: InodeNumber,
        /// What is wrong with it, as the end of a sentence.
        because: &'static str,
    },
    /// Bits of a bitmap.
    Bits {
        /// Blocks or inodes, by number.
        numbers: Range<u64>,
        /// Whether they are marked as in use, and are free; or the other way round.
        is_marked: bool,
    },
    /// Something that no directory leads to, or by two ways.
    Unconnected {
        /// What is wrong, as the end of a sentence.
        because: &'static str,
    },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.defect)
    }
}

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Defect::Damaged(problem) => problem.fmt(f),
            Defect::Unreadable(problem) => write!(f, "cannot be read: {problem}"),
            Defect::Count { what, stored, counted } => {
                write!(f, "{what}: {stored} stored, {counted} counted")
            }
            Defect::Shared { blocks, by, is_system } => {
                write!(f, "{} used more than once", Numbers("block", blocks))?;
                let inodes: Vec<String> = by.iter().map(|ino| format!("inode {ino}")).collect();
                let system = is_system.then(|| "metadata of fixed place".to_owned());
                let users: Vec<String> = inodes.into_iter().chain(system).collect();
                if users.is_empty() { Ok(()) } else { write!(f, ": by {}", users.join(", ")) }
            }
            Defect::Entry { name, inode, because } => {
                write!(f, "entry \"{}\" (inode {inode}) {because}", name.escape_ascii())
            }
            Defect::Bits { numbers, is_marked } => {
                let state =
                    if *is_marked { "marked as in use but free" } else { "in use but marked as free" };
                write!(f, "{} {state}", Numbers("number", numbers))
            }
            Defect::Unconnected { because } => f.write_str(because),
        }
    }
}

/// "block 7 is", "blocks 7 to 9 are".
struct Numbers<'a>(&'static str, &'a Range<u64>);

impl fmt::Display for Numbers<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Numbers(what, Range { start, end }) = self;
        if start + 1 >= *end {
            write!(f, "{what} {start} is")
        } else {
            write!(f, "{what}s {start} to {} are", end - 1)
        }
    }
}
