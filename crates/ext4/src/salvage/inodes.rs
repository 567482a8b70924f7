//! The inodes: which are there, and how far they can be trusted.

use super::plausible::is_plausible;
use super::reader::read_past_damage;
use super::tables::Table;
use crate::inode::Snapshot;
use crate::{Ext4, Structure};
use dentree_blockdev::BlockDevice;
use dentree_ext4_format::{BlockNumber, Inode, InodeFlags, InodeNumber};
use dentree_vfs::FileType;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes of an inode table that are read at once.
const CHUNK: u64 = 1 << 20;

/// How far an inode can be trusted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Trust {
    /// Its checksum is right, or there is none and its fields fit each other.
    Sound,
    /// Its checksum is wrong, but its fields fit each other: it needs an entry that names it.
    Doubtful,
}

/// What is known of an inode, in a byte.
const SOUND: u8 = 1;
const DOUBTFUL: u8 = 2;
const DIRECTORY: u8 = 4;
const NAMED: u8 = 8;

/// The inodes that are there.
#[derive(Default)]
pub(super) struct Inodes {
    /// By group, a byte an inode.
    groups: BTreeMap<u32, Box<[u8]>>,
    per_group: u32,
}

impl Inodes {
    fn byte(&self, ino: InodeNumber) -> u8 {
        let Some(index) = ino.0.checked_sub(1).filter(|_| self.per_group > 0) else { return 0 };
        let at = usize::try_from(index % self.per_group).unwrap_or(usize::MAX);
        self.groups.get(&(index / self.per_group)).and_then(|group| group.get(at)).copied().unwrap_or(0)
    }

    pub(super) fn trust(&self, ino: InodeNumber) -> Option<Trust> {
        match self.byte(ino) {
            byte if byte & SOUND != 0 => Some(Trust::Sound),
            byte if byte & DOUBTFUL != 0 => Some(Trust::Doubtful),
            _ => None,
        }
    }

    pub(super) fn is_directory(&self, ino: InodeNumber) -> bool {
        self.byte(ino) & DIRECTORY != 0
    }

    fn byte_mut(&mut self, ino: InodeNumber) -> Option<&mut u8> {
        let index = ino.0.checked_sub(1).filter(|_| self.per_group > 0)?;
        let at = usize::try_from(index % self.per_group).ok()?;
        self.groups.get_mut(&(index / self.per_group))?.get_mut(at)
    }

    /// Remembers that an entry names an inode.
    pub(super) fn set_named(&mut self, ino: InodeNumber) {
        if let Some(byte) = self.byte_mut(ino) {
            *byte |= NAMED;
        }
    }

    /// Takes an inode as not there.
    pub(super) fn forget(&mut self, ino: InodeNumber) {
        if let Some(byte) = self.byte_mut(ino) {
            *byte = 0;
        }
    }

    /// All inodes with these bits, and without those.
    fn with(&self, bits: u8, without: u8) -> impl Iterator<Item = InodeNumber> + '_ {
        self.groups.iter().flat_map(move |(group, bytes)| {
            let first = group * self.per_group + 1;
            let all = (first..).map(InodeNumber).zip(bytes.iter());
            all.filter(move |(_, byte)| *byte & bits == bits && *byte & without == 0).map(|(ino, _)| ino)
        })
    }

    pub(super) fn directories(&self) -> impl Iterator<Item = InodeNumber> + '_ {
        self.with(DIRECTORY, 0)
    }

    /// Sound inodes but directories that no entry names.
    pub(super) fn unnamed_files(&self) -> impl Iterator<Item = InodeNumber> + '_ {
        self.with(SOUND, DIRECTORY | NAMED)
    }

    /// How many are sound.
    pub(super) fn count(&self) -> u64 {
        self.with(SOUND, 0).count() as u64
    }
}

/// Reads inodes from their tables, or where those are damaged from the journal's last copies.
pub(super) struct InodeReader<'a> {
    pub(super) fs: &'a Ext4,
    pub(super) before: Option<&'a Arc<dyn BlockDevice>>,
}

