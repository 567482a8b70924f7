//! A file system in memory, mounted read-write: system calls.

use crate::common::{Mounted, OVER_RING, can_mount, mount_vfs};
use dentree_fuse::{Options, Visibility};
use dentree_testing::wait_until;
use dentree_vfs::{Identity, MemoryFs, MemoryLimits, Vfs};
use rustix::fs::{CWD, FallocateFlags, RenameFlags, SeekFrom, XattrFlags};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom as StdSeek, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

fn mounted() -> Option<(Mounted, Arc<Vfs<MemoryFs>>)> {
    let vfs = Arc::new(Vfs::new(MemoryFs::default()).unwrap());
    mount_vfs(&vfs, &Options::default()).map(|mounted| (mounted, vfs))
}

fn errno<T: std::fmt::Debug>(result: std::io::Result<T>) -> Errno {
    Errno::from_io_error(&result.unwrap_err()).unwrap()
}

#[test]
fn what_is_written_is_read_back_and_reaches_the_file_system() {
    let Some((mounted, vfs)) = mounted() else { return };
    let path = mounted.path.join("dir/file");
    fs::create_dir(mounted.path.join("dir")).unwrap();
    let data: Vec<u8> = (0..3_000_000_u32).map(|byte| (byte % 251) as u8).collect();
    fs::write(&path, &data).unwrap();
    assert_eq!(fs::read(&path).unwrap(), data);
    OpenOptions::new().append(true).open(&path).unwrap().write_all(b"end").unwrap();
    File::open(&path).unwrap().sync_all().unwrap();
    let ours = vfs.walk(&Identity::Superuser, vfs.root(), b"dir/file", Default::default()).unwrap();
    assert_eq!(ours.attr().size, 3_000_003);
    let mut end = [0; 4];
    assert_eq!(vfs.read(&ours, 2_999_999, &mut end).unwrap(), 4);
    assert_eq!(&end[1..], b"end");

    OpenOptions::new().write(true).truncate(true).open(&path).unwrap();
    assert_eq!((fs::metadata(&path).unwrap().len(), ours.attr().size), (0, 0));
    OpenOptions::new().write(true).open(&path).unwrap().set_len(5000).unwrap();
    assert_eq!(fs::read(&path).unwrap(), [0; 5000]);
}

#[test]
fn what_the_kernel_has_gathered_is_written_without_touching_the_times_that_it_shows() {
    let Some((mounted, vfs)) = mounted() else { return };
    for number in 0..50 {
        let path = mounted.path.join(number.to_string());
        fs::write(&path, [1; 100_000]).unwrap();
        let shown = fs::metadata(&path).unwrap();
        File::open(&path).unwrap().sync_all().unwrap();
        let name = number.to_string();
        let ours = vfs.walk(&Identity::Superuser, vfs.root(), name.as_bytes(), Default::default()).unwrap();
        let stored = ours.attr().mtime;
        assert_eq!((stored.seconds, i64::from(stored.nanos)), (shown.mtime(), shown.mtime_nsec()));
    }
}

#[test]
fn names_come_and_go() {
    let Some((mounted, _)) = mounted() else { return };
    let at = |name: &str| mounted.path.join(name);
    assert_eq!(errno(fs::metadata(at("a"))), Errno::NOENT);
    fs::create_dir(at("a")).unwrap();
    assert_eq!(errno(fs::create_dir(at("a"))), Errno::EXIST);
    fs::write(at("a/f"), "x").unwrap();
    assert_eq!(errno(fs::remove_dir(at("a"))), Errno::NOTEMPTY);
    assert_eq!(errno(fs::remove_dir(at("a/f"))), Errno::NOTDIR);
    fs::hard_link(at("a/f"), at("g")).unwrap();
    assert_eq!(fs::metadata(at("a/f")).unwrap().nlink(), 2);
    assert_eq!(fs::metadata(at("a/f")).unwrap().ino(), fs::metadata(at("g")).unwrap().ino());
    symlink("a/f", at("l")).unwrap();
    assert_eq!(fs::read_to_string(at("l")).unwrap(), "x");
    rustix::fs::mknodat(CWD, at("pipe"), rustix::fs::FileType::Fifo, 0o640.into(), 0).unwrap();
    rustix::fs::mknodat(
        CWD,
        at("null"),
        rustix::fs::FileType::CharacterDevice,
        0o600.into(),
        rustix::fs::makedev(1, 3),
    )
    .unwrap();
    assert_eq!(fs::metadata(at("null")).unwrap().rdev(), rustix::fs::makedev(1, 3));
    let mut names: Vec<_> =
        fs::read_dir(&mounted.path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["a", "g", "l", "null", "pipe"]);
    fs::remove_file(at("a/f")).unwrap();
    assert_eq!(fs::metadata(at("g")).unwrap().nlink(), 1);
    fs::remove_dir(at("a")).unwrap();
    for name in ["g", "l", "null", "pipe"] {
        fs::remove_file(at(name)).unwrap();
    }
    assert_eq!(fs::read_dir(&mounted.path).unwrap().count(), 0);
    assert_eq!(fs::metadata(&mounted.path).unwrap().nlink(), 2);
}

