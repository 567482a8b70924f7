//! Opening: superblock, features, journal.

use crate::alloc::InodeTables;
use crate::read_ahead::{DxReadAhead, Windows};
use crate::txn::{Clock, Writer};
use crate::{Error, Ext4, Place, Result, Structure};
use dentree_blockdev::BlockDevice;
use dentree_bufcache::{AheadOutcome, BhLruSize, BufCache, Buffer, First, Runs};
use dentree_ext4_format::{
    BlockNumber, Incompat, InodeNumber, Problem, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock,
};
use dentree_jbd2::{Journal, JournalOptions};
use dentree_vfs::FileType;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// `s_encoding`: the only one.
const UTF8_12_1: u16 = 1;

/// Age of a transaction at its commit, as in the kernel.
const COMMIT_INTERVAL: Duration = Duration::from_secs(5);

/// Options for opening.
#[derive(Clone, Debug)]
pub struct Options {
    /// Budget of the metadata cache, in bytes.
    pub cache_bytes: usize,
    /// Whether to replay a journal that needs recovery. Otherwise, as by `mount -o noload`, the
    /// last changes may be missing or incomplete.
    pub replay_journal: bool,
    /// Whether to open for writing. Replays the journal onto the device.
    pub writable: bool,
    /// Whether changes go through the journal. Otherwise a crash may leave them half done: for a
    /// file system being made.
    pub journaled: bool,
    /// Source of timestamps.
    pub clock: Clock,
    /// What lookups in large directories read ahead.
    pub dx_read_ahead: DxReadAhead,
    /// Directory index blocks in each thread's LRU.
    pub bh_lru_size: BhLruSize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            cache_bytes: 128 << 20,
            replay_journal: true,
            writable: false,
            journaled: true,
            clock: Clock::System,
            dx_read_ahead: DxReadAhead::default(),
            bh_lru_size: BhLruSize::default(),
        }
    }
}

/// What the user of an image should know.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Notice {
    /// The primary superblock is damaged; a backup was used.
    BackupSuperblock {
        /// Byte offset in the file system.
        offset: u64,
        /// What is wrong with the primary.
        problem: Problem,
    },
    /// The journal was replayed in memory; the image is unchanged.
    JournalReplayed {
        /// Transactions replayed.
        transactions: u32,
        /// Blocks now read from the journal.
        blocks: usize,
    },
    /// The journal was replayed into the image.
    JournalWrittenBack {
        /// Transactions replayed.
        transactions: u32,
        /// Blocks written.
        blocks: usize,
    },
    /// The image ends before the file system does.
    Truncated {
        /// Bytes according to the superblock.
        expected: u64,
        /// Bytes in the image.
        found: u64,
    },
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::BackupSuperblock { offset, problem } => write!(
                f,
                "the superblock is damaged ({problem}); its backup at byte {offset} is used instead. \
                 Run `e2fsck` on a copy of the image to repair it"
            ),
            Notice::JournalReplayed { transactions, blocks } => write!(
                f,
                "the file system was not unmounted cleanly: {transactions} transactions of its journal ({blocks} \
                 blocks) were replayed in memory. The image is unchanged"
            ),
            Notice::JournalWrittenBack { transactions, blocks } => write!(
                f,
                "the file system was not unmounted cleanly: {transactions} transactions of its journal ({blocks} \
                 blocks) were written to the image"
            ),
            Notice::Truncated { expected, found } => write!(
                f,
                "the image is truncated: it has {found} bytes of {expected}. Reads past its end will fail; get \
                 the image again if you can"
            ),
        }
    }
}

