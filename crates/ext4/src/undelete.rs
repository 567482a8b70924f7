//! Deleted files: what the journal, freed inodes and directories still say of them.
//!
//! The kernel clears an inode's block map when it frees the inode, and the entry when it removes a
//! name. But the journal keeps copies of inode tables and directories until the log comes around.
//! So the last copy of an inode with links says which blocks a file had; copies of its directory
//! say its name. Older kernels and other drivers keep the block map of a freed inode: then the
//! inode table says it.
//!
//! Nothing says whether the blocks still hold the file's content. A block that is free now may have
//! belonged to another file meanwhile. What is known is counted: blocks that are in use again, and
//! those that a later deleted file had.

use crate::inode::Snapshot;
use crate::layout::{FileExtent, Layout, Part};
use crate::{Error, Ext4, Options, Result, Structure};
use dentree_ext4_format::{BlockNumber, GroupNumber, Inode, InodeFlags, InodeNumber, LogicalBlock};
use dentree_jbd2::{History, Tid};
use dentree_vfs::FileType;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::{ControlFlow, Range};

/// Most deleted inodes that are looked for.
const MOST_DELETED: usize = 1 << 20;
/// Most directories above a file.
const MOST_LEVELS: usize = 256;
/// Bytes of content that are read at once.
const CHUNK: u64 = 1 << 20;

/// A deleted file or directory.
#[derive(Clone, Debug)]
pub struct Deleted {
    /// Its inode, which may be another file's now.
    pub ino: InodeNumber,
    /// Its type.
    pub kind: FileType,
    /// Type and permissions, as `st_mode`.
    pub mode: u16,
    /// Its length in bytes.
    pub size: u64,
    /// Seconds since 1970 of its last change that is known.
    pub modified: i64,
    /// Seconds since 1970 of its removal, where the inode still says it.
    pub removed: Option<i64>,
    /// Its path, as far as names are known; `None` without any.
    pub path: Option<Vec<u8>>,
    /// Blocks of its content.
    pub blocks: u64,
    /// How many of them are in use again, or belonged to a file that was deleted later.
    pub reused: u64,
    /// Whether its block map could be read to its end.
    pub is_whole: bool,
    /// The file is still there, and shorter: this is what it was before.
    pub is_truncated: bool,
    snapshot: Snapshot,
    extents: Vec<FileExtent>,
}

/// An inode as it was.
#[derive(Clone)]
struct Version {
    /// `None`: as the inode table has it now.
    tid: Option<Tid>,
    snapshot: Snapshot,
}

/// The longest version of a file.
struct Longest {
    version: Version,
    now: Option<Snapshot>,
}

/// A name that an inode had.
struct Name {
    tid: Option<Tid>,
    dir: InodeNumber,
    name: Vec<u8>,
}

/// What is gathered on the way.
struct Search<'a> {
    fs: &'a Ext4,
    /// Reads trees of blocks as they were last journalled.
    before: Option<Ext4>,
    history: Option<History>,
    layout: Layout<'a>,
    versions: HashMap<(u32, u32), Version>,
    /// The longest version of each regular file, with what is there of it now once that is known
    /// to be shorter.
    longest: HashMap<(u32, u32), Longest>,
    names: HashMap<u32, Vec<Name>>,
    /// Directories that are there: their names, by inode.
    directories: HashMap<u32, (u32, Vec<u8>)>,
}

impl Ext4 {
    /// The deleted files and directories that can be told, those removed last first. Files that the
    /// journal and the inode table have no trace of are not among them.
    ///
    /// # Errors
    /// Damage of group descriptors, and `Unsupported` where it is open for writing.
    pub fn deleted(&self) -> Result<Vec<Deleted>> {
        if self.writer.is_some() {
            return Err(Error::Unsupported("looking for deleted files while it is written".to_owned()));
        }
        let mut search = Search::new(self)?;
        search.find_versions();
        search.find_freed();
        search.find_names();
        let mut found = search.deleted();
        mark_later(&mut found);
        let mut found: Vec<Deleted> = found.into_iter().map(|(_, deleted)| deleted).collect();
        found.sort_by_key(|deleted| std::cmp::Reverse((deleted.removed, deleted.modified, deleted.ino.0)));
        Ok(found)
    }

