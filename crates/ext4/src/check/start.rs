//! Pass 0: superblock, group descriptors, journal, resize inode, orphans.

use super::{Check, Code, classify};
use crate::alloc::SystemBlocks;
use crate::map::{MapCache, Mapping};
use crate::resize::reserved;
use crate::{Error, Notice, Place, Structure};
use dentree_ext4_format::{
    BlockNumber, Compat, GroupDesc, GroupFlags, GroupNumber, I_BLOCK_LEN, Incompat, Inode, InodeNumber,
    LogicalBlock, Problem, RoCompat, orphan_slots, verify_orphan_block,
};
use dentree_jbd2::JournalLocation;

const DAY: i64 = 86_400;
const MMP_MAGIC: u32 = 0x004D_4D50;
const MMP_SUM_AT: usize = 0x3FC;
const JOURNAL_MAGIC: u64 = 0xC03B_3998;
/// Revoke, 64bit, async commit, checksums of version 2 and 3, fast commit.
const JOURNAL_FEATURES: u64 = 0x3F;
const RESIZE: InodeNumber = InodeNumber(7);

impl Check<'_> {
    pub(super) fn start(&mut self) {
        self.superblock();
        self.descriptors();
        self.last_group();
        self.claim_system();
        self.journal();
        self.resize_inode();
        self.orphan_list();
        self.orphan_file();
    }

    fn superblock(&self) {
        let (sb, place) = (&self.fs.sb, Structure::Superblock.at(self.fs.superblock_at));
        for notice in self.fs.notices() {
            match notice {
                Notice::BackupSuperblock { problem, .. } => {
                    let place = Structure::Superblock.at(BlockNumber(0));
                    self.damaged(Code::PR_0_OPEN_FAILED, place, *problem);
                }
                Notice::Truncated { expected, found } => {
                    self.count(Code::PR_0_FS_SIZE_WRONG, place, "bytes of the image", *expected, *found);
                }
                _ => {}
            }
        }
        self.cluster_sizes(place);
        let range = |field, value, min, max| {
            if let Err(problem) = Problem::check_range(field, value, min, max) {
                self.damaged(Code::PR_0_MISC_CORRUPT_SUPER, place, problem);
            }
        };
        range("s_r_blocks_count", sb.reserved_blocks_count, 0, sb.blocks_count / 2);
        range("s_rev_level", u64::from(sb.revision), 0, 1);
        range("s_first_ino", u64::from(sb.first_ino), 11, u64::from(sb.inodes_count));
        let most = u64::from(sb.block_size.bytes() / 4);
        range("s_reserved_gdt_blocks", u64::from(sb.reserved_gdt_blocks), 0, most);
        self.extra_sizes(place);
        self.features(place);
        self.quota_numbers(place);
        self.times(place);
    }

    fn extra_sizes(&self, place: Place) {
        let sb = &self.fs.sb;
        let most = sb.inode_size - 128;
        let sizes = [
            (Code::PR_0_MIN_EXTRA_ISIZE_INVALID, "s_min_extra_isize", sb.min_extra_isize),
            (Code::PR_0_WANT_EXTRA_ISIZE_INVALID, "s_want_extra_isize", sb.want_extra_isize),
        ];
        for (code, field, size) in sizes {
            if size != 0 && (size < 4 || u32::from(size) > most || size % 4 != 0) {
                self.value(code, place, field, u64::from(size), "is no length of extra fields");
            }
        }
    }

    /// Features that exclude each other, or that need what is not there.
    fn features(&self, place: Place) {
        let sb = &self.fs.sb;
        let flag = |is_wrong: bool, code, field, value: u32, because| {
            if is_wrong {
                self.value(code, place, field, u64::from(value), because);
            }
        };
        let (compat, incompat, ro_compat) = (sb.compat.0, sb.incompat.0, sb.ro_compat.0);
        let (has_journal, has_resize) =
            (sb.compat.has(Compat::HAS_JOURNAL), sb.compat.has(Compat::RESIZE_INODE));
        let is_left = !has_journal && sb.journal_inum.0 != 0;
        let because = "lacks has_journal, and there is a journal";
        flag(is_left, Code::PR_0_JOURNAL_HAS_JOURNAL, "s_feature_compat", compat, because);
        let is_alone = !has_journal && sb.incompat.has(Incompat::RECOVER);
        let because = "has needs_recovery, and there is no journal";
        flag(is_alone, Code::PR_0_JOURNAL_RECOVER_SET, "s_feature_incompat", incompat, because);
        let (is_left, kept) = (!has_resize && sb.reserved_gdt_blocks != 0, u32::from(sb.reserved_gdt_blocks));
        let because = "must be 0 without resize_inode";
        flag(is_left, Code::PR_0_NONZERO_RESERVED_GDT_BLOCKS, "s_reserved_gdt_blocks", kept, because);
        let has_both = has_resize && sb.incompat.has(Incompat::META_BG);
        let because = "has both resize_inode and meta_bg";
        flag(has_both, Code::PR_0_DISABLE_RESIZE_INODE, "s_feature_compat", compat, because);
        let has_both = sb.has_metadata_csum() && sb.ro_compat.has(RoCompat::GDT_CSUM);
        let because = "has both metadata_csum and uninit_bg";
        flag(has_both, Code::PR_0_META_AND_GDT_CSUM_SET, "s_feature_ro_compat", ro_compat, because);
        let is_alone = !sb.has_metadata_csum() && sb.incompat.has(Incompat::CSUM_SEED);
        let because = "has metadata_csum_seed without metadata_csum";
        flag(is_alone, Code::PR_0_CSUM_SEED_WITHOUT_META_CSUM, "s_feature_incompat", incompat, because);
    }

    fn quota_numbers(&self, place: Place) {
        let sb = &self.fs.sb;
        // Users' and groups' may have the reserved numbers.
        let numbers = [3, 4, 0].into_iter().zip(sb.quota_inums);
        for (_, ino) in numbers.filter(|(own, ino)| *ino != 0 && own != ino) {
            let (first, last) = (u64::from(sb.first_ino), u64::from(sb.inodes_count));
            if let Err(problem) = Problem::check_range("the quota inode", u64::from(ino), first, last) {
                self.damaged(Code::PR_0_INVALID_QUOTA_INO, place, problem);
            }
        }
    }

    fn times(&self, place: Place) {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = i64::try_from(now.map_or(0, |now| now.as_secs())).unwrap_or(i64::MAX);
        let codes = [
            (Code::PR_0_FUTURE_SB_LAST_MOUNT, Code::PR_0_FUTURE_SB_LAST_MOUNT_FUDGED),
            (Code::PR_0_FUTURE_SB_LAST_WRITE, Code::PR_0_FUTURE_SB_LAST_WRITE_FUDGED),
        ];
        let times = [("s_mtime", self.fs.sb.mount_time), ("s_wtime", self.fs.sb.write_time)];
        for ((far, near), (field, time)) in codes.into_iter().zip(times) {
            // e2fsck compares the lower 32 bits.
            let seconds = time.seconds & 0xFFFF_FFFF;
            if seconds > now {
                let code = if seconds - now < DAY { near } else { far };
                self.value(code, place, field, u64::try_from(seconds).unwrap_or(0), "is in the future");
            }
        }
    }

    /// Fields that readers do not use. Without bigalloc, clusters are blocks.
    fn cluster_sizes(&self, place: Place) {
        let sb = &self.fs.sb;
        let mut bytes = [0; 0x178];
        if self.fs.device.read_at(self.fs.superblock_offset(), &mut bytes).is_err() {
            return;
        }
        let word = |at: usize| {
            let word = bytes.get(at..).and_then(<[u8]>::first_chunk).copied();
            u64::from(word.map_or(0, u32::from_le_bytes))
        };
        let check = |field, value, min, max| {
            if let Err(problem) = Problem::check_range(field, value, min, max) {
                self.damaged(Code::PR_0_MISC_CORRUPT_SUPER, place, problem);
            }
        };
        check("s_desc_size", word(0xFE) & 0xFFFF, 0, 1024);
        check("s_log_groups_per_flex", word(0x174) & 0xFF, 0, 31);
        if sb.ro_compat.has(RoCompat::BIGALLOC) {
            return;
        }
        let pairs = [("s_log_cluster_size", 0x1C, 0x18), ("s_clusters_per_group", 0x24, 0x20)];
        for (field, at, of_blocks) in pairs {
            let right = word(of_blocks);
            check(field, word(at), right, right);
        }
    }

    fn descriptors(&mut self) {
        let mut descs = Vec::with_capacity(self.groups());
        for group in (0..self.fs.sb.groups).map(GroupNumber) {
            let desc = match self.fs.group(group) {
                Err(error @ Error::Corrupt { problem: Problem::Checksum { .. }, .. }) => {
                    self.error(0, error);
                    self.fs.group_unverified(group)
                }
                read => read.map_err(|error| self.error(0, error)).ok(),
            };
            if let Some(desc) = &desc {
                self.descriptor(group, desc);
            }
            descs.push(desc);
        }
        self.descs = descs;
    }

    fn descriptor(&self, group: GroupNumber, desc: &GroupDesc) {
        let sb = &self.fs.sb;
        let place = Structure::GroupDescriptor(group).at(self.fs.descriptor_place(group).0);
        let problem = desc.check(group, sb).err();
        // Pass 5 compares the counts.
        let problem = problem.filter(|problem| match classify::of_descriptor(problem) {
            Code::PR_0_CHECK_DESC_FAILED => true,
            Code::PR_0_GDT_ITABLE_UNUSED => {
                sb.has_group_checksums() && desc.itable_unused > sb.inodes_per_group
            }
            _ => false,
        });
        if let Some(problem) = problem {
            self.damaged(classify::of_descriptor(&problem), place, problem);
        }
        if !sb.has_group_checksums() {
            let uninit = desc.flags.0 & GroupFlags::BLOCK_UNINIT.with(GroupFlags::INODE_UNINIT).0;
            let because = "is for file systems with group checksums";
            if uninit != 0 || desc.itable_unused != 0 {
                self.value(Code::PR_0_GDT_UNINIT, place, "bg_flags", u64::from(desc.flags.0), because);
            }
        }
    }

    /// The last group may be short: its bitmap is always written.
    fn last_group(&self) {
        let (group, Some(desc)) = self.group(self.groups() - 1) else { return };
        if desc.flags.has(GroupFlags::BLOCK_UNINIT) {
            let place = Structure::GroupDescriptor(group).at(self.fs.descriptor_place(group).0);
            let because = "is that of a group that was never written, and it is the last";
            self.value(Code::PR_0_BB_UNINIT_LAST, place, "bg_flags", u64::from(desc.flags.0), because);
        }
    }

    fn claim_system(&mut self) {
        let sb = &self.fs.sb;
        let descs: Option<Vec<GroupDesc>> = self.descs.iter().copied().collect();
        // Damaged descriptors were reported.
        let Some(descs) = descs else { return };
        match SystemBlocks::new(self.fs, &descs, &[]) {
            Ok(system) => {
                let first = BlockNumber(u64::from(sb.first_data_block));
                for range in system.within(first, sb.blocks_count - first.0) {
                    self.claims.claim(self.claims.clusters(range));
                }
                self.system = Some(system);
            }
            Err(Error::Corrupt { place, problem }) => {
                self.damaged(Code::PR_0_CHECK_DESC_FAILED, place, problem);
            }
            Err(error) => self.error(0, error),
        }
        if sb.mmp_block != 0 {
            match sb.check_blocks("s_mmp_block", BlockNumber(sb.mmp_block), 1) {
                Ok(()) => {
                    self.claims.claim(self.claims.clusters(sb.mmp_block..sb.mmp_block + 1));
                    self.mount_protection(BlockNumber(sb.mmp_block));
                }
                Err(problem) => {
                    let place = Structure::Superblock.at(self.fs.superblock_at);
                    self.damaged(Code::PR_0_MMP_INVALID_BLK, place, problem);
                }
            }
        }
    }

    /// The block of multiple mount protection.
    fn mount_protection(&self, block: BlockNumber) {
        let place = Structure::Superblock.at(block);
        let bytes = match self.fs.metadata(block, place) {
            Ok(bytes) => bytes,
            Err(error) => return self.error(0, error),
        };
        let word = |at: usize| {
            let word = bytes.get(at..).and_then(<[u8]>::first_chunk).copied();
            word.map_or(0, u32::from_le_bytes)
        };
        let computed = self.fs.sb.checksum_seed.sum(bytes.get(..MMP_SUM_AT).unwrap_or_default());
        if self.fs.sb.has_metadata_csum()
            && let Err(problem) = Problem::check_sum(word(MMP_SUM_AT), computed)
        {
            return self.damaged(Code::PR_0_MMP_CSUM_INVALID, place, problem);
        }
        if word(0) != MMP_MAGIC {
            let problem = Problem::Magic { found: u64::from(word(0)), expected: u64::from(MMP_MAGIC) };
            self.damaged(Code::PR_0_MMP_INVALID_MAGIC, place, problem);
        }
    }

    fn journal(&self) {
        let sb = &self.fs.sb;
        if sb.journal_uuid != [0; 16] {
            let place = Structure::Superblock.at(self.fs.superblock_at);
            let problem = Problem::Missing { what: "the journal, which is on another device," };
            return self.damaged(Code::PR_0_CANT_FIND_JOURNAL, place, problem);
        }
        if sb.journal_inum.0 == 0 {
            // None, or on another device.
            if sb.compat.has(Compat::HAS_JOURNAL) && sb.journal_uuid == [0; 16] {
                let place = Structure::Superblock.at(self.fs.superblock_at);
                let problem = Problem::Missing { what: "the journal's inode" };
                self.damaged(Code::PR_0_JOURNAL_BAD_INODE, place, problem);
            }
            return;
        }
        let place = Structure::Journal.of(sb.journal_inum);
        let location = match self.fs.journal_location() {
            Ok(Some(location)) => location,
            Ok(None) => return,
            Err(error) => return self.error(0, error),
        };
        if self.journal_head(&location, place) {
            return;
        }
        match dentree_jbd2::recover(self.fs.device.clone(), &location) {
            Ok(recovered) => {
                let was_replayed =
                    self.fs.notices().iter().any(|notice| matches!(notice, Notice::JournalReplayed { .. }));
                let is_expected = was_replayed || sb.incompat.has(Incompat::RECOVER);
                if recovered.transactions > 0 && !is_expected {
                    let transactions = u64::from(recovered.transactions);
                    let because = "must be 0 in a file system without needs_recovery";
                    let code = Code::PR_0_JOURNAL_RECOVERY_CLEAR;
                    self.value(code, place, "transactions in the journal", transactions, because);
                }
            }
            Err(error) => self.error(0, error.into()),
        }
    }

    /// Whether the journal's superblock shows that e2fsck replays nothing.
    fn journal_head(&self, location: &JournalLocation, place: Place) -> bool {
        let Some(&(first, _)) = location.runs.first() else { return false };
        let (place, mut bytes) = (place.at(BlockNumber(first)), [0; 0x100]);
        if let Err(source) = self.fs.device.read_at(first << self.fs.sb.block_size.log2(), &mut bytes) {
            self.error(0, place.io(source));
            return true;
        }
        let word = |at: usize| {
            let word = bytes.get(at..).and_then(<[u8]>::first_chunk).copied();
            u64::from(word.map_or(0, u32::from_be_bytes))
        };
        // Version 1 has no features.
        let has_features = word(4) == 4;
        let is_empty = !self.fs.sb.incompat.has(Incompat::RECOVER);
        let unknown = "has features that are not known";
        let (version, blocks) = (word(4), location.runs.iter().map(|run| run.1).sum::<u64>());
        // Fields behind those of version 1, or users that share the journal.
        let is_mixed =
            version == 3 && bytes[0x24..].iter().any(|byte| *byte != 0) || version == 4 && word(0x40) > 1;
        let block_size = u64::from(self.fs.sb.block_size.bytes());
        let problems = [
            (
                !matches!(version, 3 | 4) && word(0) == JOURNAL_MAGIC,
                Code::PR_0_JOURNAL_UNSUPP_VERSION,
                "h_blocktype",
                version,
                "is no version of a journal",
            ),
            (is_mixed, Code::PR_0_CLEAR_V2_JOURNAL, "s_nr_users", word(0x40), "is not for this version"),
            (
                word(0xC) != block_size,
                Code::PR_0_JOURNAL_BAD_SUPER,
                "s_blocksize",
                word(0xC),
                "is not that of the file system",
            ),
            (
                word(0x10) > blocks,
                Code::PR_0_JOURNAL_BAD_SUPER,
                "s_maxlen",
                word(0x10),
                "is more than the journal has",
            ),
            (word(0) != JOURNAL_MAGIC, Code::PR_0_JOURNAL_BAD_INODE, "h_magic", 0, "is not a journal's"),
            (
                has_features && word(0x2C) != 0,
                Code::PR_0_JOURNAL_UNSUPP_ROCOMPAT,
                "s_feature_ro_compat",
                word(0x2C),
                unknown,
            ),
            (
                has_features && word(0x28) & !JOURNAL_FEATURES != 0,
                Code::PR_0_JOURNAL_UNSUPP_INCOMPAT,
                "s_feature_incompat",
                word(0x28),
                unknown,
            ),
        ];
        let found = problems.into_iter().rfind(|problem| problem.0);
        if let Some((_, code, field, value, because)) = found {
            self.value(code, place, field, value, because);
            return true;
        }
        let was_replayed = |notice: &Notice| matches!(notice, Notice::JournalReplayed { .. });
        if is_empty && word(0x1C) != 0 && !self.fs.notices().iter().any(was_replayed) {
            let (code, because) = (Code::PR_0_JOURNAL_RECOVERY_CLEAR, "must be 0 without needs_recovery");
            self.value(code, place, "s_start", word(0x1C), because);
        }
        // Where nothing is to be replayed, e2fsck looks at no more.
        is_empty
    }

    fn resize_inode(&self) {
        let Ok((bytes, place)) = self.inode_bytes(RESIZE) else { return };
        let Some(head) = Inode::head(&bytes) else { return };
        if !self.fs.sb.compat.has(Compat::RESIZE_INODE) && head.block != [0; I_BLOCK_LEN] {
            let because = "must be 0 without the feature resize_inode";
            self.value(Code::PR_0_CLEAR_RESIZE_INODE, place, "i_block", 1, because);
        }
        // With bigalloc its pointers have no fixed meaning.
        if !self.fs.sb.compat.has(Compat::RESIZE_INODE) || self.fs.sb.ro_compat.has(RoCompat::BIGALLOC) {
            return;
        }
        if head.links == 0 {
            let problem = Problem::Missing { what: "the resize inode" };
            return self.damaged(Code::PR_0_RESIZE_INODE_INVALID, place, problem);
        }
        // Damage of the inode is for pass 1.
        let Ok(node) = self.parse(RESIZE, &bytes, place) else { return };
        if !node.inode.is_file() {
            let because = "must be that of a regular file";
            self.value(Code::PR_0_RESIZE_INODE_INVALID, place, "i_mode", u64::from(head.mode), because);
        } else if let Err(error) = reserved::verify(self.fs, &node.inode) {
            self.error(0, error);
        }
    }

    /// The list of orphans that begins in the superblock.
    fn orphan_list(&mut self) {
        let place = Structure::Superblock.at(self.fs.superblock_at);
        let mut next = self.fs.sb.last_orphan;
        while next != 0 {
            let ino = InodeNumber(next);
            let (first, last) = (u64::from(self.fs.sb.first_ino), u64::from(self.fs.sb.inodes_count));
            if let Err(problem) = Problem::check_range("s_last_orphan", u64::from(next), first, last) {
                return self.damaged(Code::PR_0_ORPHAN_ILLEGAL_HEAD_INODE, place, problem);
            }
            if !self.orphans.insert(next) {
                let because = "leads back to itself";
                let code = Code::PR_0_ORPHAN_ILLEGAL_INODE;
                return self.value(code, place, "the list of orphans", u64::from(next), because);
            }
            match self.inode_bytes(ino) {
                Ok((bytes, _)) => next = Inode::dtime(&bytes),
                Err(error) => return self.error(0, error),
            }
        }
    }

    fn orphan_file(&mut self) {
        let sb = &self.fs.sb;
        if !sb.compat.has(Compat::ORPHAN_FILE) {
            return;
        }
        let ino = InodeNumber(sb.orphan_file_inum);
        let node = match sb.check_inode("s_orphan_file_inum", ino) {
            Ok(()) => self.fs.read_inode(ino),
            Err(problem) => Err(Structure::Superblock.at(self.fs.superblock_at).corrupt(problem)),
        };
        let node = match node {
            Ok(node) => node,
            Err(error) => return self.error(0, error),
        };
        let blocks = sb.block_size.blocks_for(node.inode.size);
        let blocks = u32::try_from(blocks.min(sb.blocks_count)).unwrap_or(u32::MAX);
        let seed = sb.has_metadata_csum().then_some(node.inode.checksum_seed);
        let (place, mut maps) = (node.place(Structure::OrphanFile), MapCache::default());
        let mut orphans = Vec::new();
        for logical in (0..blocks).map(LogicalBlock) {
            let block = match maps.next(self.fs, &node, logical, blocks) {
                Ok(Mapping::Data(block)) => block,
                Ok(_) => {
                    let problem = Problem::Missing { what: "a block of it" };
                    return self.damaged(Code::PR_0_ORPHAN_FILE_HOLE, place, problem);
                }
                Err(error) => return self.error(0, error),
            };
            let bytes = match self.fs.metadata(block, place) {
                Ok(bytes) => bytes,
                Err(error) => return self.error(0, error),
            };
            if !sb.ro_compat.has(RoCompat::ORPHAN_PRESENT) {
                let wrong = verify_orphan_block(&bytes, block, seed).err();
                let is_empty = orphan_slots(&bytes).all(|number| number == 0);
                let because = Problem::Missing { what: "the feature orphan_present for the orphans" };
                if let Some(problem) = wrong.or((!is_empty).then_some(because)) {
                    self.damaged(Code::PR_6_ORPHAN_BLOCK_DIRTY, place.at(block), problem);
                }
                continue;
            }
            if let Err(problem) = verify_orphan_block(&bytes, block, seed) {
                let code = match problem {
                    Problem::Checksum { .. } => Code::PR_0_ORPHAN_FILE_BAD_CHECKSUM,
                    _ => Code::PR_0_ORPHAN_FILE_BAD_MAGIC,
                };
                self.damaged(code, place.at(block), problem);
            }
            for number in orphan_slots(&bytes).filter(|number| *number != 0) {
                match sb.check_inode("an orphan", InodeNumber(number)) {
                    Ok(()) => orphans.push(number),
                    Err(problem) => {
                        self.damaged(Code::PR_0_ORPHAN_ILLEGAL_INODE, place.at(block), problem);
                    }
                }
            }
        }
        self.orphans.extend(orphans);
    }
}