impl Ext4 {
    /// Opens the file system that starts at the first byte of `device`.
    ///
    /// For reading, this reads only the superblock unless the journal needs recovery. For writing,
    /// it also replays the journal, reads all group descriptors, marks the file system as in use,
    /// and frees orphans.
    ///
    /// # Errors
    /// [`Error::NotExt4`], [`Error::Unsupported`] naming the features, or the damage.
    pub fn open(device: Arc<dyn BlockDevice>, options: Options) -> Result<Ext4> {
        let mut notices = Vec::new();
        let (sb, offset) = find_superblock(&*device, &mut notices)?;
        let fs = Ext4::over(device, sb, offset, &options)?;
        // A backup does not tell the journal's state.
        let must_recover = fs.sb.incompat.has(Incompat::RECOVER) || !notices.is_empty();
        if must_recover && options.writable && !options.replay_journal {
            let what = "the journal must be replayed before any change";
            return Err(Error::Unsupported(what.to_owned()));
        }
        let mut fs = if must_recover && options.replay_journal {
            fs.with_journal_replayed(offset, &options, &mut notices)?
        } else {
            fs
        };
        let expected = fs.sb.blocks_count << fs.sb.block_size.log2();
        let found = fs.device.size();
        if found < expected {
            notices.push(Notice::Truncated { expected, found });
        }
        fs.notices = notices;
        if options.writable { fs.opened_for_writing(&options) } else { Ok(fs) }
    }

    fn opened_for_writing(mut self, options: &Options) -> Result<Ext4> {
        self.check_writable()?;
        let clock = options.clock;
        let journal_options = JournalOptions {
            has_checksums: self.sb.has_metadata_csum(),
            is_64bit: self.sb.is_64bit(),
            // A reproducible image is not committed by the clock.
            interval: (clock == Clock::System).then_some(COMMIT_INTERVAL),
        };
        let location = self.journal_location()?;
        let runs = location.as_ref().map(|location| location.runs.clone()).unwrap_or_default();
        let journal = match location.filter(|_| options.journaled) {
            Some(location) => Journal::open(self.cache.clone(), &location, journal_options)?,
            None => Journal::without_log(self.cache.clone(), journal_options)?,
        };
        if journal.recorded_error() != 0 {
            let what = "the journal has recorded an error: run e2fsck, or open the file system for reading";
            return Err(Error::Unsupported(what.to_owned()));
        }
        let root = self.read_inode(InodeNumber::ROOT)?;
        if root.kind != FileType::Directory {
            let problem = Problem::Missing { what: "the root directory" };
            return Err(root.place(Structure::Inode).corrupt(problem));
        }
        let writer = Writer::new(&self, journal, &runs, clock)?;
        self.mark_in_use(writer.clock.now())?;
        self.cache.discard(self.superblock_at.0, 1);
        self.writer = Some(writer);
        self.clean_up_orphans()?;
        Ok(self)
    }

    pub(crate) fn over(
        device: Arc<dyn BlockDevice>,
        sb: Superblock,
        offset: u64,
        options: &Options,
    ) -> Result<Ext4> {
        check_features(&sb)?;
        let (block_size, budget) = (sb.block_size.in_memory(), options.cache_bytes);
        let cache = Arc::new(BufCache::with_bh_lru(device.clone(), block_size, budget, options.bh_lru_size));
        let superblock_at = BlockNumber(offset >> sb.block_size.log2());
        let (dx_read_ahead, windows) = (options.dx_read_ahead, Windows::new());
        let inode_tables = InodeTables::new(sb.groups);
        Ok(Ext4 {
            sb,
            superblock_at,
            device,
            cache,
            dx_read_ahead,
            windows,
            table_windows: Windows::new(),
            inode_tables,
            notices: Vec::new(),
            writer: None,
        })
    }

    /// The superblock.
    pub fn superblock(&self) -> &Superblock {
        &self.sb
    }

    /// What the user of the image should know.
    pub fn notices(&self) -> &[Notice] {
        &self.notices
    }

    /// Counters and size of the metadata cache.
    pub fn buffer_stats(&self) -> dentree_bufcache::Stats {
        self.cache.stats()
    }

    /// Shrinks the metadata cache to about `percent` of its blocks: [`BufCache::shrink`]. Returns
    /// how many were evicted.
    pub fn shrink_buffers(&self, percent: u8) -> usize {
        self.cache.shrink(percent)
    }

    pub(crate) fn read_ahead(&self, runs: Runs) {
        self.cache.read_ahead(runs);
    }

    pub(crate) fn cache_blocks(&self) -> usize {
        self.cache.capacity()
    }