    /// Calls `each` with the content of a deleted file, piece by piece with its offset. What was
    /// never written is left out.
    ///
    /// # Errors
    /// Those of the device and of `each`.
    pub fn read_deleted<E: From<Error>>(
        &self,
        deleted: &Deleted,
        mut each: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let snapshot = &deleted.snapshot;
        let log = self.sb.block_size.log2();
        if snapshot.has(InodeFlags::INLINE_DATA) {
            let (first, rest) = self.inline_parts(snapshot)?;
            let all = [&first[..], rest].concat();
            let len = usize::try_from(deleted.size).unwrap_or(usize::MAX).min(all.len());
            return each(0, all.get(..len).unwrap_or_default());
        }
        if snapshot.kind == FileType::Symlink && snapshot.maps_nothing() {
            let len = usize::try_from(deleted.size).unwrap_or(usize::MAX);
            return each(0, snapshot.inode.block.get(..len).unwrap_or_default());
        }
        for extent in deleted.extents.iter().filter(|extent| !extent.is_unwritten) {
            let (start, end) = (extent.logical << log, (extent.logical + extent.len) << log);
            let end = end.min(deleted.size);
            let mut at = start;
            while at < end {
                let len = CHUNK.min(end - at);
                let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
                let place = Structure::Content.of(deleted.ino).at(extent.start);
                let from = (extent.start.0 << log) + (at - start);
                self.device.read_at(from, &mut bytes).map_err(|source| place.io(source))?;
                each(at, &bytes)?;
                at += len;
            }
        }
        Ok(())
    }
}

impl<'a> Search<'a> {
    fn new(fs: &'a Ext4) -> Result<Self> {
        // Without a journal that can be read, the inode table is what there is.
        let history = fs.history().ok().flatten();
        let before = history.as_ref().and_then(|history| {
            let offset = fs.superblock_at.0 << fs.sb.block_size.log2();
            Ext4::over(history.last_copies(), fs.sb.clone(), offset, &Options::default()).ok()
        });
        Ok(Search {
            fs,
            before,
            history,
            layout: fs.layout()?,
            versions: HashMap::new(),
            longest: HashMap::new(),
            names: HashMap::new(),
            directories: HashMap::new(),
        })
    }

    /// Takes the last version with links of each inode in the journal's copies of inode tables.
    fn find_versions(&mut self) {
        let Some(history) = &self.history else { return };
        for transaction in history.transactions() {
            for copy in &transaction.copies {
                let Some(inodes) = self.layout.inodes_at(BlockNumber(copy.block)) else { continue };
                let Ok(Some(bytes)) = history.content(copy) else { continue };
                let size = usize::try_from(self.fs.sb.inode_size).unwrap_or(usize::MAX);
                for (ino, bytes) in inodes.map(InodeNumber).zip(bytes.chunks_exact(size)) {
                    let is_linked = Inode::head(bytes).is_some_and(|head| head.links > 0);
                    let place = Structure::Inode.of(ino).at(BlockNumber(copy.block));
                    if let Some(snapshot) = self.fs.parse_inode(ino, bytes, place).ok().filter(|_| is_linked)
                        && self.versions.len() < MOST_DELETED
                    {
                        let key = (ino.0, snapshot.inode.generation);
                        let version = Version { tid: Some(transaction.tid), snapshot };
                        let size = |version: &Version| version.snapshot.inode.size;
                        let known = self.longest.get(&key).map_or(0, |longest| size(&longest.version));
                        if version.snapshot.kind == FileType::Regular && size(&version).max(1) >= known {
                            self.longest.insert(key, Longest { version: version.clone(), now: None });
                        }
                        self.versions.insert(key, version);
                    }
                }
            }
        }
    }

    /// Takes freed inodes whose block map is still there, and drops versions of inodes that are in
    /// use.
    fn find_freed(&mut self) {
        let sb = &self.fs.sb;
        let size = usize::try_from(sb.inode_size).unwrap_or(usize::MAX);
        for group in (0..sb.groups).map(GroupNumber) {
            let Some(table) = self.layout.inode_table(group) else { continue };
            for block in table {
                let Some(inodes) = self.layout.inodes_at(BlockNumber(block)) else { continue };
                let mut bytes = vec![0; sb.block_size.in_memory()];
                if self.fs.device.read_at(block << sb.block_size.log2(), &mut bytes).is_err() {
                    continue;
                }
                for (ino, bytes) in inodes.map(InodeNumber).zip(bytes.chunks_exact(size)) {
                    self.now(ino, bytes, block);
                }
            }
        }
    }

