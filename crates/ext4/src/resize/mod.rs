//! Growing a file system that no one uses.
//!
//! New groups hold their own bitmaps and inode tables. Descriptors of new groups take blocks that
//! the resize inode reserves, or those of their meta block group.
//!
//! # Order
//! 1. What lies in new groups, which nothing refers to yet. A flush.
//! 2. One transaction of the journal with all that changes in old blocks: the last group's bitmap,
//!    descriptors, the resize inode, the superblock. A crash leaves the old size or the new one.
//!    Without a journal the superblock is marked as not unmounted cleanly before, and a crash asks
//!    for e2fsck.
//! 3. Backups in old groups. Until then they are those of the old size.

mod geometry;
mod groups;
pub(crate) mod reserved;

use crate::alloc::Space;
use crate::open::read_superblock;
use crate::txn::{STATE_VALID, change_superblock};
use crate::{Error, Ext4, Options, Result, Structure};
use dentree_blockdev::BlockDevice;
use dentree_ext4_format::{
    BlockNumber, Compat, GroupDesc, GroupNumber, Incompat, InodeTime, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE,
    Superblock,
};
use dentree_jbd2::{Journal, JournalLocation, JournalOptions};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How large a file system is to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Size {
    /// In its blocks.
    Blocks(u64),
    /// In bytes. Part of a block does not count.
    Bytes(u64),
}

impl Size {
    fn in_blocks(self, sb: &Superblock) -> u64 {
        match self {
            Size::Blocks(blocks) => blocks,
            Size::Bytes(bytes) => bytes >> sb.block_size.log2(),
        }
    }
}

/// The superblock that [`grow`] would make. Nothing is written, and the device may be smaller.
///
/// # Errors
/// What prevents it: a smaller number, no place for descriptors, damage, a journal that needs
/// recovery or is too small.
pub fn enlarged(device: &Arc<dyn BlockDevice>, size: Size) -> Result<Superblock> {
    let fs = open(device)?;
    Ok(Growth::plan(&fs, size)?.map_or(fs.sb.clone(), |growth| growth.sb))
}

/// Makes the file system on `device`, which has no other user, as large as `size`. A last group
/// that would hold little but its own metadata is left out. Returns the superblock.
///
/// # Errors
/// Before anything is written those of [`enlarged`], and a device that is smaller. Then errors of
/// the device.
///
/// ```
/// use dentree_blockdev::{BlockDevice, MemoryDevice, Slice};
/// use dentree_ext4::mkfs::{MkfsOptions, mkfs};
/// use dentree_ext4::{Ext4, InodeTime, Options, Size, grow};
/// use std::sync::Arc;
///
/// let disk: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(32 << 20));
/// let small = Slice::new(disk.clone(), 0, 10 << 20)?;
/// mkfs(&small, &MkfsOptions::new([7; 16], [1, 2, 3, 4], InodeTime::default()))?;
/// let sb = grow(&disk, Size::Bytes(32 << 20), InodeTime::default())?;
/// assert_eq!((sb.blocks_count, sb.groups), (32 << 10, 4));
/// assert_eq!(Ext4::open(disk, Options::default())?.superblock().blocks_count, 32 << 10);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn grow(device: &Arc<dyn BlockDevice>, size: Size, now: InodeTime) -> Result<Superblock> {
    let fs = open(device)?;
    let Some(mut growth) = Growth::plan(&fs, size)? else { return Ok(fs.sb.clone()) };
    let (blocks, found) = (growth.sb.blocks_count, device.size() >> growth.sb.block_size.log2());
    if found < blocks {
        return Err(Error::Unsupported(format!("the device has {found} blocks, not {blocks}")));
    }
    growth.sb.write_time = InodeTime { nanos: 0, ..now };
    growth.make()
}

/// Opens a file system that may be changed now.
fn open(device: &Arc<dyn BlockDevice>) -> Result<Ext4> {
    let sb = read_superblock(&**device, SUPERBLOCK_OFFSET)?
        .map_err(|problem| Structure::Superblock.at(BlockNumber(0)).corrupt(problem))?;
    let fs = Ext4::over(device.clone(), sb, SUPERBLOCK_OFFSET, &Options::default())?;
    fs.check_writable()?;
    if fs.sb.incompat.has(Incompat::RECOVER) {
        return refuse("the journal must be replayed first, as any command that changes a file does");
    }
    if fs.sb.state & STATE_VALID == 0 {
        return refuse("the file system was not unmounted cleanly: e2fsck checks it");
    }
    Ok(fs)
}

fn refuse<T>(what: &str) -> Result<T> {
    Err(Error::Unsupported(what.to_owned()))
}

/// What is to be written.
struct Growth<'a> {
    fs: &'a Ext4,
    sb: Superblock,
    journal: Option<JournalLocation>,
    /// Descriptors of new groups.
    new: Vec<GroupDesc>,
    /// All blocks of descriptors.
    table: Vec<Vec<u8>>,
    /// The first of them that changes.
    first_changed: u32,
    /// New content of old blocks, but for the superblock.
    changed: BTreeMap<u64, Vec<u8>>,
}

