//! How many requests a read-write mount needs for common work; `operations` has single operations.
//! Each costs more than its answer, so this says more about speed than a clock on a busy machine;
//! and it shows that what the kernel was asked for at the start it also does.

use crate::common::{Mounted, mount_vfs, requests_of};
use dentree_fuse::Options;
use dentree_testing::{Global, drop_caches, wait_until};
use dentree_vfs::{MemoryFs, Vfs};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

fn mounted() -> Option<Mounted> {
    let vfs = Arc::new(Vfs::new(MemoryFs::default()).unwrap());
    let mounted = mount_vfs(&vfs, &Options::default())?;
    ask_once(&mounted.path);
    Some(mounted)
}

/// Has the kernel ask for what it asks for once.
pub fn ask_once(top: &Path) {
    let file = top.join("first");
    fs::write(&file, "x").unwrap();
    fs::read_dir(top).unwrap().count();
    fs::metadata(&file).unwrap();
    fs::remove_file(&file).unwrap();
}

/// Requests while `work` is done.
fn asked(mounted: &Mounted, work: impl FnOnce(&Path)) -> u64 {
    requests_of(mounted, work).into_iter().map(|(_, count)| count).sum()
}

#[test]
fn a_new_file_costs_three_requests_and_its_content_three_more() {
    let Some(mounted) = mounted() else { return };
    let _caches = Global::caches_stay();
    let many = 100;
    let create = |path: &Path| File::options().write(true).create_new(true).open(path).unwrap();
    let made = asked(&mounted, |top| {
        (0..many).for_each(|number| drop(create(&top.join(format!("empty-{number}")))))
    });
    assert!(made <= 3 * many, "{made} requests for {many} files");
    let written = asked(&mounted, |top| {
        for number in 0..many {
            create(&top.join(number.to_string())).write_all(&[1; 5000]).unwrap();
        }
    });
    assert!(written <= 6 * many, "{written} requests for {many} files with content");
    let read = |top: &Path| {
        for number in 0..many {
            let mut content = [0; 5000];
            File::open(top.join(number.to_string())).unwrap().read_exact(&mut content).unwrap();
            assert_eq!(content, [1; 5000]);
        }
    };
    // The directory has changed; what is in the kernel's memory is opened, read and closed without
    // us.
    assert!(asked(&mounted, read) <= 1);
    assert_eq!(asked(&mounted, read), 0);
}

#[test]
fn small_writes_are_gathered_and_large_ones_sent_a_mebibyte_at_a_time() {
    let Some(mounted) = mounted() else { return };
    let _caches = Global::caches_stay();
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(mounted.path.join("f"))
        .unwrap();
    file.write_all_at(&[1], 0).unwrap();
    let gathered =
        asked(&mounted, |_| (0..1000).for_each(|at| file.write_all_at(&[2; 1000], at * 1000).unwrap()));
    assert!(gathered <= 2, "{gathered} requests for 1000 writes");
    file.sync_all().unwrap();
    let mebibytes = 32;
    let streamed = asked(&mounted, |_| {
        (0..mebibytes).for_each(|at| file.write_all_at(&[3; 1 << 20], at << 20).unwrap());
        file.sync_all().unwrap();
    });
    assert!(streamed <= mebibytes + 10, "{streamed} requests for {mebibytes} MiB");
}

#[test]
fn names_that_are_known_are_known_after_renames_and_removals_too() {
    let Some(mounted) = mounted() else { return };
    let _caches = Global::caches_stay();
    let top = &mounted.path;
    fs::create_dir(top.join("d")).unwrap();
    for number in 0..50 {
        fs::write(top.join(format!("d/{number}")), "x").unwrap();
    }
    fs::rename(top.join("d"), top.join("e")).unwrap();
    fs::remove_file(top.join("e/7")).unwrap();
    fs::metadata(top.join("e")).unwrap();
    let looks = asked(&mounted, |top| {
        for number in 0..50 {
            assert_eq!(fs::metadata(top.join(format!("e/{number}"))).is_ok(), number != 7);
        }
        fs::metadata(top.join("d")).unwrap_err();
    });
    // The number of blocks of each, and the name that is gone.
    assert!(looks <= 51, "{looks} requests");
    assert_eq!(
        asked(&mounted, |top| (0..50).for_each(|number| drop(fs::metadata(top.join(format!("e/{number}")))))),
        0
    );
}

