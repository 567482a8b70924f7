//! Salvage: what can still be read of a badly damaged file system.
//!
//! Nothing is written to the device. What metadata says is believed as far as checksums prove it;
//! without them, as far as its fields fit each other.
//!
//! | file | contents |
//! |---|---|
//! | `start` | the superblock: the first one, a backup, a copy anywhere |
//! | `guess` | its sizes, where there is none at all |
//! | `tables` | where the inode tables lie |
//! | `search` | inode tables found by the checksums of inodes |
//! | `view` | the device with repaired descriptors, in memory |
//! | `inodes` | which inodes are there, and how far they can be trusted |
//! | `plausible` | whether the fields of an inode fit each other |
//! | `names` | directories, and the place of each in the tree |
//! | `leaves` | blocks of directories whose inodes are gone |
//! | `map` | block maps, with the parts that are gone |
//! | `content` | content, with the ranges that are missing |
//! | `reader` | reads that go on behind what cannot be read |
//!
//! # Limits
//! Memory: a byte for each inode of a table that holds any; the name of each directory. Work: each
//! table and each directory is read twice, and content at most twice the device's size, also where
//! a hostile image maps its blocks a million times.

mod content;
mod guess;
mod inodes;
mod leaves;
mod map;
mod names;
mod plausible;
mod reader;
mod search;
mod start;
mod tables;
mod view;

use crate::inode::Snapshot;
use crate::{Error, Ext4, Node, Options, Result};
pub use content::Missing;
use dentree_blockdev::BlockDevice;
use dentree_ext4_format::{Entry, InodeNumber, Problem, SUPERBLOCK_OFFSET};
use dentree_jbd2::{History, JournalLocation};
use dentree_vfs::{Attr, FileType};
use inodes::{InodeReader, Inodes, Trust};
pub use names::SalvagedEntry;
use names::{Directories, Places};
use start::Start;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use tables::Tables;
use view::Repaired;

/// Content that may be read, as a multiple of the device's size.
const CONTENT_FACTOR: u64 = 2;
/// And this many bytes more.
const CONTENT_LEAST: u64 = 64 << 20;

/// Blocks of directories that may be read, as a multiple of the device's blocks: each directory is
/// read for the tree, and when its entries are asked for.
const LEAVES_FACTOR: u64 = 4;

/// How a file system is salvaged.
pub struct SalvageOptions<'a> {
    /// Budget of the cache for metadata, in bytes.
    pub cache_bytes: usize,
    /// Called with the step and what was done of it: bytes of a search, inodes, directories.
    /// Returns whether to go on.
    pub goes_on: &'a dyn Fn(SalvageStep, u64) -> bool,
}

/// The steps before content can be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SalvageStep {
    /// The device is searched.
    Search,
    /// Inode tables are read.
    Inodes,
    /// Directories are read.
    Directories,
}

/// What was damaged, and what was used in place of it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SalvageNotice {
    /// The first superblock is damaged.
    Superblock {
        /// Where the one that is used was found, in bytes.
        offset: u64,
        /// What is wrong with the first.
        problem: Problem,
    },
    /// No superblock is left: the sizes follow from inodes and directories.
    Guessed,
    /// Descriptors of groups are damaged.
    Descriptors {
        /// How many.
        damaged: u32,
        /// Groups whose inode table was not found.
        missing: u32,
    },
    /// The journal was replayed in memory.
    JournalReplayed {
        /// Transactions.
        transactions: u32,
        /// Blocks that are read from it.
        blocks: usize,
    },
    /// The journal could not be read.
    NoJournal(String),
    /// The image ends before the file system does.
    Truncated {
        /// Bytes according to the superblock.
        expected: u64,
        /// Bytes in the image.
        found: u64,
    },
}

