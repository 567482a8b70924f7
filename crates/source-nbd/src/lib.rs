//! Block devices over NBD (network block device).
//!
//! A client in safe code: fixed newstyle, structured replies, many requests in flight,
//! reconnection. [`NbdDevice`] is a readable and writable
//! [`BlockDevice`](dentree_blockdev::BlockDevice): a flush is `NBD_CMD_FLUSH`, a discard
//! `NBD_CMD_TRIM`.
//!
//! Reading [in blocks](NbdDevice::in_blocks) saves round trips for a read-only export.
//! [`open_foreign`] serves a file of another format by a program.
//!
//! Start with `device.rs`, `connection.rs` and `keeper.rs`. Writes across lost connections:
//! `connection.rs` (N1 to N5), `write_log.rs`.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod address;
mod connect;
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
