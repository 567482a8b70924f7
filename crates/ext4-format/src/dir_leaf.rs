//! Changes of directory entries in a leaf block or in inline data.
//!
//! Entries fill their area. Free space is the rest of an entry's `rec_len`, or an unused entry. A
//! new entry takes the first free space; a removed one joins the entry before.

use crate::dir_entry::{HEADER_LEN, RawEntry, stored_rec_len, write_entry};
use crate::{BlockSize, Entries, Entry, InodeNumber, NewEntry, Problem, SumChange, crc32c};
use std::ops::Range;
use zerocopy::FromBytes;

impl<'a> From<Entry<'a>> for NewEntry<'a> {
    fn from(entry: Entry<'a>) -> NewEntry<'a> {
        NewEntry { name: entry.name, inode: entry.inode, file_type: entry.file_type }
    }
}

/// Length of an entry with a name of `name_len` bytes.
pub fn entry_len(name_len: usize) -> usize {
    (HEADER_LEN + name_len).next_multiple_of(4)
}

/// A writable area of entries. A failed change has no effect.
#[derive(Debug)]
pub struct EntriesMut<'a> {
    bytes: &'a mut [u8],
    block_size: BlockSize,
    inodes_count: u32,
    sum_change: Option<u32>,
}

/// The area of one `rec_len`.
#[derive(Clone, Copy)]
struct Slot {
    start: usize,
    end: usize,
    /// 0 for an unused entry.
    used: usize,
}

