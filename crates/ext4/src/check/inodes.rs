//! Pass 1: inodes, their block maps, sizes and attributes; which blocks are in use.

use super::records::Kind;
use super::{Check, Defect};
use crate::inode::Snapshot;
use crate::layout::Part;
use crate::{Error, Place, Result, Structure};
use dentree_ext4_format::{
    BlockNumber, Compat, GroupFlags, Incompat, Inode, InodeFlags, InodeHead, InodeNumber, Problem, RoCompat,
};
use dentree_sync::Mutex;
use dentree_vfs::FileType;
use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};

/// Bytes of an inode table that are read at once.
const TABLE_CHUNK: u64 = 1 << 20;
const BAD_BLOCKS: InodeNumber = InodeNumber(1);
/// Of users and groups.
const QUOTAS: [InodeNumber; 2] = [InodeNumber(3), InodeNumber(4)];
const BOOT_LOADER: InodeNumber = InodeNumber(5);
const RESIZE: InodeNumber = InodeNumber(7);
const JOURNAL: InodeNumber = InodeNumber(8);

/// What a block map adds up to.
#[derive(Default)]
struct Tally {
    /// The cluster that was counted last: the next run may be in it, too.
    cluster: Option<u64>,
    clusters: u64,
    /// Behind the last mapped block of the file.
    end: u64,
    /// Behind the last that is no preallocation.
    written_end: u64,
}

