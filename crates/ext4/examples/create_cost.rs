//! What creating many files in one directory costs, through the library: `create_cost IMAGE [COUNT]`, on an image that may be changed.

use dentree_blockdev::{Access, FileDevice};
use dentree_ext4::{Ext4, Options};
use dentree_vfs::{Identity, NewKind, Vfs};
use std::sync::Arc;
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let image = args.next().ok_or("which image?")?;
    let count: u32 = args.next().map_or(Ok(200_000), |count| count.parse())?;
    let device = FileDevice::open(image, Access::ReadWrite)?;
    let options = Options { writable: true, ..Options::default() };
    let vfs = Vfs::new(Ext4::open(Arc::new(device), options)?)?;
    let who = &Identity::Superuser;
    let dir = vfs.make(who, vfs.root(), b"large", NewKind::Directory, 0o755)?;
    let start = Instant::now();
    for n in 0..count {
        vfs.make(who, &dir, format!("file{n:08}").as_bytes(), NewKind::Regular, 0o644)?;
    }
    let made = start.elapsed();
    vfs.sync()?;
    let rate = f64::from(count) / made.as_secs_f64();
    println!("{count} files in {made:?}, {rate:.0} a second; synced after {:?}", start.elapsed());
    Ok(())
}
