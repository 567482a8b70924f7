//! What pass 1 keeps of each inode: kind, links, and how many links were counted.

use dentree_ext4_format::{GroupNumber, InodeNumber, Superblock};
use dentree_vfs::FileType;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU16, Ordering::Relaxed};

pub(super) struct Records {
    groups: Box<[OnceLock<Group>]>,
    inodes_per_group: u32,
}

/// Only as many as the group ever used.
struct Group {
    kinds: Box<[AtomicU8]>,
    links: Box<[AtomicU16]>,
    counted: Box<[AtomicU16]>,
}

/// An inode in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Record {
    pub(super) kind: Kind,
    pub(super) links: u16,
    pub(super) counted: u16,
}

/// The type that an entry must have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// `i_mode` names none.
    Unknown,
    Of(FileType),
    /// The value of an attribute, which has no name.
    Value,
}

/// 0: not in use.
const KINDS: [Kind; 9] = [
    Kind::Unknown,
    Kind::Of(FileType::Regular),
    Kind::Of(FileType::Directory),
    Kind::Of(FileType::CharDevice),
    Kind::Of(FileType::BlockDevice),
    Kind::Of(FileType::Fifo),
    Kind::Of(FileType::Socket),
    Kind::Of(FileType::Symlink),
    Kind::Value,
];

impl Records {
    pub(super) fn new(sb: &Superblock) -> Records {
        let groups = (0..sb.groups).map(|_| OnceLock::new()).collect();
        Records { groups, inodes_per_group: sb.inodes_per_group }
    }

    /// Makes room for the first `used` inodes of a group.
    pub(super) fn begin(&self, GroupNumber(group): GroupNumber, used: u32) {
        if let Some(group) = self.groups.get(usize::try_from(group).unwrap_or(usize::MAX)) {
            group.get_or_init(|| Group {
                kinds: (0..used).map(|_| AtomicU8::new(0)).collect(),
                links: (0..used).map(|_| AtomicU16::new(0)).collect(),
                counted: (0..used).map(|_| AtomicU16::new(0)).collect(),
            });
        }
    }

    fn place(&self, InodeNumber(ino): InodeNumber) -> Option<(&Group, usize)> {
        let index = ino.checked_sub(1)?;
        let group = self.groups.get(usize::try_from(index / self.inodes_per_group).ok()?)?.get()?;
        Some((group, usize::try_from(index % self.inodes_per_group).ok()?))
    }

    pub(super) fn put(&self, ino: InodeNumber, kind: Kind, links: u16) {
        let Some((group, at)) = self.place(ino) else { return };
        let number = KINDS.iter().position(|known| *known == kind).unwrap_or(0) + 1;
        if let (Some(kind), Some(count)) = (group.kinds.get(at), group.links.get(at)) {
            kind.store(u8::try_from(number).unwrap_or(1), Relaxed);
            count.store(links, Relaxed);
        }
    }

    pub(super) fn get(&self, ino: InodeNumber) -> Option<Record> {
        let (group, at) = self.place(ino)?;
        let number = usize::from(group.kinds.get(at)?.load(Relaxed)).checked_sub(1)?;
        Some(Record {
            kind: *KINDS.get(number)?,
            links: group.links.get(at)?.load(Relaxed),
            counted: group.counted.get(at)?.load(Relaxed),
        })
    }

    /// Counts a name.
    pub(super) fn count(&self, ino: InodeNumber) {
        if let Some((group, at)) = self.place(ino)
            && let Some(count) = group.counted.get(at)
        {
            // Saturates: a count of 65,535 is above every limit.
            let _ = count.fetch_update(Relaxed, Relaxed, |count| count.checked_add(1));
        }
    }

    /// The inodes of a group that are in use.
    pub(super) fn of_group(&self, group: usize) -> impl Iterator<Item = (InodeNumber, Record)> {
        let first = u32::try_from(group).unwrap_or(u32::MAX).saturating_mul(self.inodes_per_group);
        let used = self.groups.get(group).and_then(OnceLock::get).map_or(0, |group| group.kinds.len());
        let inodes = (0..u32::try_from(used).unwrap_or(0)).map(move |index| InodeNumber(first + index + 1));
        inodes.filter_map(|ino| Some((ino, self.get(ino)?)))
    }
}
