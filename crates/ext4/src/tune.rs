//! Changes of parameters in the superblock and its backups.

use crate::open::read_superblock;
use crate::{Error, Ext4, Options, Result, Structure};
use dentree_blockdev::BlockDevice;
use dentree_ext4_format::{
    BlockNumber, GroupNumber, Incompat, InodeTime, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock,
};
use std::sync::Arc;

/// A change of a parameter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Tune {
    /// The label, at most 16 bytes.
    Label(Vec<u8>),
    /// The UUID.
    Uuid([u8; 16]),
    /// Blocks reserved for root, in thousandths of a percent; at most 50 percent.
    ReservedPercent(u32),
    /// Blocks reserved for root; at most half of all.
    ReservedBlocks(u64),
    /// The user that may take reserved blocks.
    ReservedUid(u16),
    /// The group that may take reserved blocks.
    ReservedGid(u16),
    /// Mounts between checks; -1 for never.
    MaxMountCount(i16),
    /// Mounts since the last check.
    MountCount(u16),
    /// Seconds between checks; 0 for never.
    CheckInterval(u32),
    /// Behaviour on errors, as in [`Superblock::errors`].
    Errors(u16),
    /// The last mount point, at most 63 bytes.
    LastMounted(Vec<u8>),
    /// Default mount options in words, at most 63 bytes.
    MountOptions(Vec<u8>),
    /// Bits of [`Superblock::default_mount_opts`].
    DefaultMountOptions {
        /// To clear.
        clear: u32,
        /// To set.
        set: u32,
    },
    /// Blocks on one disk of a RAID before the next.
    RaidStride(u16),
    /// Blocks of a whole RAID stripe.
    RaidStripeWidth(u32),
    /// Hash of new directories, as in [`Superblock::default_hash_version`]: 0 to 2.
    HashVersion(u8),
}

/// Changes the file system on `device`, which has no other user: the backups, a flush, then the
/// superblock.
///
/// # Errors
/// Before any write: a damaged superblock or backup, a journal that needs recovery, a value that is
/// too large, a UUID that checksums cover. Then errors of the device.
///
/// ```
/// use dentree_blockdev::{BlockDevice, MemoryDevice};
/// use dentree_ext4::mkfs::{MkfsOptions, mkfs};
/// use dentree_ext4::{Ext4, InodeTime, Options, Tune, tune};
/// use std::sync::Arc;
///
/// let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(8 << 20));
/// mkfs(&*device, &MkfsOptions::new([7; 16], [1, 2, 3, 4], InodeTime::default()))?;
/// tune(&device, &[Tune::Label(b"new".to_vec())], InodeTime::default())?;
/// assert_eq!(Ext4::open(device, Options::default())?.superblock().volume_name, b"new");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn tune(device: &Arc<dyn BlockDevice>, changes: &[Tune], now: InodeTime) -> Result<()> {
    let sb = read_superblock(&**device, SUPERBLOCK_OFFSET)?
        .map_err(|problem| Structure::Superblock.at(BlockNumber(0)).corrupt(problem))?;
    let fs = Ext4::over(device.clone(), sb, SUPERBLOCK_OFFSET, &Options::default())?;
    fs.check_writable()?;
    let sb = fs.superblock();
    if sb.incompat.has(Incompat::RECOVER) {
        let what = "the journal must be replayed first, as any command that changes a file does";
        return Err(Error::Unsupported(what.to_owned()));
    }
    changes.iter().try_for_each(|change| check(sb, change))?;
    let mut copies = Vec::new();
    for group in (0..sb.groups).map(GroupNumber).filter(|&group| sb.group_has_superblock(group)) {
        copies.push(changed(&**device, sb, group, changes, now)?);
    }
    // The superblock itself is written last.
    for (offset, bytes) in copies.iter().rev() {
        let place = Structure::Superblock.at(BlockNumber(offset >> sb.block_size.log2()));
        if *offset == SUPERBLOCK_OFFSET {
            device.flush().map_err(|source| place.io_write(source))?;
        }
        device.write_at(*offset, bytes).map_err(|source| place.io_write(source))?;
    }
    let place = Structure::Superblock.at(BlockNumber(0));
    device.flush().map_err(|source| place.io_write(source))
}

