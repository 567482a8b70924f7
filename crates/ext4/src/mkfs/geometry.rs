//! The superblock for a device and options, without free counts.

use super::{MkfsError, MkfsOptions};
use dentree_ext4_format::{BlockSize, Compat, GroupNumber, Incompat, Superblock};

/// Fewest inodes per group, as the first has the reserved ones, `lost+found` and the orphan file.
const LEAST_INODES: u64 = 16;
/// Fewest blocks besides metadata in a last group, as in mke2fs.
pub(crate) const LEAST_DATA: u64 = 50;
/// `user_xattr` and `acl`, as in Debian's `mke2fs.conf`.
const DEFAULT_MOUNT_OPTS: u32 = 0xC;
/// Fields after the first 128 bytes of an inode.
const EXTRA_ISIZE: u16 = 32;
const PAGE: u64 = 4096;
/// The resize inode and the journal's backup have 32-bit block numbers.
const MOST_BLOCKS: u64 = u32::MAX as u64;

/// mke2fs's defaults: log2 of the block size, bytes per inode.
fn by_size(bytes: u64) -> (u32, u64) {
    const MIB: u64 = 1 << 20;
    const TIB: u64 = 1 << 40;
    match bytes {
        _ if bytes < 3 * MIB => (10, 8192),
        _ if bytes < 512 * MIB => (10, 4096),
        _ if bytes < 4 * TIB => (12, 16384),
        _ if bytes < 16 * TIB => (12, 32768),
        _ => (12, 65536),
    }
}

/// Computed as by mke2fs; 0 if there is no space for a journal.
pub(super) fn journal_blocks(blocks: u64) -> u32 {
    const KI: u64 = 1024;
    match blocks {
        0..2048 => 0,
        _ if blocks < 32 * KI => 1024,
        _ if blocks < 256 * KI => 4096,
        _ if blocks < 512 * KI => 8192,
        _ if blocks < 4096 * KI => 16384,
        _ if blocks < 8192 * KI => 32768,
        _ if blocks < 16384 * KI => 65536,
        _ if blocks < 32768 * KI => 131_072,
        _ => 262_144,
    }
}

pub(super) fn orphan_file_blocks(blocks: u64) -> u64 {
    (blocks / 4096).clamp(32, 512)
}

/// e2fsck need not allocate them in a damaged file system.
pub(super) fn lost_and_found_blocks(block_size: BlockSize) -> u64 {
    (16384 >> block_size.log2()).min(12)
}

/// Free counts are still 0.
pub(super) fn superblock(bytes: u64, options: &MkfsOptions) -> Result<Superblock, MkfsError> {
    let (log_block_size, bytes_per_inode) = by_size(bytes);
    let by_size = BlockSize::from_log_block_size(log_block_size - 10);
    let block_size = options.block_size.or(by_size).ok_or(MkfsError::TooSmall { bytes })?;
    if !(10..=12).contains(&block_size.log2()) {
        return Err(MkfsError::BlockSize { bytes: block_size.bytes() });
    }
    check(options, block_size)?;
    let blocks = (bytes & !(PAGE - 1)) >> block_size.log2();
    if blocks > MOST_BLOCKS {
        return Err(MkfsError::TooLarge { bytes, most: MOST_BLOCKS << block_size.log2() });
    }
    let mut sb = Superblock::new(block_size, options.uuid);
    identify(&mut sb, options);
    set_features(&mut sb, blocks, options);
    let bytes_per_inode = match options.bytes_per_inode {
        Some(given) => u64::from(given),
        None => bytes_per_inode.max(u64::from(block_size.bytes())),
    };
    let inodes = options.inodes.map_or(bytes / bytes_per_inode, u64::from);
    set_groups(&mut sb, blocks, inodes).ok_or(MkfsError::TooSmall { bytes })?;
    let most = most_inodes(&sb);
    if inodes > most {
        return Err(MkfsError::TooManyInodes { inodes, most });
    }
    sb.reserved_blocks_count = sb.blocks_count * u64::from(options.reserved) / 100_000;
    Ok(sb)
}

fn check(options: &MkfsOptions, block_size: BlockSize) -> Result<(), MkfsError> {
    if options.label.len() > 16 {
        return Err(MkfsError::LabelTooLong { len: options.label.len() });
    }
    // Inline content is after the first 128 bytes of an inode.
    let least = if options.features.incompat.has(Incompat::INLINE_DATA) { 256 } else { 128 };
    let (bytes, most) = (options.inode_size, block_size.bytes());
    if !bytes.is_power_of_two() || !(least..=most).contains(&bytes) {
        return Err(MkfsError::InodeSize { bytes, least, most });
    }
    if let Some(bytes) = options.bytes_per_inode.filter(|bytes| !(1 << 10..=1 << 26).contains(bytes)) {
        return Err(MkfsError::BytesPerInode { bytes });
    }
    if options.reserved > 50_000 { Err(MkfsError::TooManyReserved) } else { Ok(()) }
}

