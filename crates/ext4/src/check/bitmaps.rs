//! Pass 5: bitmaps and free counts against what the passes before found in use.

use super::records::Kind;
use super::{Check, Code, Defect};
use crate::{Place, Structure};
use dentree_ext4_format::{GroupDesc, GroupFlags, GroupNumber, InodeNumber, Problem, all_set, free_runs};
use dentree_vfs::FileType;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Runs of wrong bits that are reported for one bitmap.
const MOST_RUNS: usize = 100;

impl Check<'_> {
    pub(super) fn bitmaps(&self) {
        let (free_clusters, free_inodes) = (AtomicU64::new(0), AtomicU64::new(0));
        self.in_parallel(self.groups(), |index, ()| {
            let (group, Some(desc)) = self.group(index) else { return };
            free_clusters.fetch_add(self.block_bitmap(index, group, desc), Relaxed);
            free_inodes.fetch_add(self.inode_bitmap(index, group, desc), Relaxed);
        });
        self.totals(free_clusters.into_inner(), free_inodes.into_inner());
    }

    /// Compares the counts of the superblock.
    fn totals(&self, free_clusters: u64, free_inodes: u64) {
        // The counts of damaged descriptors are not known, and those of the superblock are old
        // while a file system is in use: after a crash e2fsck sets them without a word.
        if self.descs.iter().any(Option::is_none) || self.fs.is_in_use() {
            return;
        }
        let (sb, place) = (&self.fs.sb, Structure::Superblock.at(self.fs.superblock_at));
        let free = free_clusters << sb.log_cluster_ratio;
        self.count(Code::PR_5_FREE_BLOCK_COUNT, place, "free blocks", sb.free_blocks_count, free);
        let stored = u64::from(sb.free_inodes_count);
        self.count(Code::PR_5_FREE_INODE_COUNT, place, "free inodes", stored, free_inodes);
    }

    /// Compares the bitmaps with the counts of descriptors, and these with the superblock's.
    pub(super) fn stored_bitmaps(&self) {
        let (clusters, inodes) = (AtomicU64::new(0), AtomicU64::new(0));
        self.in_parallel(self.groups(), |index, ()| {
            let (group, Some(desc)) = self.group(index) else { return };
            clusters.fetch_add(self.stored_blocks(group, desc), Relaxed);
            inodes.fetch_add(self.stored_inodes(group, desc), Relaxed);
        });
        self.totals(clusters.into_inner(), inodes.into_inner());
    }

    /// The free clusters of a group by its bitmap; by its descriptor, where it has none.
    fn stored_blocks(&self, group: GroupNumber, desc: &GroupDesc) -> u64 {
        let (fs, sb) = (self.fs, &self.fs.sb);
        let clusters = sb.blocks_in_group(group).div_ceil(1 << sb.log_cluster_ratio);
        let place = Structure::BlockBitmap(group).at(desc.block_bitmap);
        let stored = u64::from(desc.free_blocks);
        if sb.has_group_checksums() && desc.flags.has(GroupFlags::BLOCK_UNINIT) {
            return stored;
        }
        let bitmap = self.bitmap(place, desc.block_bitmap_sum, |bytes| sb.block_bitmap_sum(bytes));
        let Some(bitmap) = bitmap else { return stored };
        let free = free_bits(&bitmap, clusters);
        let place = Structure::GroupDescriptor(group).at(fs.descriptor_place(group).0);
        self.count(Code::PR_5_FREE_BLOCK_COUNT_GROUP, place, "free blocks of the group", stored, free);
        free
    }

    fn stored_inodes(&self, group: GroupNumber, desc: &GroupDesc) -> u64 {
        let (fs, sb) = (self.fs, &self.fs.sb);
        let place = Structure::InodeBitmap(group).at(desc.inode_bitmap);
        let stored = u64::from(desc.free_inodes);
        if sb.has_group_checksums() && desc.flags.has(GroupFlags::INODE_UNINIT) {
            return stored;
        }
        let bitmap = self.bitmap(place, desc.inode_bitmap_sum, |bytes| sb.inode_bitmap_sum(bytes));
        let Some(bitmap) = bitmap else { return stored };
        let free = free_bits(&bitmap, sb.inodes_per_group);
        let place = Structure::GroupDescriptor(group).at(fs.descriptor_place(group).0);
        self.count(Code::PR_5_FREE_INODE_COUNT_GROUP, place, "free inodes of the group", stored, free);
        free
    }

    /// Compares the block bitmap of a group. Returns its free clusters.
    fn block_bitmap(&self, index: usize, group: GroupNumber, desc: &GroupDesc) -> u64 {
        let (fs, sb) = (self.fs, &self.fs.sb);
        let clusters = sb.blocks_in_group(group).div_ceil(1 << sb.log_cluster_ratio);
        let place = Structure::BlockBitmap(group).at(desc.block_bitmap);
        let is_new = sb.has_group_checksums() && desc.flags.has(GroupFlags::BLOCK_UNINIT);
        let bitmap = if is_new {
            self.system.as_ref().map(|system| fs.initial_block_bitmap(group, system))
        } else {
            self.bitmap(place, desc.block_bitmap_sum, |bytes| sb.block_bitmap_sum(bytes))
        };
        // Counts are those of the stored bitmap, as e2fsck has them.
        let mut free = u64::from(desc.free_blocks);
        if let Some(bitmap) = bitmap {
            free = free_bits(&bitmap, clusters);
            let first = u64::from(group.0) * u64::from(sb.clusters_per_group());
            self.compare(place, &bitmap, self.claims.of_group(index), clusters, |bits| {
                self.claims.blocks(first + bits.start).start..self.claims.blocks(first + bits.end - 1).end
            });
        }
        let place = Structure::GroupDescriptor(group).at(fs.descriptor_place(group).0);
        let code = Code::PR_5_FREE_BLOCK_COUNT_GROUP;
        self.count(code, place, "free blocks of the group", u64::from(desc.free_blocks), free);
        free
    }

    /// Compares the inode bitmap of a group, and its counts. Returns its free inodes.
    fn inode_bitmap(&self, index: usize, group: GroupNumber, desc: &GroupDesc) -> u64 {
        let (fs, sb) = (self.fs, &self.fs.sb);
        let first = group.0 * sb.inodes_per_group + 1;
        let mut used = vec![0_u64; words(sb.inodes_per_group)];
        let mut set = |ino: u32| {
            let at = usize::try_from(ino - first).unwrap_or(usize::MAX);
            if let Some(word) = used.get_mut(at / 64) {
                *word |= 1 << (at % 64);
            }
        };
        let mut dirs = Vec::new();
        for (InodeNumber(ino), record) in self.records.of_group(index) {
            set(ino);
            if record.kind == Kind::Of(FileType::Directory) {
                dirs.push(ino - first);
            }
        }
        // Reserved inodes are in use, whatever they hold.
        (first..sb.first_ino.min(first + sb.inodes_per_group)).for_each(set);
        let mut free = u64::from(desc.free_inodes);
        let place = Structure::InodeBitmap(group).at(desc.inode_bitmap);
        let is_new = sb.has_group_checksums() && desc.flags.has(GroupFlags::INODE_UNINIT);
        if !is_new
            && let Some(bitmap) =
                self.bitmap(place, desc.inode_bitmap_sum, |bytes| sb.inode_bitmap_sum(bytes))
        {
            free = free_bits(&bitmap, sb.inodes_per_group);
            let is_marked = |bit: &u32| {
                usize::try_from(bit / 8)
                    .ok()
                    .and_then(|at| bitmap.get(at))
                    .is_some_and(|b| b >> (bit % 8) & 1 == 1)
            };
            dirs.retain(is_marked);
            let number = |bits: Range<u64>| u64::from(first) + bits.start..u64::from(first) + bits.end;
            self.compare(place, &bitmap, used.iter().copied(), sb.inodes_per_group, number);
        }
        let place = Structure::GroupDescriptor(group).at(fs.descriptor_place(group).0);
        let code = Code::PR_5_FREE_INODE_COUNT_GROUP;
        self.count(code, place, "free inodes of the group", u64::from(desc.free_inodes), free);
        let code = Code::PR_5_FREE_DIR_COUNT_GROUP;
        self.count(
            code,
            place,
            "directories of the group",
            u64::from(desc.used_dirs),
            u64::try_from(dirs.len()).unwrap_or(0),
        );
        free
    }

    /// Reads a bitmap and verifies its checksum.
    fn bitmap(&self, place: Place, stored: u32, sum: impl Fn(&[u8]) -> Option<u32>) -> Option<Vec<u8>> {
        let block = place.block?;
        if self.fs.sb.check_blocks("a bitmap", block, 1).is_err() {
            // Pass 0 has reported it.
            return None;
        }
        match self.fs.metadata(block, place) {
            Ok(bytes) => {
                if let Some(Err(problem)) = sum(&bytes).map(|computed| Problem::check_sum(stored, computed)) {
                    self.damaged(BitmapCodes::of(place).sum, place, problem);
                }
                Some(bytes.to_vec())
            }
            Err(error) => {
                self.error(5, error);
                None
            }
        }
    }

    /// Compares a bitmap of `count` bits with what is in use; the bits behind must be set.
    fn compare(
        &self,
        place: Place,
        bitmap: &[u8],
        used: impl Iterator<Item = u64>,
        count: u32,
        numbers: impl Fn(Range<u64>) -> Range<u64>,
    ) {
        let codes = BitmapCodes::of(place);
        let mut runs: Vec<(Range<u64>, bool)> = Vec::new();
        let stored = bitmap.as_chunks().0.iter().copied().map(u64::from_le_bytes);
        for ((index, stored), used) in (0_u64..).zip(stored).zip(used).take(words(count)) {
            let bits = u64::from(count) - index * 64;
            let mask = if bits >= 64 { u64::MAX } else { (1 << bits) - 1 };
            let mut wrong = (stored ^ used) & mask;
            while wrong != 0 {
                let bit = u64::from(wrong.trailing_zeros());
                let (at, is_marked) = (index * 64 + bit, stored >> bit & 1 == 1);
                let is_full = runs.len() == MOST_RUNS;
                match runs.last_mut() {
                    Some((run, marked)) if run.end == at && *marked == is_marked => run.end += 1,
                    _ if is_full => break,
                    _ => runs.push((at..at + 1, is_marked)),
                }
                wrong &= wrong - 1;
            }
        }
        for (run, is_marked) in runs {
            let numbers = numbers(run);
            let code = codes.bits[usize::from(numbers.end - numbers.start > 1)][usize::from(is_marked)];
            self.found(code, place, Defect::Bits { numbers, is_marked });
        }
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        if !all_set(bitmap, count, bitmap.len() * 8) {
            let problem = Problem::Missing { what: "a set bit behind the last of the group" };
            self.damaged(codes.padding, place, problem);
        }
    }
}