#[test]
fn a_rename_goes_by_its_flags() {
    let Some((mounted, _)) = mounted() else { return };
    let at = |name: &str| mounted.path.join(name);
    let rename = |from: &str, to: &str, flags| rustix::fs::renameat_with(CWD, at(from), CWD, at(to), flags);
    fs::create_dir_all(at("a/b")).unwrap();
    fs::create_dir(at("c")).unwrap();
    fs::write(at("a/b/f"), "f").unwrap();
    fs::write(at("g"), "g").unwrap();
    rename("a/b", "c/d", RenameFlags::empty()).unwrap();
    assert_eq!(fs::read_to_string(at("c/d/f")).unwrap(), "f");
    assert_eq!(fs::metadata(at("c/d/..")).unwrap().ino(), fs::metadata(at("c")).unwrap().ino());
    assert_eq!(rename("c/d/f", "g", RenameFlags::NOREPLACE), Err(Errno::EXIST));
    rename("c/d/f", "g", RenameFlags::EXCHANGE).unwrap();
    assert_eq!(
        (fs::read_to_string(at("g")).unwrap(), fs::read_to_string(at("c/d/f")).unwrap()),
        ("f".into(), "g".into())
    );
    rename("c", "g", RenameFlags::EXCHANGE).unwrap();
    assert_eq!(fs::read_to_string(at("g/d/f")).unwrap(), "g");
    assert_eq!(rename("g", "g/d/x", RenameFlags::empty()), Err(Errno::INVAL));
    assert_eq!(rename("a", "g", RenameFlags::empty()), Err(Errno::NOTEMPTY));
    rename("c", "g/d/f", RenameFlags::empty()).unwrap();
    assert_eq!(fs::read_to_string(at("g/d/f")).unwrap(), "f");
}

#[test]
fn a_file_that_is_removed_while_open_works_until_it_is_closed() {
    let Some((mounted, vfs)) = mounted() else { return };
    let path = mounted.path.join("f");
    let free = vfs.statfs().unwrap().blocks_free;
    let mut file = File::options().create_new(true).read(true).write(true).open(&path).unwrap();
    file.write_all(&[7; 100_000]).unwrap();
    fs::remove_file(&path).unwrap();
    // The number must not be given away while the kernel has the old file open.
    fs::write(&path, "another").unwrap();
    assert_ne!(file.metadata().unwrap().ino(), fs::metadata(&path).unwrap().ino());
    file.write_all_at(&[8; 10], 50_000).unwrap();
    file.sync_all().unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    rustix::fs::fsetxattr(&file, "user.gone", b"still", XattrFlags::empty()).unwrap();
    let mut content = Vec::new();
    file.seek(StdSeek::Start(0)).unwrap();
    file.read_to_end(&mut content).unwrap();
    assert_eq!((content.len(), content[49_999], content[50_000]), (100_000, 7, 8));
    let dir = mounted.path.join("d");
    fs::create_dir(&dir).unwrap();
    let opened = File::open(&dir).unwrap();
    fs::remove_dir(&dir).unwrap();
    assert_eq!(rustix::fs::Dir::new(opened.try_clone().unwrap()).unwrap().count(), 0);
    drop((file, opened));
    fs::remove_file(&path).unwrap();
    // The kernel forgets in its own time.
    wait_until("forgotten", || vfs.statfs().unwrap().blocks_free == free && vfs.stats().inodes.unhashed == 0);
}