fn identify(sb: &mut Superblock, options: &MkfsOptions) {
    sb.volume_name.clone_from(&options.label);
    sb.hash_seed = options.hash_seed;
    sb.default_mount_opts = DEFAULT_MOUNT_OPTS;
    (sb.mkfs_time, sb.write_time, sb.lastcheck) = (options.now, options.now, options.now);
    for time in [&mut sb.mkfs_time, &mut sb.write_time, &mut sb.lastcheck] {
        time.nanos = 0;
    }
}

fn set_features(sb: &mut Superblock, blocks: u64, options: &MkfsOptions) {
    let features = match journal_blocks(blocks) {
        0 => options.features.without_journal(),
        _ => options.features,
    };
    (sb.compat, sb.incompat, sb.ro_compat) = (features.compat, features.incompat, features.ro_compat);
    sb.desc_size = if sb.is_64bit() { 64 } else { 32 };
    sb.groups_per_flex = if sb.incompat.has(Incompat::FLEX_BG) { 16 } else { 1 };
    sb.inode_size = options.inode_size;
    if sb.has_extra_times() {
        (sb.min_extra_isize, sb.want_extra_isize) = (EXTRA_ISIZE, EXTRA_ISIZE);
    }
}

/// Drops a last group with little more than its metadata. `None` if no group remains.
fn set_groups(sb: &mut Superblock, blocks: u64, inodes: u64) -> Option<()> {
    let first = u64::from(sb.first_data_block);
    let per_group = u64::from(sb.blocks_per_group);
    sb.blocks_count = blocks;
    loop {
        let data = sb.blocks_count.checked_sub(first)?;
        sb.groups = u32::try_from(data.div_ceil(per_group)).ok().filter(|groups| *groups > 0)?;
        set_inodes(sb, inodes)?;
        sb.reserved_gdt_blocks = reserved_gdt_blocks(sb)?;
        let last = GroupNumber(sb.groups - 1);
        let own = base_blocks(sb, last) + 2 + sb.inode_table_blocks();
        let rest = u64::from(sb.blocks_in_group(last));
        if rest == per_group || rest >= own + LEAST_DATA {
            return Some(());
        }
        sb.blocks_count = sb.group_start(last).0;
    }
}

/// Rounded: inode tables fill blocks, inode bitmaps bytes.
fn set_inodes(sb: &mut Superblock, inodes: u64) -> Option<()> {
    let groups = u64::from(sb.groups);
    let most = most_inodes(sb) / groups;
    let per_block = u64::from(sb.block_size.bytes() / sb.inode_size);
    let wanted = inodes.div_ceil(groups).max(LEAST_INODES).next_multiple_of(per_block).min(most);
    sb.inodes_per_group = u32::try_from(wanted & !7).ok()?;
    sb.inodes_count = sb.inodes_per_group.checked_mul(sb.groups)?;
    Some(())
}

/// A group's bitmap is one block.
fn most_inodes(sb: &Superblock) -> u64 {
    let groups = u64::from(sb.groups);
    (u64::from(sb.block_size.bytes()) * 8).min(u64::from(u32::MAX) / groups) * groups
}

/// Suffices for a file system 1024 times as large, within the reach of one indirect block.
fn reserved_gdt_blocks(sb: &Superblock) -> Option<u16> {
    if !sb.compat.has(Compat::RESIZE_INODE) {
        return Some(0);
    }
    let blocks = sb.blocks_count.saturating_mul(1024).min(MOST_BLOCKS);
    let groups = (blocks - u64::from(sb.first_data_block)).div_ceil(u64::from(sb.blocks_per_group));
    let all = groups.div_ceil(u64::from(sb.descs_per_block()));
    let reserved = all.saturating_sub(u64::from(sb.desc_blocks())).min(u64::from(sb.block_size.bytes() / 4));
    u16::try_from(reserved).ok()
}

/// Superblock, descriptors, reserved descriptor blocks.
pub(super) fn base_blocks(sb: &Superblock, group: GroupNumber) -> u64 {
    if sb.group_has_superblock(group) {
        1 + u64::from(sb.desc_blocks()) + u64::from(sb.reserved_gdt_blocks)
    } else {
        0
    }
}
