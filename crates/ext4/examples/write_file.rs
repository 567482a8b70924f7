//! Writes standard input to a file of an image: `write_file IMAGE PATH < FILE`. The file may exist;
//! its directory must.
//!
//! `echo hello | cargo run -p dentree-ext4 --example write_file -- disk.img /hello`

use dentree_blockdev::{Access, FileDevice};
use dentree_ext4::{Ext4, Options};
use dentree_vfs::{Identity, SetAttr, Vfs, WalkOptions};
use std::env;
use std::error::Error;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

const ME: &Identity = &Identity::Superuser;

fn main() -> Result<(), Box<dyn Error>> {
    let operands: Vec<_> = env::args_os().skip(1).collect();
    let [image, path] = &operands[..] else { return Err("usage: write_file IMAGE PATH".into()) };
    let path = Path::new("/").join(path);
    let (dir, name) = path.parent().zip(path.file_name()).ok_or("PATH has no file name")?;

    // A writable device is locked against a second writer.
    let device = FileDevice::open(Path::new(image), Access::ReadWrite)?;
    let options = Options { writable: true, ..Options::default() };
    let vfs = Vfs::new(Ext4::open(Arc::new(device), options)?)?;

    let dir = vfs.walk(ME, vfs.root(), dir.as_os_str().as_bytes(), WalkOptions::FOLLOW)?;
    let (file, _) = vfs.open_or_create(ME, &dir, name.as_bytes(), 0o644)?;
    vfs.set_attr(ME, &file, &SetAttr { size: Some(0), ..SetAttr::default() })?;
    let mut content = Vec::new();
    io::stdin().read_to_end(&mut content)?;
    let mut at = 0;
    while at < content.len() {
        at += vfs.write(ME, &file, at as u64, &content[at..])?;
    }

    // `close` reports errors of the last commit.
    drop((dir, file));
    vfs.into_fs().ok_or("an inode is still in use")?.close()?;
    Ok(())
}
