//! Read-only block devices over slow origins.
//!
//! An [`Origin`] serves byte ranges, each at the cost of its latency. [`Blocks`] reads 64 KiB
//! blocks, several per request where the latency justifies it, each once for all threads. A
//! [`Store`] keeps them for later runs.
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
