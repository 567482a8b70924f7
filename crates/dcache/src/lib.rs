//! A directory entry cache that is looked up without locks.

mod builder;
mod dcache;
mod dentry_ref;
mod raw;
mod stats;
mod sync;
mod types;

pub use builder::Builder;
pub use dcache::{Completion, Dcache};
pub use dentry_ref::DentryRef;
pub use stats::{MemoryStats, Stats};
pub use types::{
    Child, DentryId, Fill, Handle, Kind, ListCursor, Listed, PrefetchMode, Reason, Stopped, Walk, WalkOptions,
};
