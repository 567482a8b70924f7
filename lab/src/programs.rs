//! The programs that cargo builds next to this one: measured ones, and clients.

use crate::unavailable::Unavailable;
use std::path::{Path, PathBuf};

/// Cargo's directory for programs of this profile.
#[derive(Clone, Debug)]
pub struct Programs {
    folder: PathBuf,
}

impl Programs {
    /// The directory of this program. Tests and benchmarks are one below.
    ///
    /// # Errors
    /// If the program's own path is unknown.
    pub fn beside_this() -> Result<Self, Unavailable> {
        let why = |why| Unavailable::because("this program's own file", why);
        let program = std::env::current_exe().map_err(why)?;
        let folder = program.parent().unwrap_or(Path::new("."));
        let is_below = folder.file_name().is_some_and(|name| name == "deps");
        let folder = if is_below { folder.parent().unwrap_or(folder) } else { folder };
        Ok(Self { folder: folder.to_owned() })
    }

    /// `dentree`.
    ///
    /// # Errors
    /// If it is not built.
    pub fn dentree(&self) -> Result<PathBuf, Unavailable> {
        self.built("dentree", "--bin dentree")
    }

    /// `dentree-lab`.
    ///
    /// # Errors
    /// If it is not built.
    pub fn lab(&self) -> Result<PathBuf, Unavailable> {
        self.built("dentree-lab", "--bin dentree-lab")
    }

    /// The example `limit` of the crate `dentree-fuse`: a file system in memory.
    ///
    /// # Errors
    /// If it is not built.
    pub fn limit(&self) -> Result<PathBuf, Unavailable> {
        self.built("examples/limit", "-p dentree-fuse --example limit")
    }

    fn built(&self, file: &str, target: &str) -> Result<PathBuf, Unavailable> {
        let path = self.folder.join(file);
        if path.is_file() {
            return Ok(path);
        }
        let how = format!("not built; `cargo build --release {target}` makes it");
        Err(Unavailable::because(&path.display().to_string(), how))
    }
}
