//! Which inode a new file gets, and what becomes of the inodes that have no name left.
//!
//! | file | what |
//! |---|---|
//! | `place` | in which groups to look: directories spread, files beside their directory |
//! | `aside` | where several threads make files: how far from their directory each takes its inodes |
//! | `allocate` | taking an inode of a group and giving it back: bitmap, descriptor, table |
//! | `orphans` | which inodes live without a name, on disk |
//! | `evict` | the end of an orphan, and of what never is one |
//!
//! # Who protects what
//! Bitmap, descriptor and the never used end of an inode table: the group's lock. The list of orphans and the orphan file: the lock
//! of [`Orphans`](orphans::Orphans), taken inside a handle; inside it inodes in the table are changed, no other lock
//! but the cache's is taken.

mod allocate;
mod aside;
mod evict;
mod orphans;
mod place;

pub(crate) use allocate::INODE_CREDITS;
pub(crate) use orphans::{ORPHAN_CREDITS, Orphans};