    fn now(&mut self, ino: InodeNumber, bytes: &[u8], block: u64) {
        let Some(head) = Inode::head(bytes).filter(|head| head.mode != 0) else { return };
        let place = Structure::Inode.of(ino).at(BlockNumber(block));
        let Ok(snapshot) = self.fs.parse_inode(ino, bytes, place) else { return };
        let key = (ino.0, snapshot.inode.generation);
        if head.links > 0 {
            self.versions.remove(&key);
            if let Some(longest) = self.longest.get_mut(&key)
                && longest.version.snapshot.inode.size > snapshot.inode.size
            {
                longest.now = Some(snapshot);
            }
        } else if snapshot.inode.size > 0 && !self.versions.contains_key(&key) {
            self.versions.insert(key, Version { tid: None, snapshot });
        }
    }

    /// Looks for names in copies of directories, and in the blocks of deleted ones.
    fn find_names(&mut self) {
        self.longest.retain(|_, longest| longest.now.is_some());
        let wanted: HashSet<u32> =
            self.versions.keys().chain(self.longest.keys()).map(|(ino, _)| *ino).collect();
        let mut owners = HashMap::new();
        for group in (0..self.fs.sb.groups).map(GroupNumber) {
            for ino in self.layout.inodes_in_use(group).unwrap_or_default() {
                let Ok(node) = self.fs.read_inode(ino) else { continue };
                if node.kind == FileType::Directory {
                    self.live_directory(&node, &wanted, &mut owners);
                }
            }
        }
        let deleted: Vec<(Option<Tid>, Snapshot)> = self
            .versions
            .values()
            .filter(|version| version.snapshot.kind == FileType::Directory)
            .map(|version| (version.tid, version.snapshot.clone()))
            .collect();
        for (tid, dir) in &deleted {
            if let Ok(pieces) = self.fs.inline_entries(dir)
                && dir.has(InodeFlags::INLINE_DATA)
            {
                pieces.iter().for_each(|(_, bytes)| self.entries(bytes, dir.ino, *tid, &wanted));
            }
            for block in self.content_of(dir).0.iter().flat_map(blocks_of) {
                owners.entry(block).or_insert(dir.ino);
                let place = dir.place(Structure::DirectoryLeaf(LogicalBlock(0)));
                if let Ok(bytes) = self.fs.metadata(BlockNumber(block), place) {
                    self.entries(&bytes, dir.ino, None, &wanted);
                }
            }
        }
        let Some(history) = self.history.take() else { return };
        for transaction in history.transactions() {
            for copy in &transaction.copies {
                if let Some(&dir) = owners.get(&copy.block)
                    && let Ok(Some(bytes)) = history.content(copy)
                {
                    self.entries(&bytes, dir, Some(transaction.tid), &wanted);
                }
            }
        }
    }

    /// Notes the blocks of a directory, the directories in it, and what stands between its entries.
    fn live_directory(
        &mut self,
        dir: &Snapshot,
        wanted: &HashSet<u32>,
        owners: &mut HashMap<u64, InodeNumber>,
    ) {
        let (mut below, mut shortened) = (Vec::new(), Vec::new());
        let read = self.fs.each_entry(dir, 0, &mut |entry, _| {
            if wanted.contains(&entry.inode.0) {
                shortened.push((entry.inode.0, entry.name.to_vec()));
            }
            let is_dir = self.fs.kind_of(&entry).is_none_or(|kind| kind == FileType::Directory);
            if is_dir && entry.name != b"." && entry.name != b".." {
                below.push((entry.inode.0, entry.name.to_vec()));
            }
            Ok(ControlFlow::Continue(()))
        });
        // A damaged directory has the names before the damage.
        let _ = read;
        // Those of deleted files are of inodes that were used again.
        let truncated: HashSet<u32> = self.longest.keys().map(|(ino, _)| *ino).collect();
        for (ino, name) in shortened.into_iter().filter(|(ino, _)| truncated.contains(ino)) {
            self.name(ino, Name { tid: None, dir: dir.ino, name });
        }
        for (ino, name) in below {
            self.directories.insert(ino, (dir.ino.0, name));
        }
        let mut blocks = Vec::new();
        let mut each = |part: Part| {
            if let Part::Content(extent) = part {
                blocks.extend(blocks_of(&extent));
            }
            ControlFlow::Continue(())
        };
        self.fs.walk_map(dir, &mut each, &mut |_| {});
        for block in blocks {
            owners.insert(block, dir.ino);
            let place = dir.place(Structure::DirectoryLeaf(LogicalBlock(0)));
            if let Ok(bytes) = self.fs.metadata(BlockNumber(block), place) {
                self.slack(&bytes, dir.ino, wanted);
            }
        }
    }

