//! Expressions of find(1) over any file system of `dentree-vfs`.
//!
//! [`parse`] makes an [`Expression`] of words. [`Expression::evaluate`] says whether it holds for a
//! [`Candidate`], a directory entry whose inode is loaded when a test asks for it. Actions are the
//! caller's: [`Compile`] makes them of words, and `evaluate` calls back for each.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod candidate;
mod expression;
pub mod glob;
mod mode;
mod number;
mod owners;
mod parse;
mod permissions;
mod regex;
mod test;

pub use candidate::{Candidate, FoundAt, Named, Problems};
pub use expression::{Action, Expression};
pub use mode::ModeChange;
pub use owners::Owners;
pub use parse::{Compile, Follow, Parsed, Settings, Words, Wrong, is_newer, parse};
pub use test::{Cost, TimeField};

/// The file system type of `-fstype` and `%F`.
pub const FILE_SYSTEM: &str = "ext4";
