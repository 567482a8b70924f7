//! Mounts that come and go leave nothing behind in the process. A binary of its own: other tests
//! have mounts, too.

use dentree_fuse::{Channel, Options};
use dentree_testing::OverIoUring;
use dentree_vfs::{MemoryFs, Vfs};
use rustix::process::geteuid;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::thread;

const MOUNTS: usize = 1000;

fn count(of: &str) -> usize {
    fs::read_dir(Path::new("/proc/self").join(of)).unwrap().count()
}

fn mounts_and_ends(io_uring: bool) {
    let dir = tempfile::tempdir().unwrap();
    let before = [count("fd"), count("task")];
    for number in 0..MOUNTS {
        let vfs = Arc::new(Vfs::new(MemoryFs::default()).unwrap());
        let options = Options { io_uring: Some(io_uring), ..Options::default() };
        let session = dentree_fuse::mount(vfs, dir.path(), &options).unwrap();
        let handle = session.handle();
        assert_eq!(handle.channel() == Channel::Ring, io_uring);
        let serving = thread::spawn(move || session.serve());
        // Some are used, and some end before they are served.
        if number % 3 > 0 {
            fs::write(dir.path().join("file"), "content").unwrap();
        }
        handle.unmount().unwrap();
        serving.join().unwrap().unwrap();
    }
    assert_eq!([count("fd"), count("task")], before);
}

#[test]
fn a_thousand_mounts_on_each_channel_leave_no_descriptor_and_no_thread() {
    if !geteuid().is_root() || !Path::new("/dev/fuse").exists() {
        return println!("skipped: needs root and /dev/fuse");
    }
    mounts_and_ends(false);
    let Some(_ring) = OverIoUring::enable() else { return };
    mounts_and_ends(true);
}
