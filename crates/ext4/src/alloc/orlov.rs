//! Orlov allocator: directories in the root are spread, as their subtrees have little in common.
//! Others stay near their parent while that has space to spare; files stay in their directory's
//! group. Directories are placed by flex group.

use crate::inode::Snapshot;
use crate::{Ext4, Result};
use dentree_ext4_format::{GroupNumber, InodeFlags, InodeNumber};
use dentree_vfs::FileType;

/// A flex group with less than 1/8 free has none to spare.
const SPARE: u64 = 8;

#[derive(Clone, Copy, Default)]
struct FlexStats {
    inodes: u64,
    blocks: u64,
    directories: u64,
}

impl Ext4 {
    pub(crate) fn groups_for(
        &self,
        parent: &Snapshot,
        kind: FileType,
    ) -> Result<impl Iterator<Item = GroupNumber> + use<>> {
        let own = GroupNumber((parent.ino.0 - 1) / self.sb.inodes_per_group);
        let flex = self.flex_of(own);
        let (first, flex) = if kind != FileType::Directory {
            (Some(own), flex)
        } else if parent.ino == InodeNumber::ROOT || parent.has(InodeFlags::TOPDIR) {
            (None, self.emptiest_flex()?)
        } else {
            (None, self.near_flex(flex)?)
        };
        let groups = self.sb.groups;
        let start = flex * self.sb.groups_per_flex;
        let all = (start..groups).chain(0..start).map(GroupNumber);
        Ok(first.into_iter().chain(all))
    }

    /// Starts with the directory's own group; omits the first `skip`.
    pub(super) fn flex_group_members(
        &self,
        dir: &Snapshot,
        skip: u32,
    ) -> impl Iterator<Item = GroupNumber> + use<> {
        let own = (dir.ino.0 - 1) / self.sb.inodes_per_group;
        let in_flex = self.sb.groups_per_flex;
        let start = own - own % in_flex;
        let count = in_flex.min(self.sb.groups - start);
        (skip.min(count)..count).map(move |step| GroupNumber(start + (own - start + step) % count))
    }

    fn flex_of(&self, group: GroupNumber) -> u32 {
        group.0 / self.sb.groups_per_flex
    }

    fn flexes(&self) -> u32 {
        self.sb.groups.div_ceil(self.sb.groups_per_flex)
    }

    fn stats(&self, flex: u32) -> Result<FlexStats> {
        let writer = self.writer()?;
        let start = flex * self.sb.groups_per_flex;
        let end = start.saturating_add(self.sb.groups_per_flex).min(self.sb.groups);
        Ok((start..end).fold(FlexStats::default(), |sum, group| {
            let desc = writer.group(GroupNumber(group));
            FlexStats {
                inodes: sum.inodes + u64::from(desc.free_inodes),
                blocks: sum.blocks + u64::from(desc.free_blocks),
                directories: sum.directories + u64::from(desc.used_dirs),
            }
        }))
    }

    /// The fewest directories among those with at least average free space.
    fn emptiest_flex(&self) -> Result<u32> {
        let stats = (0..self.flexes()).map(|flex| self.stats(flex)).collect::<Result<Vec<_>>>()?;
        let count = u64::from(self.flexes());
        let inodes = stats.iter().map(|stats| stats.inodes).sum::<u64>() / count;
        let blocks = stats.iter().map(|stats| stats.blocks).sum::<u64>() / count;
        let good = (0..).zip(&stats).filter(|(_, stats)| {
            stats.inodes > 0
                && stats.inodes >= inodes.min(u64::from(self.sb.inodes_per_group))
                && stats.blocks >= blocks
        });
        Ok(good.min_by_key(|(_, stats)| stats.directories).map_or(0, |(flex, _)| flex))
    }

    fn near_flex(&self, flex: u32) -> Result<u32> {
        let in_flex = u64::from(self.sb.groups_per_flex.min(self.sb.groups));
        let inodes = in_flex * u64::from(self.sb.inodes_per_group) / SPARE;
        let blocks = in_flex * u64::from(self.sb.clusters_per_group()) / SPARE;
        for near in (flex..self.flexes()).chain(0..flex) {
            let stats = self.stats(near)?;
            if stats.inodes >= inodes && stats.blocks >= blocks {
                return Ok(near);
            }
        }
        Ok(flex)
    }
}
