//! The names of an image as rows: one schema for Arrow, Parquet, CSV and JSON.
//!
//! A [`Row`] is a name and what was read of it. [`Columns`] are those that are wanted: they say
//! what has to be read, [`Reader`] reads it, and [`Columns::batch`] makes an Arrow batch of rows.
//! With the feature `files`, a `Writer` makes a file of them.
//!
//! Schema 2; a new column raises the number. The columns are in `docs/TABLES.md`.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod columns;
mod read;
mod row;
#[cfg(feature = "files")]
mod write;

pub use columns::{Columns, UnknownColumn};
pub use read::Reader;
pub use row::{Row, Stamp};
#[cfg(feature = "files")]
pub use write::{RowFormat, Writer};
