//! Mounts an empty file system in memory at a directory, until it is unmounted:
//! `limit [-o io_uring|no_io_uring] DIR`. What a mount costs when answering costs nothing; the
//! mount benchmark compares with it.

use dentree_fuse::Options;
use dentree_vfs::{MemoryFs, Vfs};
use std::error::Error;
use std::sync::Arc;

fn main() -> Result<(), Box<dyn Error>> {
    const USAGE: &str = "usage: limit [-o io_uring|no_io_uring] DIR";
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let words: Vec<_> = arguments.iter().map(|word| word.to_str().unwrap_or_default()).collect();
    let (io_uring, directory) = match words[..] {
        ["-o", "io_uring", _] => (Some(true), &arguments[2]),
        ["-o", "no_io_uring", _] => (Some(false), &arguments[2]),
        [_] => (None, &arguments[0]),
        _ => return Err(USAGE.into()),
    };
    let vfs = Arc::new(Vfs::new(MemoryFs::default())?);
    let options = Options { io_uring, ..Options::default() };
    dentree_fuse::mount(vfs, directory.as_ref(), &options)?.serve()?;
    Ok(())
}
