//! `lsattr`, `chattr` and `fstrim` on the mount, and writes beyond the largest file size.

mod common;
mod mounts;
mod oracle;

use common::{assert_clean, assert_same_lines, text, tool};
use dentree_testing::wait_until;
use mounts::{Mounted, mountable};
use oracle::{KINDS, Maker};
use rustix::fs::{CWD, FallocateFlags, Timespec, Timestamps, UTIME_OMIT, XattrFlags};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Flags and version numbers of everything below `root`, as of `lsattr`.
fn shown(root: &Path) -> Vec<u8> {
    let list = "(lsattr -vd .; lsattr -vR .) | grep -v '^$' | sort";
    let output = Command::new("sh").args(["-ec", list]).current_dir(root).output().unwrap();
    assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
    output.stdout
}

fn chattr(flags: &str, path: &Path) -> bool {
    Command::new("chattr").arg(flags).arg(path).output().unwrap().status.success()
}

/// Clears flags that keep a temporary directory from being removed.
struct Clear(PathBuf);

impl Drop for Clear {
    fn drop(&mut self) {
        let _ = Command::new("chattr").args(["-R", "-i", "-a"]).arg(&self.0).output();
    }
}

fn errno<T>(result: Result<T, impl Into<io::Error>>) -> Option<Errno> {
    result.err().map(|error| Errno::from_io_error(&error.into()).unwrap())
}

fn has_tools() -> bool {
    let has = Command::new("lsattr").arg("-V").output().is_ok();
    if !has {
        println!("skipped: lsattr is not installed");
    }
    has && mountable()
}

#[test]
fn flags_agree_with_the_kernel_and_debugfs() {
    if !has_tools() {
        return;
    }
    const SET: [(&str, &str); 6] = [
        ("+i", "immutable"),
        ("+a", "log"),
        ("+sudAScDTP", "dir"),
        ("+sudASct", "file"),
        ("+dA", "both"),
        ("-d", "both"),
    ];
    for (name, maker) in KINDS {
        println!("on {name}");
        let image = maker.make(32);
        let mut ours = Mounted::new(&image.file, &[]);
        fs::create_dir(ours.path().join("dir")).unwrap();
        for file in ["immutable", "log", "file", "both", "plain"] {
            fs::write(ours.path().join(file), file).unwrap();
        }
        for (flags, path) in SET {
            assert!(chattr(flags, &ours.path().join(path)), "{flags} {path}");
        }
        fs::write(ours.path().join("dir/heir"), "").unwrap();
        let seen = shown(ours.path());
        // Flags that need another layout or another way of writing are refused.
        for (flags, path) in [("+j", "file"), ("+F", "dir")] {
            assert!(!chattr(flags, &ours.path().join(path)), "{flags} {path}");
        }
        assert_same_lines(&shown(ours.path()), &seen);
        dentree_testing::unmount(ours.path());
        assert!(ours.wait().success());
        assert_clean(&image.file);
        let stat = text(&tool("debugfs", ["-R".as_ref(), "stat immutable".as_ref(), image.file.as_os_str()]));
        assert!(
            stat.contains("Flags: 0x10") || stat.contains("Flags: 0x80010") || stat.contains("0x10000010"),
            "{stat}"
        );
        {
            let mount = image.mount("rw").unwrap();
            assert_same_lines(&shown(&mount.at), &seen);
            assert!(chattr("-i", &mount.at.join("immutable")) && chattr("-a", &mount.at.join("log")));
            assert!(chattr("+S", &mount.at.join("plain")) && chattr("-A", &mount.at.join("dir")));
        }
        let theirs = shown(&image.mount("ro").unwrap().at);
        let again = Mounted::new(&image.file, &["-o", "ro"]);
        assert_same_lines(&shown(again.path()), &theirs);
        assert!(theirs != seen && !chattr("+i", &again.path().join("plain")));
    }
}

