//! Room for directories to grow: runs of free blocks that others leave alone, so that a directory's blocks lie together though thousands of
//! directories grow in turn.
//!
//! # Data
//! A directory that needs another block, and has no room, gets the first block of a run of free ones; the rest is its room, from which it
//! takes its next blocks. The room is as large as the directory, [`LEAST`] to [`MOST`] blocks, so that it doubles with each. It is
//! in memory alone: its blocks are free on disk, count as free, and are promised to whoever asks. A crash loses nothing, and there is nothing to
//! give back on disk. It is given up when nobody holds the directory any more.
//!
//! # Who protects what
//! One mutex, the table's: which directory has which room. Under it a group's marks are made and taken away (a mutex of their own, a leaf). Rooms are
//! made under their group's lock, so that no two share a block; they may be given up without it.
//!
//! # Guarantees
//! - *Nothing is withheld.* Who finds no free block takes all rooms away and looks again, as often as new ones were made meanwhile: so a
//!   device is full when its last block is taken.
//! - *Bounded.* All rooms together are no more than a [`SHARE`]th of what is free when the last one was made.

use super::Space;
use crate::{Ext4, Result};
use dentree_ext4_format::{BlockNumber, GroupNumber, InodeNumber};
use dentree_jbd2::Handle;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Fewest blocks of a room. With 8, then 16 and 32, a directory of 57 blocks has no more extents than its inode holds.
const LEAST: u64 = 8;

/// Most blocks of a room.
const MOST: u64 = 128;

/// Groups that are searched for a room.
const GROUPS: u32 = 4;

/// The part of the free blocks that rooms may have.
const SHARE: u64 = 8;

/// The rooms of directories.
#[derive(Default)]
pub(super) struct Rooms(Mutex<Table>);

#[derive(Default)]
struct Table {
    of: HashMap<InodeNumber, Room>,
    /// Blocks of all.
    blocks: u64,
    /// How many were made so far.
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

/// How large a room a directory of so many blocks gets.
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

    /// Gives up the room of a directory, if it has one.
    pub(crate) fn give_up_room(&self, dir: InodeNumber) {
        let mut table = self.rooms();
        if let Some(room) = table.of.remove(&dir) {
            table.blocks -= room.len();
            self.unmark(&room);
        }
    }

    /// Gives up all rooms; answers how many were made so far.
    pub(super) fn give_up_rooms(&self) -> u64 {
        let mut table = self.rooms();
        for (_, room) in std::mem::take(&mut table.of) {
            self.unmark(&room);
        }
        table.blocks = 0;
        table.made
    }

    /// Makes these blocks, which are free and in nobody's room, the directory's. The caller has the group's lock.
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

    /// Whether there may be a room of so many blocks more.
    fn may_have_room(&self, blocks: u64) -> bool {
        self.rooms().blocks + blocks <= self.available() / SHARE
    }
}

impl Ext4 {
    /// Takes a block for a directory of `blocks` blocks: from its room, else at `goal` or near it, and then room behind it. It was promised to the
    /// caller.
    ///
    /// # Errors
    /// Those of [`take_blocks`](Ext4::take_blocks).
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
