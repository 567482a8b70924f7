//! The requests of single operations. `docs/internals/mount.md` says why there are not fewer.
//!
//! Each operation works in a directory of its own, whose attributes the kernel has to ask for: an
//! entry of it has changed.

use crate::common::{Mounted, mount_vfs, requests_of};
use crate::requests::ask_once;
use dentree_fuse::{Options, Visibility};
use dentree_testing::{Global, drop_caches, wait_until};
use dentree_vfs::{MemoryFs, Vfs};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, XattrFlags};
use rustix::time::{ClockId, clock_gettime};
use std::fs::{self, File, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{FileExt, PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

struct Operation {
    name: &'static str,
    before: fn(&Path),
    work: fn(&Path),
    /// The most requests that it may take.
    most: &'static str,
}

const OPERATIONS: &[Operation] = &[
    Operation {
        name: "make a file",
        before: |dir| make(dir, "other"),
        work: |dir| make(dir, "f"),
        most: "1 GETATTR, 1 LOOKUP, 1 MKNOD",
    },
    Operation {
        name: "make a file under a name that is known to be missing",
        before: |dir| {
            make(dir, "other");
            is_missing(dir, "f");
        },
        work: |dir| drop(File::create(dir.join("f")).unwrap()),
        most: "1 MKNOD",
    },
    Operation {
        name: "the same with O_EXCL",
        before: |dir| {
            make(dir, "other");
            is_missing(dir, "f");
        },
        work: |dir| make(dir, "f"),
        most: "1 LOOKUP, 1 MKNOD",
    },
    Operation {
        name: "make a file, write and close it",
        before: |dir| make(dir, "other"),
        work: |dir| fs::write(dir.join("f"), [1; 1000]).unwrap(),
        most: "1 GETATTR, 1 LOOKUP, 1 MKNOD, 1 GETXATTR, 1 WRITE, 1 SETATTR",
    },
    Operation {
        name: "append to a file and close it",
        before: |dir| make(dir, "f"),
        work: |dir| append(dir, "f"),
        most: "1 GETATTR, 1 GETXATTR, 1 WRITE, 1 SETATTR",
    },
    Operation {
        name: "append again",
        before: |dir| {
            make(dir, "f");
            append(dir, "f");
        },
        work: |dir| append(dir, "f"),
        most: "1 WRITE, 1 SETATTR",
    },
    Operation {
        name: "append and fsync",
        before: |dir| make(dir, "f"),
        work: |dir| {
            append(dir, "f");
            File::open(dir.join("f")).unwrap().sync_all().unwrap();
        },
        most: "1 GETATTR, 1 GETXATTR, 1 WRITE, 1 SETATTR, 1 FSYNC",
    },
    Operation {
        name: "open a file with O_TRUNC, write and close it",
        before: |dir| fs::write(dir.join("f"), [1; 1000]).unwrap(),
        work: |dir| fs::write(dir.join("f"), [2; 1000]).unwrap(),
        most: "1 GETATTR, 2 SETATTR, 1 GETXATTR, 1 WRITE",
    },
    Operation {
        name: "open, read and close what is cached",
        before: |dir| {
            fs::write(dir.join("f"), [1; 1000]).unwrap();
            look_at(dir, "f");
        },
        work: |dir| drop(fs::read(dir.join("f")).unwrap()),
        most: "",
    },
    Operation {
        name: "stat after a file was closed",
        before: |dir| {
            fs::write(dir.join("f"), "x").unwrap();
            look_at(dir, "f");
            drop(File::open(dir.join("f")).unwrap());
        },
        work: |dir| look_at(dir, "f"),
        most: "1 GETATTR",
    },
    Operation {
        name: "stat again",
        before: |dir| {
            fs::write(dir.join("f"), "x").unwrap();
            look_at(dir, "f");
        },
        work: |dir| look_at(dir, "f"),
        most: "",
    },
    Operation {
        name: "look up a missing name",
        before: |dir| make(dir, "other"),
        work: |dir| is_missing(dir, "f"),
        most: "1 GETATTR, 1 LOOKUP",
    },
    Operation {
        name: "look it up again",
        before: |dir| {
            make(dir, "other");
            is_missing(dir, "f");
        },
        work: |dir| is_missing(dir, "f"),
        most: "",
    },
    Operation {
        name: "unlink",
        before: |dir| fs::write(dir.join("f"), "x").unwrap(),
        work: |dir| fs::remove_file(dir.join("f")).unwrap(),
        most: "1 GETATTR, 1 UNLINK, 1 SETATTR",
    },
    Operation {
        name: "mkdir",
        before: |dir| make(dir, "other"),
        work: |dir| fs::create_dir(dir.join("d")).unwrap(),
        most: "1 GETATTR, 1 LOOKUP, 1 MKDIR",
    },
    Operation {
        name: "rmdir",
        before: |dir| fs::create_dir(dir.join("d")).unwrap(),
        work: |dir| fs::remove_dir(dir.join("d")).unwrap(),
        most: "1 GETATTR, 1 RMDIR",
    },
    Operation {
        name: "rename a file",
        before: |dir| make(dir, "f"),
        work: |dir| fs::rename(dir.join("f"), dir.join("g")).unwrap(),
        most: "1 GETATTR, 1 LOOKUP, 1 RENAME, 1 SETATTR",
    },
    Operation {
        name: "rename a file over another",
        before: |dir| ["f", "g"].into_iter().for_each(|name| make(dir, name)),
        work: |dir| fs::rename(dir.join("f"), dir.join("g")).unwrap(),
        most: "1 GETATTR, 1 LOOKUP, 1 RENAME, 2 SETATTR",
    },
    Operation {
        name: "rename a directory",
        before: |dir| fs::create_dir(dir.join("d")).unwrap(),
        work: |dir| fs::rename(dir.join("d"), dir.join("e")).unwrap(),
        most: "1 GETATTR, 1 LOOKUP, 1 RENAME",
    },
    Operation {
        name: "link",
        before: |dir| make(dir, "f"),
        work: |dir| fs::hard_link(dir.join("f"), dir.join("g")).unwrap(),
        most: "1 GETATTR, 1 LOOKUP, 1 LINK, 1 SETATTR",
    },
    Operation {
        name: "symlink",
        before: |dir| make(dir, "other"),
        work: |dir| symlink("target", dir.join("l")).unwrap(),
        most: "1 GETATTR, 1 LOOKUP, 1 SYMLINK",
    },
    Operation {
        name: "readlink",
        before: |dir| symlink("target", dir.join("l")).unwrap(),
        work: |dir| drop(fs::read_link(dir.join("l")).unwrap()),
        most: "1 GETATTR, 1 READLINK",
    },
    Operation {
        name: "readlink again",
        before: |dir| {
            symlink("target", dir.join("l")).unwrap();
            fs::read_link(dir.join("l")).unwrap();
        },
        work: |dir| drop(fs::read_link(dir.join("l")).unwrap()),
        most: "",
    },
    Operation {
        name: "open and close a directory",
        before: |dir| fs::create_dir(dir.join("d")).unwrap(),
        work: |dir| drop(File::open(dir.join("d")).unwrap()),
        most: "1 GETATTR",
    },
    Operation {
        name: "list 100 files with their attributes",
        before: |dir| (0..100).for_each(|number| make(dir, &number.to_string())),
        work: list,
        most: "2 READDIRPLUS, 1 GETATTR",
    },
    Operation {
        name: "list them again",
        before: |dir| {
            (0..100).for_each(|number| make(dir, &number.to_string()));
            list(dir);
        },
        work: list,
        most: "1 GETATTR",
    },
    Operation {
        name: "list them once more",
        before: |dir| {
            (0..100).for_each(|number| make(dir, &number.to_string()));
            list(dir);
            list(dir);
        },
        work: list,
        most: "",
    },
    Operation {
        name: "chmod and stat",
        before: |dir| make(dir, "f"),
        work: |dir| {
            fs::set_permissions(dir.join("f"), Permissions::from_mode(0o600)).unwrap();
            look_at(dir, "f");
        },
        most: "1 GETATTR, 1 SETATTR",
    },
    Operation {
        name: "chown and stat",
        before: |dir| make(dir, "f"),
        work: |dir| {
            chown(dir.join("f"), Some(1), Some(1)).unwrap();
            look_at(dir, "f");
        },
        most: "1 GETATTR, 1 GETXATTR, 1 SETATTR",
    },
    Operation {
        name: "utimes and stat",
        before: |dir| make(dir, "f"),
        work: |dir| {
            let time = Timespec { tv_sec: 1_500_000_000, tv_nsec: 0 };
            let times = Timestamps { last_access: time, last_modification: time };
            rustix::fs::utimensat(CWD, dir.join("f"), &times, AtFlags::empty()).unwrap();
            look_at(dir, "f");
        },
        most: "1 GETATTR, 1 SETATTR",
    },
    Operation {
        name: "setxattr",
        before: |dir| make(dir, "f"),
        work: |dir| {
            rustix::fs::setxattr(dir.join("f"), "user.a", b"x", XattrFlags::empty()).unwrap();
        },
        most: "1 GETATTR, 1 SETXATTR, 1 SETATTR",
    },
    Operation {
        name: "walk a known path as a user that does not own the root directory",
        before: |dir| as_another_user(dir, ":"),
        work: |dir| as_another_user(dir, ":"),
        most: "1 GETXATTR",
    },
    Operation {
        name: "make a file as a user that owns neither the directory nor the root directory",
        before: |dir| {
            fs::set_permissions(dir, Permissions::from_mode(0o777)).unwrap();
            as_another_user(dir, ": > other");
        },
        work: |dir| as_another_user(dir, ": > f"),
        most: "1 GETATTR, 2 GETXATTR, 1 LOOKUP, 1 MKNOD",
    },
];

fn make(dir: &Path, name: &str) {
    File::options().write(true).create_new(true).open(dir.join(name)).unwrap();
}

fn append(dir: &Path, name: &str) {
    File::options().append(true).open(dir.join(name)).unwrap().write_all(b"more").unwrap();
}

fn look_at(dir: &Path, name: &str) {
    fs::metadata(dir.join(name)).unwrap();
}

fn is_missing(dir: &Path, name: &str) {
    assert_eq!(fs::metadata(dir.join(name)).unwrap_err().kind(), ErrorKind::NotFound);
}

fn list(dir: &Path) {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().metadata().unwrap());
    assert_eq!(entries.count(), 100);
}

/// Goes to `dir` as a user that owns no file, and runs `script` there.
fn as_another_user(dir: &Path, script: &str) {
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).current_dir(dir).uid(65_534).gid(65_534);
    assert!(shell.status().unwrap().success(), "{script}");
}

