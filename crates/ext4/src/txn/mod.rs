//! Changing a file system: the journal, transactions, and what opening for writing marks.

mod journal;
mod session;
mod writer;

pub(crate) use writer::{Writer, extended};