impl InodeReader<'_> {
    /// Looks at all inodes. `goes_on` gets the number of inodes of each chunk.
    pub(super) fn scan(&self, tables: &BTreeMap<u32, Table>, goes_on: &dyn Fn(u64) -> bool) -> Inodes {
        let sb = &self.fs.sb;
        let mut found = Inodes { groups: BTreeMap::new(), per_group: sb.inodes_per_group };
        for (group, table) in tables {
            let mut states = vec![0; usize::try_from(table.used).unwrap_or(0)].into_boxed_slice();
            let per_chunk = (CHUNK / u64::from(sb.inode_size)).max(1);
            let mut at = 0;
            while at < u64::from(table.used) {
                let count = per_chunk.min(u64::from(table.used) - at);
                self.scan_chunk(*group, table.start, at..at + count, &mut states);
                at += count;
                if !goes_on(count) {
                    return found;
                }
            }
            if states.iter().any(|state| *state != 0) {
                found.groups.insert(*group, states);
            }
        }
        found
    }

    /// Looks at some inodes of a table, by their index in it.
    fn scan_chunk(&self, group: u32, table: BlockNumber, range: std::ops::Range<u64>, states: &mut [u8]) {
        let sb = &self.fs.sb;
        let inode_size = u64::from(sb.inode_size);
        let offset = (table.0 << sb.block_size.log2()) + range.start * inode_size;
        let len = (range.end - range.start) * inode_size;
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
        read_past_damage(&*self.fs.device, offset, &mut bytes, &mut |_| {});
        let size = usize::try_from(inode_size).unwrap_or(usize::MAX);
        for (index, bytes) in range.zip(bytes.chunks_exact(size)) {
            let index = u32::try_from(index).unwrap_or(u32::MAX);
            let ino = InodeNumber(group.saturating_mul(sb.inodes_per_group).saturating_add(index + 1));
            let Some((node, trust)) = self.judge(ino, bytes, offset_of(self.fs, table, index)) else {
                continue;
            };
            if self.is_hidden(&node) {
                continue;
            }
            let trust = if trust == Trust::Sound { SOUND } else { DOUBTFUL };
            let directory = if node.kind == FileType::Directory { DIRECTORY } else { 0 };
            if let Some(state) = states.get_mut(usize::try_from(index).unwrap_or(usize::MAX)) {
                *state = trust | directory;
            }
        }
    }

    /// Inodes that are no files of the user.
    fn is_hidden(&self, node: &Snapshot) -> bool {
        let sb = &self.fs.sb;
        let is_reserved = node.ino.0 < sb.first_ino && node.ino != InodeNumber::ROOT;
        is_reserved
            || node.has(InodeFlags::EA_INODE)
            || node.ino.0 == sb.orphan_file_inum
            || sb.quota_inums.contains(&node.ino.0)
    }

    /// An inode from its bytes in the table, or the copy of them in the journal.
    fn judge(&self, ino: InodeNumber, bytes: &[u8], offset: u64) -> Option<(Snapshot, Trust)> {
        let (fs, place) = (self.fs, Structure::Inode.of(ino));
        let head = Inode::head(bytes)?;
        if head.mode == 0 && bytes.iter().all(|byte| *byte == 0) {
            // Zeros are an inode that was never used, or damage.
            return self.logged(ino, bytes, offset);
        }
        if let Ok(node) = fs.parse_inode(ino, bytes, place)
            && is_plausible(fs, &node)
        {
            return (node.inode.links > 0).then_some((node, Trust::Sound));
        }
        if fs.sb.has_metadata_csum() && head.mode == 0 && Inode::verify_unused(bytes, ino, &fs.sb).is_ok() {
            return None;
        }
        if let Some(found) = self.logged(ino, bytes, offset) {
            return Some(found);
        }
        let node = fs.parse_unverified(ino, bytes, place).ok()?;
        (fs.sb.has_metadata_csum() && node.inode.links > 0 && is_plausible(fs, &node))
            .then_some((node, Trust::Doubtful))
    }

    /// An inode from the journal's last copy of its block, if its checksum proves it.
    fn logged(&self, ino: InodeNumber, now: &[u8], offset: u64) -> Option<(Snapshot, Trust)> {
        let before = self.before.filter(|_| self.fs.sb.has_metadata_csum())?;
        let mut bytes = vec![0; now.len()];
        before.read_at(offset, &mut bytes).ok()?;
        if bytes == now {
            return None;
        }
        let node = self.fs.parse_inode(ino, &bytes, Structure::Inode.of(ino)).ok()?;
        (node.inode.links > 0 && is_plausible(self.fs, &node)).then_some((node, Trust::Sound))
    }

    /// Reads one inode.
    pub(super) fn read(&self, tables: &BTreeMap<u32, Table>, ino: InodeNumber) -> Option<(Snapshot, Trust)> {
        let sb = &self.fs.sb;
        let index = ino.0.checked_sub(1)?;
        let table = tables.get(&(index / sb.inodes_per_group))?;
        let offset = offset_of(self.fs, table.start, index % sb.inodes_per_group);
        let mut bytes = vec![0; usize::try_from(sb.inode_size).ok()?];
        // Neighbours are read next: by way of the cache, if their block is intact.
        let block = BlockNumber(offset >> sb.block_size.log2());
        let within = usize::try_from(offset & u64::from(sb.block_size.bytes() - 1)).ok()?;
        match self.fs.metadata(block, Structure::InodeTable.at(block)) {
            Ok(buffer) => {
                let size = bytes.len();
                bytes.copy_from_slice(buffer.get(within..within + size)?);
            }
            Err(_) => read_past_damage(&*self.fs.device, offset, &mut bytes, &mut |_| {}),
        }
        self.judge(ino, &bytes, offset)
    }
}

/// The byte of the device at which an inode begins, by its index in its table.
fn offset_of(fs: &Ext4, table: BlockNumber, index: u32) -> u64 {
    (table.0 << fs.sb.block_size.log2()) + u64::from(index) * u64::from(fs.sb.inode_size)
}
