//! Reading: opening, recovery, lookups, listings and their cost.

#[path = "../common/mod.rs"]
mod common;

mod attributes;
mod checksums;
mod kernel_written;
mod opening;
mod reading_ahead;
mod recovery;
mod trees;
mod unmountable;