#[test]
fn immutable_files_do_not_change_and_append_only_files_only_grow() {
    if !has_tools() {
        return;
    }
    let image = Maker::Ours(&[]).make(32);
    let mut ours = Mounted::new(&image.file, &[]);
    let root = ours.path().to_owned();
    let at = |name: &str| root.join(name);
    for name in ["fixed", "log"] {
        fs::write(at(name), name).unwrap();
        fs::create_dir(at(&format!("{name} dir"))).unwrap();
        fs::write(at(&format!("{name} dir/file")), "").unwrap();
    }
    let _clear = Clear(root.clone());
    for (flag, name) in [("+i", "fixed"), ("+i", "fixed dir"), ("+a", "log"), ("+a", "log dir")] {
        assert!(chattr(flag, &at(name)));
    }
    for name in ["fixed", "log"] {
        let (file, dir) = (at(name), at(&format!("{name} dir")));
        let open = OpenOptions::new().write(true).open(&file).unwrap();
        let omit = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
        let times = Timestamps { last_access: omit, last_modification: Timespec { tv_sec: 7, tv_nsec: 0 } };
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let no_flags = rustix::fs::AtFlags::empty();
        let refused = [
            ("truncate", errno(File::create(&file))),
            ("set_len", errno(open.set_len(1))),
            ("punch", errno(rustix::fs::fallocate(&open, punch, 0, 4))),
            ("unlink", errno(fs::remove_file(&file))),
            ("rename", errno(fs::rename(&file, at("other")))),
            ("link", errno(fs::hard_link(&file, at("other")))),
            ("chmod", errno(fs::set_permissions(&file, fs::Permissions::from_mode(0o600)))),
            ("chown", errno(std::os::unix::fs::chown(&file, Some(1), None))),
            ("utimes", errno(rustix::fs::utimensat(CWD, &file, &times, no_flags))),
            ("setxattr", errno(rustix::fs::setxattr(&file, "user.k", b"v", XattrFlags::empty()))),
            ("unlink in it", errno(fs::remove_file(dir.join("file")))),
            ("rename in it", errno(fs::rename(dir.join("file"), dir.join("other")))),
            ("rmdir", errno(fs::remove_dir(&dir))),
        ];
        for (what, errno) in refused {
            assert_eq!(errno, Some(Errno::PERM), "{what} of {name}");
        }
    }
    assert_eq!(errno(fs::write(at("fixed dir/new"), "")), Some(Errno::PERM));
    fs::write(at("log dir/new"), "added").unwrap();
    for word in [" and", " more"] {
        let mut log = OpenOptions::new().append(true).open(at("log")).unwrap();
        log.write_all(word.as_bytes()).unwrap();
        log.sync_all().unwrap();
    }
    // FUSE opens and takes writes without asking: they fail when the kernel sends them.
    for name in ["fixed", "log"] {
        let open = OpenOptions::new().write(true).open(at(name)).unwrap();
        open.write_all_at(b"xxxx", 0).unwrap();
        assert!(open.sync_all().is_err());
    }
    ours.signal(rustix::process::Signal::INT);
    assert!(ours.wait().success());
    assert_clean(&image.file);
    let again = Mounted::new(&image.file, &[]);
    let _clear = Clear(again.path().to_owned());
    let read = |name: &str| fs::read_to_string(again.path().join(name)).unwrap();
    assert_eq!(["fixed", "log", "log dir/new"].map(read), ["fixed", "log and more", "added"]);
}

#[test]
fn data_written_before_a_file_became_immutable_is_kept_with_its_times() {
    if !has_tools() {
        return;
    }
    let image = Maker::Ours(&[]).make(32);
    let mut ours = Mounted::new(&image.file, &[]);
    let path = ours.path().join("file");
    let file = File::create(&path).unwrap();
    file.write_all_at(&[7; 300_000], 0).unwrap();
    let before = fs::metadata(&path).unwrap();
    assert!(chattr("+i", &path));
    drop(file);
    dentree_testing::unmount(ours.path());
    assert!(ours.wait().success(), "{}", ours.told());
    assert_clean(&image.file);
    let again = Mounted::new(&image.file, &["-o", "ro"]);
    let path = again.path().join("file");
    let after = fs::metadata(&path).unwrap();
    assert_eq!((after.mtime(), after.mtime_nsec()), (before.mtime(), before.mtime_nsec()));
    assert!(fs::read(path).unwrap() == [7; 300_000]);
}

#[test]
fn fstrim_returns_the_space_of_removed_files() {
    if !mountable() || Command::new("fstrim").arg("-V").output().is_err() {
        println!("skipped: needs fstrim too");
        return;
    }
    let image = Maker::Ours(&[]).make(64);
    let mut ours = Mounted::new(&image.file, &[]);
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
    for name in ["kept", "removed"] {
        fs::write(ours.path().join(name), bytes.repeat(5)).unwrap();
        File::open(ours.path().join(name)).unwrap().sync_all().unwrap();
    }
    let full = fs::metadata(&image.file).unwrap().blocks();
    fs::remove_file(ours.path().join("removed")).unwrap();
    File::open(ours.path()).unwrap().sync_all().unwrap();
    // The space of a removed file is free after the kernel forgets it and a commit. Meanwhile the
    // journal takes some.
    wait_until("given back", || {
        File::open(ours.path()).unwrap().sync_all().unwrap();
        tool("fstrim", [ours.path()]);
        fs::metadata(&image.file).unwrap().blocks() + 10_000_000 / 512 <= full
    });
    dentree_testing::unmount(ours.path());
    assert!(ours.wait().success());
    assert_clean(&image.file);
    let again = Mounted::new(&image.file, &["-o", "ro"]);
    assert!(fs::read(again.path().join("kept")).unwrap() == bytes.repeat(5));
    assert!(
        !Command::new("fstrim").arg(again.path()).output().unwrap().status.success(),
        "for writing alone"
    );
}

#[test]
fn a_write_past_the_largest_size_fails_and_leaves_the_file_unchanged() {
    const FAR: u64 = 1 << 45;
    if !mountable() {
        return;
    }
    for maker in [Maker::Ours(&[]), Maker::Mke2fs(&["-t", "ext2", "-b", "1024"])] {
        let image = maker.make(32);
        let mut ours = Mounted::new(&image.file, &[]);
        let path = ours.path().join("file");
        fs::write(&path, "content").unwrap();
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        assert_eq!(errno(file.set_len(FAR)), Some(Errno::FBIG));
        let far = rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, FAR, 4096);
        assert!(far == Err(Errno::FBIG) || far == Err(Errno::OPNOTSUPP), "{far:?}");
        // The kernel accepts it: FUSE does not know the largest file size.
        file.write_all_at(b"far", FAR).unwrap();
        assert!(file.sync_all().is_err());
        drop(file);
        dentree_testing::unmount(ours.path());
        ours.wait();
        assert_clean(&image.file);
        let again = Mounted::new(&image.file, &["-o", "ro"]);
        assert_eq!(fs::read(again.path().join("file")).unwrap(), b"content");
    }
}
