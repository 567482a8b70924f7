//! Questions about blocks: `dentree blocks`, `which`, `free` and `frag`.

pub(crate) mod extents;
pub(crate) mod frag;
pub(crate) mod free;
pub(crate) mod names;
pub(crate) mod which;
