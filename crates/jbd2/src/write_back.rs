use std::io::{self, IoSlice};
use std::ops::Deref;

use dentree_blockdev::BlockDevice;
use dentree_bufcache::PinId;

use crate::error::Cause;
use crate::tid::Tid;

/// Most blocks in a request: `IOV_MAX`.
pub(crate) const MOST_BLOCKS: usize = 1024;

/// Pins a transaction's blocks until written in place.
pub(crate) fn pin(tid: Tid) -> PinId {
    PinId(tid.0)
}

/// Blocks that are adjacent, in order, go in one request.
pub(crate) fn write<B: Deref<Target = [u8]>>(
    device: &dyn BlockDevice,
    block_size: usize,
    blocks: &[(u64, B)],
) -> io::Result<()> {
    let mut rest = blocks;
    while let Some((first, _)) = rest.first() {
        let are_neighbours = |at: &usize| rest[at - 1].0.checked_add(1) == Some(rest[*at].0);
        let len = 1 + (1..rest.len().min(MOST_BLOCKS)).take_while(are_neighbours).count();
        let (run, behind) = rest.split_at(len);
        let bufs: Vec<_> = run.iter().map(|(_, buffer)| IoSlice::new(buffer)).collect();
        // On the device: it was read or checked.
        device.write_vectored_at(first.saturating_mul(block_size as u64), &bufs)?;
        rest = behind;
    }
    Ok(())
}

pub(crate) fn flush(device: &dyn BlockDevice) -> Result<(), Cause> {
    device.flush().map_err(Cause::during("flushing the device"))
}