impl<'a> Growth<'a> {
    /// Reads and checks what is needed. `None` where nothing changes.
    fn plan(fs: &'a Ext4, size: Size) -> Result<Option<Growth<'a>>> {
        let mut sb = geometry::superblock(&fs.sb, size.in_blocks(&fs.sb))?;
        if sb.blocks_count == fs.sb.blocks_count {
            return Ok(None);
        }
        let groups = |range: std::ops::Range<u32>| range.map(GroupNumber);
        let mut descs =
            groups(0..fs.sb.groups).map(|group| checked(fs, group)).collect::<Result<Vec<_>>>()?;
        let journal = fs.journal_location()?;
        let runs = journal.as_ref().map(|journal| &journal.runs[..]).unwrap_or_default();
        // Fails where metadata overlaps.
        Space::new(fs, &descs, runs)?;
        let new: Vec<GroupDesc> =
            groups(fs.sb.groups..sb.groups).map(|group| groups::new_group(&sb, group)).collect();
        let mut changed = BTreeMap::new();
        let last = GroupNumber(fs.sb.groups - 1);
        if let Some(desc) = descs.last_mut() {
            changed.extend(groups::lengthen(fs, &sb, last, desc)?);
        }
        let all = || descs.iter().chain(&new);
        sb.free_blocks_count = all().map(|desc| u64::from(desc.free_blocks)).sum();
        sb.free_inodes_count = all().map(|desc| desc.free_inodes).fold(0, u32::wrapping_add);
        let mut growth = Growth {
            fs,
            table: Vec::new(),
            first_changed: last.0 / sb.descs_per_block(),
            sb,
            journal,
            new,
            changed,
        };
        growth.fill_table(last, descs.last())?;
        growth.change_table();
        reserved::update(fs, &growth.sb, &mut growth.changed)?;
        growth.check_journal()?;
        Ok(Some(growth))
    }

    /// Reads the descriptors, and changes that of the last group and those behind it.
    fn fill_table(&mut self, last: GroupNumber, longer: Option<&GroupDesc>) -> Result<()> {
        for index in 0..self.sb.desc_blocks() {
            let bytes = if index < self.fs.sb.desc_blocks() {
                let group = GroupNumber(index * self.sb.descs_per_block());
                let (block, _) = self.fs.descriptor_place(group);
                self.fs.metadata(block, Structure::GroupDescriptor(group).at(block))?.to_vec()
            } else {
                vec![0; self.sb.block_size.in_memory()]
            };
            self.table.push(bytes);
        }
        let size = usize::try_from(self.sb.desc_size).unwrap_or(usize::MAX);
        for (group, desc) in (last.0..).map(GroupNumber).zip(longer.into_iter().chain(&self.new)) {
            let index = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
            let block = self.table.get_mut(index(group.0 / self.sb.descs_per_block()));
            let within = index(group.0 % self.sb.descs_per_block());
            if let Some(place) = block.and_then(|block| block.chunks_exact_mut(size).nth(within)) {
                desc.encode(place, group, &self.sb);
            }
        }
        Ok(())
    }

    /// The blocks of descriptors, which have copies in these groups.
    fn table(&self) -> impl Iterator<Item = (u32, Vec<(GroupNumber, u64)>, &[u8])> {
        (0..).zip(&self.table).map(|(index, bytes)| (index, groups::places(&self.sb, index), &bytes[..]))
    }

    /// Adds changed blocks of descriptors in use that lie in old groups.
    fn change_table(&mut self) {
        let used = self.table().filter(|(index, ..)| *index >= self.first_changed);
        let used = used.filter_map(|(_, places, bytes)| Some((*places.first()?, bytes.to_vec())));
        let old: Vec<_> = used.filter(|((group, _), _)| group.0 < self.fs.sb.groups).collect();
        self.changed.extend(old.into_iter().map(|((_, block), bytes)| (block, bytes)));
    }

    /// Refuses a journal that cannot take the transaction.
    fn check_journal(&self) -> Result<()> {
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

    fn make(mut self) -> Result<Superblock> {
        let device = &*self.fs.device;
        let first_new = self.fs.sb.groups;
        let journal = self.open_journal()?;
        for (group, desc) in (first_new..).map(GroupNumber).zip(&self.new) {
            groups::write_new_group(device, &self.sb, (group, desc))?;
            self.zero_reserved(group)?;
        }
        self.write_copies(|group| group.0 >= first_new, 0)?;
        self.flush()?;
        mark(device, &mut self.sb, true)?;
        self.fs.cache.discard(self.fs.superblock_at.0, 1);
        self.commit(&journal)?;
        mark(device, &mut self.sb, false)?;
        self.write_copies(|group| group.0 != 0 && group.0 < first_new, self.first_changed)?;
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

    /// Commits what changes in old blocks.
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
    fn write_copies(&self, is_in: impl Fn(GroupNumber) -> bool, first: u32) -> Result<()> {
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

    /// Zeroes the reserved blocks in a new group.
    fn zero_reserved(&self, group: GroupNumber) -> Result<()> {
        let sb = &self.sb;
        if !sb.group_has_superblock(group) || !sb.compat.has(Compat::RESIZE_INODE) {
            return Ok(());
        }
        let first = sb.group_start(group).0 + 1 + u64::from(sb.desc_blocks());
        let all = first..first + u64::from(sb.reserved_gdt_blocks);
        all.map(BlockNumber).try_for_each(|block| groups::zero(&*self.fs.device, sb, block))
    }

    fn flush(&self) -> Result<()> {
        let place = Structure::Superblock.at(self.fs.superblock_at);
        self.fs.device.flush().map_err(|source| place.io_write(source))
    }
}

/// A descriptor in which nothing is wrong.
fn checked(fs: &Ext4, group: GroupNumber) -> Result<GroupDesc> {
    let desc = fs.group(group)?;
    let place = Structure::GroupDescriptor(group).at(fs.descriptor_place(group).0);
    desc.check(group, &fs.sb).map_err(|problem| place.corrupt(problem))?;
    Ok(desc)
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
