//! Prints a file of an image: `read_file IMAGE PATH`.
//!
//! `cargo run -p dentree-ext4 --example read_file -- disk.img /etc/hosts`

use dentree_blockdev::{Access, FileDevice};
use dentree_ext4::{Ext4, Options};
use dentree_vfs::{Identity, Vfs, WalkOptions};
use std::env;
use std::error::Error;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

fn main() -> Result<(), Box<dyn Error>> {
    let [image, path] = operands().ok_or("usage: read_file IMAGE PATH")?;
    let device = FileDevice::open(Path::new(&image), Access::ReadOnly)?;
    let vfs = Vfs::new(Ext4::open(Arc::new(device), Options::default())?)?;

    let file = vfs.walk(&Identity::Superuser, vfs.root(), path.as_bytes(), WalkOptions::FOLLOW)?;
    let (mut offset, mut buffer) = (0, vec![0; 1 << 20]);
    loop {
        let len = vfs.read(&file, offset, &mut buffer)?;
        if len == 0 {
            return Ok(());
        }
        io::stdout().write_all(&buffer[..len])?;
        offset += len as u64;
    }
}

fn operands() -> Option<[std::ffi::OsString; 2]> {
    env::args_os().skip(1).collect::<Vec<_>>().try_into().ok()
}