impl<'a> EntriesMut<'a> {
    /// Entries in `bytes`, which excludes a checksum.
    pub fn new(bytes: &'a mut [u8], block_size: BlockSize, inodes_count: u32) -> EntriesMut<'a> {
        EntriesMut { bytes, block_size, inodes_count, sum_change: Some(0) }
    }

    /// Change of the area's checksum, to XOR. `None`: compute it from scratch.
    pub fn sum_change(&self) -> Option<u32> {
        self.sum_change
    }

    /// `change` modifies only `range`.
    fn change(&mut self, range: Range<usize>, change: impl FnOnce(&mut Self)) {
        // For more, an incremental update costs as much as a full checksum.
        let is_part = range.len() <= self.bytes.len() / 4;
        let sum = |area: &Self| crc32c(0, area.bytes.get(range.clone()).unwrap_or_default());
        let before = is_part.then(|| sum(self));
        change(self);
        self.sum_change = before.zip(self.sum_change).map(|(before, so_far)| {
            let to_end = self.bytes.len().saturating_sub(range.end);
            so_far ^ SumChange::at(to_end).of(before ^ sum(self))
        });
    }

    /// Makes the area one unused entry.
    pub fn clear(&mut self) {
        self.change(0..self.bytes.len(), |area| {
            area.bytes.fill(0);
            area.set_rec_len(0, area.bytes.len());
        });
    }

    /// Adds an entry. `false`: it does not fit.
    pub fn insert(&mut self, entry: &NewEntry<'_>) -> Result<bool, Problem> {
        Ok(self.insert_from(0, entry)?.is_some())
    }

    /// As [`insert`](EntriesMut::insert), from an entry found by [`room_for`]. Returns the new
    /// entry's offset.
    pub fn insert_from(&mut self, start: usize, entry: &NewEntry<'_>) -> Result<Option<usize>, Problem> {
        let mut entries = self.entries();
        entries.at = start;
        let Some(slot) = find_room(entries, entry_len(entry.name.len()))? else { return Ok(None) };
        let start = slot.start + slot.used;
        self.change(slot.start..start + entry_len(entry.name.len()), |area| {
            if slot.used > 0 {
                area.set_rec_len(slot.start, slot.used);
            }
            area.write(start, slot.end, entry);
        });
        Ok(Some(start))
    }

    /// Replaces all entries. `false`: they do not fit.
    pub fn fill(&mut self, entries: &[NewEntry<'_>]) -> bool {
        let need: usize = entries.iter().map(|entry| entry_len(entry.name.len())).sum();
        if need > self.bytes.len() {
            return false;
        }
        self.clear();
        let mut start = 0;
        for (left, entry) in (0..entries.len()).rev().zip(entries) {
            let packed = start + entry_len(entry.name.len());
            let end = if left == 0 { self.bytes.len() } else { packed };
            self.write(start, end, entry);
            start = end;
        }
        true
    }

    /// Removes the entry at byte `start`, and clears its name.
    pub fn remove(&mut self, start: usize) -> Result<(), Problem> {
        let (before, slot) =
            self.find_entry(start)?.ok_or(Problem::Missing { what: "the entry to remove" })?;
        let start = before.map_or(slot.start, |before| before.start);
        self.change(slot.start..slot.end, |area| {
            area.bytes.get_mut(slot.start..slot.end).unwrap_or_default().fill(0);
        });
        self.change(start..start + HEADER_LEN, |area| area.set_rec_len(start, slot.end - start));
        Ok(())
    }

    /// Changes the inode of the entry at byte `start`.
    pub fn point(&mut self, start: usize, inode: InodeNumber, file_type: u8) -> Result<(), Problem> {
        self.change_entry(start, |raw| {
            raw.inode.set(inode.0);
            raw.file_type = file_type;
        })
    }

    /// Points the entry at byte `start` to another number of its inode.
    pub fn renumber(&mut self, start: usize, inode: InodeNumber) -> Result<(), Problem> {
        self.change_entry(start, |raw| raw.inode.set(inode.0))
    }

    fn change_entry(&mut self, start: usize, change: impl FnOnce(&mut RawEntry)) -> Result<(), Problem> {
        let missing = Problem::Missing { what: "the entry to change" };
        self.find_entry(start)?.ok_or(missing)?;
        self.change(start..start + HEADER_LEN, |area| {
            let raw = area.bytes.get_mut(start..).and_then(|rest| RawEntry::mut_from_prefix(rest).ok());
            if let Some((raw, _)) = raw {
                change(raw);
            }
        });
        Ok(())
    }

    /// The used entry at byte `start`, and the one before.
    fn find_entry(&self, start: usize) -> Result<Option<(Option<Slot>, Slot)>, Problem> {
        let mut before = None;
        for slot in self.slots() {
            let slot = slot?;
            if slot.start == start && slot.used > 0 {
                return Ok(Some((before, slot)));
            }
            before = Some(slot);
        }
        Ok(None)
    }

    fn entries(&self) -> Entries<'_> {
        Entries::new(self.bytes, self.block_size, self.inodes_count)
    }

    fn slots(&self) -> impl Iterator<Item = Result<Slot, Problem>> {
        slots(self.entries())
    }

    /// The entry fits.
    fn write(&mut self, start: usize, end: usize, entry: &NewEntry<'_>) {
        let room = start..start + entry_len(entry.name.len());
        self.bytes.get_mut(room).unwrap_or_default().fill(0);
        write_entry(self.bytes, start, end, Some(*entry), self.block_size);
    }

    fn set_rec_len(&mut self, start: usize, len: usize) {
        let raw = self.bytes.get_mut(start..).and_then(|rest| RawEntry::mut_from_prefix(rest).ok());
        if let Some((raw, _)) = raw {
            raw.rec_len.set(stored_rec_len(len, self.block_size));
        }
    }
}

/// Offset of the first entry, used or not, with space for a name of `name_len` bytes.
pub fn room_for(entries: Entries<'_>, name_len: usize) -> Result<Option<usize>, Problem> {
    Ok(find_room(entries, entry_len(name_len))?.map(|slot| slot.start))
}

fn find_room(mut entries: Entries<'_>, need: usize) -> Result<Option<Slot>, Problem> {
    entries.skip_full(need);
    for slot in slots(entries) {
        let slot = slot?;
        if slot.end - slot.start - slot.used >= need {
            return Ok(Some(slot));
        }
    }
    Ok(None)
}

/// All entries, used or not.
fn slots(mut entries: Entries<'_>) -> impl Iterator<Item = Result<Slot, Problem>> {
    let len = entries.bytes.len();
    std::iter::from_fn(move || {
        let start = entries.at;
        if start >= len {
            return None;
        }
        let parsed = entries.parse();
        if parsed.is_err() {
            entries.at = len;
        }
        let end = entries.at;
        let used = |entry: Option<Entry<'_>>| entry.map_or(0, |entry| entry_len(entry.name.len()));
        Some(parsed.map(|entry| Slot { start, end, used: used(entry) }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ChecksumSeed, leaf_room, set_leaf_checksum};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const INODES: u32 = 1 << 20;

    fn size(log: u32) -> BlockSize {
        BlockSize::from_log_block_size(log).unwrap()
    }

    fn read(bytes: &[u8], block_size: BlockSize) -> BTreeMap<Vec<u8>, (u32, u8)> {
        let mut read = BTreeMap::new();
        for entry in Entries::new(bytes, block_size, INODES) {
            let entry = entry.unwrap();
            let value = (entry.inode.0, entry.file_type);
            assert!(read.insert(entry.name.to_vec(), value).is_none(), "a name stands there twice");
        }
        read
    }

    fn start_of(bytes: &[u8], block_size: BlockSize, name: &[u8]) -> usize {
        let mut entries = Entries::new(bytes, block_size, INODES).map(Result::unwrap);
        entries.find(|entry| entry.name == name).unwrap().start
    }

    fn entry(name: &[u8], inode: u32) -> NewEntry<'_> {
        NewEntry { name, inode: InodeNumber(inode), file_type: 1 }
    }

    #[test]
    fn a_removed_name_is_cleared() {
        let mut bytes = vec![0xFF; 1024];
        let mut area = EntriesMut::new(&mut bytes, size(0), INODES);
        area.clear();
        assert!(area.insert(&entry(b"first secret", 5)).unwrap());
        assert!(area.insert(&entry(b"second secret", 6)).unwrap());
        area.remove(20).unwrap();
        area.remove(0).unwrap();
        assert!(bytes.iter().enumerate().all(|(at, &byte)| byte == 0 || (4..6).contains(&at)), "{bytes:?}");
    }

    proptest! {
        #[test]
        fn room_is_found_like_by_a_scan_of_all_entries(
            names in proptest::collection::vec((0..60_usize, 0..40_usize, 0..4_u32), 0..30),
            damage in proptest::collection::vec((0..1012_usize, any::<u8>()), 0..3),
            need in 1..60_usize,
            log in prop_oneof![Just(0_u32), Just(6)],
        ) {
            let mut bytes = vec![0; 1012];
            let mut at = 0;
            for (len, spare, inode) in names {
                let end = at + entry_len(len.max(1)) + spare / 4 * 4;
                if end > bytes.len() - 12 {
                    break;
                }
                let name = vec![b'a'; len.max(1)];
                let entry = entry(&name, inode);
                write_entry(&mut bytes, at, end, (inode > 0).then_some(entry), size(log));
                at = end;
            }
            let end = bytes.len();
            write_entry(&mut bytes, at, end, None, size(log));
            for (at, byte) in damage {
                bytes[at] = byte;
            }
            let entries = Entries::new(&bytes, size(log), INODES);
            let mut walk = slots(entries.clone()).map(|slot| slot.map(|slot| (slot.start, slot.end, slot.used)));
            let expected = walk.find(|slot| {
                slot.as_ref().map_or(true, |(start, end, used)| end - start - used >= need)
            });
            let found = find_room(entries, need).map(|found| found.map(|slot| (slot.start, slot.end, slot.used)));
            prop_assert_eq!(found, expected.transpose());
        }
    }

    #[test]
    fn an_area_is_filled_to_its_last_byte() {
        let mut bytes = vec![0; 56];
        let mut area = EntriesMut::new(&mut bytes, size(2), INODES);
        area.clear();
        for name in [b"aaaa", b"bbbb", b"cccc", b"dddd"] {
            assert!(area.insert(&entry(name, 5)).unwrap());
        }
        assert!(!area.insert(&entry(b"e", 5)).unwrap());
        assert_eq!(read(&bytes, size(2)).len(), 4);
    }

    #[test]
    fn missing_entries_are_not_changed() {
        let mut bytes = vec![0; 1024];
        let mut area = EntriesMut::new(&mut bytes, size(0), INODES);
        area.clear();
        assert!(area.insert(&entry(b"name", 5)).unwrap());
        for at in [4, 12, 1020, 5000] {
            assert!(area.remove(at).is_err());
            assert!(area.point(at, InodeNumber(7), 1).is_err());
        }
        assert_eq!(read(&bytes, size(0)).into_values().collect::<Vec<_>>(), [(5, 1)]);
    }

    #[test]
    fn the_checksum_is_the_one_that_is_verified() {
        let mut bytes = vec![0; 1024];
        let room = leaf_room(size(0), true);
        EntriesMut::new(&mut bytes[..room], size(0), INODES).fill(&[entry(b"name", 5)]);
        set_leaf_checksum(&mut bytes, ChecksumSeed(77));
        assert_eq!(crate::verify_leaf(&bytes, ChecksumSeed(77)), Ok(()));
        assert!(crate::verify_leaf(&bytes, ChecksumSeed(78)).is_err());
        assert_eq!(read(&bytes, size(0)).len(), 1);
    }

    #[derive(Clone, Debug)]
    enum Change {
        Insert(Vec<u8>, u32),
        Remove(prop::sample::Index),
        Point(prop::sample::Index, u32),
        Repack,
    }

    fn change() -> impl Strategy<Value = Change> {
        let name = prop_oneof![
            3 => prop::collection::vec(any::<u8>(), 1..20),
            1 => prop::collection::vec(any::<u8>(), 1..256),
        ];
        prop_oneof![
            6 => (name, 1..INODES).prop_map(|(name, inode)| Change::Insert(name, inode)),
            3 => any::<prop::sample::Index>().prop_map(Change::Remove),
            1 => (any::<prop::sample::Index>(), 1..INODES).prop_map(|(at, inode)| Change::Point(at, inode)),
            1 => Just(Change::Repack),
        ]
    }

    proptest! {
        #[test]
        fn changed_entries_are_those_of_a_map(
            changes in prop::collection::vec(change(), 0..200),
            (log, room) in prop_oneof![Just((0, 1012)), Just((0, 1024)), Just((2, 56)), Just((6, 65536)), Just((6, 65524))],
        ) {
            let block_size = size(log);
            let mut bytes = vec![0; room];
            let mut map = BTreeMap::new();
            EntriesMut::new(&mut bytes, block_size, INODES).clear();
            for change in changes {
                let names: Vec<Vec<u8>> = map.keys().cloned().collect();
                let pick = |at: prop::sample::Index| (!names.is_empty()).then(|| at.get(&names).clone());
                let before = bytes.clone();
                let mut area = EntriesMut::new(&mut bytes, block_size, INODES);
                let mut is_same = false;
                match change {
                    Change::Insert(name, inode) if !map.contains_key(&name) => {
                        let free = room - map.keys().map(|name: &Vec<u8>| entry_len(name.len())).sum::<usize>();
                        let has_room = room_for(Entries::new(&before, block_size, INODES), name.len()).unwrap().is_some();
                        prop_assert!(!has_room || free >= entry_len(name.len()));
                        prop_assert_eq!(area.insert(&entry(&name, inode)).unwrap(), has_room);
                        if has_room {
                            map.insert(name, (inode, 1));
                        }
                        is_same = !has_room;
                    }
                    Change::Insert(..) => {}
                    Change::Remove(at) => if let Some(name) = pick(at) {
                        area.remove(start_of(&before, block_size, &name)).unwrap();
                        map.remove(&name);
                    },
                    Change::Point(at, inode) => if let Some(name) = pick(at) {
                        area.point(start_of(&before, block_size, &name), InodeNumber(inode), 2).unwrap();
                        map.insert(name, (inode, 2));
                    },
                    Change::Repack => {
                        let entries: Vec<_> = map.iter().map(|(name, &(inode, file_type))| NewEntry {
                            name, inode: InodeNumber(inode), file_type,
                        }).collect();
                        prop_assert!(area.fill(&entries));
                        prop_assert_eq!(area.sum_change(), None);
                        continue;
                    }
                }
                let sum_change = area.sum_change();
                prop_assert!(!is_same || sum_change == Some(0) && bytes == before);
                if let Some(change) = sum_change {
                    prop_assert_eq!(ChecksumSeed(7).sum(&bytes), ChecksumSeed(7).sum(&before) ^ change);
                }
                prop_assert_eq!(&read(&bytes, block_size), &map);
            }
        }

        #[test]
        fn any_bytes_are_changed_or_refused(
            mut bytes in prop::collection::vec(prop_oneof![any::<u8>(), 0_u8..16], 0..120),
            name in prop::collection::vec(any::<u8>(), 1..20),
            start in 0_usize..130,
        ) {
            let mut area = EntriesMut::new(&mut bytes, size(0), INODES);
            let _ = area.remove(start);
            let _ = area.point(start, InodeNumber(1), 1);
            if area.insert(&entry(&name, 3)).is_ok_and(|inserted| inserted) {
                prop_assert!(Entries::new(&bytes, size(0), INODES).any(|e| e.is_ok_and(|e| e.name == name)));
            }
        }
    }
}
