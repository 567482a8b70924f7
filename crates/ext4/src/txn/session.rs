//! Marks in the superblock, set by opening for writing and cleared by closing, directly on the
//! device: before the first transaction and after the last checkpoint.

use crate::{Error, Ext4, Notice, Result, Structure};
use dentree_blockdev::BlockDevice;
use dentree_ext4_format::{
    BlockNumber, Compat, ErrorRecord, Incompat, RoCompat, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock,
};

/// `s_state`: unmounted cleanly.
pub(crate) const STATE_VALID: u16 = 1;
/// `s_state`: errors were found.
const STATE_ERROR: u16 = 2;

/// `s_last_error_errcode`: I/O error.
const CODE_IO: u8 = 2;

impl Ext4 {
    /// [`Error::Unsupported`] names what prevents writing.
    pub(crate) fn check_writable(&self) -> Result<()> {
        let sb = &self.sb;
        let refuse = |what: String| Err(Error::Unsupported(format!("{what}; open it for reading")));
        let mut names = sb.ro_compat.without(WRITABLE).names();
        names.extend(Incompat(sb.incompat.0 & (Incompat::MMP.0 | Incompat::ENCRYPT.0)).names());
        if !names.is_empty() {
            return refuse(format!("the file system uses {}, which dentree cannot write", names.join(", ")));
        }
        if sb.compat.has(Compat::HAS_JOURNAL) && sb.journal_inum.0 == 0 {
            return refuse("the journal is on another device".to_owned());
        }
        if self.superblock_offset() != SUPERBLOCK_OFFSET {
            return refuse("the primary superblock is damaged: e2fsck repairs it".to_owned());
        }
        if sb.state & STATE_ERROR != 0 {
            return refuse("the file system has recorded errors: e2fsck repairs them".to_owned());
        }
        let expected = sb.blocks_count << sb.block_size.log2();
        let found = self.device.size();
        if found < expected {
            return refuse(format!("the image is truncated: it has {found} bytes of {expected}"));
        }
        let (bytes, place) = (superblock_bytes(&*self.device)?, Structure::Superblock.at(self.superblock_at));
        sb.check_for_writing(&bytes).map_err(|problem| place.corrupt(problem))
    }

    /// Whether it is mounted, or was when it was last written.
    pub(crate) fn is_in_use(&self) -> bool {
        let was_replayed = |notice: &Notice| matches!(notice, Notice::JournalReplayed { .. });
        self.notices.iter().any(was_replayed)
            || self.sb.incompat.has(Incompat::RECOVER)
            || self.sb.state & STATE_VALID == 0
    }

    pub(crate) fn superblock_offset(&self) -> u64 {
        let at = self.superblock_at.0 << self.sb.block_size.log2();
        if at == 0 { SUPERBLOCK_OFFSET } else { at }
    }

    pub(crate) fn mark_in_use(&self, now: dentree_ext4_format::InodeTime) -> Result<()> {
        change_superblock(&*self.device, |sb| {
            if sb.compat.has(Compat::HAS_JOURNAL) {
                sb.incompat.0 |= Incompat::RECOVER.0;
            } else {
                sb.state &= !STATE_VALID;
            }
            if sb.compat.has(Compat::ORPHAN_FILE) {
                sb.ro_compat.0 |= RoCompat::ORPHAN_PRESENT.0;
            }
            sb.mount_count = sb.mount_count.saturating_add(1);
            (sb.mount_time, sb.write_time) = (now, now);
        })
    }