#[test]
fn a_listing_is_asked_for_once() {
    let Some(mounted) = mounted() else { return };
    let _caches = Global::caches_stay();
    for number in 0..500 {
        fs::create_dir(mounted.path.join(format!("a directory with a name of some length {number}")))
            .unwrap();
    }
    let list = |top: &Path| {
        for entry in fs::read_dir(top).unwrap() {
            entry.unwrap().metadata().unwrap();
        }
    };
    // What has changed is listed anew, and kept when it is listed again.
    assert!(asked(&mounted, list) <= 500 / 10);
    list(&mounted.path);
    assert_eq!(asked(&mounted, list), 0);
}

#[test]
fn direct_reads_and_writes_come_in_one_request_each() {
    let Some(mounted) = mounted() else { return };
    let _caches = Global::caches_stay();
    const O_DIRECT: i32 = rustix::fs::OFlags::DIRECT.bits() as i32;
    let path = mounted.path.join("f");
    let file =
        File::options().read(true).write(true).create_new(true).custom_flags(O_DIRECT).open(path).unwrap();
    let mut bytes = vec![5; 1 << 20];
    file.write_all_at(&bytes, 0).unwrap();
    let written = asked(&mounted, |_| file.write_all_at(&bytes, 1 << 20).unwrap());
    let read = asked(&mounted, |_| file.read_exact_at(&mut bytes, 1 << 20).unwrap());
    assert!(written <= 3 && read <= 2, "{written} and {read} requests");
}

#[test]
fn hundreds_of_thousands_of_look_ups_leave_nothing_behind() {
    let Some(mounted) = mounted() else { return };
    let alone = Global::caches_go();
    let directories = 40;
    for dir in 0..directories {
        let dir = mounted.path.join(dir.to_string());
        fs::create_dir(&dir).unwrap();
        for number in 0..250 {
            fs::write(dir.join(number.to_string()), "").unwrap();
        }
    }
    // Each round the kernel forgets all of it, and is told of 10,000 names again: by lookups of
    // four threads, or by listings.
    for round in 0..12 {
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let top = &mounted.path;
                scope.spawn(move || {
                    for dir in (0..directories).filter(|dir| round % 3 == 2 || dir % 4 == thread) {
                        look_at_all(&top.join(dir.to_string()), round % 3 == 1);
                    }
                });
            }
        });
        assert!(mounted.handle.known_inodes() > 10_000);
        forget_all(&mounted, &alone);
    }
}

#[test]
fn fiemap_is_refused_by_the_kernel_without_a_request() {
    const FIEMAP: &str = r#"
import errno, fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
try:
    fcntl.ioctl(fd, 0xC020660B, bytes(32))
except OSError as error:
    sys.exit(0 if error.errno == errno.EOPNOTSUPP else error)
sys.exit("it was answered")
"#;
    let Some(mounted) = mounted() else { return };
    let file = mounted.path.join("file");
    fs::write(&file, "content").unwrap();
    fs::read(&file).unwrap();
    let mut python = Command::new("python3");
    python.args(["-c", FIEMAP]).arg(&file);
    let mut output = None;
    let requests = asked(&mounted, |_| output = python.output().ok());
    let Some(output) = output else { return println!("skipped: python3 is not installed") };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(requests, 0);
}

/// Asks for the attributes of 250 files, by listing them or by name.
fn look_at_all(dir: &Path, by_listing: bool) {
    if by_listing {
        for entry in fs::read_dir(dir).unwrap() {
            entry.unwrap().metadata().unwrap();
        }
    } else {
        for number in 0..250 {
            fs::metadata(dir.join(number.to_string())).unwrap();
        }
    }
}

/// Has the kernel forget what it knows, which it does when it likes.
fn forget_all(mounted: &Mounted, alone: &Global) {
    wait_until("forgotten", || {
        drop_caches(alone);
        mounted.handle.known_inodes() == 1
    });
}
