//! Pass 1: inodes, their block maps, sizes and attributes; which blocks are in use.

use super::records::{Kind, Record};
use super::{Check, Code, Defect, Scope, classify};
use crate::inode::Snapshot;
use crate::layout::Part;
use crate::{Error, Place, Result, Structure};
use dentree_ext4_format::xattr::{Namespace, XattrList};
use dentree_ext4_format::{
    BlockNumber, Compat, GroupFlags, GroupNumber, Incompat, Inode, InodeFlags, InodeHead, InodeNumber,
    Problem, RoCompat,
};
use dentree_sync::Mutex;
use dentree_vfs::FileType;
use std::borrow::Cow;
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
const SECTORS: &str = "512-byte blocks (i_blocks)";

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

    /// Only the checksums.
    pub(super) fn inode_sums(&self) {
        self.in_parallel(self.groups(), |group, ()| {
            let mut count = 0;
            self.each_inode(1, group, |ino, bytes, at| {
                count += 1;
                if let Err(problem) = Inode::verify_unused(bytes, ino, &self.fs.sb) {
                    let place = Structure::Inode.of(ino).at(at);
                    self.damaged(classify::of_inode(&problem), place, problem);
                }
            });
            self.step(count);
        });
    }

    /// Only these inodes.
    pub(super) fn some_inodes(&self, inodes: &[InodeNumber]) {
        self.in_parallel(inodes.len(), |at, ()| {
            let Some(&ino) = inodes.get(at) else { return };
            match self.inode_bytes(ino) {
                Ok((bytes, place)) => {
                    let mut dirs = Vec::new();
                    self.begin_records(ino);
                    self.inode(ino, &bytes, place.block.unwrap_or(BlockNumber(0)), &mut dirs);
                    self.directories.lock().append(&mut dirs);
                }
                Err(error) => self.error(1, error),
            }
            self.step(1);
        });
        self.shared_blocks();
    }

    fn begin_records(&self, InodeNumber(ino): InodeNumber) {
        let group = GroupNumber((ino.saturating_sub(1)) / self.fs.sb.inodes_per_group);
        self.records.begin(group, self.fs.sb.inodes_per_group);
    }

    /// What pass 1 kept of an inode; where it reads only some, from the inode itself.
    pub(super) fn record(&self, ino: InodeNumber) -> Option<Record> {
        let known = self.records.get(ino);
        if known.is_some() || !matches!(self.options.scope, Scope::Inodes(_)) {
            return known;
        }
        let (bytes, place) = self.inode_bytes(ino).ok()?;
        let links = Inode::head(&bytes)?.links;
        let kind = match self.parse(ino, &bytes, place) {
            _ if links == 0 => return None,
            Ok(node) if node.has(InodeFlags::EA_INODE) => Kind::Value,
            Ok(node) => Kind::Of(node.kind),
            Err(_) => Kind::Unknown,
        };
        self.begin_records(ino);
        self.records.put(ino, kind, links);
        self.records.get(ino)
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

    /// The bytes of an inode, also where the checksum of its group's descriptor is wrong.
    pub(super) fn inode_bytes(&self, ino: InodeNumber) -> Result<(Vec<u8>, Place)> {
        let sb = &self.fs.sb;
        let place = Structure::Inode.of(ino);
        sb.check_inode("the inode number", ino).map_err(|problem| place.corrupt(problem))?;
        let (group, index) = ((ino.0 - 1) / sb.inodes_per_group, (ino.0 - 1) % sb.inodes_per_group);
        let Some(desc) = usize::try_from(group).ok().and_then(|group| self.group(group).1) else {
            return self.fs.inode_bytes(ino);
        };
        let per_block = sb.block_size.bytes() / sb.inode_size;
        let block = BlockNumber(desc.inode_table.0 + u64::from(index / per_block));
        let size = usize::try_from(sb.inode_size).unwrap_or(usize::MAX);
        let buffer = self.fs.metadata(block, place.at(block))?;
        let bytes = buffer.chunks_exact(size).nth(usize::try_from(index % per_block).unwrap_or(usize::MAX));
        Ok((bytes.unwrap_or_default().to_vec(), place.at(block)))
    }

    /// The code for an entry of an inode that its group has never used.
    pub(super) fn never_used(&self, InodeNumber(ino): InodeNumber) -> Option<Code> {
        let sb = &self.fs.sb;
        let (group, index) = ((ino.checked_sub(1)?) / sb.inodes_per_group, (ino - 1) % sb.inodes_per_group);
        let desc = self.group(usize::try_from(group).ok()?).1?;
        if desc.flags.has(GroupFlags::INODE_UNINIT) {
            return Some(Code::PR_2_INOREF_BG_INO_UNINIT);
        }
        let used = sb.inodes_per_group.saturating_sub(desc.itable_unused);
        (sb.has_group_checksums() && index >= used).then_some(Code::PR_2_INOREF_IN_UNUSED)
    }

    /// An inode from its bytes. Damage that leaves it readable does not matter here.
    pub(super) fn parse(&self, ino: InodeNumber, bytes: &[u8], place: Place) -> Result<Snapshot> {
        self.parse_past_damage(ino, bytes, place, &mut |_| {})
    }

    /// An inode from its bytes. A wrong checksum goes to `damaged`, and fields that it can be read
    /// without.
    fn parse_past_damage(
        &self,
        ino: InodeNumber,
        bytes: &[u8],
        place: Place,
        damaged: &mut dyn FnMut(Error),
    ) -> Result<Snapshot> {
        let mut parsed = self.fs.parse_inode(ino, bytes, place);
        let mut patched = Cow::Borrowed(bytes);
        // One for the checksum, one for each field.
        for _ in 0..3 {
            let Err(Error::Corrupt { problem, .. }) = &parsed else { break };
            let field = match problem {
                Problem::Checksum { .. } => "",
                Problem::Range { field, .. } | Problem::Value { field, .. } => *field,
                _ => break,
            };
            // Offset and length.
            let places: &[(usize, usize)] = match field {
                "" => &[],
                "i_file_acl" => &[(0x68, 4), (0x76, 2)],
                "i_extra_isize" => &[(0x80, 2)],
                _ => break,
            };
            for &(at, len) in places {
                patched.to_mut().get_mut(at..at + len).unwrap_or_default().fill(0);
            }
            if let Err(error) = parsed {
                damaged(error);
            }
            parsed = self.fs.parse_unverified(ino, &patched, place);
        }
        parsed
    }

    fn inode(&self, ino: InodeNumber, bytes: &[u8], at: BlockNumber, dirs: &mut Vec<u32>) {
        let (place, Some(head)) = (Structure::Inode.of(ino).at(at), Inode::head(bytes)) else { return };
        if ino == BAD_BLOCKS {
            self.bad_blocks(head, place);
        }
        let is_orphan = self.orphans.contains(&ino.0);
        self.low_dtime(ino, head, place);
        let is_unused = head.links == 0 && !is_orphan || head.mode == 0 && self.has_no_use(ino);
        if is_unused {
            return self.unused(ino, bytes, place, head);
        }
        if head.dtime != 0 && !is_orphan && !self.is_reserved(ino) {
            let because = "is a time of removal, and the inode has links";
            if ino == InodeNumber::ROOT {
                self.value(Code::PR_1_ROOT_DTIME, place, "i_dtime", u64::from(head.dtime), because);
            }
            self.value(Code::PR_1_SET_DTIME, place, "i_dtime", u64::from(head.dtime), because);
        }
        let parsed = self.parse_past_damage(ino, bytes, place, &mut |error| self.error(1, error));
        let node = match parsed {
            Ok(node) => node,
            Err(error) => {
                match classify::finding(1, error, place.block.unwrap_or(BlockNumber(0))) {
                    found if found.code == Code::PR_2_BAD_MODE && self.is_reserved(ino) => {
                        self.found(Code::PR_1_RESERVED_BAD_MODE, place, found.defect);
                    }
                    found => self.found(found.code, found.place, found.defect),
                }
                return self.records.put(ino, Kind::Unknown, head.links);
            }
        };
        let names_wrong =
            !node.inode.is_file() && node.kind != FileType::Directory && self.is_wrong(&node, head);
        let is_value = node.has(InodeFlags::EA_INODE) && self.fs.sb.incompat.has(Incompat::EA_INODE);
        self.records.put(
            ino,
            match node.kind {
                _ if is_value => Kind::Value,
                _ if names_wrong => Kind::Unknown,
                kind => Kind::Of(kind),
            },
            head.links,
        );
        if is_value {
            self.value_users(ino, Inode::value_users(bytes));
        }
        // A removed directory that is still open has no names, and counts for none.
        if node.kind == FileType::Directory && !self.is_reserved(ino) && head.links > 0 {
            dirs.push(ino.0);
        }
        self.fields(&node, head, place);
        self.content(&node, place);
    }

    /// Whether e2fsck takes no type from it: a link or a device with fields that it cannot have.
    fn is_wrong(&self, node: &Snapshot, head: InodeHead) -> bool {
        let is_wrong_link = node.kind == FileType::Symlink && self.link_problem(node).is_some();
        head.fragment != 0 || is_wrong_link
    }

    fn unused(&self, ino: InodeNumber, bytes: &[u8], place: Place, head: InodeHead) {
        if let Err(problem) = Inode::verify_unused(bytes, ino, &self.fs.sb) {
            self.damaged(Code::PR_1_INODE_ONLY_CSUM_INVALID, place, problem);
        }
        if ino.0 < self.fs.sb.first_ino && ino != BAD_BLOCKS {
            self.unused_reserved(ino, head, place);
        }
        if head.mode != 0 && head.dtime == 0 && !self.is_reserved(ino) {
            let because = "is the time of removal, which an inode without links must have";
            self.value(Code::PR_1_ZERO_DTIME, place, "i_dtime", 0, because);
        }
    }

    /// The next orphan of a list, where no list leads.
    fn low_dtime(&self, ino: InodeNumber, head: InodeHead, place: Place) {
        let is_listed = self.orphans.contains(&ino.0);
        if !is_listed && self.times_are_real() && (1..self.fs.sb.inodes_count).contains(&head.dtime) {
            let because = "is the number of an orphan rather than a time, and no list leads here";
            self.value(Code::PR_1_LOW_DTIME, place, "i_dtime", u64::from(head.dtime), because);
        }
    }

    /// A reserved inode that nothing uses is empty.
    fn unused_reserved(&self, ino: InodeNumber, head: InodeHead, place: Place) {
        if QUOTAS.contains(&ino) {
            if head.blocks != 0 || head.block.iter().take(4).any(|byte| *byte != 0) {
                let because = "is that of a quota file, which is not in use";
                let code = Code::PR_1_QUOTA_INODE_NOT_CLEAR;
                self.value(code, place, "i_block", u64::from(head.blocks), because);
            }
            return;
        }
        let is_odd = head.mode & 0o170_000 != 0o100_000 && ino != BOOT_LOADER;
        if head.mode != 0 && (is_odd || head.mode & 0o170_000 == 0o040_000) {
            let because = "is no mode of a reserved inode";
            self.value(Code::PR_1_RESERVED_BAD_MODE, place, "i_mode", u64::from(head.mode), because);
        }
        let high = if self.fs.sb.ro_compat.has(RoCompat::HUGE_FILE) { head.blocks_high } else { 0 };
        let size = u64::from(head.size_high) << 32 | u64::from(head.size);
        let sectors = u64::from(high) << 32 | u64::from(head.blocks);
        self.count(Code::PR_1_BAD_I_BLOCKS, place, SECTORS, sectors, 0);
        if size > self.most_mapped() {
            self.count(Code::PR_1_BAD_I_SIZE, place, "bytes (i_size)", size, 0);
        }
    }

    /// Whether an inode is reserved, and no feature uses it: its links do not count.
    fn has_no_use(&self, ino: InodeNumber) -> bool {
        let has_use =
            [BAD_BLOCKS, InodeNumber::ROOT, RESIZE, JOURNAL].contains(&ino) || QUOTAS.contains(&ino);
        ino.0 < self.fs.sb.first_ino && !has_use
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
            let code = Code::PR_1_INVALID_BAD_INODE;
            self.value(code, place, "i_mode, i_uid, i_gid or i_links_count", 1, because);
        }
        for word in head.block.as_chunks().0 {
            let block = BlockNumber(u64::from(u32::from_le_bytes(*word)));
            let is_system = || self.system.as_ref().is_some_and(|all| all.within(block, 1).next().is_some());
            match self.fs.sb.check_blocks("a bad block", block, 1) {
                _ if block.0 == 0 => {}
                Err(problem) => self.damaged(Code::PR_1_BB_ILLEGAL_BLOCK_NUM, place, problem),
                Ok(()) if is_system() => {
                    let because = "is a block of metadata of fixed place";
                    self.value(Code::PR_1_BB_FS_BLOCK, place, "i_block", block.0, because);
                }
                Ok(()) => self.claims.claim(self.claims.clusters(block.0..block.0 + 1)),
            }
        }
    }

    /// Checks what needs no other block.
    fn fields(&self, node: &Snapshot, head: InodeHead, place: Place) {
        let (sb, flags) = (&self.fs.sb, node.inode.flags);
        let flag = |code, because| self.value(code, place, "i_flags", u64::from(flags.0), because);
        let has_inline = node.has(InodeFlags::INLINE_DATA);
        if node.has(InodeFlags::EXTENTS) && !sb.incompat.has(Incompat::EXTENTS) {
            flag(Code::PR_1_EXTENT_FEATURE, "has extents, and the file system has not");
        }
        if has_inline && !sb.incompat.has(Incompat::INLINE_DATA) {
            flag(Code::PR_1_INLINE_DATA_SET, "has inline data, and the file system has not");
        }
        if has_inline && node.has(InodeFlags::EXTENTS) {
            flag(Code::PR_1_CLEAR_EXTENT_FOR_INLINE_DATA, "has both extents and inline data");
        }
        if node.has(InodeFlags::IMAGIC) && !sb.compat.has(Compat::IMAGIC_INODES) {
            flag(Code::PR_1_SET_IMAGIC, "is that of an imagic inode, and the file system has none");
        }
        if node.has(InodeFlags::INDEX)
            && (node.kind != FileType::Directory || has_inline || !sb.compat.has(Compat::DIR_INDEX))
        {
            let can_index = node.kind == FileType::Directory && sb.compat.has(Compat::DIR_INDEX);
            let code = match can_index {
                false if node.kind == FileType::Directory => Code::PR_1_HTREE_SET,
                _ => Code::PR_1_HTREE_NODIR,
            };
            flag(code, "has an index, and this can have none");
        }
        if node.has(InodeFlags::CASEFOLD)
            && (node.kind != FileType::Directory || !sb.incompat.has(Incompat::CASEFOLD))
        {
            let is_dir = node.kind == FileType::Directory;
            let code = if is_dir { Code::PR_1_CASEFOLD_FEATURE } else { Code::PR_1_CASEFOLD_NONDIR };
            flag(code, "ignores case, and this cannot");
        }
        let is_reserved = self.is_reserved(node.ino);
        if head.fragment != 0 && !is_reserved {
            self.value(Code::PR_2_FADDR_ZERO, place, "i_faddr", u64::from(head.fragment), "must be 0");
        }
        let may_be_large = node.inode.is_file() || sb.incompat.has(Incompat::LARGEDIR);
        if head.size_high != 0 && !may_be_large {
            let (code, because) = (Code::PR_2_DIR_SIZE_HIGH_ZERO, "must be 0, as it is no file");
            self.value(code, place, "i_size_high", u64::from(head.size_high), because);
        }
        if head.blocks_high != 0 && !is_reserved && !sb.ro_compat.has(RoCompat::HUGE_FILE) {
            let (code, because) = (Code::PR_2_BLOCKS_HI_ZERO, "is for huge files");
            self.value(code, place, "i_blocks_high", u64::from(head.blocks_high), because);
        }
        if head.xattr_block_high != 0 && !is_reserved && !sb.is_64bit() {
            let because = "is for block numbers of 64 bits";
            let (code, high) = (Code::PR_2_I_FILE_ACL_HI_ZERO, u64::from(head.xattr_block_high));
            self.value(code, place, "i_file_acl_high", high, because);
        }
        if node.ino == InodeNumber::ROOT && node.kind != FileType::Directory {
            let (code, because) = (Code::PR_1_ROOT_NO_DIR, "must be that of a directory: the root");
            self.value(code, place, "i_mode", u64::from(head.mode), because);
        }
        if node.ino.0 < sb.first_ino && node.ino != InodeNumber::ROOT && !node.inode.is_file() {
            let because = "must be that of a regular file";
            let code =
                if node.ino == JOURNAL { Code::PR_1_JOURNAL_BAD_MODE } else { Code::PR_1_RESERVED_BAD_MODE };
            self.value(code, place, "i_mode", u64::from(head.mode), because);
        }
        if node.ino == JOURNAL && !sb.compat.has(Compat::HAS_JOURNAL) {
            let because = "are links of a journal, and the file system has none";
            let code = Code::PR_1_JOURNAL_INODE_NOT_CLEAR;
            self.value(code, place, "i_links_count", u64::from(head.links), because);
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
            let because = "has flags of files and directories";
            let code = match flags.0 & fixed {
                0 => Code::PR_1_SPECIAL_EXTENTS_IDATA,
                _ => Code::PR_1_SET_IMMUTABLE,
            };
            self.value(code, place, "i_flags", u64::from(flags.0), because);
        }
        if size != 0 {
            self.value(Code::PR_1_SET_NONZSIZE, place, "i_size", size, "must be 0: it has no content");
        }
    }

    fn symlink(&self, node: &Snapshot, place: Place) {
        if node.has(InodeFlags::IMMUTABLE) || node.has(InodeFlags::APPEND) {
            let (code, because) = (Code::PR_1_SET_IMMUTABLE, "has flags of files");
            self.value(code, place, "i_flags", u64::from(node.inode.flags.0), because);
        }
        if let Some(because) = self.link_problem(node) {
            self.value(Code::PR_2_INVALID_SYMLINK, place, "i_size", node.inode.size, because);
        }
    }

    /// What is wrong with a symbolic link's target.
    fn link_problem(&self, node: &Snapshot) -> Option<&'static str> {
        let size = node.inode.size;
        let block = u64::from(self.fs.sb.block_size.bytes());
        if size == 0 || size >= block {
            return Some("is no length of a target");
        }
        if node.has(InodeFlags::INDEX) {
            return Some("is that of a link with an index");
        }
        if node.has(InodeFlags::ENCRYPT) {
            return None;
        }
        if node.maps_nothing() && !node.has(InodeFlags::INLINE_DATA) {
            if node.has(InodeFlags::EXTENTS) {
                return Some("is short enough for the inode, and the target is in a block");
            }
            let len = node.inode.block.iter().position(|byte| *byte == 0);
            let is_right = len.and_then(|len| u64::try_from(len).ok()) == Some(size);
            return (!is_right).then_some("is not the length of the target");
        }
        match self.fs.target(node) {
            Ok(target) => target.contains(&0).then_some("is not the length of the target"),
            Err(_) => Some("is not that of a target that can be read"),
        }
    }

    /// Checks attributes and block map, and claims the blocks.
    fn content(&self, node: &Snapshot, place: Place) {
        let sb = &self.fs.sb;
        let facts = self.xattrs(node);
        let mut tally = Tally::default();
        self.fs.walk_map(
            node,
            &mut |part| {
                tally.add(self, node.ino, part);
                ControlFlow::Continue(())
            },
            &mut |error| self.error(1, error),
        );
        if node.has(InodeFlags::INLINE_DATA) {
            self.inline(node, place);
        }
        if node.has(InodeFlags::ENCRYPT) && !facts.is_encrypted && !self.is_reserved(node.ino) {
            let because = "is that of an encrypted inode, which lacks its encryption context";
            let code = Code::PR_1_MISSING_ENCRYPTION_XATTR;
            self.value(code, place, "i_flags", u64::from(node.inode.flags.0), because);
        }
        // Blocks that the map cannot have do not count.
        let is_free_form = node.ino == RESIZE && sb.ro_compat.has(RoCompat::BIGALLOC);
        if node.ino == BAD_BLOCKS || is_free_form {
            return;
        }
        let own = u64::from(node.inode.xattr_block.is_some());
        let blocks = ((tally.clusters + own) << sb.log_cluster_ratio) + facts.value_blocks;
        let sectors = blocks << (sb.block_size.log2() - 9);
        self.count(Code::PR_1_BAD_I_BLOCKS, place, SECTORS, node.inode.sectors, sectors);
        match node.kind {
            FileType::Directory if !node.has(InodeFlags::INLINE_DATA) => {
                self.directory_size(node, place, &tally)
            }
            FileType::Regular => self.file_size(node, place, &tally),
            _ => {}
        }
    }

    fn inline(&self, node: &Snapshot, place: Place) {
        let list = XattrList::in_inode(&node.tail);
        let rest = list.map(|list| list.find(Namespace::System, b"data"));
        if matches!(rest, None | Some(Ok(None))) {
            let problem = Problem::Missing { what: "the attribute system.data of the inline data" };
            return self.damaged(Code::PR_1_INLINE_DATA_NO_ATTR, place, problem);
        }
        let room = match self.fs.inline_parts(node) {
            Ok((first, rest)) => first.len() + rest.len(),
            Err(error) => return self.error(1, error),
        };
        let (room, size) = (u64::try_from(room).unwrap_or(u64::MAX), node.inode.size);
        let is_wrong = if node.kind == FileType::Directory { size != room } else { size > room };
        if is_wrong {
            self.count(Code::PR_1_BAD_I_SIZE, place, "bytes of inline data (i_size)", size, room);
        }
    }

    fn directory_size(&self, node: &Snapshot, place: Place, tally: &Tally) {
        let log = self.fs.sb.block_size.log2();
        let (size, blocks) = (node.inode.size, node.inode.size >> log);
        if tally.end == 0 {
            let problem = Problem::Missing { what: "the first block of the directory" };
            self.damaged(Code::PR_1_ZERO_LENGTH_DIR, place, problem);
        }
        if size != blocks << log || blocks != tally.end {
            let code = Code::PR_1_BAD_I_SIZE;
            self.count(code, place, "bytes of the directory (i_size)", size, tally.end << log);
        }
    }

    fn file_size(&self, node: &Snapshot, place: Place, tally: &Tally) {
        let (sb, size) = (&self.fs.sb, node.inode.size);
        let log = sb.block_size.log2();
        let last = tally.written_end.saturating_sub(1);
        if tally.written_end > 0 && size < last << log && !node.has(InodeFlags::VERITY) {
            let because = "ends before the last block that was written";
            self.value(Code::PR_1_BAD_I_SIZE, place, "i_size", size, because);
        }
        let most = if node.has(InodeFlags::EXTENTS) { (1 << (32 + log)) - 1 } else { self.most_mapped() };
        if size > most && !node.has(InodeFlags::INLINE_DATA) {
            let because = "is more than the map can hold";
            self.value(Code::PR_1_BAD_I_SIZE, place, "i_size", size, because);
        }
        if size >= 1 << 31 && !sb.ro_compat.has(RoCompat::LARGE_FILE) {
            let because = "needs the feature large_file";
            self.value(Code::PR_2_FEATURE_LARGE_FILES, place, "i_size", size, because);
        }
    }

    /// The greatest size of a file whose blocks are mapped by pointers, in bytes.
    fn most_mapped(&self) -> u64 {
        let pointers = u64::from(self.fs.sb.block_size.bytes() / 4);
        let blocks = 12 + pointers + pointers * pointers + pointers * pointers * pointers;
        blocks << self.fs.sb.block_size.log2()
    }

    /// Reports the inodes that have the blocks which were claimed more than once.
    fn shared_blocks(&self) {
        let shared = self.claims.shared();
        if shared.is_empty() {
            return;
        }
        let owners: Mutex<BTreeMap<u64, Vec<InodeNumber>>> = Mutex::default();
        let units = match &self.options.scope {
            Scope::Inodes(inodes) => inodes.len(),
            _ => self.groups(),
        };
        self.in_parallel(units, |unit, ()| {
            self.each_checked(unit, |ino, bytes, at| {
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

    /// Calls `each` for an inode of the list, or for those of a group.
    fn each_checked(&self, unit: usize, mut each: impl FnMut(InodeNumber, &[u8], BlockNumber)) {
        let Scope::Inodes(inodes) = &self.options.scope else { return self.each_inode(1, unit, each) };
        if let Some(&ino) = inodes.get(unit)
            && let Ok((bytes, place)) = self.inode_bytes(ino)
        {
            each(ino, &bytes, place.block.unwrap_or(BlockNumber(0)));
        }
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
            self.found(Code::PR_1B_DUP_BLOCK, place, Defect::Shared { blocks, by: by.to_vec(), is_system });
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
        // Blocks of the tree have clusters of their own.
        let is_content = matches!(part, Part::Content(_));
        if is_content && self.cluster == Some(clusters.start) {
            clusters.start += 1;
        }
        self.clusters += clusters.end - clusters.start;
        if is_content && !clusters.is_empty() {
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
                check.value(Code::PR_1_MISALIGNED_CLUSTER, place, "block", extent.start.0, because);
            }
            self.end = self.end.max(extent.logical + extent.len);
            if !extent.is_unwritten {
                self.written_end = self.written_end.max(extent.logical + extent.len);
            }
        }
    }
}