fn mounted() -> Option<Mounted> {
    let vfs = Arc::new(Vfs::new(MemoryFs::default()).unwrap());
    let options = Options { visibility: Visibility::Everyone, ..Options::default() };
    let mounted = mount_vfs(&vfs, &options)?;
    // Other users reach it.
    fs::set_permissions(mounted.path.parent()?, Permissions::from_mode(0o755)).unwrap();
    ask_once(&mounted.path);
    Some(mounted)
}

/// Whether `count` requests `name` are as many as `most` allows.
fn is_allowed((name, count): (&str, u64), most: &str) -> bool {
    let numbers = most.split(", ").filter_map(|one| one.split_once(' '));
    let limit = numbers.filter(|(_, of)| *of == name).find_map(|(number, _)| number.parse().ok());
    count <= limit.unwrap_or(0)
}

#[test]
fn no_operation_takes_more_requests_than_the_kernel_cannot_do_without() {
    let Some(mounted) = mounted() else { return };
    let _caches = Global::caches_stay();
    let mut excess = Vec::new();
    for Operation { name, before, work, most } in OPERATIONS {
        let dir = mounted.path.join(name);
        fs::create_dir(&dir).unwrap();
        before(&dir);
        let asked = requests_of(&mounted, |_| work(&dir));
        println!("{name}: {asked:?}");
        if !asked.iter().all(|&one| is_allowed(one, most)) {
            excess.push(format!("{name}: {asked:?} instead of {most}"));
        }
    }
    assert!(excess.is_empty(), "{excess:#?}");
}

