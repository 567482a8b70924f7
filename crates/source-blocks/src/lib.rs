//! Slow origins as block devices that are read only.
//!
//! An [`Origin`] answers requests for ranges of bytes, each of which costs its latency.
//! [`Blocks`] is the device over it: blocks of 64 KiB, several in a request where the latency makes
//! that worth it, each fetched once, however many threads read it. A [`Store`] keeps them for later
//! runs.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod blocks;
mod origin;
mod plan;
mod runtime;

pub use blocks::Blocks;
pub use origin::{Fetched, NoStore, Origin, Store};
pub use plan::{BLOCK, FIRST};
pub use runtime::runtime;