    /// Commits all changes so far, then nothing more until the result is dropped: meanwhile the
    /// device, with its journal replayed, holds one state. Changes go on until they need a commit.
    /// `None` if it was opened for reading.
    ///
    /// # Errors
    /// The journal has failed.
    pub fn freeze(&self) -> Result<Option<dentree_jbd2::Frozen<'_>>> {
        let Some(writer) = &self.writer else { return Ok(None) };
        Ok(Some(writer.journal.freeze()?))
    }

    /// Writes and commits everything and marks the file system as cleanly unmounted; later changes
    /// fail. Does nothing if it was opened for reading. Dropping does the same but ignores errors.
    ///
    /// # Errors
    /// What could not be written or committed. The superblock then records a journal failure, if
    /// possible.
    pub fn close(&self) -> Result<()> {
        let Some(writer) = &self.writer else { return Ok(()) };
        if writer.is_closed.swap(true, std::sync::atomic::Ordering::Relaxed) {
            return Ok(());
        }
        let stored = self.sync();
        debug_assert_eq!(writer.journal.overdrafts(), 0, "credits were estimated too low");
        let closed = writer.journal.close().map_err(Error::from);
        debug_assert_eq!(writer.journal.overdrafts(), 0, "an operation asked for too few credits");
        let now = writer.clock.now();
        let free_blocks = writer.space.free();
        let free_inodes = (0..self.sb.groups)
            .map(|group| writer.group(dentree_ext4_format::GroupNumber(group)).free_inodes)
            .fold(0, u32::wrapping_add);
        let has_orphans = !writer.orphans.all().is_empty();
        let failure = closed.as_ref().err().map(ToString::to_string);
        change_superblock(&*self.device, |sb| {
            sb.write_time = now;
            if let Some(failure) = failure {
                return record_error(sb, &failure, now);
            }
            sb.incompat.0 &= !Incompat::RECOVER.0;
            if !has_orphans {
                sb.ro_compat.0 &= !RoCompat::ORPHAN_PRESENT.0;
            }
            sb.state |= STATE_VALID;
            (sb.free_blocks_count, sb.free_inodes_count) = (free_blocks, free_inodes);
        })?;
        stored.and(closed)
    }
}

impl Drop for Ext4 {
    fn drop(&mut self) {
        // A panic may have left changes half done.
        if !std::thread::panicking() {
            // The superblock has a record.
            let _ = self.close();
        }
    }
}

/// Features that matter only for writing.
const WRITABLE: RoCompat = RoCompat(
    RoCompat::SPARSE_SUPER.0
        | RoCompat::LARGE_FILE.0
        | RoCompat::HUGE_FILE.0
        | RoCompat::GDT_CSUM.0
        | RoCompat::DIR_NLINK.0
        | RoCompat::EXTRA_ISIZE.0
        | RoCompat::METADATA_CSUM.0
        | RoCompat::VERITY.0
        | RoCompat::ORPHAN_PRESENT.0,
);

/// Records an error as the kernel does.
fn record_error(sb: &mut Superblock, what: &str, now: dentree_ext4_format::InodeTime) {
    let record =
        ErrorRecord { function: what.bytes().take(31).collect(), code: CODE_IO, ..ErrorRecord::default() };
    sb.state |= STATE_ERROR;
    if sb.error_count == 0 {
        (sb.first_error, sb.first_error_time) = (record.clone(), now);
    }
    (sb.last_error, sb.last_error_time) = (record, now);
    sb.error_count = sb.error_count.saturating_add(1);
}

fn superblock_bytes(device: &dyn BlockDevice) -> Result<[u8; SUPERBLOCK_SIZE]> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    let read = device.read_at(SUPERBLOCK_OFFSET, &mut bytes);
    read.map_err(|source| Structure::Superblock.at(BlockNumber(0)).io(source))?;
    Ok(bytes)
}

/// Changes the primary superblock on the device.
pub(crate) fn change_superblock(
    device: &dyn BlockDevice,
    change: impl FnOnce(&mut Superblock),
) -> Result<()> {
    let place = Structure::Superblock.at(BlockNumber(0));
    let mut bytes = superblock_bytes(device)?;
    let mut sb = Superblock::parse(&bytes).map_err(|problem| place.corrupt(problem))?;
    let before = bytes;
    change(&mut sb);
    sb.encode(&mut bytes);
    if let Err(source) = device.write_at(SUPERBLOCK_OFFSET, &bytes) {
        // The write may be partial: restore the old superblock.
        let _ = device.write_at(SUPERBLOCK_OFFSET, &before);
        return Err(place.io_write(source));
    }
    device.flush().map_err(|source| place.io_write(source))
}