    fn entries(&mut self, bytes: &[u8], dir: InodeNumber, tid: Option<Tid>, wanted: &HashSet<u32>) {
        for entry in self.fs.entries(bytes).map_while(std::result::Result::ok) {
            if wanted.contains(&entry.inode.0) && entry.name != b"." && entry.name != b".." {
                self.name(entry.inode.0, Name { tid, dir, name: entry.name.to_vec() });
            }
        }
    }

    /// Looks for removed entries in the space behind others: older kernels leave them there.
    fn slack(&mut self, bytes: &[u8], dir: InodeNumber, wanted: &HashSet<u32>) {
        let fs = self.fs;
        fs.slack_entries(bytes, &mut |ino, name| {
            if wanted.contains(&ino) {
                self.name(ino, Name { tid: None, dir, name: name.to_vec() });
            }
        });
    }

    fn name(&mut self, ino: u32, name: Name) {
        const MOST_NAMES: usize = 64;
        let names = self.names.entry(ino).or_default();
        if names.len() < MOST_NAMES
            && !names
                .iter()
                .any(|known| known.dir == name.dir && known.name == name.name && known.tid == name.tid)
        {
            names.push(name);
        }
    }

    /// The extents of an inode, by trees as they were last journalled, and whether all were found.
    fn content_of(&self, node: &Snapshot) -> (Vec<FileExtent>, bool) {
        let (mut extents, mut is_whole) = (Vec::new(), true);
        let mut each = |part| {
            if let Part::Content(extent) = part {
                extents.push(extent);
            }
            ControlFlow::Continue(())
        };
        let reader = self.before.as_ref().unwrap_or(self.fs);
        reader.walk_map(node, &mut each, &mut |_| is_whole = false);
        (extents, is_whole)
    }

    /// The name of a version: the last that is not later, else any.
    fn name_of(&self, ino: u32, tid: Option<Tid>) -> Option<&Name> {
        let names = self.names.get(&ino)?;
        let is_early = |name: &&Name| match (name.tid, tid) {
            (Some(name), Some(tid)) => !name.is_after(tid),
            _ => false,
        };
        names.iter().rfind(is_early).or(names.first())
    }

    fn path_of(&self, ino: u32, tid: Option<Tid>) -> Option<Vec<u8>> {
        let first = self.name_of(ino, tid)?;
        let (mut parts, mut dir) = (vec![first.name.clone()], first.dir.0);
        for _ in 0..MOST_LEVELS {
            if dir == InodeNumber::ROOT.0 {
                parts.reverse();
                return Some([b"/", parts.join(&b'/').as_slice()].concat());
            }
            let (above, name) = match self.directories.get(&dir) {
                Some((above, name)) => (*above, name.clone()),
                None => {
                    let name = self.name_of(dir, None)?;
                    (name.dir.0, name.name.clone())
                }
            };
            parts.push(name);
            dir = above;
        }
        None
    }

    fn deleted(&mut self) -> Vec<(Option<Tid>, Deleted)> {
        let versions = std::mem::take(&mut self.versions);
        let longest = std::mem::take(&mut self.longest);
        let mut free = FreeBlocks { layout: &self.layout, groups: BTreeMap::new() };
        let of_deleted = versions.into_iter().map(|((ino, _), version)| (ino, version, None));
        let of_truncated = longest.into_iter().map(|((ino, _), longest)| (ino, longest.version, longest.now));
        let mut found = Vec::new();
        for (number, Version { tid, snapshot }, now) in of_deleted.chain(of_truncated) {
            let inode = &snapshot.inode;
            let is_kept =
                matches!(snapshot.kind, FileType::Regular | FileType::Directory | FileType::Symlink);
            let is_value = snapshot.has(InodeFlags::EA_INODE);
            if !is_kept || is_value || number < self.fs.sb.first_ino {
                continue;
            }
            let (extents, is_whole) = self.content_of(&snapshot);
            // The map was cleared with the inode: that is no file of holes.
            if tid.is_none() && extents.is_empty() && !snapshot.maps_nothing() {
                continue;
            }
            let blocks = extents.iter().map(|extent| extent.len).sum();
            let kept = now.as_ref().map_or(0, |now| self.kept(now, &extents));
            let in_use: u64 = extents.iter().map(|extent| free.in_use(extent)).sum();
            let reused = in_use.saturating_sub(kept);
            let removed = if now.is_some() { None } else { self.removed(&snapshot) };
            let path = self.path_of(number, tid);
            let (mode, size, modified) = (inode.mode, inode.size, inode.mtime.seconds);
            let (ino, kind, is_truncated) = (snapshot.ino, snapshot.kind, now.is_some());
            found.push((
                tid,
                Deleted {
                    ino,
                    kind,
                    mode,
                    size,
                    modified,
                    removed,
                    path,
                    blocks,
                    reused,
                    is_whole,
                    is_truncated,
                    snapshot,
                    extents,
                },
            ));
        }
        found
    }