impl fmt::Display for SalvageNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SalvageNotice::Superblock { offset, problem } => {
                write!(f, "the superblock is damaged ({problem}); the copy at byte {offset} is used")
            }
            SalvageNotice::Guessed => {
                write!(f, "no superblock is left; the sizes of the file system are guessed from its inodes")
            }
            SalvageNotice::Descriptors { damaged, missing: 0 } => write!(
                f,
                "the descriptors of {damaged} groups are damaged; their inode tables were found without them"
            ),
            SalvageNotice::Descriptors { damaged, missing } => write!(
                f,
                "the descriptors of {damaged} groups are damaged; {missing} of these groups have no inode \
                 table, or an empty one"
            ),
            SalvageNotice::JournalReplayed { transactions, blocks } => {
                write!(
                    f,
                    "{transactions} transactions of the journal ({blocks} blocks) are replayed in memory"
                )
            }
            SalvageNotice::NoJournal(because) => {
                write!(f, "the journal is not replayed, the last changes may be missing: {because}")
            }
            SalvageNotice::Truncated { expected, found } => {
                write!(f, "the image is cut short: it has {found} bytes of {expected}")
            }
        }
    }
}

/// A damaged file system, for reading what is left of it.
pub struct Salvage {
    fs: Ext4,
    /// The device with the journal's last copy of each block.
    before: Option<Arc<dyn BlockDevice>>,
    tables: Tables,
    /// The journal's blocks, ascending and disjoint.
    journal: Vec<Range<u64>>,
    inodes: Inodes,
    places: Places,
    /// Bytes of content that may still be read.
    content_left: AtomicU64,
    /// Blocks of directories that may still be read.
    leaves_left: AtomicU64,
    notices: Vec<SalvageNotice>,
}

/// An inode that was found.
#[derive(Clone)]
pub struct SalvagedInode {
    snapshot: Snapshot,
    is_doubtful: bool,
}

/// Extended attributes of an inode.
#[derive(Default)]
pub struct SalvagedXattrs {
    /// Full names and values.
    pub values: Vec<(Vec<u8>, Vec<u8>)>,
    /// Why others could not be read.
    pub error: Option<Error>,
}

impl SalvagedInode {
    /// Its number.
    pub fn ino(&self) -> InodeNumber {
        self.snapshot.ino
    }

    /// Its type.
    pub fn kind(&self) -> FileType {
        self.snapshot.kind
    }

    /// Whether its checksum is wrong: some of its fields are damaged.
    pub fn is_doubtful(&self) -> bool {
        self.is_doubtful
    }
}

impl Salvage {
    /// Finds the inodes and directories of the file system that starts at the first byte of
    /// `device`, however damaged it is.
    ///
    /// # Errors
    /// [`Error::NotExt4`] where nothing says what the file system looked like, and
    /// [`Error::Unsupported`].
    pub fn open(device: Arc<dyn BlockDevice>, options: &SalvageOptions<'_>) -> Result<Salvage> {
        let searched = |bytes| (options.goes_on)(SalvageStep::Search, bytes);
        let start = start::find(&*device, &searched).or_else(|| guess::find(&device, &searched));
        let Some(start) = start else {
            return Err(Error::NotExt4(Problem::Missing { what: "a superblock, or a copy of it" }));
        };
        let mut notices = Vec::new();
        match start.problem {
            Some(_) if start.is_guessed => notices.push(SalvageNotice::Guessed),
            Some(problem) => notices.push(SalvageNotice::Superblock { offset: start.offset, problem }),
            None => {}
        }
        let (expected, size) = (start.sb.blocks_count << start.sb.block_size.log2(), device.size());
        if size < expected {
            notices.push(SalvageNotice::Truncated { expected, found: size });
        }
        let engine = Options { cache_bytes: options.cache_bytes, ..Options::default() };
        let over = |device: &Arc<dyn BlockDevice>| Found::over(device, &start, &engine);
        let mut found = over(&device)?;
        let location =
            found.fs.journal_location().or_else(|error| found.fs.journal_from_backup().ok_or(error));
        let (mut before, mut journal) = (None, Vec::new());
        match location {
            Ok(Some(location)) => {
                journal = ascending(&location.runs);
                let device = replayed(device, &location, &mut notices);
                found = over(&device)?;
                before = History::read(device, &location).ok().map(|history| history.last_copies());
            }
            Ok(None) => {}
            Err(error) => notices.push(SalvageNotice::NoJournal(error.to_string())),
        }
        let Found { fs, tables } = found.with_tables_elsewhere(&start, &engine, &searched)?;
        if tables.not_primary > 0 {
            let missing = u32::try_from(tables.missing.len()).unwrap_or(u32::MAX);
            notices.push(SalvageNotice::Descriptors { damaged: tables.not_primary, missing });
        }
        let content = size.saturating_mul(CONTENT_FACTOR).saturating_add(CONTENT_LEAST);
        let leaves = (size >> start.sb.block_size.log2()).saturating_mul(LEAVES_FACTOR);
        let mut salvage = Salvage {
            fs,
            before,
            tables,
            journal,
            inodes: Inodes::default(),
            places: Places::default(),
            content_left: AtomicU64::new(content),
            leaves_left: AtomicU64::new(leaves),
            notices,
        };
        salvage.find_inodes(options);
        Ok(salvage)
    }

