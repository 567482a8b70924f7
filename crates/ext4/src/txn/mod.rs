//! Changing a file system: the journal, transactions, and what opening for writing marks.

mod journal;
mod session;
mod writer;

pub use writer::Clock;
pub(crate) use writer::{Writer, extended};