    pub(crate) fn ahead_outcome(&self) -> AheadOutcome {
        self.cache.ahead_outcome()
    }

    /// Also reads ahead what `plan` returns: [`BufCache::get_ahead`].
    pub(crate) fn metadata_ahead<F: FnOnce() -> Runs>(
        &self,
        block: BlockNumber,
        place: Place,
        plan: impl FnOnce(First) -> Option<F>,
    ) -> Result<Buffer> {
        self.cache.get_ahead(block.0, plan).map_err(|source| place.at(block).io(source))
    }

    /// Suits blocks used often and changed rarely: [`BufCache::get_often`].
    pub(crate) fn metadata_often(&self, block: BlockNumber, place: Place) -> Result<Buffer> {
        self.cache.get_often(block.0).map_err(|source| place.at(block).io(source))
    }

    /// `block` was checked against the file system's size.
    pub(crate) fn metadata(&self, block: BlockNumber, place: Place) -> Result<Buffer> {
        self.cache.get(block.0).map_err(|source| place.at(block).io(source))
    }
}

/// Falls back to an intact backup, with a notice.
fn find_superblock(device: &dyn BlockDevice, notices: &mut Vec<Notice>) -> Result<(Superblock, u64)> {
    let problem = match read_superblock(device, SUPERBLOCK_OFFSET)? {
        Ok(sb) => return Ok((sb, SUPERBLOCK_OFFSET)),
        Err(problem) => problem,
    };
    for offset in backup_offsets() {
        if let Ok(sb) = read_superblock(device, offset)?
            && lies_at(&sb, offset)
        {
            notices.push(Notice::BackupSuperblock { offset, problem });
            return Ok((sb, offset));
        }
    }
    Err(match problem {
        Problem::Magic { .. } | Problem::Short { .. } => Error::NotExt4(problem),
        _ => Structure::Superblock.at(BlockNumber(0)).corrupt(problem),
    })
}

pub(crate) fn read_superblock(
    device: &dyn BlockDevice,
    offset: u64,
) -> Result<std::result::Result<Superblock, Problem>> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    let left = device.size().saturating_sub(offset);
    let have = usize::try_from(left).unwrap_or(SUPERBLOCK_SIZE);
    if have < SUPERBLOCK_SIZE {
        return Ok(Err(Problem::Short { what: "a superblock", need: SUPERBLOCK_SIZE, have }));
    }
    let place = Structure::Superblock.at(BlockNumber(0));
    device.read_at(offset, &mut bytes).map_err(|source| place.io(source))?;
    Ok(Superblock::parse(&bytes))
}

/// Offsets for each block size with the largest groups; for bigalloc with 16 blocks per cluster.
pub(crate) fn backup_offsets() -> impl Iterator<Item = u64> {
    [0_u32, 4].into_iter().flat_map(|log_ratio| {
        (10_u32..=16).flat_map(move |log_block| {
            let group_bytes = 1_u64 << (log_block + 3 + log_ratio + log_block);
            let first = if log_block == 10 && log_ratio == 0 { 1024 } else { 0 };
            [1, 3].map(|group| first + group * group_bytes)
        })
    })
}

pub(crate) fn lies_at(sb: &Superblock, offset: u64) -> bool {
    let group = dentree_ext4_format::GroupNumber(u32::from(sb.block_group_nr));
    sb.group_start(group).0 << sb.block_size.log2() == offset
}

fn check_features(sb: &Superblock) -> Result<()> {
    if sb.incompat.has(Incompat::JOURNAL_DEV) {
        return Err(Error::Unsupported(
            "this is an external journal; open the file system that uses it".to_owned(),
        ));
    }
    if sb.incompat.has(Incompat::CASEFOLD) && sb.encoding != UTF8_12_1 {
        let encoding = sb.encoding;
        return Err(Error::Unsupported(format!(
            "names in encoding {encoding} (only 1, UTF-8 12.1, is known)"
        )));
    }
    let unknown = sb.incompat.without(Incompat::READABLE).names();
    if unknown.is_empty() {
        return Ok(());
    }
    Err(Error::Unsupported(format!("the file system uses {}, which dentree cannot read", unknown.join(", "))))
}
