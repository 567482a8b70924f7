//! Files that an image may refer to.

use std::fs;
use std::io;

use imago::format::builder::FormatDriverBuilder;
use imago::format::gate::ImplicitOpenGate;
use imago::storage::{DynStorage, StorageOpenOptions};
use imago::{FormatAccess, Storage};

/// Of backing files: one may refer to itself.
const CHAIN_MAX: u32 = 64;

/// Allows regular files, up to a depth.
pub(crate) struct BackingFiles {
    depth: u32,
}

impl BackingFiles {
    pub(crate) fn new() -> Self {
        BackingFiles { depth: 0 }
    }
}

impl ImplicitOpenGate<Box<dyn DynStorage>> for BackingFiles {
    fn open_format<F: FormatDriverBuilder<Box<dyn DynStorage>>>(
        &mut self,
        builder: F,
    ) -> io::Result<FormatAccess<Box<dyn DynStorage>>> {
        if self.depth == CHAIN_MAX {
            return Err(io::Error::other(format!("more than {CHAIN_MAX} backing files behind each other")));
        }
        Ok(FormatAccess::new(builder.open(BackingFiles { depth: self.depth + 1 })?))
    }

    /// Devices and pipes could block or be misread.
    fn open_storage(&mut self, options: StorageOpenOptions) -> io::Result<Box<dyn DynStorage>> {
        let name = options.get_filename().unwrap_or_else(|| "".as_ref());
        if !fs::metadata(name)?.is_file() {
            return Err(io::Error::other("it is no regular file"));
        }
        Box::<dyn DynStorage>::open(options)
    }
}
