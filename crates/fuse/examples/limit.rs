//! Mounts an empty file system in memory at a directory, until it is unmounted: `limit DIR`. What a
//! mount costs when answering costs nothing; the mount benchmark compares with it.

use dentree_vfs::{MemoryFs, Vfs};
use std::error::Error;
use std::sync::Arc;

fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::args_os().nth(1).ok_or("usage: limit DIR")?;
    let vfs = Arc::new(Vfs::new(MemoryFs::default())?);
    dentree_fuse::mount(vfs, directory.as_ref(), &dentree_fuse::Options::default())?.serve()?;
    Ok(())
}
