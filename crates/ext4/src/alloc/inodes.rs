//! Allocation of inodes.

use super::goal;
use crate::inode::Snapshot;
use crate::verified::VerifiedAs;
use crate::{Error, Ext4, Result, Structure};
use dentree_bufcache::Buffer;
use dentree_ext4_format::{
    BlockNumber, GroupDesc, GroupFlags, GroupNumber, InodeNumber, Problem, clear_bits, find_free, set_bits,
};
use dentree_jbd2::Handle;
use dentree_vfs::FileType;
use std::sync::atomic::Ordering::Relaxed;

/// Inode bitmap, descriptor, table.
pub(crate) const INODE_CREDITS: u32 = 3;

impl Ext4 {
    /// A free inode and its generation. The table holds the previous inode until
    /// [`write_new_inode`](Ext4::write_new_inode). Nothing has changed on an error.
    pub(crate) fn allocate_inode(
        &self,
        handle: &mut Handle<'_>,
        parent: &Snapshot,
        kind: FileType,
    ) -> Result<(InodeNumber, u32)> {
        let is_dir = kind == FileType::Directory;
        if !is_dir && let Some(taken) = self.allocate_uncontended_inode(handle, parent)? {
            return Ok(taken);
        }
        for group in self.groups_for(parent, kind)? {
            if !self.may_have_inodes(group)? {
                continue;
            }
            let taken = self.change_group(handle, group, |desc, handle| {
                self.allocate_inode_in(handle, group, desc, is_dir)
            })?;
            if let Some(taken) = taken {
                return Ok(taken);
            }
        }
        Err(Error::NoSpace)
    }

    /// Takes the flex group's first group whose lock is free; that becomes the thread's [goal].
    fn allocate_uncontended_inode(
        &self,
        handle: &mut Handle<'_>,
        parent: &Snapshot,
    ) -> Result<Option<(InodeNumber, u32)>> {
        for group in self.flex_group_members(parent, goal::groups_to_skip(parent.ino)) {
            if !self.may_have_inodes(group)? {
                continue;
            }
            let taken = self.try_change_group(handle, group, |desc, handle| {
                self.allocate_inode_in(handle, group, desc, false)
            })?;
            match taken {
                Some(Some(taken)) => return Ok(Some(taken)),
                Some(None) => {}
                None => goal::skip_group(parent.ino),
            }
        }
        Ok(None)
    }

    fn may_have_inodes(&self, group: GroupNumber) -> Result<bool> {
        let writer = self.writer()?;
        let is_allowed = self.sb.group_start(group).0 < writer.space.end();
        Ok(is_allowed && writer.first_free_inode(group).load(Relaxed) < self.sb.inodes_per_group)
    }

    fn allocate_inode_in(
        &self,
        handle: &mut Handle<'_>,
        group: GroupNumber,
        desc: &mut GroupDesc,
        is_dir: bool,
    ) -> Result<Option<(InodeNumber, u32)>> {
        if desc.free_inodes == 0 {
            return Ok(None);
        }
        let reserved = if group.0 == 0 { self.sb.first_ino - 1 } else { 0 };
        let bitmap = self.inode_bitmap(group, desc)?;
        let index = match &bitmap {
            Some(bitmap) => {
                let from = self.writer()?.first_free_inode(group).load(Relaxed).max(reserved);
                first_free(bitmap, from, self.sb.inodes_per_group)
            }
            None => (reserved < self.sb.inodes_per_group).then_some(reserved),
        };
        let Some(index) = index else { return Ok(None) };
        let ino = InodeNumber(group.0 * self.sb.inodes_per_group + index + 1);
        // The last read: nothing fails from here to the first change.
        let generation = self.prepare_table(handle, desc, index, bitmap.as_deref())?;
        let place = Structure::InodeBitmap(group).at(desc.inode_bitmap);
        let bit = usize::try_from(index).unwrap_or(usize::MAX);
        // Else the change makes a copy.
        let is_written = bitmap.map(drop).is_some();
        if is_written {
            let sum = desc.inode_bitmap_sum;
            desc.inode_bitmap_sum = self.update(handle, desc.inode_bitmap, place, |bytes| {
                set_bits(bytes, bit, bit + 1);
                self.sb.changed_inode_bitmap_sum(sum, bit..bit + 1, bytes)
            })?;
        } else {
            let bits = usize::try_from(self.sb.inodes_per_group).unwrap_or(usize::MAX);
            let create = |bytes: &mut [u8]| {
                set_bits(bytes, bits, bytes.len() * 8);
                set_bits(bytes, bit, bit + 1);
                self.sb.inode_bitmap_sum(bytes)
            };
            let sum = handle.create(desc.inode_bitmap.0, create).map_err(|source| place.io(source))?;
            desc.inode_bitmap_sum = sum.unwrap_or(desc.inode_bitmap_sum);
        }
        desc.flags = desc.flags.without(GroupFlags::INODE_UNINIT);
        desc.free_inodes -= 1;
        let next = if desc.free_inodes == 0 { self.sb.inodes_per_group } else { index + 1 };
        self.writer()?.first_free_inode(group).store(next, Relaxed);
        desc.used_dirs += u32::from(is_dir);
        desc.itable_unused = desc.itable_unused.min(self.sb.inodes_per_group - index - 1);
        Ok(Some((ino, generation)))
    }

    pub(crate) fn is_inode_in_use(&self, ino: InodeNumber) -> Result<bool> {
        let group = GroupNumber((ino.0 - 1) / self.sb.inodes_per_group);
        let index = (ino.0 - 1) % self.sb.inodes_per_group;
        self.with_group(group, |desc| {
            Ok(self.inode_bitmap(group, desc)?.is_some_and(|bitmap| bit_of(&bitmap, index)))
        })
    }

