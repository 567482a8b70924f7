//! Scheme 4: fastwalk. One acquisition of the lock per path, held over all of its cached
//! components.
//!
//! The entries on the path are not referenced: the lock protects them. In the study acquisitions
//! fell by 70%, and the mean hold time tripled. Everything but the walk is scheme 1.

use std::sync::Arc;

use super::entry::{Dentry, Layout};
use super::global::Global;
use super::listed::{Listed, listed_in};
use super::table::Table;
use super::{Config, Path, Walked};

/// See the module.
#[derive(Debug)]
pub struct FastWalk<L>(Global<L>);

impl<L: Layout> FastWalk<L> {
    /// An empty cache: the root alone.
    pub fn new(config: Config) -> Self {
        Self(Global::new(config))
    }
}

impl<L: Layout> Listed for FastWalk<L> {
    listed_in!(self => *self.0.table(), under self.0.lock_names());

    fn walk(&self, path: Path<'_>) -> Walked {
        let _held = self.lock_names();
        let walked = self.table().walk(path);
        self.table().set_referenced(walked.dentry);
        self.table().get_from_lru(walked.dentry);
        walked
    }

    fn lookup(&self, parent: Dentry, name: &[u8]) -> Option<Dentry> {
        self.0.lookup(parent, name)
    }

    fn release(&self, dentry: Dentry) {
        self.0.release(dentry);
    }
}