impl Check<'_> {
    pub(super) fn inodes(&self) {
        self.in_parallel(self.groups(), |group, ()| {
            let mut dirs = Vec::new();
            self.each_inode(1, group, |ino, bytes, at| self.inode(ino, bytes, at, &mut dirs));
            self.directories.lock().append(&mut dirs);
            let in_use = self
                .group(group)
                .1
                .map_or(0, |desc| self.fs.sb.inodes_per_group.saturating_sub(desc.free_inodes));
            self.step(u64::from(in_use));
        });
        self.xattr_users();
        self.shared_blocks();
    }

    /// Calls `each` for the inodes of a group that may ever have been used.
    fn each_inode(&self, pass: u8, group: usize, mut each: impl FnMut(InodeNumber, &[u8], BlockNumber)) {
        let sb = &self.fs.sb;
        let (number, Some(desc)) = self.group(group) else { return };
        let unused = match sb.has_group_checksums() {
            true if desc.flags.has(GroupFlags::INODE_UNINIT) => sb.inodes_per_group,
            true => desc.itable_unused.min(sb.inodes_per_group),
            false => 0,
        };
        let used = sb.inodes_per_group - unused;
        self.records.begin(number, used);
        let (inode_size, block) = (u64::from(sb.inode_size), u64::from(sb.block_size.bytes()));
        let bytes = u64::from(used) * inode_size;
        let first = number.0 * sb.inodes_per_group + 1;
        for from in (0..bytes).step_by(usize::try_from(TABLE_CHUNK).unwrap_or(usize::MAX)) {
            let len = usize::try_from(TABLE_CHUNK.min(bytes - from)).unwrap_or(0);
            let mut chunk = vec![0; len];
            let at = (desc.inode_table.0 << sb.block_size.log2()) + from;
            if let Err(source) = self.fs.device.read_at(at, &mut chunk) {
                let place = Structure::InodeTable.at(BlockNumber(at / block));
                self.error(pass, place.io(source));
                continue;
            }
            let size = usize::try_from(inode_size).unwrap_or(usize::MAX);
            for (index, bytes) in (from / inode_size..).zip(chunk.chunks_exact(size)) {
                let ino = InodeNumber(first + u32::try_from(index).unwrap_or(0));
                let block = BlockNumber(desc.inode_table.0 + index * inode_size / block);
                each(ino, bytes, block);
            }
        }
    }

    /// An inode from its bytes. A wrong checksum does not matter here.
    pub(super) fn parse(&self, ino: InodeNumber, bytes: &[u8], place: Place) -> Result<Snapshot> {
        match self.fs.parse_inode(ino, bytes, place) {
            Err(Error::Corrupt { problem: Problem::Checksum { .. }, .. }) => {
                self.fs.parse_unverified(ino, bytes, place)
            }
            parsed => parsed,
        }
    }

    fn inode(&self, ino: InodeNumber, bytes: &[u8], at: BlockNumber, dirs: &mut Vec<u32>) {
        let (place, Some(head)) = (Structure::Inode.of(ino).at(at), Inode::head(bytes)) else { return };
        if ino == BAD_BLOCKS {
            self.bad_blocks(head, place);
        }
        let is_orphan = self.orphans.contains(&ino.0);
        if head.links == 0 && !is_orphan {
            return self.unused(ino, bytes, place, head);
        }
        if head.dtime != 0 && !is_orphan && ino != BAD_BLOCKS {
            let because = "is a time of removal, and the inode has links";
            self.value(1, place, "i_dtime", u64::from(head.dtime), because);
        }
        let parsed = self.fs.parse_inode(ino, bytes, place).or_else(|error| {
            self.error(1, error);
            self.parse(ino, bytes, place)
        });
        let Ok(node) = parsed else { return self.records.put(ino, Kind::Unknown, head.links) };
        let is_value = node.has(InodeFlags::EA_INODE) && self.fs.sb.incompat.has(Incompat::EA_INODE);
        self.records.put(ino, if is_value { Kind::Value } else { Kind::Of(node.kind) }, head.links);
        if is_value {
            self.value_users(ino, Inode::value_users(bytes));
        }
        if node.kind == FileType::Directory && !self.is_reserved(ino) {
            dirs.push(ino.0);
        }
        self.fields(&node, head, place);
        self.content(&node, place);
    }

    fn unused(&self, ino: InodeNumber, bytes: &[u8], place: Place, head: InodeHead) {
        if let Err(problem) = Inode::verify_unused(bytes, ino, &self.fs.sb) {
            self.found(1, place, Defect::Damaged(problem));
        }
        let is_link = self.times_are_real() && (1..self.fs.sb.inodes_count).contains(&head.dtime);
        if is_link {
            let because = "is the number of an orphan rather than a time, and no list leads here";
            self.value(1, place, "i_dtime", u64::from(head.dtime), because);
        }
        if ino.0 < self.fs.sb.first_ino && ino != BAD_BLOCKS {
            self.unused_reserved(ino, head, place);
        }
        if head.mode != 0 && head.dtime == 0 && !self.is_reserved(ino) {
            let because = "is the time of removal, which an inode without links must have";
            self.value(1, place, "i_dtime", 0, because);
        }
    }

    /// A reserved inode that nothing uses is empty.
    fn unused_reserved(&self, ino: InodeNumber, head: InodeHead, place: Place) {
        if QUOTAS.contains(&ino) {
            if head.blocks != 0 || head.block.iter().take(4).any(|byte| *byte != 0) {
                let because = "is that of a quota file, which is not in use";
                self.value(1, place, "i_block", u64::from(head.blocks), because);
            }
            return;
        }
        let is_odd = head.mode & 0o170_000 != 0o100_000 && ino != BOOT_LOADER;
        if head.mode != 0 && (is_odd || head.mode & 0o170_000 == 0o040_000) {
            let because = "is no mode of a reserved inode";
            self.value(1, place, "i_mode", u64::from(head.mode), because);
        }
        let high = if self.fs.sb.ro_compat.has(RoCompat::HUGE_FILE) { head.blocks_high } else { 0 };
        self.count(1, place, "512-byte blocks (i_blocks)", u64::from(high) << 32 | u64::from(head.blocks), 0);
        self.count(1, place, "bytes (i_size)", u64::from(head.size), 0);
    }

    /// Whether times of the file system are above the numbers of its inodes.
    fn times_are_real(&self) -> bool {
        let sb = &self.fs.sb;
        let least = i64::from(sb.inodes_count);
        [sb.mkfs_time, sb.write_time].iter().all(|time| time.seconds >= least)
            && (sb.mount_time.seconds == 0 || sb.mount_time.seconds >= least)
    }

    /// The inode of bad blocks maps them directly, in use or not.
    fn bad_blocks(&self, head: InodeHead, place: Place) {
        if head.mode != 0 || head.links != 0 || head.owners != [0, 0] {
            let because = "must be 0 in the inode of bad blocks";
            self.value(1, place, "i_mode, i_uid, i_gid or i_links_count", 1, because);
        }
        for word in head.block.as_chunks().0 {
            let block = BlockNumber(u64::from(u32::from_le_bytes(*word)));
            let is_system = || self.system.as_ref().is_some_and(|all| all.within(block, 1).next().is_some());
            match self.fs.sb.check_blocks("a bad block", block, 1) {
                _ if block.0 == 0 => {}
                Err(problem) => self.found(1, place, Defect::Damaged(problem)),
                Ok(()) if is_system() => {
                    self.value(1, place, "i_block", block.0, "is a block of metadata of fixed place");
                }
                Ok(()) => self.claims.claim(self.claims.clusters(block.0..block.0 + 1)),
            }
        }
    }

    /// Checks what needs no other block.
    fn fields(&self, node: &Snapshot, head: InodeHead, place: Place) {
        let (sb, flags) = (&self.fs.sb, node.inode.flags);
        let flag = |because| self.value(1, place, "i_flags", u64::from(flags.0), because);
        let has_inline = node.has(InodeFlags::INLINE_DATA);
        if node.has(InodeFlags::EXTENTS) && !sb.incompat.has(Incompat::EXTENTS) {
            flag("has extents, and the file system has not");
        }
        if has_inline && !sb.incompat.has(Incompat::INLINE_DATA) {
            flag("has inline data, and the file system has not");
        }
        if has_inline && node.has(InodeFlags::EXTENTS) {
            flag("has both extents and inline data");
        }
        if node.has(InodeFlags::IMAGIC) && !sb.compat.has(Compat::IMAGIC_INODES) {
            flag("is that of an imagic inode, and the file system has none");
        }
        if node.has(InodeFlags::INDEX)
            && (node.kind != FileType::Directory || has_inline || !sb.compat.has(Compat::DIR_INDEX))
        {
            flag("has an index, and this can have none");
        }
        if node.has(InodeFlags::CASEFOLD)
            && (node.kind != FileType::Directory || !sb.incompat.has(Incompat::CASEFOLD))
        {
            flag("ignores case, and this cannot");
        }
        let is_reserved = self.is_reserved(node.ino);
        if head.fragment != 0 && !is_reserved {
            self.value(2, place, "i_faddr", u64::from(head.fragment), "must be 0");
        }
        let may_be_large = node.inode.is_file() || sb.incompat.has(Incompat::LARGEDIR);
        if head.size_high != 0 && !may_be_large {
            self.value(2, place, "i_size_high", u64::from(head.size_high), "must be 0, as it is no file");
        }
        if head.blocks_high != 0 && !is_reserved && !sb.ro_compat.has(RoCompat::HUGE_FILE) {
            self.value(2, place, "i_blocks_high", u64::from(head.blocks_high), "is for huge files");
        }
        if head.xattr_block_high != 0 && !is_reserved && !sb.is_64bit() {
            let because = "is for block numbers of 64 bits";
            self.value(2, place, "i_file_acl_high", u64::from(head.xattr_block_high), because);
        }
        if node.ino == InodeNumber::ROOT && node.kind != FileType::Directory {
            self.value(1, place, "i_mode", u64::from(head.mode), "must be that of a directory: the root");
        }
        if node.ino.0 < sb.first_ino && node.ino != InodeNumber::ROOT && !node.inode.is_file() {
            self.value(1, place, "i_mode", u64::from(head.mode), "must be that of a regular file");
        }
        if node.ino == JOURNAL && !sb.compat.has(Compat::HAS_JOURNAL) {
            let because = "are links of a journal, and the file system has none";
            self.value(1, place, "i_links_count", u64::from(head.links), because);
        }
        if !matches!(node.kind, FileType::Regular | FileType::Directory | FileType::Symlink) {
            self.special(node, place);
        }
        if node.kind == FileType::Symlink {
            self.symlink(node, place);
        }
    }

    /// A device, a pipe or a socket.
    fn special(&self, node: &Snapshot, place: Place) {
        let (flags, size) = (node.inode.flags, node.inode.size);
        let fixed = InodeFlags::IMMUTABLE.0 | InodeFlags::APPEND.0;
        let mapped = InodeFlags::EXTENTS.0 | InodeFlags::INDEX.0 | InodeFlags::INLINE_DATA.0;
        if flags.0 & (fixed | mapped) != 0 {
            self.value(1, place, "i_flags", u64::from(flags.0), "has flags of files and directories");
        }
        if size != 0 {
            self.value(1, place, "i_size", size, "must be 0: it has no content");
        }
    }

    fn symlink(&self, node: &Snapshot, place: Place) {
        let size = node.inode.size;
        let wrong = |because| self.value(1, place, "i_size", size, because);
        let block = u64::from(self.fs.sb.block_size.bytes());
        if size == 0 || size >= block {
            return wrong("is no length of a target");
        }
        if node.has(InodeFlags::IMMUTABLE) || node.has(InodeFlags::APPEND) || node.has(InodeFlags::INDEX) {
            self.value(1, place, "i_flags", u64::from(node.inode.flags.0), "has flags of files");
        }
        if node.has(InodeFlags::ENCRYPT) {
            return;
        }
        if node.maps_nothing() && !node.has(InodeFlags::INLINE_DATA) {
            if node.has(InodeFlags::EXTENTS) {
                return wrong("is short enough for the inode, and the target is in a block");
            }
            let len = node.inode.block.iter().position(|byte| *byte == 0);
            if len.and_then(|len| u64::try_from(len).ok()) != Some(size) {
                wrong("is not the length of the target");
            }
            return;
        }
        match self.fs.target(node) {
            Ok(target) if target.contains(&0) => wrong("is not the length of the target"),
            Ok(_) => {}
            Err(error) => self.error(1, error),
        }
    }

    /// Checks attributes and block map, and claims the blocks.
    fn content(&self, node: &Snapshot, place: Place) {
        let sb = &self.fs.sb;
        let facts = self.xattrs(node);
        let mut tally = Tally::default();
        let mut is_damaged = false;
        self.fs.walk_map(
            node,
            &mut |part| {
                tally.add(self, node.ino, part);
                ControlFlow::Continue(())
            },
            &mut |error| {
                is_damaged = true;
                self.error(1, error);
            },
        );
        if node.has(InodeFlags::INLINE_DATA) {
            self.inline(node, place);
        }
        if node.has(InodeFlags::ENCRYPT) && !facts.is_encrypted && !self.is_reserved(node.ino) {
            let because = "is that of an encrypted inode, which lacks its encryption context";
            self.value(1, place, "i_flags", u64::from(node.inode.flags.0), because);
        }
        // The map of a damaged inode adds up to nothing.
        let is_free_form = node.ino == RESIZE && sb.ro_compat.has(RoCompat::BIGALLOC);
        if is_damaged || node.ino == BAD_BLOCKS || is_free_form {
            return;
        }
        let own = u64::from(node.inode.xattr_block.is_some());
        let blocks = ((tally.clusters + own) << sb.log_cluster_ratio) + facts.value_blocks;
        let sectors = blocks << (sb.block_size.log2() - 9);
        self.count(1, place, "512-byte blocks (i_blocks)", node.inode.sectors, sectors);
        match node.kind {
            FileType::Directory if !node.has(InodeFlags::INLINE_DATA) => {
                self.directory_size(node, place, &tally)
            }
            FileType::Regular => self.file_size(node, place, &tally),
            _ => {}
        }
    }

    fn inline(&self, node: &Snapshot, place: Place) {
        let room = match self.fs.inline_parts(node) {
            Ok((first, rest)) => first.len() + rest.len(),
            Err(error) => return self.error(1, error),
        };
        let (room, size) = (u64::try_from(room).unwrap_or(u64::MAX), node.inode.size);
        let is_wrong = if node.kind == FileType::Directory { size != room } else { size > room };
        if is_wrong {
            self.count(1, place, "bytes of inline data (i_size)", size, room);
        }
    }

    fn directory_size(&self, node: &Snapshot, place: Place, tally: &Tally) {
        let log = self.fs.sb.block_size.log2();
        let (size, blocks) = (node.inode.size, node.inode.size >> log);
        if size != blocks << log || blocks != tally.end {
            self.count(1, place, "bytes of the directory (i_size)", size, tally.end << log);
        }
    }

    fn file_size(&self, node: &Snapshot, place: Place, tally: &Tally) {
        let (sb, size) = (&self.fs.sb, node.inode.size);
        let log = sb.block_size.log2();
        let last = tally.written_end.saturating_sub(1);
        if tally.written_end > 0 && size < last << log && !node.has(InodeFlags::VERITY) {
            let because = "ends before the last block that was written";
            self.value(1, place, "i_size", size, because);
        }
        let pointers = u64::from(sb.block_size.bytes() / 4);
        let mapped = 12 + pointers + pointers * pointers + pointers * pointers * pointers;
        let most = if node.has(InodeFlags::EXTENTS) { (1 << (32 + log)) - 1 } else { mapped << log };
        if size > most && !node.has(InodeFlags::INLINE_DATA) {
            self.value(1, place, "i_size", size, "is more than the map can hold");
        }
        if size >= 1 << 31 && !sb.ro_compat.has(RoCompat::LARGE_FILE) {
            self.value(1, place, "i_size", size, "needs the feature large_file");
        }
    }

    /// Reports the inodes that have the blocks which were claimed more than once.
    fn shared_blocks(&self) {
        let shared = self.claims.shared();
        if shared.is_empty() {
            return;
        }
        let owners: Mutex<BTreeMap<u64, Vec<InodeNumber>>> = Mutex::default();
        self.in_parallel(self.groups(), |group, ()| {
            self.each_inode(1, group, |ino, bytes, at| {
                let links = Inode::head(bytes).map_or(0, |head| head.links);
                if links == 0 && !self.orphans.contains(&ino.0) {
                    return;
                }
                let Ok(node) = self.parse(ino, bytes, Structure::Inode.of(ino).at(at)) else { return };
                let each = |blocks: Range<u64>| {
                    for &cluster in shared.range(self.claims.clusters(blocks)) {
                        let mut owners = owners.lock();
                        let users = owners.entry(cluster).or_default();
                        if users.last() != Some(&ino) {
                            users.push(ino);
                        }
                    }
                };
                if let Some(block) = node.inode.xattr_block {
                    each(block.0..block.0 + 1);
                }
                self.fs.walk_map(
                    &node,
                    &mut |part| {
                        if ino != RESIZE {
                            each(part.blocks());
                        }
                        ControlFlow::Continue(())
                    },
                    &mut |_| {},
                );
            });
        });
        self.report_shared(owners.lock().iter());
    }

    /// Joins neighbours with the same users.
    fn report_shared<'o>(&self, owners: impl Iterator<Item = (&'o u64, &'o Vec<InodeNumber>)>) {
        let mut last: Option<(Range<u64>, &[InodeNumber])> = None;
        let report = |(blocks, by): (Range<u64>, &[InodeNumber])| {
            let first = BlockNumber(blocks.start);
            let is_system = |system: &crate::alloc::SystemBlocks| {
                system.within(first, blocks.end - blocks.start).next().is_some()
            };
            let is_system = self.system.as_ref().is_some_and(is_system);
            let place =
                Place { structure: Structure::Content, inode: by.first().copied(), block: Some(first) };
            self.found(1, place, Defect::Shared { blocks, by: by.to_vec(), is_system });
        };
        for (&cluster, by) in owners {
            let blocks = self.claims.blocks(cluster);
            last = match last.take() {
                Some((run, users)) if run.end == blocks.start && users == by.as_slice() => {
                    Some((run.start..blocks.end, users))
                }
                before => {
                    before.map(report);
                    Some((blocks, by))
                }
            };
        }
        last.map(report);
    }
}

impl Tally {
    fn add(&mut self, check: &Check<'_>, ino: InodeNumber, part: Part) {
        let mut clusters = check.claims.clusters(part.blocks());
        if self.cluster == Some(clusters.start) {
            clusters.start += 1;
        }
        self.clusters += clusters.end - clusters.start;
        if !clusters.is_empty() {
            self.cluster = Some(clusters.end - 1);
        }
        // The blocks of the resize inode are descriptors; only the first is its own.
        let is_own = ino != RESIZE || self.clusters == 1;
        if is_own {
            check.claims.claim(clusters);
        }
        if let Part::Content(extent) = part {
            let mask = (1 << check.fs.sb.log_cluster_ratio) - 1;
            if extent.logical & mask != extent.start.0 & mask {
                let place = Structure::Content.of(ino).at(extent.start);
                let because = "lies elsewhere in its cluster than in the file";
                check.value(1, place, "block", extent.start.0, because);
            }
            self.end = self.end.max(extent.logical + extent.len);
            if !extent.is_unwritten {
                self.written_end = self.written_end.max(extent.logical + extent.len);
            }
        }
    }
}
