//! A file system as a web site.

use crate::archive::Archives;
use crate::body::Budget;
use crate::contents::Contents;
use crate::log::Log;
use dentree_vfs::{FileSystem, Identity, Vfs};
use jiff::tz::TimeZone;
use std::sync::Arc;

/// No permission checks: a holder of the image can read all of it.
pub(crate) const WHO: &Identity = &Identity::Superuser;

/// Shared by all requests.
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