    fn find_inodes(&mut self, options: &SalvageOptions<'_>) {
        let reader = InodeReader { fs: &self.fs, before: self.before.as_ref() };
        let scanned = |count| (options.goes_on)(SalvageStep::Inodes, count);
        let mut inodes = reader.scan(&self.tables.tables, &scanned);
        let (tables, journal) = (&self.tables.tables, &self.journal);
        let directories = Directories { reader, tables, journal, left: &self.leaves_left };
        let listed = |count| (options.goes_on)(SalvageStep::Directories, count);
        let searched = |bytes| (options.goes_on)(SalvageStep::Search, bytes);
        let places = directories.places(&mut inodes, &listed, &searched);
        (self.inodes, self.places) = (inodes, places);
    }

    /// What was damaged, and what was used in place of it.
    pub fn notices(&self) -> &[SalvageNotice] {
        &self.notices
    }

    /// The number of inodes that are there.
    pub fn inodes_count(&self) -> u64 {
        self.inodes.count()
    }

    fn reader(&self) -> InodeReader<'_> {
        InodeReader { fs: &self.fs, before: self.before.as_ref() }
    }

    /// An inode, if it is there. `entry`: what names it. The root has no entry.
    pub fn inode(&self, entry: &SalvagedEntry) -> Option<SalvagedInode> {
        self.inodes.trust(entry.ino)?;
        let (snapshot, trust) = self.reader().read(&self.tables.tables, entry.ino)?;
        let is_doubtful = trust == Trust::Doubtful;
        if is_doubtful && entry.kind.is_some_and(|kind| kind != snapshot.kind) {
            return None;
        }
        Some(SalvagedInode { snapshot, is_doubtful })
    }

    /// The root directory, as an entry.
    pub fn root(&self) -> SalvagedEntry {
        SalvagedEntry { name: Vec::new(), ino: InodeNumber::ROOT, kind: Some(FileType::Directory) }
    }

    /// What has no place in the tree: directories without a parent, inodes without a name. They
    /// have the names that e2fsck gives them in `lost+found`.
    pub fn unplaced(&self) -> impl Iterator<Item = SalvagedEntry> + '_ {
        let entry = |ino, kind| SalvagedEntry { name: names::unnamed(ino), ino, kind };
        let directories = self.places.roots().map(move |ino| entry(ino, Some(FileType::Directory)));
        directories.chain(self.inodes.unnamed_files().map(move |ino| entry(ino, None)))
    }

    /// Whether an inode that is gone was a directory of which something is left.
    pub fn is_directory_gone(&self, ino: InodeNumber) -> bool {
        self.places.is_gone(ino.0)
    }

    /// The entries of a directory, and whether all of it could be read. A directory is an entry of
    /// one directory at most. Ask once for each directory: the blocks that are read are counted.
    pub fn entries(&self, dir: InodeNumber) -> (Vec<SalvagedEntry>, bool) {
        let (tables, journal) = (&self.tables.tables, &self.journal);
        let directories = Directories { reader: self.reader(), tables, journal, left: &self.leaves_left };
        let (mut found, mut is_whole) = (Vec::new(), false);
        let mut each = |entry: &Entry<'_>| {
            let (name, ino) = (entry.name, entry.inode);
            if name == b"." || name == b".." || !names::is_plausible(entry) {
                return;
            }
            let is_dir = self.inodes.is_directory(ino) || self.places.is_gone(ino.0);
            if !is_dir || self.places.is_at(ino.0, dir.0, name) {
                found.push(SalvagedEntry { name: name.to_vec(), ino, kind: self.fs.kind_of(entry) });
            }
        };
        match self.reader().read(&self.tables.tables, dir).filter(|_| self.inodes.is_directory(dir)) {
            Some((node, _)) => is_whole = directories.entries(&node, &mut each),
            None => directories.loose_entries(self.places.leaves(dir.0), &mut each),
        }
        for ino in self.places.adopted(dir.0).iter().copied().map(InodeNumber) {
            found.push(SalvagedEntry { name: names::unnamed(ino), ino, kind: Some(FileType::Directory) });
        }
        (found, is_whole)
    }

    /// Attributes, as `stat` has them.
    pub fn attr(&self, inode: &SalvagedInode) -> Attr {
        self.fs.attr_of(&inode.snapshot)
    }

    /// The extended attributes that can be read.
    pub fn xattrs(&self, inode: &SalvagedInode) -> SalvagedXattrs {
        let node = Node::new(inode.snapshot.clone(), None);
        let mut found = SalvagedXattrs::default();
        let names = self.fs.listxattr(&node).unwrap_or_else(|error| {
            found.error = Some(error);
            Vec::new()
        });
        for name in names {
            match self.fs.getxattr(&node, &name) {
                Ok(value) => found.values.extend(value.map(|value| (name, value))),
                Err(error) => found.error = found.error.or(Some(error)),
            }
        }
        found
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// `Corrupt` and `Io` where it cannot be read.
    pub fn target(&self, link: &SalvagedInode) -> Result<Vec<u8>> {
        self.fs.target(&link.snapshot)
    }

    /// Passes on the content of a file, piece by piece with its offset. Holes, and what is missing,
    /// are left out.
    ///
    /// # Errors
    /// Those of `each`.
    pub fn content<E>(
        &self,
        file: &SalvagedInode,
        mut each: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<Missing, E> {
        self.content_of(&file.snapshot, &mut each)
    }
}

/// The file system with repaired descriptors in memory, and the tables that they name.
struct Found {
    fs: Ext4,
    tables: Tables,
}

impl Found {
    fn over(device: &Arc<dyn BlockDevice>, start: &Start, engine: &Options) -> Result<Found> {
        let fs = Ext4::over(device.clone(), start.sb.clone(), SUPERBLOCK_OFFSET, engine)?;
        let tables = tables::find(&fs, tables::groups_there(&fs));
        Found { fs, tables }.repaired(start, engine)
    }

    /// Puts descriptors of the tables in their places.
    fn repaired(self, start: &Start, engine: &Options) -> Result<Found> {
        let Found { fs, tables } = self;
        let blocks = tables::descriptor_blocks(&fs, &tables.tables);
        let view = Arc::new(Repaired::new(fs.device.clone(), start.sb.block_size.bytes(), blocks));
        let fs = Ext4::over(view, start.sb.clone(), SUPERBLOCK_OFFSET, engine)?;
        Ok(Found { fs, tables })
    }

    /// Searches the device for tables that are not where they should be.
    fn with_tables_elsewhere(
        mut self,
        start: &Start,
        engine: &Options,
        goes_on: &dyn Fn(u64) -> bool,
    ) -> Result<Found> {
        let elsewhere = search::tables(&self.fs, &self.tables.missing, goes_on);
        if elsewhere.is_empty() {
            return Ok(self);
        }
        self.tables.missing.retain(|group| !elsewhere.contains_key(group));
        self.tables.tables.extend(elsewhere);
        self.repaired(start, engine)
    }
}

/// Runs of blocks as ranges, ascending and disjoint.
fn ascending(runs: &[(u64, u64)]) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = runs.iter().map(|(start, len)| *start..start + len).collect();
    ranges.sort_unstable_by_key(|range| range.start);
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined
}

/// The device after the replay of the journal, if it can be replayed.
fn replayed(
    device: Arc<dyn BlockDevice>,
    location: &JournalLocation,
    notices: &mut Vec<SalvageNotice>,
) -> Arc<dyn BlockDevice> {
    match dentree_jbd2::recover(device.clone(), location) {
        Ok(recovered) => {
            let (transactions, blocks) = (recovered.transactions, recovered.blocks);
            if transactions > 0 {
                notices.push(SalvageNotice::JournalReplayed { transactions, blocks });
            }
            recovered.device
        }
        Err(error) => {
            notices.push(SalvageNotice::NoJournal(error.to_string()));
            device
        }
    }
}