#[test]
fn many_files_that_come_and_go_leave_nothing_behind() {
    let Some((mounted, vfs)) = mounted() else { return };
    let free = vfs.statfs().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let path = &mounted.path;
            scope.spawn(move || {
                for number in 0..2000 {
                    let (a, b) =
                        (path.join(format!("{thread}-{number}")), path.join(format!("to-{}", number % 7)));
                    fs::write(&a, "content").unwrap();
                    fs::metadata(&a).unwrap();
                    if number % 3 == 0 {
                        fs::rename(&a, &b).unwrap();
                        let _ = fs::metadata(&b);
                    } else {
                        fs::remove_file(&a).unwrap();
                    }
                }
            });
        }
    });
    for entry in fs::read_dir(&mounted.path).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    wait_until("forgotten", || mounted.handle.known_inodes() == 1 && vfs.stats().inodes.unhashed == 0);
    assert_eq!(vfs.statfs().unwrap(), free);
}

#[test]
fn attributes_are_set_and_stay() {
    let Some((mounted, vfs)) = mounted() else { return };
    let path = mounted.path.join("f");
    fs::write(&path, "x").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o6755)).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o6755);
    std::os::unix::fs::chown(&path, Some(12), Some(34)).unwrap();
    let stat = fs::metadata(&path).unwrap();
    assert_eq!((stat.uid(), stat.gid(), stat.mode() & 0o7777), (12, 34, 0o755));
    let then = SystemTime::UNIX_EPOCH + Duration::new(1_234_567_890, 123_456_789);
    File::options().write(true).open(&path).unwrap().set_modified(then).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), then);
    let ours = vfs.walk(&Identity::Superuser, vfs.root(), b"f", Default::default()).unwrap();
    assert_eq!((ours.attr().mtime.seconds, ours.attr().mtime.nanos), (1_234_567_890, 123_456_789));
    let long_ago = SystemTime::UNIX_EPOCH - Duration::from_millis(1700);
    File::options().write(true).open(&path).unwrap().set_modified(long_ago).unwrap();
    assert_eq!((ours.attr().mtime.seconds, ours.attr().mtime.nanos), (-2, 300_000_000));
    assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), long_ago);

    rustix::fs::setxattr(&path, "user.a", b"one", XattrFlags::CREATE).unwrap();
    assert_eq!(rustix::fs::setxattr(&path, "user.a", b"two", XattrFlags::CREATE), Err(Errno::EXIST));
    rustix::fs::setxattr(&path, "user.a", b"two", XattrFlags::REPLACE).unwrap();
    let mut value = [0; 10];
    assert_eq!(rustix::fs::getxattr(&path, "user.a", &mut value[..]).unwrap(), 3);
    rustix::fs::removexattr(&path, "user.a").unwrap();
    assert_eq!(rustix::fs::getxattr(&path, "user.a", &mut value[..]), Err(Errno::NODATA));
}

#[test]
fn a_program_that_somebody_else_changes_is_no_longer_its_owners() {
    if !can_mount() {
        return;
    }
    let vfs = Arc::new(Vfs::new(MemoryFs::default()).unwrap());
    let options = Options { visibility: Visibility::Everyone, ..Options::default() };
    let Some(mounted) = mount_vfs(&vfs, &options) else { return };
    fs::set_permissions(mounted.path.parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = mounted.path.join("program");
    let mode = || fs::metadata(&program).unwrap().mode() & 0o7777;
    let after = |user: &str, change: &str| {
        fs::write(&program, "content").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o6777)).unwrap();
        let done = std::process::Command::new("setpriv")
            .args([
                "--reuid",
                user,
                "--regid",
                user,
                "--clear-groups",
                "--inh-caps=-all",
                "--",
                "sh",
                "-euc",
                change,
            ])
            .arg(&program)
            .status()
            .unwrap();
        assert!(done.success(), "{change}");
        mode()
    };
    for change in [
        "echo more >> \"$0\"",
        "truncate -s 3 \"$0\"",
        ": > \"$0\"",
        "fallocate -l 100 \"$0\"",
        "cp /etc/passwd \"$0\"",
    ] {
        assert_eq!((after("65534", change), after("0", change)), (0o777, 0o6777), "{change}");
    }
    assert_eq!(after("0", "chown 7:7 \"$0\""), 0o777);
    // Without execution by its group that bit means something else.
    fs::set_permissions(&program, fs::Permissions::from_mode(0o6767)).unwrap();
    std::os::unix::fs::chown(&program, Some(8), None).unwrap();
    assert_eq!(mode(), 0o2767);
}