/// What e2fsck calls the problems of a kind of bitmap.
struct BitmapCodes {
    sum: Code,
    padding: Code,
    /// One and several, free ones that are in use and marked ones that are free.
    bits: [[Code; 2]; 2],
}

impl BitmapCodes {
    fn of(place: Place) -> BitmapCodes {
        match place.structure {
            Structure::InodeBitmap(_) => BitmapCodes {
                sum: Code::PR_5_INODE_BITMAP_CSUM_INVALID,
                padding: Code::PR_5_INODE_BMAP_PADDING,
                bits: [
                    [Code::PR_5_INODE_USED, Code::PR_5_INODE_UNUSED],
                    [Code::PR_5_INODE_RANGE_USED, Code::PR_5_INODE_RANGE_UNUSED],
                ],
            },
            _ => BitmapCodes {
                sum: Code::PR_5_BLOCK_BITMAP_CSUM_INVALID,
                padding: Code::PR_5_BLOCK_BMAP_PADDING,
                bits: [
                    [Code::PR_5_BLOCK_USED, Code::PR_5_BLOCK_UNUSED],
                    [Code::PR_5_BLOCK_RANGE_USED, Code::PR_5_BLOCK_RANGE_UNUSED],
                ],
            },
        }
    }
}

/// The zeros among the first `count` bits.
fn free_bits(bitmap: &[u8], count: u32) -> u64 {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    free_runs(bitmap, 0, count.min(bitmap.len() * 8)).map(|run| u64::try_from(run.len).unwrap_or(0)).sum()
}

/// Words of 64 bits for so many bits.
fn words(bits: u32) -> usize {
    usize::try_from(bits.div_ceil(64)).unwrap_or(0)
}
