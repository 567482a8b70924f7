//! What must hold of an image's refcount table before the image is written.
//!
//! An allocation looks for the block of refcounts of each part of the file in turn. Where one is
//! missing, `imago` 0.2 allocates it, which looks for it again, and does not end. Images of qemu
//! have a block for every part of the file, so a missing one is damage.

use std::io;

use dentree_blockdev::BlockDevice;

/// Checks that each part of the file has a block of refcounts.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] where one is missing; those of the device.
pub(crate) fn check(file: &dyn BlockDevice) -> io::Result<()> {
    // The fields of the header, all big-endian: docs/interop/qcow2 of qemu.
    let version = u32::from_be_bytes(read(file, 4)?);
    let cluster_bits = u32::from_be_bytes(read(file, 20)?);
    let table = u64::from_be_bytes(read(file, 48)?);
    let order = if version < 3 { 4 } else { u32::from_be_bytes(read(file, 96)?) };
    if !(9..=21).contains(&cluster_bits) || order > 6 {
        // No header that opens.
        return Ok(());
    }
    let entries_bits = cluster_bits + 3 - order;
    let parts = (file.size() - 1) >> (cluster_bits + entries_bits);
    for part in 0..=parts {
        let at = part.checked_mul(8).and_then(|at| at.checked_add(table));
        let entry: [u8; 8] = read(file, at.ok_or_else(damaged)?)?;
        if u64::from_be_bytes(entry) == 0 {
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