#[test]
fn more_programs_seek_at_once_than_threads_answer() {
    let Some((mounted, _)) = mounted() else { return };
    std::thread::scope(|threads| {
        // A ring's queue has 16 entries, of which one stays free.
        let programs = if OVER_RING { 15 } else { 4 * Options::default().threads.get() };
        for n in 0..programs {
            let path = mounted.path.join(n.to_string());
            threads.spawn(move || {
                let file = File::options().create_new(true).write(true).open(path).unwrap();
                for block in (1..40).step_by(3) {
                    file.write_all_at(&[1; 4096], block << 12).unwrap();
                    assert_eq!(rustix::fs::seek(&file, SeekFrom::Data((block - 1) << 12)), Ok(block << 12));
                    assert_eq!(rustix::fs::seek(&file, SeekFrom::Hole(block << 12)), Ok((block + 1) << 12));
                }
            });
        }
    });
}

#[test]
fn where_many_programs_seek_at_once_no_data_is_taken_for_a_hole() {
    let Some((mounted, _)) = mounted() else { return };
    std::thread::scope(|threads| {
        for n in 0..64 {
            let path = mounted.path.join(n.to_string());
            threads.spawn(move || {
                let file = File::options().create_new(true).write(true).open(path).unwrap();
                for block in (1..40).step_by(3) {
                    file.write_all_at(&[1; 4096], block << 12).unwrap();
                    let data = rustix::fs::seek(&file, SeekFrom::Data((block - 1) << 12)).unwrap();
                    assert!(data <= block << 12);
                    let hole = rustix::fs::seek(&file, SeekFrom::Hole(block << 12)).unwrap();
                    assert!(hole > block << 12);
                }
            });
        }
    });
}

#[test]
fn holes_are_made_and_copied_and_no_data_is_taken_for_one() {
    let Some((mounted, _)) = mounted() else { return };
    let file = File::options().create_new(true).read(true).write(true).open(mounted.path.join("f")).unwrap();
    file.write_all_at(&[1; 4096], 0).unwrap();
    file.write_all_at(&[2; 4096], 1 << 20).unwrap();
    // The kernel asks for holes before it has written what it has gathered: no data may be taken
    // for one.
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let seek = |to| rustix::fs::seek(&file, to);
    assert_eq!([0, 8192, 1 << 20].map(|at| seek(SeekFrom::Data(at))), [Ok(0), Ok(1 << 20), Ok(1 << 20)]);
    assert_eq!([0, 8192].map(|at| seek(SeekFrom::Hole(at))), [Ok(4096), Ok(8192)]);
    assert_eq!(seek(SeekFrom::Hole(1 << 20)), Ok((1 << 20) + 4096));
    assert_eq!(seek(SeekFrom::Data((1 << 20) + 4096)), Err(Errno::NXIO));
    for at in [100, 200, 300] {
        file.write_all_at(&[3], at * 4096).unwrap();
    }
    assert_eq!(
        [0, 200 * 4096, 201 * 4096].map(|at| seek(SeekFrom::Hole(at))),
        [4096, 201 * 4096, 201 * 4096].map(Ok)
    );
    assert_eq!([4096, 101 * 4096].map(|at| seek(SeekFrom::Data(at))), [100 * 4096, 200 * 4096].map(Ok));
    file.write_all_at(&[4; 4096], 300 << 12).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 301 << 12);
    for at in [100, 200, 300] {
        rustix::fs::fallocate(&file, punch, at << 12, 4096).unwrap();
    }
    file.set_len((1 << 20) + 4096).unwrap();
    rustix::fs::fallocate(&file, punch, 0, 4096).unwrap();
    file.sync_all().unwrap();
    assert_eq!(file.metadata().unwrap().blocks(), 8);
    let mut byte = [9];
    file.read_exact_at(&mut byte, 100).unwrap();
    assert_eq!(byte, [0]);
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 2 << 20).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 2 << 20);
    let copy = File::options().create_new(true).read(true).write(true).open(mounted.path.join("g")).unwrap();
    let copied = rustix::fs::copy_file_range(&file, Some(&mut 0), &copy, Some(&mut 0), 2 << 20).unwrap();
    assert_eq!(copied, 2 << 20);
    assert_eq!(fs::read(mounted.path.join("f")).unwrap(), fs::read(mounted.path.join("g")).unwrap());
}

