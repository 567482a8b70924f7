//! Programs that die in the middle of requests, and mounts that end under them.

use crate::common::mount_vfs;
use dentree_fuse::Options;
use dentree_testing::wait_until;
use dentree_vfs::{MemoryFs, Vfs};
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

fn in_memory() -> Arc<Vfs<MemoryFs>> {
    Arc::new(Vfs::new(MemoryFs::default()).unwrap())
}

/// A shell that reads, writes, lists and removes without end.
fn busy(dir: &Path, number: usize) -> Child {
    const WORK: &str = "while :; do mkdir d$0; dd if=/dev/zero of=d$0/f bs=64k count=20 conv=fsync; \
                        cat d$0/f >/dev/null; ls -lR; rm -rf d$0; done";
    Command::new("sh")
        .args(["-c", WORK, &number.to_string()])
        .current_dir(dir)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn programs_that_are_killed_in_the_middle_of_requests_leave_the_mount_whole() {
    let vfs = in_memory();
    let Some(mounted) = mount_vfs(&vfs, &Options::default()) else { return };
    for round in 0..10 {
        let before = mounted.handle.requests().total();
        let mut programs: Vec<_> = (0..4).map(|number| busy(&mounted.path, number)).collect();
        wait_until("busy", || mounted.handle.requests().total() > before + 100 * (round + 1));
        for program in &mut programs {
            program.kill().unwrap();
            program.wait().unwrap();
        }
    }
    fs::write(mounted.path.join("after"), "all").unwrap();
    assert_eq!(fs::read(mounted.path.join("after")).unwrap(), b"all");
}

#[test]
fn a_mount_ends_while_programs_use_it() {
    let vfs = in_memory();
    let Some(mut mounted) = mount_vfs(&vfs, &Options::default()) else { return };
    let mut programs: Vec<_> = (0..4).map(|number| busy(&mounted.path, number)).collect();
    wait_until("busy", || mounted.handle.requests().total() > 500);
    mounted.handle.unmount().unwrap();
    assert!(mounted.handle.is_alive(), "files are open");
    for program in &mut programs {
        program.kill().unwrap();
        program.wait().unwrap();
    }
    mounted.join().unwrap();
    assert!(!mounted.handle.is_alive());
}
