//! Names as a look-up compares them.

use crate::{Ext4, Node};
use dentree_ext4_format::casefold::FoldedName;
use dentree_ext4_format::{Incompat, InodeFlags};

/// `s_encoding_flags`: names that are not of the encoding are refused.
const STRICT_ENCODING: u16 = 1;

/// A name that is looked for.
pub(crate) enum Wanted<'a> {
    /// Byte by byte.
    Exact(&'a [u8]),
    /// Whatever its case.
    Folded(FoldedName<'a>),
}

impl Wanted<'_> {
    /// Whether an entry has the name.
    pub(crate) fn is(&self, entry: &[u8]) -> bool {
        match self {
            Wanted::Exact(name) => *name == entry,
            Wanted::Folded(name) => name.matches(entry),
        }
    }

    /// The bytes whose hash places the name in an htree.
    pub(crate) fn hash_input(&self) -> &[u8] {
        match self {
            Wanted::Exact(name) => name,
            Wanted::Folded(name) => name.hash_input(),
        }
    }
}

impl Ext4 {
    /// Whether a directory ignores case.
    pub(crate) fn is_casefolded(&self, dir: &Node) -> bool {
        dir.has(InodeFlags::CASEFOLD) && self.sb.incompat.has(Incompat::CASEFOLD)
    }

    /// How `name` is looked for in `dir`; `None` where the file system takes no such names.
    pub(crate) fn wanted<'a>(&self, dir: &Node, name: &'a [u8]) -> Option<Wanted<'a>> {
        if !self.is_casefolded(dir) {
            return Some(Wanted::Exact(name));
        }
        let strict = self.sb.encoding_flags & STRICT_ENCODING != 0;
        FoldedName::new(name, strict).ok().map(Wanted::Folded)
    }
}