#[test]
fn a_full_file_system_says_so_and_works_again() {
    let limits = MemoryLimits { bytes: 1 << 20, inodes: 20 };
    let vfs = Arc::new(Vfs::new(MemoryFs::new(limits)).unwrap());
    let Some(mounted) = mount_vfs(&vfs, &Options::default()) else { return };
    let path = mounted.path.join("f");
    let mut file = File::create(&path).unwrap();
    // What the kernel gathers fails when it is written.
    let written = file.write_all(&vec![1; 4 << 20]).and_then(|()| file.sync_all());
    assert_eq!(errno(written), Errno::NOSPC);
    drop(file);
    fs::remove_file(&path).unwrap();
    wait_until("free again", || vfs.statfs().unwrap().blocks_free == 256);
    fs::write(&path, vec![2; 1 << 19]).unwrap();
    for number in 0..18 {
        fs::create_dir(mounted.path.join(number.to_string())).unwrap();
    }
    assert_eq!(errno(fs::create_dir(mounted.path.join("one more"))), Errno::NOSPC);
}

#[test]
fn a_mount_that_root_shares_works_without_the_kernels_caches() {
    let vfs = Arc::new(Vfs::new(MemoryFs::default()).unwrap());
    let options = Options { visibility: Visibility::OwnerAndRoot, ..Options::default() };
    let Some(mounted) = mount_vfs(&vfs, &options) else { return };
    let path = mounted.path.join("f");
    fs::write(&path, [3; 10_000]).unwrap();
    fs::rename(&path, mounted.path.join("g")).unwrap();
    assert_eq!(fs::read(mounted.path.join("g")).unwrap(), [3; 10_000]);
    let file = File::options().read(true).write(true).open(mounted.path.join("g")).unwrap();
    fs::remove_file(mounted.path.join("g")).unwrap();
    file.write_all_at(b"still here", 0).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 10_000);
}

#[test]
fn a_new_inode_belongs_to_its_maker_or_to_the_group_of_a_setgid_directory() {
    if !can_mount() {
        return;
    }
    let vfs = Arc::new(Vfs::new(MemoryFs::default()).unwrap());
    let options = Options { visibility: Visibility::Everyone, ..Options::default() };
    let Some(mounted) = mount_vfs(&vfs, &options) else { return };
    let dir = mounted.path.join("shared");
    fs::create_dir(&dir).unwrap();
    std::os::unix::fs::chown(&dir, None, Some(77)).unwrap();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o2777)).unwrap();
    fs::set_permissions(mounted.path.parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
    let made = std::process::Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--", "sh", "-c"])
        .arg("umask 022; cd \"$0\" && touch f && mkdir d && ! touch ../no 2>/dev/null")
        .arg(&dir)
        .status()
        .unwrap();
    assert!(made.success());
    let stat = |name: &str| {
        fs::metadata(dir.join(name)).map(|stat| (stat.uid(), stat.gid(), stat.mode() & 0o7777)).unwrap()
    };
    assert_eq!((stat("f"), stat("d")), ((65534, 77, 0o644), (65534, 77, 0o2755)));
}