    /// How many blocks of a longer version a file still has in the same place. The one in which it
    /// ends now is not among them: the kernel clears what is behind the end.
    fn kept(&self, now: &Snapshot, before: &[FileExtent]) -> u64 {
        let whole = now.inode.size >> self.fs.sb.block_size.log2();
        let mut today = Vec::new();
        let mut each = |part| {
            if let Part::Content(extent) = part {
                today.push(extent);
            }
            ControlFlow::Continue(())
        };
        self.fs.walk_map(now, &mut each, &mut |_| {});
        let common = move |one: &FileExtent, other: &FileExtent| {
            let is_same = one.start.0.wrapping_sub(one.logical) == other.start.0.wrapping_sub(other.logical);
            let start = one.logical.max(other.logical);
            let end = (one.logical + one.len).min(other.logical + other.len).min(whole);
            if is_same { end.saturating_sub(start) } else { 0 }
        };
        // Both are sorted: each extent meets few of the others.
        let mut count = 0;
        for extent in before {
            let from = today.partition_point(|other| other.logical + other.len <= extent.logical);
            let behind = extent.logical + extent.len;
            let met = today.iter().skip(from).take_while(|other| other.logical < behind);
            count += met.map(|other| common(extent, other)).sum::<u64>();
        }
        count
    }

    /// When an inode was freed, where it was not used again.
    fn removed(&self, snapshot: &Snapshot) -> Option<i64> {
        let (bytes, place) = self.fs.inode_bytes(snapshot.ino).ok()?;
        let now = self.fs.parse_inode(snapshot.ino, &bytes, place).ok()?;
        let dtime = Inode::dtime(&bytes);
        (now.inode.generation == snapshot.inode.generation && dtime > self.fs.sb.inodes_count)
            .then_some(i64::from(dtime))
    }
}

fn blocks_of(extent: &FileExtent) -> Range<u64> {
    extent.start.0..extent.start.0 + extent.len
}

/// Free blocks, a bitmap for each group that was asked about.
struct FreeBlocks<'l, 'a> {
    layout: &'l Layout<'a>,
    groups: BTreeMap<u32, Option<Vec<u8>>>,
}

impl FreeBlocks<'_, '_> {
    /// How many blocks of an extent are in use.
    fn in_use(&mut self, extent: &FileExtent) -> u64 {
        let mut count = 0;
        for block in blocks_of(extent) {
            let (group, bit) = self.layout.bit_of(BlockNumber(block));
            let bitmap = self.groups.entry(group.0).or_insert_with(|| self.layout.block_bitmap(group).ok());
            let byte = bitmap.as_deref().and_then(|bitmap| bitmap.get(bit / 8));
            // What is not known is not free.
            count += u64::from(byte.is_none_or(|byte| byte >> (bit % 8) & 1 == 1));
        }
        count
    }
}

/// Counts blocks of earlier files that later ones had as reused.
fn mark_later(found: &mut [(Option<Tid>, Deleted)]) {
    let mut owners = HashMap::<u64, usize>::new();
    let age = |tid: Option<Tid>, other: Option<Tid>| match (tid, other) {
        (Some(tid), Some(other)) => tid.is_after(other),
        // As it is now is the latest.
        (None, _) => true,
        (Some(_), None) => false,
    };
    let mut lost = vec![0; found.len()];
    for (at, (tid, deleted)) in found.iter().enumerate() {
        for block in deleted.extents.iter().flat_map(blocks_of) {
            if let Some(&other) = owners.get(&block) {
                let is_later = age(*tid, found[other].0);
                lost[if is_later { other } else { at }] += 1;
                if !is_later {
                    continue;
                }
            }
            owners.insert(block, at);
        }
    }
    for ((_, deleted), lost) in found.iter_mut().zip(lost) {
        deleted.reused = (deleted.reused + lost).min(deleted.blocks);
    }
}
