//! Reads that go on behind what cannot be read.

use dentree_blockdev::BlockDevice;
use std::ops::Range;

/// What cannot be read is found out to this many bytes: a sector.
const LEAST: usize = 512;

/// Fills `buf` from byte `offset`. What cannot be read is zeros, and goes to `missing`, in bytes of
/// the device; so does what lies behind its end.
pub(super) fn read_past_damage(
    device: &dyn BlockDevice,
    offset: u64,
    buf: &mut [u8],
    missing: &mut dyn FnMut(Range<u64>),
) {
    let there = usize::try_from(device.size().saturating_sub(offset)).unwrap_or(usize::MAX);
    let (buf, behind) = buf.split_at_mut(there.min(buf.len()));
    halve(device, offset, buf, missing);
    if !behind.is_empty() {
        behind.fill(0);
        let end = offset + buf.len() as u64;
        missing(end..end + behind.len() as u64);
    }
}

/// Reads the halves where the whole cannot be read. They end at sectors.
fn halve(device: &dyn BlockDevice, offset: u64, buf: &mut [u8], missing: &mut dyn FnMut(Range<u64>)) {
    if buf.is_empty() || device.read_at(offset, buf).is_ok() {
        return;
    }
    if buf.len() <= LEAST {
        buf.fill(0);
        return missing(offset..offset + buf.len() as u64);
    }
    let middle = (buf.len() / 2).next_multiple_of(LEAST);
    let (first, second) = buf.split_at_mut(middle.min(buf.len()));
    halve(device, offset, first, missing);
    halve(device, offset + first.len() as u64, second, missing);
}

#[cfg(test)]
mod tests {
    use super::*;
    use dentree_blockdev::{MappedDevice, MemoryDevice, RescueMap};
    use std::sync::Arc;

    #[test]
    fn all_but_the_bad_sectors_is_read() {
        let bytes: Vec<u8> = (0..16_384_u32).map(|at| (at / 512 + 1).to_le_bytes()[0]).collect();
        let memory = Arc::new(MemoryDevice::from(bytes.clone()));
        let device = MappedDevice::new(memory, RescueMap::of(vec![1024..1536, 9216..10_240]));
        let (mut buf, mut missing) = (vec![9; 17_000], Vec::new());
        read_past_damage(&device, 0, &mut buf, &mut |range| missing.push(range));
        assert_eq!(missing, [1024..1536, 9216..9728, 9728..10_240, 16_384..17_000]);
        for (at, byte) in (0..).zip(&buf) {
            let is_missing = missing.iter().any(|range| range.contains(&at));
            let there = bytes.get(usize::try_from(at).unwrap()).copied().unwrap_or(0);
            assert_eq!(*byte, if is_missing { 0 } else { there }, "{at}");
        }
    }
}
