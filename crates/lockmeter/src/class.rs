//! Names of locks.

use std::sync::Mutex;

/// A name under which the figures of one lock, or of many like it, are kept: `dcache_lock`, `d_lock`.
///
/// Four bytes, so that a lock may stand in each of a million entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Class(u32);

static NAMES: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());

impl Class {
    /// The class of this name; the same name is the same class.
    ///
    /// Classes are never forgotten: name kinds of locks, not locks.
    #[must_use]
    pub fn named(name: &'static str) -> Self {
        let mut names = NAMES.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let at = names.iter().position(|known| *known == name).unwrap_or_else(|| {
            names.push(name);
            names.len() - 1
        });
        Self(u32::try_from(at).unwrap_or(u32::MAX))
    }

    /// The name.
    #[must_use]
    pub fn name(self) -> &'static str {
        let names = NAMES.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        names.get(self.index()).copied().unwrap_or("?")
    }

    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}
