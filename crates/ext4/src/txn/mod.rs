//! The journal, transactions, and a session's marks in the superblock.

mod journal;
mod session;
mod writer;

pub(crate) use session::{STATE_VALID, change_superblock};
pub use writer::Clock;
pub(crate) use writer::{Writer, extend_or_restart};