fn check(sb: &Superblock, change: &Tune) -> Result<()> {
    let refuse = |what: String| Err(Error::Unsupported(what));
    let too_long = |name: &str, text: &[u8], most: usize| match text.len() {
        len if len > most => refuse(format!("the {name} has {len} bytes, at most {most} are allowed")),
        _ => Ok(()),
    };
    match change {
        Tune::Label(label) => too_long("label", label, 16),
        Tune::LastMounted(path) => too_long("mount point", path, 63),
        Tune::MountOptions(words) => too_long("mount options", words, 63),
        Tune::ReservedBlocks(blocks) if *blocks > sb.blocks_count / 2 => {
            refuse(format!("{blocks} reserved blocks are more than half of {}", sb.blocks_count))
        }
        Tune::ReservedPercent(share) if *share > 50_000 => {
            refuse("more than half of all blocks cannot be reserved".to_owned())
        }
        Tune::Errors(behaviour) if !(1..=3).contains(behaviour) => {
            refuse(format!("behaviour {behaviour} on errors is unknown: use 1 to 3"))
        }
        Tune::HashVersion(version) if *version > 2 => {
            refuse(format!("hash version {version} is unknown: use 0 to 2"))
        }
        Tune::Uuid(_) if sb.has_group_checksums() && !sb.incompat.has(Incompat::CSUM_SEED) => {
            let what = "the UUID is part of all checksums, as the file system lacks metadata_csum_seed; \
                        `tune2fs -U` writes them anew";
            refuse(what.to_owned())
        }
        _ => Ok(()),
    }
}

/// Offset and new bytes of a group's copy. A backup keeps the fields of its own.
fn changed(
    device: &dyn BlockDevice,
    sb: &Superblock,
    group: GroupNumber,
    changes: &[Tune],
    now: InodeTime,
) -> Result<(u64, [u8; SUPERBLOCK_SIZE])> {
    let block = sb.group_start(group);
    let offset = if group.0 == 0 { SUPERBLOCK_OFFSET } else { block.0 << sb.block_size.log2() };
    let place = Structure::Superblock.at(block);
    let mut copy = read_superblock(device, offset)?.map_err(|problem| place.corrupt(problem))?;
    let mut bytes = [0; SUPERBLOCK_SIZE];
    device.read_at(offset, &mut bytes).map_err(|source| place.io(source))?;
    changes.iter().for_each(|change| change.apply(&mut copy));
    copy.write_time = InodeTime { nanos: 0, ..now };
    copy.encode(&mut bytes);
    Ok((offset, bytes))
}

impl Tune {
    fn apply(&self, sb: &mut Superblock) {
        match self {
            Tune::Label(label) => sb.volume_name.clone_from(label),
            Tune::Uuid(uuid) => sb.uuid = *uuid,
            Tune::ReservedPercent(share) => {
                let blocks = u128::from(sb.blocks_count) * u128::from(*share) / 100_000;
                // At most half of all blocks.
                sb.reserved_blocks_count = u64::try_from(blocks).unwrap_or(0);
            }
            Tune::ReservedBlocks(blocks) => sb.reserved_blocks_count = *blocks,
            Tune::ReservedUid(uid) => sb.reserved_uid = *uid,
            Tune::ReservedGid(gid) => sb.reserved_gid = *gid,
            Tune::MaxMountCount(count) => sb.max_mount_count = *count,
            Tune::MountCount(count) => sb.mount_count = *count,
            Tune::CheckInterval(seconds) => sb.check_interval = *seconds,
            Tune::Errors(behaviour) => sb.errors = *behaviour,
            Tune::LastMounted(path) => sb.last_mounted.clone_from(path),
            Tune::MountOptions(words) => sb.mount_opts.clone_from(words),
            Tune::DefaultMountOptions { clear, set } => {
                sb.default_mount_opts = sb.default_mount_opts & !clear | set;
            }
            Tune::RaidStride(blocks) => sb.raid_stride = *blocks,
            Tune::RaidStripeWidth(blocks) => sb.raid_stripe_width = *blocks,
            Tune::HashVersion(version) => sb.default_hash_version = *version,
        }
    }
}
