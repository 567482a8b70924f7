//! The end of a mount, and waiting for the close of the image.
//!
//! A stopped server stands for one that has much to write.

mod common;
mod mounts;

use common::{Image, assert_clean, dentree, text, tool};
use dentree_testing::{device_for_all, is_mount_point, program_in, wait_until};
use mounts::{Mounted, Small, mountable};
use rustix::fs::FlockOperation;
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

const NOBODY: u32 = 65534;

fn start<'a>(args: impl IntoIterator<Item = &'a str>) -> Child {
    mounts::dentree().args(args).stderr(Stdio::piped()).spawn().unwrap()
}

/// Unmounts without waiting, and finds the server stopped before the close. Not by umount(8), which
/// queries the server.
fn stopped_at_the_end(ours: &Mounted) {
    ours.signal(Signal::STOP);
    let mut waiting = start(["umount", ours.path().to_str().unwrap()]);
    wait_until("unmounted", || !is_mount_point(ours.path()));
    waiting.kill().unwrap();
    waiting.wait().unwrap();
}

#[test]
fn when_umount_returns_the_image_is_closed_and_free() {
    if !mountable() {
        return;
    }
    let image = Image::new(64, &["-t", "ext4"]);
    for round in 0..5 {
        let mut ours = Mounted::new(&image.file, &[]);
        fs::write(ours.path().join("file"), vec![round; 20 << 20]).unwrap();
        let ended = dentree(["umount", ours.path().to_str().unwrap()]);
        // At this moment, as a copy would: the lock is not waited for.
        let lock =
            rustix::fs::flock(File::open(&image.file).unwrap(), FlockOperation::NonBlockingLockExclusive);
        assert!(ended.status.success() && ended.stderr.is_empty(), "{}", text(&ended.stderr));
        assert_eq!(lock, Ok(()));
        assert_clean(&image.file);
        assert!(ours.wait().success());
    }
}

#[test]
fn umount_waits_for_the_server_and_says_so() {
    if !mountable() {
        return;
    }
    let image = Image::new(32, &["-t", "ext4"]);
    let mut ours = Mounted::new(&image.file, &[]);
    let place = ours.path().to_owned();
    ours.signal(Signal::STOP);
    let mut waiting = start(["umount", place.to_str().unwrap()]);
    let mut told = String::new();
    BufReader::new(waiting.stderr.take().unwrap()).read_line(&mut told).unwrap();
    assert!(told.contains("waiting for process") && told.contains("(dentree)"), "{told}");
    assert!(!is_mount_point(&place) && waiting.try_wait().unwrap().is_none());
    ours.signal(Signal::CONT);
    assert!(waiting.wait().unwrap().success() && ours.wait().success());
    assert_clean(&image.file);
}

#[test]
fn a_failed_unmount_is_reported() {
    if !mountable() {
        return;
    }
    let image = Image::new(32, &["-t", "ext4"]);
    let refused = |path: &str| {
        let refused = dentree(["umount", path]);
        assert_eq!(refused.status.code(), Some(1), "{}", text(&refused.stderr));
        text(&refused.stderr)
    };
    assert!(refused(image.dir.path().to_str().unwrap()).contains("nothing that dentree serves"));
    assert!(refused("/nowhere/at/all").contains("No such file"));
    let other = Small::new(&image.dir.path().join("memory"), 1);
    assert!(refused(other.path().to_str().unwrap()).contains("nothing that dentree serves"));
    let mut ours = Mounted::new(&image.file, &[]);
    let open = File::create(ours.path().join("open")).unwrap();
    assert!(refused(ours.path().to_str().unwrap()).contains("busy"));
    assert!(is_mount_point(ours.path()));
    drop(open);
    // Until `exec` a program that another test starts has a copy of the file.
    wait_until("unmounted", || dentree(["umount", ours.path().to_str().unwrap()]).status.success());
    assert!(ours.wait().success());

    // A read-only mount has nothing to close; a killed server closes nothing.
    let mut ours = Mounted::new(&image.file, &["-o", "ro"]);
    assert!(dentree(["umount", ours.path().to_str().unwrap()]).status.success());
    assert!(ours.wait().success());
    let mut ours = Mounted::new(&image.file, &[]);
    ours.signal(Signal::KILL);
    ours.wait();
    assert!(refused(ours.path().to_str().unwrap()).contains("not waited for"));
    assert!(!is_mount_point(ours.path()));
}

