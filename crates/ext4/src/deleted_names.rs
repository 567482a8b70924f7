//! Names that were removed from a directory.
//!
//! A removed entry stays in the space behind the entry before it, unless the kernel clears it; the
//! journal has older copies of the directory's blocks.

use crate::layout::Part;
use crate::{Ext4, Node, Result, Structure};
use dentree_ext4_format::{BlockNumber, InodeNumber, LogicalBlock};
use std::collections::{BTreeSet, HashSet};
use std::ops::{ControlFlow, Range};

/// Most names that are reported of a directory.
const MOST_NAMES: usize = 1 << 20;

/// A name that a directory had.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct DeletedName {
    /// The name.
    pub name: Vec<u8>,
    /// The inode that it named.
    pub ino: InodeNumber,
}

impl Ext4 {
    /// The names that directory `dir` had and has no more, in order. A file that was moved away
    /// has left its name, too.
    ///
    /// # Errors
    /// Those of reading the journal. Damaged parts of the directory are left out.
    pub fn deleted_names(&self, dir: &Node) -> Result<Vec<DeletedName>> {
        let dir = &*dir.snapshot();
        let (mut there, mut found) = (HashSet::new(), BTreeSet::new());
        let read = self.each_entry_past_damage(
            dir,
            0,
            &mut |entry, _| {
                there.insert(entry.name.to_vec());
                Ok(ControlFlow::Continue(()))
            },
            &mut |_| Ok(()),
        );
        // What cannot be read is no name of today.
        let _ = read;
        let mut removed = |ino: u32, name: &[u8]| {
            let is_own = name == b"." || name == b"..";
            if !is_own && found.len() < MOST_NAMES && !there.contains(name) {
                found.insert(DeletedName { name: name.to_vec(), ino: InodeNumber(ino) });
            }
        };
        let mut blocks = HashSet::new();
        let mut each = |part: Part| {
            if let Part::Content(extent) = part {
                blocks.extend(extent.start.0..extent.start.0 + extent.len);
            }
            ControlFlow::Continue(())
        };
        self.walk_map(dir, &mut each, &mut |_| {});
        let place = dir.place(Structure::DirectoryLeaf(LogicalBlock(0)));
        for block in &blocks {
            if let Ok(bytes) = self.metadata(BlockNumber(*block), place) {
                self.slack_entries(&bytes, &mut removed);
            }
        }
        if let Some(history) = self.history()? {
            let copies = history.transactions().iter().flat_map(|transaction| &transaction.copies);
            for copy in copies.filter(|copy| blocks.contains(&copy.block)) {
                if let Ok(Some(bytes)) = history.content(copy) {
                    let entries = self.entries(&bytes).map_while(std::result::Result::ok);
                    entries.for_each(|entry| removed(entry.inode.0, entry.name));
                    self.slack_entries(&bytes, &mut removed);
                }
            }
        }
        Ok(found.into_iter().collect())
    }

    /// Calls `each` for removed entries in the space behind others.
    pub(crate) fn slack_entries(&self, bytes: &[u8], each: &mut dyn FnMut(u32, &[u8])) {
        let used: Vec<Range<usize>> =
            self.entries(bytes).map_while(std::result::Result::ok).map(|entry| entry.name_range()).collect();
        for (at, ino) in (0..).step_by(4).zip(bytes.as_chunks::<4>().0) {
            let ino = u32::from_le_bytes(*ino);
            let Some([len_low, len_high, name_len, kind]) = bytes.get(at + 4..at + 8) else { return };
            let (len, name_len) = (u16::from_le_bytes([*len_low, *len_high]), usize::from(*name_len));
            let Some(name) = bytes.get(at + 8..at + 8 + name_len) else { continue };
            let is_entry = (1..=self.sb.inodes_count).contains(&ino)
                && name_len > 0
                && usize::from(len) >= 8 + name_len
                && len.is_multiple_of(4)
                && (*kind <= 7)
                && !name.iter().any(|byte| matches!(byte, 0 | b'/'));
            let is_used = used.iter().any(|range| range.start == at + 8 || range.contains(&at));
            if is_entry && !is_used {
                each(ino, name);
            }
        }
    }
}
