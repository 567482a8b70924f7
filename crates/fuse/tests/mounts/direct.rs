//! Asynchronous direct writes beside readers of the page cache.

use crate::common::mount_vfs;
use dentree_fuse::Options;
use dentree_vfs::{MemoryFs, Vfs};
use std::fs::{self, File};
use std::process::Command;
use std::sync::Arc;

const LEN: usize = 1 << 20;
/// A kernel that leaves stale pages leaves some in nearly every round.
const ROUNDS: usize = 20;

#[test]
fn pages_that_are_read_during_an_asynchronous_direct_write_are_not_stale_after_it() {
    if Command::new("fio").arg("--version").output().is_err() {
        return println!("skipped: fio is not installed");
    }
    let vfs = Arc::new(Vfs::new(MemoryFs::default()).unwrap());
    let Some(mounted) = mount_vfs(&vfs, &Options::default()) else { return };
    let path = mounted.path.join("file");
    for round in 0..ROUNDS {
        fs::write(&path, [0xAA; LEN]).unwrap();
        File::open(&path).unwrap().sync_all().unwrap();
        let mut writer = Command::new("fio")
            .args(["--name=direct", "--thread", "--ioengine=libaio", "--iodepth=64", "--direct=1"])
            .args(["--rw=randwrite", "--bs=4k", "--buffer_pattern=0x55", "--output=/dev/null"])
            .arg(format!("--size={LEN}"))
            .arg(format!("--filename={}", path.display()))
            .spawn()
            .unwrap();
        let status = loop {
            fs::read(&path).unwrap();
            if let Some(status) = writer.try_wait().unwrap() {
                break status;
            }
        };
        assert!(status.success(), "fio ended with {status}");
        let shown = fs::read(&path).unwrap();
        let stale = shown.chunks(4096).filter(|page| **page != [0x55; 4096]).count();
        assert!(stale == 0, "round {round}: {stale} pages of {} are stale", LEN / 4096);
    }
}
