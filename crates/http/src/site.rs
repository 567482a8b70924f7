//! A file system on the web.

use crate::archive::Archives;
use crate::body::Budget;
use crate::contents::Contents;
use crate::log::Log;
use dentree_vfs::{FileSystem, Identity, Vfs};
use jiff::tz::TimeZone;
use std::sync::Arc;

/// A holder of the image's bytes can read them all, so no permission is checked.
pub(crate) const WHO: &Identity = &Identity::Superuser;

/// What every request is answered from.
pub(crate) struct Site<F: FileSystem> {
    pub(crate) vfs: Arc<Vfs<F>>,
    pub(crate) title: String,
    pub(crate) fsid: u64,
    pub(crate) zone: TimeZone,
    pub(crate) log: Arc<dyn Log>,
    pub(crate) budget: Budget,
    pub(crate) contents: Contents,
    pub(crate) archives: Option<Archives>,
}
