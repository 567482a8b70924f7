//! Preallocation: directories that grow in turn stay contiguous.
//!
//! # Data
//! A directory without a preallocation gets the first block of a free run; the rest is
//! preallocated. Each is as large as the directory, [`LEAST`] to [`MOST`] blocks. On disk its
//! blocks are free; they count as free and may be reserved. Eviction of the directory discards it.
//!
//! # Who protects what
//! The table's mutex; inside it the group's `preallocated` mutex, a leaf. The group's lock makes
//! new preallocations disjoint; discarding does not need it.
//!
//! # Guarantees
//! - *No false ENOSPC.* A failed search discards all and repeats while new ones appear.
//! - *Bounded.* New ones keep the total within 1/[`SHARE`] of the available blocks.

use super::Space;
use crate::{Ext4, Result};
use dentree_ext4_format::{BlockNumber, GroupNumber, InodeNumber};
use dentree_jbd2::Handle;
use dentree_sync::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

/// With 8, 16 and 32, the extents of a directory of 57 blocks fit in its inode.
const LEAST: u64 = 8;

const MOST: u64 = 128;

const GROUPS: u32 = 4;

const SHARE: u64 = 8;

#[derive(Default)]
pub(super) struct Preallocations(Mutex<Table>);

#[derive(Default)]
struct Table {
    of: HashMap<InodeNumber, Prealloc>,
    blocks: u64,
    made: u64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Prealloc {
    group: GroupNumber,
    bits: Range<usize>,
}

impl Prealloc {
    fn len(&self) -> u64 {
        u64::try_from(self.bits.len()).unwrap_or(u64::MAX)
    }
}

fn prealloc_len(blocks: u64) -> u64 {
    blocks.checked_next_power_of_two().unwrap_or(MOST).clamp(LEAST, MOST)
}

impl Space {
    fn preallocs(&self) -> MutexGuard<'_, Table> {
        self.preallocs.0.lock()
    }

    fn clear_prealloc(&self, prealloc: &Prealloc) {
        let group = self.group(prealloc.group);
        group.preallocated().remove(&prealloc.bits);
        group.no_run_of.store(0, Relaxed);
    }

    pub(crate) fn discard_prealloc(&self, dir: InodeNumber) {
        let mut table = self.preallocs();
        if let Some(prealloc) = table.of.remove(&dir) {
            table.blocks -= prealloc.len();
            self.clear_prealloc(&prealloc);
        }
    }

    /// Returns how many were ever made.
    pub(super) fn discard_all_preallocs(&self) -> u64 {
        let mut table = self.preallocs();
        for (_, prealloc) in std::mem::take(&mut table.of) {
            self.clear_prealloc(&prealloc);
        }
        table.blocks = 0;
        table.made
    }

    /// Free bits in no preallocation. The caller has the group's lock.
    pub(super) fn preallocate(&self, dir: InodeNumber, group: GroupNumber, bits: Range<usize>) {
        if bits.is_empty() {
            return;
        }
        let mut table = self.preallocs();
        self.group(group).preallocated().add(&bits);
        let prealloc = Prealloc { group, bits };
        table.blocks += prealloc.len();
        table.made += 1;
        if let Some(before) = table.of.insert(dir, prealloc) {
            table.blocks -= before.len();
            self.clear_prealloc(&before);
        }
    }

    fn prealloc_of(&self, dir: InodeNumber) -> Option<Prealloc> {
        self.preallocs().of.get(&dir).cloned()
    }

    fn may_preallocate(&self, blocks: u64) -> bool {
        self.preallocs().blocks + blocks <= self.available() / SHARE
    }
}

impl Ext4 {
    /// Takes the preallocation, else a block near `goal` with a new preallocation.
    pub(super) fn allocate_reserved_dir_block(
        &self,
        handle: &mut Handle<'_>,
        dir: InodeNumber,
        goal: BlockNumber,
        blocks: u64,
    ) -> Result<BlockNumber> {
        let space = &self.writer()?.space;
        if let Some(prealloc) = space.prealloc_of(dir) {
            let len = u32::try_from(prealloc.len()).unwrap_or(u32::MAX);
            if let Some(block) =
                self.allocate_and_preallocate(handle, dir, prealloc.group, prealloc.bits.start, 1..=len)?
            {
                return Ok(block);
            }
        }
        let prealloc = prealloc_len(blocks);
        if space.may_preallocate(prealloc) {
            let (near, bit) = super::bit_of(&self.sb, goal);
            let len = u32::try_from(prealloc + 1).unwrap_or(u32::MAX);
            for step in 0..GROUPS.min(self.sb.groups) {
                let group = GroupNumber((near.0 + step) % self.sb.groups);
                let from = if step == 0 { bit } else { 0 };
                if space.group(group).may_have_run(len)
                    && let Some(block) = self.allocate_and_preallocate(handle, dir, group, from, len..=len)?
                {
                    return Ok(block);
                }
            }
        }
        Ok(self.allocate_reserved(handle, goal, 1)?.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preallocation_doubles_with_its_directory_between_two_bounds() {
        let mut extents = 1;
        let mut blocks = 1;
        while blocks < 57 {
            blocks += 1 + prealloc_len(blocks);
            extents += 1;
        }
        assert!(extents <= 4, "{extents} extents for {blocks} blocks");
        assert_eq!([1, 8, 9, 100, 129, u64::MAX].map(prealloc_len), [LEAST, 8, 16, 128, MOST, MOST]);
    }
}
