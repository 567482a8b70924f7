//! Which locks of one directory threads wait for that fill it: `cargo run --release -p dentree-ext4 --example growth_waits -- [THREADS] [FILES]`.

use std::sync::Arc;
use std::time::Instant;

use dentree_blockdev::MemoryDevice;
use dentree_ext4::mkfs::{MkfsOptions, mkfs};
use dentree_ext4::{Ext4, InodeTime, Options};
use dentree_lockmeter::Recording;
use dentree_vfs::{Identity, NewKind, Vfs};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut numbers = std::env::args().skip(1).map(|number| number.parse::<usize>());
    let threads = numbers.next().transpose()?.unwrap_or(8);
    let files = numbers.next().transpose()?.unwrap_or(60_000);
    let device = Arc::new(MemoryDevice::new(1 << 30));
    mkfs(&*device, &MkfsOptions::new([7; 16], [1, 2, 3, 4], InodeTime::default()))?;
    let fs = Ext4::open(device, Options { writable: true, ..Options::default() })?;
    let vfs = Vfs::new(fs)?;
    let who = Identity::Superuser;
    let dir = vfs.make(&who, vfs.root(), b"dir", NewKind::Directory, 0o755)?;
    let recording = Recording::start();
    let began = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (vfs, who, dir) = (&vfs, &who, &dir);
            scope.spawn(move || {
                for number in (thread..files).step_by(threads) {
                    let name = format!("a file of one directory {number:07}");
                    if let Err(error) = vfs.make(who, dir, name.as_bytes(), NewKind::Regular, 0o644) {
                        panic!("{name}: {error}");
                    }
                }
            });
        }
    });
    println!("{threads} threads, {files} files: {:.2?} ", began.elapsed());
    println!("{}", recording.finish().text());
    Ok(())
}