#[test]
fn a_command_waits_for_a_program_that_is_closing_the_image() {
    if !mountable() {
        return;
    }
    let image = Image::new(32, &["-t", "ext4"]);
    let mut ours = Mounted::new(&image.file, &[]);
    stopped_at_the_end(&ours);
    let mut next = start(["mkdir", &image.at("/behind")]);
    let (mut told, mut rest) = (String::new(), String::new());
    let mut stderr = BufReader::new(next.stderr.take().unwrap());
    stderr.read_line(&mut told).unwrap();
    assert!(told.contains("disk.img: waiting for process") && told.contains("(dentree)"), "{told}");
    ours.signal(Signal::CONT);
    stderr.read_to_string(&mut rest).unwrap();
    assert!(next.wait().unwrap().success() && ours.wait().success(), "{rest}{}", ours.told());
    assert_clean(&image.file);

    // Not for ever, and not while it is mounted.
    let mut ours = Mounted::new(&image.file, &[]);
    let refused = dentree(["mkdir", &image.at("/behind")]);
    assert!(
        text(&refused.stderr).starts_with(&format!("dentree: {}: is being written", image.file.display()))
    );
    stopped_at_the_end(&ours);
    let refused = dentree(["mkdir", &image.at("/behind")]);
    assert!(text(&refused.stderr).contains("is being written by process"), "{}", text(&refused.stderr));
    ours.signal(Signal::CONT);
    assert!(ours.wait().success());
    wait_until("closed", || dentree(["mkdir", "-p", &image.at("/behind")]).status.success());
}

/// A helper for ordinary users that unmounts before it ends: the connection is gone before kernel
/// and server have agreed on a protocol.
const HASTY_HELPER: &str = "#!/bin/sh
PATH=${PATH#*:}
fusermount3 \"$@\" || exit
for place; do :; done
[ \"$1\" = -u ] || exec fusermount3 -u -z -- \"$place\"
";

#[test]
fn an_unmount_before_the_fuse_handshake_is_a_success() {
    if !mountable() {
        return;
    }
    if Command::new("fusermount3").arg("-V").output().is_err() {
        println!("skipped: fusermount3 is not installed");
        return;
    }
    let _device = device_for_all();
    let image = Image::new(32, &["-t", "ext4"]);
    let [place, helpers] = ["mnt", "helpers"].map(|name| image.dir.path().join(name));
    fs::create_dir(&place).unwrap();
    fs::create_dir(&helpers).unwrap();
    let program = program_in(image.dir.path(), env!("CARGO_BIN_EXE_dentree"));
    let script = image.dir.path().join("fusermount3");
    fs::write(&script, HASTY_HELPER).unwrap();
    tool("chmod", ["755", script.to_str().unwrap()]);
    program_in(&helpers, script.to_str().unwrap());
    tool("chown", ["-R", "65534:65534", image.dir.path().to_str().unwrap()]);
    let path = format!("{}:{}", helpers.display(), std::env::var("PATH").unwrap());
    for background in [&[][..], &["--background"]] {
        let mut mount = Command::new(&program);
        mount.env("PATH", &path).uid(NOBODY).gid(NOBODY);
        let ended = mount.arg("mount").args(background).args([&image.file, &place]).output().unwrap();
        assert!(ended.status.success() && ended.stderr.is_empty(), "{}", text(&ended.stderr));
        assert!(!is_mount_point(&place));
        assert_clean(&image.file);
    }
}
