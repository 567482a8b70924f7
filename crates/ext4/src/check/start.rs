//! Pass 0: superblock, group descriptors, journal, resize inode, orphans.

use super::{Check, Defect};
use crate::alloc::SystemBlocks;
use crate::map::{MapCache, Mapping};
use crate::resize::reserved;
use crate::{Notice, Place, Structure};
use dentree_ext4_format::{
    BlockNumber, Compat, GroupDesc, GroupFlags, GroupNumber, Incompat, Inode, InodeNumber, LogicalBlock,
    Problem, RoCompat, orphan_slots, verify_orphan_block,
};

/// `s_state`: the kernel has found errors.
const STATE_ERROR: u16 = 2;
const RESIZE: InodeNumber = InodeNumber(7);

impl Check<'_> {
    pub(super) fn start(&mut self) {
        self.superblock();
        self.descriptors();
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
                    self.found(0, Structure::Superblock.at(BlockNumber(0)), Defect::Damaged(*problem));
                }
                Notice::Truncated { expected, found } => {
                    self.count(0, place, "bytes of the image", *expected, *found);
                }
                _ => {}
            }
        }
        if sb.state & STATE_ERROR != 0 {
            self.value(0, place, "s_state", u64::from(sb.state), "says that errors were found before");
        }
        self.cluster_sizes(place);
        let range = |field, value, min, max| {
            if let Err(problem) = Problem::check_range(field, value, min, max) {
                self.found(0, place, Defect::Damaged(problem));
            }
        };
        range("s_r_blocks_count", sb.reserved_blocks_count, 0, sb.blocks_count / 2);
        range("s_rev_level", u64::from(sb.revision), 0, 1);
        range("s_first_ino", u64::from(sb.first_ino), 11, u64::from(sb.inodes_count));
        let most = u64::from(sb.block_size.bytes() / 4);
        range("s_reserved_gdt_blocks", u64::from(sb.reserved_gdt_blocks), 0, most);
    }

    /// Without bigalloc, clusters are blocks.
    fn cluster_sizes(&self, place: Place) {
        let sb = &self.fs.sb;
        let mut bytes = [0; 0x28];
        let offset = self.fs.superblock_offset();
        if sb.ro_compat.has(RoCompat::BIGALLOC) || self.fs.device.read_at(offset, &mut bytes).is_err() {
            return;
        }
        let word = |at: usize| {
            let word = bytes.get(at..).and_then(<[u8]>::first_chunk).copied();
            u64::from(word.map_or(0, u32::from_le_bytes))
        };
        let pairs = [("s_log_cluster_size", 0x1C, 0x18), ("s_clusters_per_group", 0x24, 0x20)];
        for (field, at, of_blocks) in pairs {
            let right = word(of_blocks);
            if let Err(problem) = Problem::check_range(field, word(at), right, right) {
                self.found(0, place, Defect::Damaged(problem));
            }
        }
    }

    fn descriptors(&mut self) {
        let mut descs = Vec::with_capacity(self.groups());
        for group in (0..self.fs.sb.groups).map(GroupNumber) {
            let desc = self.fs.group(group).map_err(|error| self.error(0, error)).ok();
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
        if let Err(problem) = desc.check(group, sb) {
            self.found(0, place, Defect::Damaged(problem));
        }
        if !sb.has_group_checksums() {
            let uninit = desc.flags.0 & GroupFlags::BLOCK_UNINIT.with(GroupFlags::INODE_UNINIT).0;
            let because = "is for file systems with group checksums";
            if uninit != 0 {
                self.value(0, place, "bg_flags", u64::from(desc.flags.0), because);
            }
            if desc.itable_unused != 0 {
                self.value(0, place, "bg_itable_unused", u64::from(desc.itable_unused), because);
            }
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
            Err(error) => self.error(0, error),
        }
        if sb.mmp_block != 0 {
            match sb.check_blocks("s_mmp_block", BlockNumber(sb.mmp_block), 1) {
                Ok(()) => self.claims.claim(self.claims.clusters(sb.mmp_block..sb.mmp_block + 1)),
                Err(problem) => {
                    let place = Structure::Superblock.at(self.fs.superblock_at);
                    self.found(0, place, Defect::Damaged(problem));
                }
            }
        }
    }

    fn journal(&self) {
        let sb = &self.fs.sb;
        if sb.journal_inum.0 == 0 {
            // None, or on another device.
            if sb.compat.has(Compat::HAS_JOURNAL) && sb.journal_uuid == [0; 16] {
                let place = Structure::Superblock.at(self.fs.superblock_at);
                self.found(0, place, Defect::Damaged(Problem::Missing { what: "the journal's inode" }));
            }
            return;
        }
        let place = Structure::Journal.of(sb.journal_inum);
        let location = match self.fs.journal_location() {
            Ok(Some(location)) => location,
            Ok(None) => return,
            Err(error) => return self.error(0, error),
        };
        match dentree_jbd2::recover(self.fs.device.clone(), &location) {
            Ok(recovered) => {
                let was_replayed =
                    self.fs.notices().iter().any(|notice| matches!(notice, Notice::JournalReplayed { .. }));
                let is_expected = was_replayed || sb.incompat.has(Incompat::RECOVER);
                if recovered.transactions > 0 && !is_expected {
                    let transactions = u64::from(recovered.transactions);
                    let because = "must be 0 in a file system without needs_recovery";
                    self.value(0, place, "transactions in the journal", transactions, because);
                }
            }
            Err(error) => self.error(0, error.into()),
        }
    }

    fn resize_inode(&self) {
        let Ok((bytes, place)) = self.fs.inode_bytes(RESIZE) else { return };
        let Some(head) = Inode::head(&bytes) else { return };
        // With bigalloc its pointers have no fixed meaning.
        if !self.fs.sb.compat.has(Compat::RESIZE_INODE) || self.fs.sb.ro_compat.has(RoCompat::BIGALLOC) {
            return;
        }
        if head.links == 0 {
            let problem = Problem::Missing { what: "the resize inode" };
            return self.found(0, place, Defect::Damaged(problem));
        }
        // Damage of the inode is for pass 1.
        let Ok(node) = self.parse(RESIZE, &bytes, place) else { return };
        if !node.inode.is_file() {
            self.value(0, place, "i_mode", u64::from(head.mode), "must be that of a regular file");
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
                return self.found(0, place, Defect::Damaged(problem));
            }
            if !self.orphans.insert(next) {
                let because = "leads back to itself";
                return self.value(0, place, "the list of orphans", u64::from(next), because);
            }
            match self.fs.inode_bytes(ino) {
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
                    return self.found(0, place, Defect::Damaged(problem));
                }
                Err(error) => return self.error(0, error),
            };
            let bytes = match self.fs.metadata(block, place) {
                Ok(bytes) => bytes,
                Err(error) => return self.error(0, error),
            };
            if let Err(problem) = verify_orphan_block(&bytes, block, seed) {
                self.found(0, place.at(block), Defect::Damaged(problem));
            }
            for number in orphan_slots(&bytes).filter(|number| *number != 0) {
                match sb.check_inode("an orphan", InodeNumber(number)) {
                    Ok(()) => orphans.push(number),
                    Err(problem) => self.found(0, place.at(block), Defect::Damaged(problem)),
                }
            }
        }
        self.orphans.extend(orphans);
    }
}