#[test]
fn files_that_the_kernel_has_forgotten_come_with_the_listing_of_their_directory() {
    let Some(mounted) = mounted() else { return };
    let alone = Global::caches_go();
    let dir = mounted.path.join("dir");
    fs::create_dir(&dir).unwrap();
    (0..100).for_each(|number| make(&dir, &number.to_string()));
    wait_until("forgotten", || {
        drop_caches(&alone);
        mounted.handle.known_inodes() == 1
    });
    let asked = requests_of(&mounted, |_| list(&dir));
    let most = "1 GETATTR, 1 LOOKUP, 2 READDIRPLUS";
    assert!(asked.iter().all(|&one| is_allowed(one, most)), "{asked:?}");
}

/// The kernel stamps what it writes back by its coarse clock, and so does the file system: within a
/// tick there is no new time to send.
#[test]
fn files_that_are_written_in_the_tick_that_made_them_need_no_request_for_their_times() {
    let Some(mounted) = mounted() else { return };
    let tick = || clock_gettime(ClockId::RealtimeCoarse);
    let many = 200;
    let mut later = 0;
    let asked = requests_of(&mounted, |top| {
        for number in 0..many {
            let path = top.join(number.to_string());
            let begun = tick();
            let file = File::options().write(true).create_new(true).open(path).unwrap();
            file.write_all_at(&[1; 1000], 0).unwrap();
            later += u64::from(tick() != begun);
        }
    });
    let times = asked.iter().find(|(name, _)| *name == "SETATTR").map_or(0, |(_, count)| *count);
    // Within a tick the kernel goes on where it has handed out a finer time of another file.
    let most = later + many / 2;
    assert!(times <= most, "{times} requests for the times of {many} files, {later} of them late");
}
