//! Changes of a leaf's extents, as a list for [`write_extent_leaf`](crate::write_extent_leaf).
//!
//! Allocation, conversion of unwritten extents and hole punching are all a [`remap`].

use crate::extent::{MAX_UNWRITTEN_LEN, MAX_WRITTEN_LEN};
use crate::{BlockNumber, Extent, LogicalBlock};
use std::ops::Range;

impl Extent {
    /// First file block after the extent, up to 2^32.
    pub fn end(&self) -> u64 {
        u64::from(self.logical.0) + u64::from(self.len)
    }

    /// The part within `range`.
    pub fn part(&self, range: Range<u64>) -> Option<Extent> {
        let first = range.start.max(u64::from(self.logical.0));
        let end = range.end.min(self.end());
        let logical = u32::try_from(first).ok()?;
        let len = u32::try_from(end.checked_sub(first)?).ok().filter(|&len| len > 0)?;
        let start = BlockNumber(self.start.0 + u64::from(logical - self.logical.0));
        Some(Extent { logical: LogicalBlock(logical), len, start, unwritten: self.unwritten })
    }

    fn max_len(&self) -> u32 {
        if self.unwritten { MAX_UNWRITTEN_LEN } else { MAX_WRITTEN_LEN }
    }

    /// Merges with `next` if contiguous.
    fn absorb(&mut self, next: &Extent) -> bool {
        let fits = self.unwritten == next.unwritten
            && self.end() == u64::from(next.logical.0)
            && self.start.0 + u64::from(self.len) == next.start.0
            && self.len + next.len <= self.max_len();
        if fits {
            self.len += next.len;
        }
        fits
    }
}

/// Maps `range` to `with`, or unmaps it. Returns the old mappings. `extents` ascend without
/// overlap; adjacent ones are merged.
pub fn remap(extents: &mut Vec<Extent>, range: Range<u64>, with: Option<Extent>) -> Vec<Extent> {
    let first = extents.partition_point(|extent| extent.end() <= range.start);
    let last = extents.partition_point(|extent| u64::from(extent.logical.0) < range.end).max(first);
    let touched = extents.get(first..last).unwrap_or_default();
    let removed = touched.iter().filter_map(|extent| extent.part(range.clone())).collect();
    let before = touched.first().and_then(|extent| extent.part(0..range.start));
    let after = touched.last().and_then(|extent| extent.part(range.end..u64::MAX));
    // With neighbours, for merging.
    let (from, to) = (first.saturating_sub(1), (last + 1).min(extents.len()));
    let left = extents.get(from..first).unwrap_or_default().iter().copied();
    let right = extents.get(last..to).unwrap_or_default().iter().copied();
    let mut merged: Vec<Extent> = Vec::with_capacity(5);
    for next in left.chain(before).chain(with).chain(after).chain(right) {
        if !merged.last_mut().is_some_and(|previous| previous.absorb(&next)) {
            merged.push(next);
        }
    }
    extents.splice(from..to, merged);
    removed
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Mapping by block.
    type Model = Vec<Option<(u64, bool)>>;

    fn model_of(extents: &[Extent]) -> Model {
        let mut model = vec![None; 64];
        for extent in extents {
            for at in 0..extent.len {
                let place = &mut model[(extent.logical.0 + at) as usize];
                assert_eq!(*place, None, "two extents map block {at}");
                *place = Some((extent.start.0 + u64::from(at), extent.unwritten));
            }
        }
        model
    }

    /// First block, count, mapping.
    type Change = (u32, u32, Option<(u64, bool)>);

    fn changes() -> impl Strategy<Value = Vec<Change>> {
        let with = proptest::option::of((prop_oneof![Just(0_u64), Just(1000), 0..100_u64], any::<bool>()));
        proptest::collection::vec((0..60_u32, 1..5_u32, with), 1..40)
    }

    proptest! {
        #[test]
        fn every_block_is_mapped_as_the_last_change_said(changes in changes()) {
            let (mut extents, mut model) = (Vec::new(), model_of(&[]));
            for (first, len, with) in changes {
                let range = u64::from(first)..u64::from(first + len);
                // A multiple of the block's number, so that some extents are contiguous.
                let with = with.map(|(start, unwritten)| Extent {
                    logical: LogicalBlock(first),
                    len,
                    start: BlockNumber(start + u64::from(first)),
                    unwritten,
                });
                let removed = remap(&mut extents, range, with);
                let mut before = model_of(&[]);
                for at in first..first + len {
                    before[at as usize] = model[at as usize].take();
                    model[at as usize] = with.map(|with| (with.start.0 + u64::from(at - first), with.unwritten));
                }
                prop_assert_eq!(model_of(&removed), before);
                prop_assert_eq!(model_of(&extents), model.clone());
                for pair in extents.windows(2) {
                    let mut left = pair[0];
                    prop_assert!(pair[0].end() <= u64::from(pair[1].logical.0));
                    prop_assert!(!left.absorb(&pair[1]), "neighbours were left apart: {:?}", pair);
                }
            }
        }
    }

    #[test]
    fn extents_do_not_exceed_their_length_field() {
        for (unwritten, max) in [(false, 32768), (true, 32767)] {
            let extent = |logical, len| Extent {
                logical: LogicalBlock(logical),
                len,
                start: BlockNumber(1000 + u64::from(logical)),
                unwritten,
            };
            let mut extents = vec![extent(0, max - 1)];
            remap(&mut extents, u64::from(max - 1)..u64::from(max), Some(extent(max - 1, 1)));
            assert_eq!(extents, [extent(0, max)]);
            remap(&mut extents, u64::from(max)..u64::from(max + 1), Some(extent(max, 1)));
            assert_eq!(extents, [extent(0, max), extent(max, 1)]);
        }
    }
}
