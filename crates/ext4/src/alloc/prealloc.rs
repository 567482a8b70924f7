//! Preallocation for directories: runs of free blocks set aside for a directory's growth, so that
//! its blocks are contiguous although thousands of directories grow in turn.
//!
//! # Data
//! A directory that needs a block and has no preallocation gets the first block of a free run; the
//! rest is preallocated for its next blocks. A preallocation is as large as the directory,
//! [`LEAST`] to [`MOST`] blocks, so directories double. It exists in memory only: on disk its
//! blocks are free, they count as free and may be reserved, and a crash leaves nothing behind.
//! Eviction of the directory discards it.
//!
//! # Who protects what
//! The table's mutex guards which directory has which preallocation. Inside it the group's
//! `preallocated` mutex, a leaf, is taken. Preallocations are made under the group's lock, so no
//! two share a block, and discarded without it.
//!
//! # Guarantees
//! - *No false ENOSPC.* A failed search discards all preallocations and repeats, as long as new
//!   ones appear meanwhile.
//! - *Bounded.* A new preallocation keeps their total within 1/[`SHARE`] of the blocks available.

use super::Space;
use crate::{Ext4, Result};
use dentree_ext4_format::{BlockNumber, GroupNumber, InodeNumber};
use dentree_jbd2::Handle;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Fewest blocks of a preallocation. With 8, then 16 and 32, a directory of 57 blocks needs no more
/// extents than its inode holds.
const LEAST: u64 = 8;

/// Most blocks of a preallocation.
const MOST: u64 = 128;

/// Groups searched for a run to preallocate.
const GROUPS: u32 = 4;

/// The part of the available blocks that may be preallocated.
const SHARE: u64 = 8;

/// The preallocations of all directories.
#[derive(Default)]
pub(super) struct Rooms(Mutex<Table>);

#[derive(Default)]
struct Table {
    of: HashMap<InodeNumber, Room>,
    /// Blocks of all preallocations.
    blocks: u64,
    /// Preallocations made so far.
    made: u64,
}

/// Blocks of a group, by their bits.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Room {
    group: GroupNumber,
    bits: Range<usize>,
}

impl Room {
    fn len(&self) -> u64 {
        u64::try_from(self.bits.len()).unwrap_or(u64::MAX)
    }
}

/// The size of the preallocation for a directory of `blocks` blocks.
fn room_for(blocks: u64) -> u64 {
    blocks.checked_next_power_of_two().unwrap_or(MOST).clamp(LEAST, MOST)
}

impl Space {
    fn rooms(&self) -> MutexGuard<'_, Table> {
        self.rooms.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unmark(&self, room: &Room) {
        let group = self.group(room.group);
        group.marks().remove(&room.bits);
        group.none_of.store(0, Relaxed);
    }

    /// Discards a directory's preallocation, if it has one.
    pub(crate) fn give_up_room(&self, dir: InodeNumber) {
        let mut table = self.rooms();
        if let Some(room) = table.of.remove(&dir) {
            table.blocks -= room.len();
            self.unmark(&room);
        }
    }

    /// Discards all preallocations. Returns how many were made so far.
    pub(super) fn give_up_rooms(&self) -> u64 {
        let mut table = self.rooms();
        for (_, room) in std::mem::take(&mut table.of) {
            self.unmark(&room);
        }
        table.blocks = 0;
        table.made
    }

    /// Preallocates blocks, free and in no other preallocation, to a directory. The caller has the
    /// group's lock.
    pub(super) fn make_room(&self, dir: InodeNumber, group: GroupNumber, bits: Range<usize>) {
        if bits.is_empty() {
            return;
        }
        let mut table = self.rooms();
        self.group(group).marks().add(&bits);
        let room = Room { group, bits };
        table.blocks += room.len();
        table.made += 1;
        if let Some(before) = table.of.insert(dir, room) {
            table.blocks -= before.len();
            self.unmark(&before);
        }
    }

    fn room_of(&self, dir: InodeNumber) -> Option<Room> {
        self.rooms().of.get(&dir).cloned()
    }

    /// Whether `blocks` more may be preallocated.
    fn may_have_room(&self, blocks: u64) -> bool {
        self.rooms().blocks + blocks <= self.available() / SHARE
    }
}

impl Ext4 {
    /// Allocates a reserved block for a directory of `blocks` blocks: from its preallocation, else
    /// near `goal`, with a new preallocation after it.
    ///
    /// # Errors
    /// Those of [`allocate_reserved`](Ext4::allocate_reserved).
    pub(super) fn take_to_grow(
        &self,
        handle: &mut Handle<'_>,
        dir: InodeNumber,
        goal: BlockNumber,
        blocks: u64,
    ) -> Result<BlockNumber> {
        let space = &self.writer()?.space;
        if let Some(room) = space.room_of(dir) {
            let len = u32::try_from(room.len()).unwrap_or(u32::MAX);
            if let Some(block) = self.take_with_room(handle, dir, room.group, room.bits.start, 1..=len)? {
                return Ok(block);
            }
        }
        let room = room_for(blocks);
        if space.may_have_room(room) {
            let (near, bit) = super::bit_of(&self.sb, goal);
            let len = u32::try_from(room + 1).unwrap_or(u32::MAX);
            for step in 0..GROUPS.min(self.sb.groups) {
                let group = GroupNumber((near.0 + step) % self.sb.groups);
                let from = if step == 0 { bit } else { 0 };
                if space.group(group).may_have(len)
                    && let Some(block) = self.take_with_room(handle, dir, group, from, len..=len)?
                {
                    return Ok(block);
                }
            }
        }
        Ok(self.take_blocks(handle, goal, 1)?.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_room_doubles_with_its_directory_between_two_bounds() {
        let mut extents = 1;
        let mut blocks = 1;
        while blocks < 57 {
            blocks += 1 + room_for(blocks);
            extents += 1;
        }
        assert!(extents <= 4, "{extents} extents for {blocks} blocks");
        assert_eq!([1, 8, 9, 100, 129, u64::MAX].map(room_for), [LEAST, 8, 16, 128, MOST, MOST]);
    }
}
