//! No cache: reads a path and splits it, which is the cost of the load itself.

use super::NameCache;
use crate::paths::{Path, Rename};

/// Splits paths and finds nothing.
#[derive(Clone, Copy, Debug)]
pub struct SplitOnly;

impl NameCache for SplitOnly {
    fn walk(&self, path: Path<'_>) -> Option<u64> {
        path.components().for_each(|name| {
            std::hint::black_box(name);
        });
        None
    }

    fn rename(&self, _rename: &Rename) {}
}
