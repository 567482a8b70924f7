//! The [`FileSystem`] trait, path walk, permissions and inode cache.
//!
//! A file system implements [`FileSystem`] for inode numbers and single names. A front end (command
//! line, FUSE, HTTP) calls [`Vfs`], which walks paths through the name cache and calls the file
//! system on a miss.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod acl;
mod attr;
mod attributes;
mod by_handle;
mod change;
mod complete;
mod content;
mod creation;
mod dentry;
mod error;
mod filesystem;
mod identity;
mod inode;
mod limits;
mod memory;
mod name_lock;
mod names;
mod permissions;
mod rename;
mod vfs;
mod walk;

pub use attr::{Attr, FileType, Ino, Timestamp};
pub use change::{Allocate, Durability, Mode, NewInode, NewKind, OnExisting, SetAttr, SetTime, SetXattr};
pub use dentree_dcache::{MemoryStats as NameMemory, Reason as Fallback, Stats as NameStats};
pub use error::{Error, ErrorSource, Result};
pub use filesystem::{DirEntry, Extent, FileSystem, FsStat, Lookup, NameIn, ReaddirStart, Rename};
pub use identity::{Access, Identity};
pub use inode::{Inode, InodeCacheStats};
pub use limits::{NAME_MAX, PATH_MAX, SYMLINKS_MAX};
pub use memory::{MemoryFs, MemoryLimits, MemoryNode};
pub use vfs::{Budgets, Vfs, VfsStats};
pub use walk::{LastLink, LastName, WalkOptions};

// Compiles and runs the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
