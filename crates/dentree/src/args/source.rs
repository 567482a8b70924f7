//! Options of images that are not local, and `dentree cache`.

use super::mkfs::parse_size;
#[cfg(feature = "object-stores")]
use clap::Subcommand;
use clap::{Args, ValueHint};
use std::env;
#[cfg(feature = "object-stores")]
use std::ffi::OsString;
use std::path::PathBuf;

/// Where images that are not local come from, and where what was fetched is kept.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct SourceArgs {
    /// The server of an object store (s3://, gs://, az://), instead of the cloud's own
    #[arg(long, global = true, display_order = 104, value_name = "URL", value_hint = ValueHint::Url)]
    pub(crate) endpoint: Option<String>,
    /// Keep what is fetched of images that are not local here (default: $XDG_CACHE_HOME/dentree)
    #[arg(long, global = true, display_order = 105, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) cache_dir: Option<PathBuf>,
    /// Limit of that cache, with K, M, G or T; 0 keeps nothing
    #[arg(long, global = true, display_order = 106, value_name = "SIZE", value_parser = parse_size)]
    #[arg(default_value = "1G")]
    pub(crate) cache_size: u64,
    /// Keep changes in this file, a qcow2 overlay, which is made if it does not exist: the image is
    /// only read
    #[arg(long, global = true, display_order = 107, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) overlay: Option<PathBuf>,
}

impl SourceArgs {
    /// Where the cache on disk is; `None` where neither an option nor the environment says.
    pub(crate) fn cache_dir(&self) -> Option<PathBuf> {
        let set = |name: &str| env::var_os(name).map(PathBuf::from).filter(|dir| dir.is_absolute());
        let default = || {
            let caches = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
            caches.map(|dir| dir.join("dentree"))
        };
        // Windows has no cache, and an option for one is refused.
        self.cache_dir.clone().or_else(|| default().filter(|_| cfg!(unix)))
    }
}

#[cfg(feature = "object-stores")]
#[derive(Debug, Args)]
pub(crate) struct CacheArgs {
    #[command(subcommand)]
    pub(crate) command: CacheCommand,
}

#[cfg(feature = "object-stores")]
#[derive(Debug, Subcommand)]
pub(crate) enum CacheCommand {
    /// List the images, the one used last first: bytes on disk, size of the image, address
    Ls,
    /// Remove images from the cache
    Rm {
        /// Their addresses, as `dentree cache ls` shows them
        #[arg(required_unless_present = "all", value_hint = ValueHint::Url)]
        addresses: Vec<OsString>,
        /// Remove all
        #[arg(long, conflicts_with = "addresses")]
        all: bool,
    },
}
