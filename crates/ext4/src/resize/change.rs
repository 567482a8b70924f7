//! The last step of a change of size: descriptors, bitmaps and the superblock.

use super::groups;
use super::refuse;
use crate::txn::{STATE_VALID, change_superblock};
use crate::{Error, Ext4, Result, Structure};
use dentree_blockdev::BlockDevice;
use dentree_ext4_format::{
    BlockNumber, Compat, GroupDesc, GroupNumber, Incompat, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock,
};
use dentree_jbd2::{Journal, JournalLocation, JournalOptions};
use std::collections::BTreeMap;

/// What is to be written.
pub(super) struct Change<'a> {
    pub(super) fs: &'a Ext4,
    /// The new one.
    pub(super) sb: Superblock,
    journal: Option<JournalLocation>,
    /// All blocks of descriptors.
    table: Vec<Vec<u8>>,
    /// The first of them that changes.
    first_changed: u32,
    /// New content of blocks that both sizes have, but for the superblock.
    pub(super) changed: BTreeMap<u64, Vec<u8>>,
}

impl<'a> Change<'a> {
    /// Reads the descriptors.
    pub(super) fn new(fs: &'a Ext4, sb: Superblock, journal: Option<JournalLocation>) -> Result<Change<'a>> {
        let mut table = Vec::new();
        for index in 0..sb.desc_blocks() {
            let bytes = if index < fs.sb.desc_blocks() {
                let group = GroupNumber(index * sb.descs_per_block());
                let (block, _) = fs.descriptor_place(group);
                fs.metadata(block, Structure::GroupDescriptor(group).at(block))?.to_vec()
            } else {
                vec![0; sb.block_size.in_memory()]
            };
            table.push(bytes);
        }
        Ok(Change { fs, sb, journal, table, first_changed: u32::MAX, changed: BTreeMap::new() })
    }

    /// Sets a descriptor.
    pub(super) fn put(&mut self, group: GroupNumber, desc: &GroupDesc) {
        let size = usize::try_from(self.sb.desc_size).unwrap_or(usize::MAX);
        let index = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        let at = group.0 / self.sb.descs_per_block();
        let within = index(group.0 % self.sb.descs_per_block());
        if let Some(place) =
            self.table.get_mut(index(at)).and_then(|block| block.chunks_exact_mut(size).nth(within))
        {
            desc.encode(place, group, &self.sb);
            self.first_changed = self.first_changed.min(at);
        }
    }

    /// Zeroes the last block of descriptors behind the last group.
    pub(super) fn end_table(&mut self) {
        let used = self.sb.groups % self.sb.descs_per_block() * self.sb.desc_size;
        let used = usize::try_from(used).unwrap_or(0);
        if let Some(last) = self.table.last_mut().filter(|_| used > 0) {
            last.get_mut(used..).unwrap_or_default().fill(0);
            self.first_changed = self.first_changed.min(self.sb.desc_blocks() - 1);
        }
    }

    /// The blocks of descriptors, which have copies in these groups.
    fn table(&self) -> impl Iterator<Item = (u32, Vec<(GroupNumber, u64)>, &[u8])> {
        (0..).zip(&self.table).map(|(index, bytes)| (index, groups::places(&self.sb, index), &bytes[..]))
    }

    /// Adds changed blocks of descriptors in use that lie in old groups.
    pub(super) fn change_table(&mut self) {
        let used = self.table().filter(|(index, ..)| *index >= self.first_changed);
        let used = used.filter_map(|(_, places, bytes)| Some((*places.first()?, bytes.to_vec())));
        let old: Vec<_> = used.filter(|((group, _), _)| group.0 < self.fs.sb.groups).collect();
        self.changed.extend(old.into_iter().map(|((_, block), bytes)| (block, bytes)));
    }

    /// Refuses a journal that cannot take the transaction.
    pub(super) fn check_journal(&self) -> Result<()> {
        let Some(journal) = &self.journal else { return Ok(()) };
        let log: u64 = journal.runs.iter().map(|(_, len)| len).sum();
        // Descriptor blocks of the journal, its superblock, the commit block and some more.
        let needed = u64::from(self.credits()) * 17 / 16 + 16;
        if log < needed {
            let what =
                format!("the journal has {log} blocks, and the change takes {needed}; use `resize2fs`");
            return Err(Error::Unsupported(what));
        }
        Ok(())
    }

    /// The blocks of the transaction.
    fn credits(&self) -> u32 {
        u32::try_from(self.changed.len()).unwrap_or(u32::MAX).saturating_add(1)
    }

    /// Writes the change. `prepare` writes what only the new size has.
    pub(super) fn make(mut self, prepare: impl FnOnce(&Self) -> Result<()>) -> Result<Superblock> {
        let device = &*self.fs.device;
        let journal = self.open_journal()?;
        prepare(&self)?;
        self.flush()?;
        mark(device, &mut self.sb, true)?;
        self.fs.cache.discard(self.fs.superblock_at.0, 1);
        self.commit(&journal)?;
        mark(device, &mut self.sb, false)?;
        let both = self.fs.sb.groups.min(self.sb.groups);
        self.write_copies(|group| group.0 != 0 && group.0 < both, self.first_changed)?;
        self.flush()?;
        Ok(self.sb)
    }

    fn open_journal(&self) -> Result<Journal> {
        let options = JournalOptions {
            has_checksums: self.sb.has_metadata_csum(),
            is_64bit: self.sb.is_64bit(),
            interval: None,
        };
        let cache = self.fs.cache.clone();
        let journal = match &self.journal {
            Some(location) => Journal::open(cache, location, options)?,
            None => Journal::without_log(cache, options)?,
        };
        match journal.recorded_error() {
            0 => Ok(journal),
            _ => refuse("the journal has recorded an error: e2fsck repairs what it left"),
        }
    }

    /// Commits what changes in blocks that both sizes have.
    fn commit(&self, journal: &Journal) -> Result<()> {
        // Alone, a transaction may take more than its share of the log.
        let mut handle = journal.start(self.credits().min(journal.most_credits()))?;
        for (&block, bytes) in &self.changed {
            let place = Structure::GroupDescriptor(GroupNumber(0)).at(BlockNumber(block));
            let changed = handle.update(block, |old| old.copy_from_slice(bytes));
            changed.map_err(|source| place.io(source))?;
        }
        if self.journal.is_none() {
            // e2fsck repairs what a crash leaves up to here, by the old superblock.
            journal.wait_commit(handle.stop())?;
            handle = journal.start(1)?;
        }
        let at = self.fs.superblock_at;
        let within = SUPERBLOCK_OFFSET - (at.0 << self.sb.block_size.log2());
        let within = usize::try_from(within).unwrap_or(0);
        let changed = handle.update(at.0, |block| {
            if let Some(bytes) = block.get_mut(within..).and_then(|rest| rest.first_chunk_mut()) {
                self.sb.encode(bytes);
            }
        });
        changed.map_err(|source| Structure::Superblock.at(at).io(source))?;
        handle.stop();
        Ok(journal.close()?)
    }

    /// Writes backups of the superblock in some groups, and copies of descriptors from their block
    /// `first` on.
    pub(super) fn write_copies(&self, is_in: impl Fn(GroupNumber) -> bool, first: u32) -> Result<()> {
        let (device, log2) = (&*self.fs.device, self.sb.block_size.log2());
        for (_, places, bytes) in self.table().filter(|(index, ..)| *index >= first) {
            for (group, block) in places.into_iter().filter(|(group, _)| is_in(*group)) {
                let place = Structure::GroupDescriptor(group).at(BlockNumber(block));
                device.write_at(block << log2, bytes).map_err(|source| place.io_write(source))?;
            }
        }
        let mut bytes = [0; SUPERBLOCK_SIZE];
        let place = Structure::Superblock.at(self.fs.superblock_at);
        device.read_at(SUPERBLOCK_OFFSET, &mut bytes).map_err(|source| place.io(source))?;
        let mut copy = self.sb.clone();
        let groups =
            (0..self.sb.groups).map(GroupNumber).filter(|&group| self.sb.group_has_superblock(group));
        for group in groups.filter(|&group| is_in(group)) {
            // The field has 16 bits.
            copy.block_group_nr = u16::try_from(group.0).unwrap_or(u16::MAX);
            copy.encode(&mut bytes);
            let block = self.sb.group_start(group);
            let place = Structure::Superblock.at(block);
            device.write_at(block.0 << log2, &bytes).map_err(|source| place.io_write(source))?;
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        let place = Structure::Superblock.at(self.fs.superblock_at);
        self.fs.device.flush().map_err(|source| place.io_write(source))
    }
}

/// Marks the file system as in use, or as unmounted cleanly, here and on the device.
fn mark(device: &dyn BlockDevice, sb: &mut Superblock, is_in_use: bool) -> Result<()> {
    let apply = |sb: &mut Superblock| match (sb.compat.has(Compat::HAS_JOURNAL), is_in_use) {
        (true, true) => sb.incompat.0 |= Incompat::RECOVER.0,
        (true, false) => sb.incompat.0 &= !Incompat::RECOVER.0,
        (false, true) => sb.state &= !STATE_VALID,
        (false, false) => sb.state |= STATE_VALID,
    };
    apply(sb);
    change_superblock(device, apply)
}
