//! Block devices over NBD, the network block device protocol.
//!
//! A client of its own in safe code: fixed newstyle, structured replies, many requests in flight,
//! reconnection. [`NbdDevice`] is a [`BlockDevice`](dentree_blockdev::BlockDevice) for reading and
//! writing; a flush is `NBD_CMD_FLUSH`, a discard `NBD_CMD_TRIM`.
//!
//! An export that is only read may be read [in blocks](NbdDevice::in_blocks): fewer round trips.
//! [`open_foreign`] starts the program that reads a file of another format, and is its client.
//!
//! Begin reading at `device.rs`, then `connection.rs` and `keeper.rs`; what a lost connection means
//! for writes stands in `connection.rs` (N1 to N5) and `write_log.rs`.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod address;
mod connection;
mod device;
#[cfg(unix)]
mod engine;
mod error;
mod greeting;
mod keeper;
#[cfg(not(unix))]
mod no_unix;
mod origin;
mod patience;
mod request;
mod stream;
#[cfg(unix)]
mod unix;
mod wire;
mod write_log;

#[cfg(not(unix))]
use no_unix as unix;

pub use address::Address;
pub use device::NbdDevice;
#[cfg(unix)]
pub use engine::open_foreign;
pub use error::Error;
pub use origin::{ExportError, ExportOrigin};
pub use patience::Patience;
