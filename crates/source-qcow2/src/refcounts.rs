//! Checks the refcount table before writing.
//!
//! Allocation searches the refcount blocks in order. `imago` 0.2 allocates a missing one, but gives
//! the first one the offset 0, which means none: the search never ends. qemu creates all of them,
//! so a missing one is damage.

use std::collections::HashSet;
use std::io;

use dentree_blockdev::BlockDevice;

/// Checks that each part of the file has its own refcount block within the file.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] if not; those of the device.
pub(crate) fn check(file: &dyn BlockDevice) -> io::Result<()> {
    // Header fields in big-endian: docs/interop/qcow2 of qemu.
    let version = u32::from_be_bytes(read(file, 4)?);
    let cluster_bits = u32::from_be_bytes(read(file, 20)?);
    let table = u64::from_be_bytes(read(file, 48)?);
    let table_clusters = u32::from_be_bytes(read(file, 56)?);
    let order = if version < 3 { 4 } else { u32::from_be_bytes(read(file, 96)?) };
    if !(9..=21).contains(&cluster_bits) || order > 6 {
        // Fails to open anyway.
        return Ok(());
    }
    let cluster = 1 << cluster_bits;
    let entries_bits = cluster_bits + 3 - order;
    let parts = ((file.size() - 1) >> (cluster_bits + entries_bits)) + 1;
    if parts > u64::from(table_clusters) * (cluster / 8) {
        return Err(damaged());
    }
    let mut blocks = HashSet::new();
    for part in 0..parts {
        let entry: [u8; 8] = read(file, table.checked_add(part * 8).ok_or_else(damaged)?)?;
        let block = u64::from_be_bytes(entry);
        let is_place = block.is_multiple_of(cluster) && (cluster..file.size()).contains(&block);
        if !is_place || !blocks.insert(block) {
            return Err(damaged());
        }
    }
    Ok(())
}

fn damaged() -> io::Error {
    let why = "a part of the file has no refcounts: `qemu-img check -r all FILE` repairs it";
    io::Error::new(io::ErrorKind::InvalidData, why)
}

fn read<const N: usize>(file: &dyn BlockDevice, at: u64) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    file.read_at(at, &mut bytes)?;
    Ok(bytes)
}
