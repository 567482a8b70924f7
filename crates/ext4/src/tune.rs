//! Changes of a file system's parameters, in the superblock and its backups alone.

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
}

/// Changes the file system on `device`, which has no other user: the backups of the superblock, a
/// flush, then the superblock.
///
/// # Errors
/// Before anything is written: a damaged superblock or backup, a journal that needs recovery, a
/// label that is too long, a UUID that checksums cover. Then errors of the device.
///
/// ```
/// use dentree_blockdev::{BlockDevice, MemoryDevice};
/// use dentree_ext4::mkfs::{MkfsOptions, mkfs};
/// use dentree_ext4::{Ext4, InodeTime, Options, Tune, tune};
/// use std::sync::Arc;
///
/// let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(8 << 20));
/// mkfs(&*device, &MkfsOptions::new([7; 16], [1, 2, 3, 4], InodeTime::default()))?;
/// tune(&device, &Tune::Label(b"new".to_vec()), InodeTime::default())?;
/// assert_eq!(Ext4::open(device, Options::default())?.superblock().volume_name, b"new");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn tune(device: &Arc<dyn BlockDevice>, change: &Tune, now: InodeTime) -> Result<()> {
    let sb = read_superblock(&**device, SUPERBLOCK_OFFSET)?
        .map_err(|problem| Structure::Superblock.at(BlockNumber(0)).corrupt(problem))?;
    let fs = Ext4::over(device.clone(), sb, SUPERBLOCK_OFFSET, &Options::default())?;
    fs.check_writable()?;
    let sb = fs.superblock();
    if sb.incompat.has(Incompat::RECOVER) {
        let what = "the journal must be replayed first, as any command that changes a file does";
        return Err(Error::Unsupported(what.to_owned()));
    }
    check(sb, change)?;
    let mut copies = Vec::new();
    for group in (0..sb.groups).map(GroupNumber).filter(|&group| sb.group_has_superblock(group)) {
        copies.push(changed(&**device, sb, group, change, now)?);
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

/// Refuses what this file system cannot have.
fn check(sb: &Superblock, change: &Tune) -> Result<()> {
    let refuse = |what: String| Err(Error::Unsupported(what));
    match change {
        Tune::Label(label) if label.len() > 16 => {
            refuse(format!("the label has {} bytes, at most 16 are allowed", label.len()))
        }
        Tune::Uuid(_) if sb.has_group_checksums() && !sb.incompat.has(Incompat::CSUM_SEED) => {
            let what = "the UUID is part of all checksums, as the file system lacks metadata_csum_seed; \
                        `tune2fs -U` writes them anew";
            refuse(what.to_owned())
        }
        _ => Ok(()),
    }
}

/// Position and new bytes of a group's copy of the superblock. A backup keeps what it does not
/// share with the superblock.
fn changed(
    device: &dyn BlockDevice,
    sb: &Superblock,
    group: GroupNumber,
    change: &Tune,
    now: InodeTime,
) -> Result<(u64, [u8; SUPERBLOCK_SIZE])> {
    let block = sb.group_start(group);
    let offset = if group.0 == 0 { SUPERBLOCK_OFFSET } else { block.0 << sb.block_size.log2() };
    let place = Structure::Superblock.at(block);
    let mut copy = read_superblock(device, offset)?.map_err(|problem| place.corrupt(problem))?;
    let mut bytes = [0; SUPERBLOCK_SIZE];
    device.read_at(offset, &mut bytes).map_err(|source| place.io(source))?;
    match change {
        Tune::Label(label) => copy.volume_name.clone_from(label),
        Tune::Uuid(uuid) => copy.uuid = *uuid,
    }
    copy.write_time = InodeTime { nanos: 0, ..now };
    copy.encode(&mut bytes);
    Ok((offset, bytes))
}