    /// `None` if it was never written (`INODE_UNINIT`).
    fn inode_bitmap(&self, group: GroupNumber, desc: &GroupDesc) -> Result<Option<Buffer>> {
        if self.sb.has_group_checksums() && desc.flags.has(GroupFlags::INODE_UNINIT) {
            return Ok(None);
        }
        let place = Structure::InodeBitmap(group).at(desc.inode_bitmap);
        let ahead = |_| Some(|| self.bitmaps_ahead(group, desc));
        let bitmap = self.metadata_ahead(desc.inode_bitmap, place, ahead)?;
        let check = || match self.sb.inode_bitmap_sum(&bitmap) {
            Some(computed) => Problem::check_sum(desc.inode_bitmap_sum, computed),
            None => Ok(()),
        };
        self.verify_once(place, &bitmap, VerifiedAs::InodeBitmap(group), check)?;
        Ok(Some(bitmap))
    }

    /// Makes the table valid up to inode `index`. Returns the inode's generation. mkfs leaves the
    /// end of a table uninitialized, so blocks are zeroed as they come into use, and not read where
    /// no inode is in use.
    fn prepare_table(
        &self,
        handle: &mut Handle<'_>,
        desc: &GroupDesc,
        index: u32,
        bitmap: Option<&[u8]>,
    ) -> Result<u32> {
        let size = usize::try_from(self.sb.inode_size).unwrap_or(usize::MAX);
        let per_block = self.sb.block_size.bytes() / self.sb.inode_size;
        let block_of = |index: u32| BlockNumber(desc.inode_table.0 + u64::from(index / per_block));
        let within = |index: u32| usize::try_from(index % per_block).unwrap_or(usize::MAX);
        let place = Structure::InodeTable.at(block_of(index));
        let unused = if self.sb.has_group_checksums() { desc.itable_unused } else { 0 };
        let used = self.sb.inodes_per_group - unused;
        let first = index - index % per_block;
        let is_alone = bitmap.is_some_and(|bitmap| (first..first + per_block).all(|at| !bit_of(bitmap, at)));
        if index < used {
            if is_alone {
                handle.create(block_of(index).0, |_| ()).map_err(|source| place.io(source))?;
            } else {
                self.metadata(block_of(index), place)?;
            }
            return Ok(self.writer()?.next_generation());
        }
        if !desc.flags.has(GroupFlags::ITABLE_ZEROED) {
            let mut from = used;
            while from <= index {
                let (block, place) = (block_of(from), Structure::InodeTable.at(block_of(from)));
                if within(from) == 0 {
                    handle.create(block.0, |_| ()).map_err(|source| place.io(source))?;
                } else {
                    let skip = within(from) * size;
                    self.update(handle, block, place, |bytes| {
                        bytes.get_mut(skip..).unwrap_or_default().fill(0);
                    })?;
                }
                from = (from / per_block + 1) * per_block;
            }
        } else if within(index) == 0 {
            handle.create(block_of(index).0, |_| ()).map_err(|source| place.io(source))?;
        }
        Ok(1)
    }

    pub(crate) fn write_new_inode(&self, handle: &mut Handle<'_>, inode: &Snapshot) -> Result<()> {
        let (block, within) = self.find_inode(inode.ino)?;
        let place = Structure::Inode.of(inode.ino).at(block);
        let size = usize::try_from(self.sb.inode_size).unwrap_or(usize::MAX);
        self.update(handle, block, place, |bytes| {
            if let Some(bytes) = bytes.chunks_exact_mut(size).nth(within) {
                bytes.fill(0);
                inode.encode(bytes, &self.sb);
            }
        })
    }

    pub(crate) fn free_inode(&self, handle: &mut Handle<'_>, ino: InodeNumber, kind: FileType) -> Result<()> {
        let group = GroupNumber((ino.0 - 1) / self.sb.inodes_per_group);
        let index = (ino.0 - 1) % self.sb.inodes_per_group;
        self.change_group(handle, group, |desc, handle| {
            let place = Structure::InodeBitmap(group).at(desc.inode_bitmap);
            let in_use = self.inode_bitmap(group, desc)?.is_some_and(|bitmap| bit_of(&bitmap, index));
            let full = desc.free_inodes >= self.sb.inodes_per_group;
            if !in_use || full {
                let what = "the bit of an inode that is in use";
                return Err(place.corrupt(Problem::Missing { what }));
            }
            let (bit, sum) = (usize::try_from(index).unwrap_or(usize::MAX), desc.inode_bitmap_sum);
            desc.inode_bitmap_sum = self.update(handle, desc.inode_bitmap, place, |bytes| {
                clear_bits(bytes, bit, bit + 1);
                self.sb.changed_inode_bitmap_sum(sum, bit..bit + 1, bytes)
            })?;
            self.writer()?.first_free_inode(group).fetch_min(index, Relaxed);
            desc.free_inodes += 1;
            if kind == FileType::Directory {
                desc.used_dirs = desc.used_dirs.saturating_sub(1);
            }
            Ok(())
        })
    }
}

fn bit_of(bitmap: &[u8], index: u32) -> bool {
    let at = usize::try_from(index / 8).unwrap_or(usize::MAX);
    bitmap.get(at).is_some_and(|byte| byte >> (index % 8) & 1 == 1)
}

fn first_free(bitmap: &[u8], from: u32, end: u32) -> Option<u32> {
    let free = find_free(bitmap, usize::try_from(from).ok()?, usize::try_from(end).ok()?, 1);
    u32::try_from(free.first).ok().filter(|_| free.len > 0)
}
