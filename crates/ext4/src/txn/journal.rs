//! Finding and replaying the journal.

use crate::inode::Snapshot;
use crate::map::Mapping;
use crate::open::read_superblock;
use crate::{Error, Ext4, Notice, Options, Result, Structure};
use dentree_ext4_format::{BlockNumber, Compat, ExtentNode, Inode, InodeFlags, InodeTime, Problem};
use dentree_jbd2::JournalLocation;
use dentree_vfs::FileType;
use std::ops::ControlFlow;

impl Ext4 {
    /// Replays onto the device if it is writable, else in memory. Then reads the superblock again,
    /// whose journaled copy is newer.
    pub(crate) fn with_journal_replayed(
        self,
        offset: u64,
        options: &Options,
        notices: &mut Vec<Notice>,
    ) -> Result<Ext4> {
        if options.writable {
            self.check_writable()?;
        }
        let Some(location) = self.journal_location()? else { return Ok(self) };
        if options.writable {
            return self.replay_to_device(offset, &location, options, notices);
        }
        let recovered = dentree_jbd2::recover(self.device.clone(), &location)?;
        let (transactions, blocks) = (recovered.transactions, recovered.blocks);
        if transactions == 0 {
            return Ok(self);
        }
        notices.push(Notice::JournalReplayed { transactions, blocks });
        let sb = read_superblock(&*recovered.device, offset)?
            .map_err(|problem| Structure::Superblock.at(self.superblock_at).corrupt(problem))?;
        Ext4::over(recovered.device, sb, offset, options)
    }

    fn replay_to_device(
        self,
        offset: u64,
        location: &JournalLocation,
        options: &Options,
        notices: &mut Vec<Notice>,
    ) -> Result<Ext4> {
        let device = self.device.clone();
        let replayed = dentree_jbd2::replay(&device, location)?;
        let (transactions, blocks) = (replayed.transactions, replayed.blocks);
        if transactions > 0 {
            notices.push(Notice::JournalWrittenBack { transactions, blocks });
        }
        let sb = read_superblock(&*device, offset)?
            .map_err(|problem| Structure::Superblock.at(self.superblock_at).corrupt(problem))?;
        Ext4::over(device, sb, offset, options)
    }

    pub(crate) fn journal_location(&self) -> Result<Option<JournalLocation>> {
        let sb = &self.sb;
        if !sb.compat.has(Compat::HAS_JOURNAL) {
            return Ok(None);
        }
        if sb.journal_inum.0 == 0 {
            return Err(Error::Unsupported(format!(
                "the journal needs recovery and is on another device (UUID {}); run e2fsck on copies of both",
                uuid_text(&sb.journal_uuid)
            )));
        }
        self.location_of(&self.read_inode(sb.journal_inum)?).map(Some)
    }

    /// The location of the journal by the backup of its inode's block map in the superblock.
    pub(crate) fn journal_from_backup(&self) -> Option<Option<JournalLocation>> {
        const MODE: u16 = 0o100_600;
        let sb = &self.sb;
        let [map @ .., high, low] = sb.journal_backup?;
        let mut inode = Inode::new(sb.journal_inum, MODE, 0, InodeTime::default(), sb);
        inode.size = u64::from(high) << 32 | u64::from(low);
        for (to, word) in inode.block.chunks_exact_mut(4).zip(map) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        if ExtentNode::parse_root(&inode.block).is_ok() {
            inode.flags = InodeFlags::EXTENTS;
        }
        let (ino, kind, tail) = (sb.journal_inum, FileType::Regular, Box::default());
        let journal = Snapshot { ino, kind, inode, tail, has_acl: false, disk_size: None, reserved: 0 };
        self.location_of(&journal).ok().map(Some)
    }

    fn location_of(&self, journal: &Snapshot) -> Result<JournalLocation> {
        let sb = &self.sb;
        let corrupt = |problem| journal.place(Structure::Journal).corrupt(problem);
        let blocks = sb.block_size.blocks_for(journal.inode.size);
        // Blocks are distinct: this bounds the work for one mapped a million times.
        let on_device = self.device.size() >> sb.block_size.log2();
        let max = sb.blocks_count.min(on_device).min(u64::from(u32::MAX));
        Problem::check_range("the journal's blocks", blocks, 1, max).map_err(corrupt)?;
        if !journal.inode.is_file() || journal.has(InodeFlags::INLINE_DATA) {
            return Err(corrupt(Problem::Missing { what: "a regular file" }));
        }
        let mut runs: Vec<(u64, u64)> = Vec::new();
        self.map_range(journal, 0..blocks, &mut |_, run| {
            let Mapping::Data(BlockNumber(start)) = run.mapping else {
                return Err(corrupt(Problem::Missing { what: "a block" }));
            };
            runs.push((start, run.len));
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(JournalLocation { block_size: sb.block_size.in_memory(), runs })
    }
}

fn uuid_text(uuid: &[u8; 16]) -> String {
    let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    let part = |from, to| hex.get(from..to).unwrap_or_default();
    [part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32)].join("-")
}
