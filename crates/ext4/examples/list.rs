//! Lists an image recursively, as `ls -R` without order: `list IMAGE`.
//!
//! `cargo run -p dentree-ext4 --example list -- disk.img`

use dentree_blockdev::{Access, FileDevice};
use dentree_ext4::{Ext4, Options};
use dentree_vfs::{FileType, Identity, Inode, ReaddirStart, Vfs};
use std::env;
use std::error::Error;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

fn main() -> Result<(), Box<dyn Error>> {
    let image = env::args_os().nth(1).ok_or("usage: list IMAGE")?;
    let device = FileDevice::open(Path::new(&image), Access::ReadOnly)?;
    let vfs = Vfs::new(Ext4::open(Arc::new(device), Options::default())?)?;
    list(&vfs, &vfs.root().clone(), "")
}

fn list(vfs: &Vfs<Ext4>, dir: &Arc<Inode<Ext4>>, path: &str) -> Result<(), Box<dyn Error>> {
    let mut entries = Vec::new();
    // The closure must not call into the directory: collect first.
    vfs.readdir(&Identity::Superuser, dir, ReaddirStart::First, &mut |entry| {
        entries.push((String::from_utf8_lossy(entry.name).into_owned(), entry.ino));
        ControlFlow::Continue(())
    })?;
    for (name, ino) in entries {
        let (path, inode) = (format!("{path}/{name}"), vfs.inode(ino)?);
        let attr = inode.attr();
        println!("{:06o} {:10} {path}", attr.mode(), attr.size);
        if attr.kind == FileType::Directory {
            list(vfs, &inode, &path)?;
        }
    }
    Ok(())
}
