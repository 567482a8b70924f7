//! Writable mounts: what programs write is in the image, however the mount ends.

mod common;
mod mounts;
mod oracle;

use common::{Image, assert_same_lines, dentree, succeeds, text, tool};
use dentree_testing::{MountPoint, device_for_all, is_mount_point, program_in, unmount, wait_until};
use mounts::{Background, Mounted, Small, mountable};
use oracle::{KINDS, Maker, assert_clean, assert_kernel_agrees, tree};
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

const NOBODY: u32 = 65534;

/// Changes of a tree by programs.
const SCRIPT: &str = "
mkdir -p a/b/c many; echo hello >a/text; cp -p /bin/ls program; ln a/text a/b/hard; ln -s ../text a/b/soft
for n in $(seq 150); do echo $n >many/file-$n; done; rm many/file-*7
mv a/b a/moved; mv -T many a/many; mv a/text a/moved/c/over; echo replaced >x; mv x a/moved/c/over
dd if=/dev/zero of=holes bs=1000 count=1 seek=3000 2>/dev/null; truncate -s 5000000 holes; truncate -s 100 a/many/file-1
fallocate -l 200000 reserved || truncate -s 200000 reserved
seq 100000 >numbers; seq 7 >>numbers; sed -i s/99999/nine/ numbers
mkfifo pipe; mknod null c 1 3; chmod 4711 program; chown 1000:100 numbers; chmod 1777 a/many; rmdir a/moved/c 2>/dev/null || true
exec 3>gone; rm gone; echo still here >&3; exec 3>&-
tar -cf all.tar a; mkdir unpacked; tar -xf all.tar -C unpacked; rm all.tar
";

fn run_script(root: &Path) {
    let output = Command::new("sh").args(["-ec", SCRIPT]).current_dir(root).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
}

/// The tree without its root, whose mode is that of the mount point in one of two cases.
fn lines(root: &Path) -> Vec<u8> {
    let all = tree(root);
    all.lines()
        .filter(|line| !line.starts_with('|'))
        .flat_map(|line| [line.as_bytes(), b"\n"].concat())
        .collect()
}

fn features(image: &Path) -> String {
    text(&tool("dumpe2fs", ["-h".as_ref(), image.as_os_str()]))
}

#[test]
fn what_programs_write_is_in_the_image_whatever_ends_the_mount() {
    if !mountable() {
        return;
    }
    let twin = tempfile::tempdir().unwrap();
    run_script(twin.path());
    let expected = lines(twin.path());
    let ends: [Option<Signal>; 4] = [None, Some(Signal::INT), Some(Signal::TERM), Some(Signal::HUP)];
    for ((name, maker), end) in KINDS.iter().zip(ends.into_iter().cycle()) {
        println!("on {name}, ended by {end:?}");
        let image = maker.make(64);
        let mut ours = Mounted::new(&image.file, &[]);
        run_script(ours.path());
        assert_same_lines(&lines(ours.path()), &expected);
        match end {
            Some(signal) => ours.signal(signal),
            None => unmount(ours.path()),
        }
        assert!(ours.wait().success());
        assert!(!features(&image.file).contains("needs_recovery"));
        assert_clean(&image.file);
        assert_same_lines(&lines(&image.mount("ro").unwrap().at), &expected);
        assert_kernel_agrees(&image);
    }
}

#[test]
fn a_read_only_mount_refuses_to_write_and_leaves_every_byte() {
    if !mountable() {
        return;
    }
    let image = Maker::Mke2fs(&["-t", "ext4"]).make(32);
    succeeds(["touch", &image.at("/file")]);
    let before = fs::read(&image.file).unwrap();
    let mut ours = Mounted::new(&image.file, &["-o", "ro"]);
    let read_only = |error: std::io::Error| assert_eq!(error.raw_os_error(), Some(30), "{error}");
    read_only(fs::write(ours.path().join("file"), "x").unwrap_err());
    read_only(fs::create_dir(ours.path().join("dir")).unwrap_err());
    read_only(fs::remove_file(ours.path().join("file")).unwrap_err());
    assert_eq!(fs::read(ours.path().join("file")).unwrap(), b"");
    // A reader does not exclude a writer.
    let other = Mounted::new(&image.file, &["-o", "ro"]);
    drop(other);
    ours.signal(Signal::INT);
    assert!(ours.wait().success());
    assert!(before == fs::read(&image.file).unwrap());
}

#[test]
fn a_mounted_image_excludes_other_writers() {
    if !mountable() {
        return;
    }
    let image = Maker::Ours(&[]).make(32);
    let mut ours = Mounted::new(&image.file, &[]);
    let place = image.dir.path().join("second");
    fs::create_dir(&place).unwrap();
    let (file, second) = (image.file.to_str().unwrap(), place.to_str().unwrap());
    for args in [
        &["mkdir", &image.at("/a")][..],
        &["mount", file, second],
        &["mkfs", "--force", "--size", "1M", file],
    ] {
        let refused = dentree(args);
        let message = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{args:?}: {message}");
        assert!(
            message.contains("being written by process") && message.contains("(dentree)"),
            "{args:?}: {message}"
        );
    }
    fs::write(ours.path().join("written"), "all the same").unwrap();
    ours.signal(Signal::INT);
    assert!(ours.wait().success());
    succeeds(["touch", &image.at("/behind")]);
    assert_eq!(text(&succeeds(["cat", &image.at("/written")])), "all the same");
    assert_clean(&image.file);
}

#[test]
fn a_file_that_is_open_when_the_signal_comes_is_written_to_its_end() {
    if !mountable() {
        return;
    }
    let image = Maker::Ours(&[]).make(32);
    let mut ours = Mounted::new(&image.file, &[]);
    let mut open = File::create(ours.path().join("open")).unwrap();
    open.write_all(b"before, ").unwrap();
    let path = ours.path().to_owned();
    ours.signal(Signal::TERM);
    wait_until("unmounted", || !is_mount_point(&path));
    open.write_all(b"behind").unwrap();
    drop(open);
    assert!(ours.wait().success());
    assert_clean(&image.file);
    assert_eq!(text(&succeeds(["cat", &image.at("/open")])), "before, behind");
}

#[test]
fn a_second_signal_cuts_open_files_off_and_leaves_a_clean_image() {
    if !mountable() {
        return;
    }
    let image = Maker::Ours(&[]).make(32);
    let mut ours = Mounted::new(&image.file, &[]);
    fs::write(ours.path().join("closed"), "kept").unwrap();
    let mut open = File::create(ours.path().join("open")).unwrap();
    open.write_all(b"before").unwrap();
    open.sync_all().unwrap();
    let path = ours.path().to_owned();
    ours.signal(Signal::INT);
    wait_until("unmounted", || !is_mount_point(&path));
    ours.signal(Signal::INT);
    assert_eq!(ours.wait().code(), Some(130));
    assert_clean(&image.file);
    assert_eq!(text(&succeeds(["cat", &image.at("/open")])), "before");
    assert_eq!(text(&succeeds(["cat", &image.at("/closed")])), "kept");
}

#[test]
fn a_full_image_is_a_full_disk_and_stays_whole() {
    if !mountable() {
        return;
    }
    let image = Maker::Mke2fs(&["-t", "ext4"]).make(16);
    let mut ours = Mounted::new(&image.file, &[]);
    let top = ours.path().to_owned();
    let fill = |name: &str| -> std::io::Result<()> {
        let file = File::create(top.join(name))?;
        for n in 0..32 {
            file.write_all_at(&vec![n as u8 + 1; 1 << 20], n << 20)?;
        }
        file.sync_all()
    };
    let full = fill("large").unwrap_err();
    assert_eq!(full.raw_os_error(), Some(28), "{full}");
    fs::remove_file(top.join("large")).unwrap();
    // The space of the large file is free for the next one at once.
    for round in 0..8 {
        let small = File::create(top.join("small")).unwrap();
        small.write_all_at(&vec![7; 10 << 20], 0).unwrap();
        small.sync_all().unwrap_or_else(|error| panic!("round {round}: {error}"));
        if round < 7 {
            fs::remove_file(top.join("small")).unwrap();
        }
    }
    ours.signal(Signal::INT);
    assert!(ours.wait().success());
    assert!(succeeds(["cat", &image.at("/small")]) == vec![7; 10 << 20]);
    assert_kernel_agrees(&image);
}

#[test]
fn an_ordinary_user_writes_through_fusermount3() {
    if !mountable() {
        return;
    }
    if Command::new("fusermount3").arg("-V").output().is_err() {
        println!("skipped: fusermount3 is not installed");
        return;
    }
    let _device = device_for_all();
    let image = Maker::Ours(&[]).make(32);
    let place = image.dir.path().join("mnt");
    fs::create_dir(&place).unwrap();
    succeeds(["chown", "65534:65534", &image.at("/")]);
    // The build directory may be inaccessible to ordinary users.
    let program = program_in(image.dir.path(), env!("CARGO_BIN_EXE_dentree"));
    let as_nobody = |program: &Path| {
        let mut command = Command::new(program);
        command.uid(NOBODY).gid(NOBODY);
        command
    };
    // The refusal of a read-only image has a hint.
    let refused = as_nobody(&program).arg("mount").args([&image.file, &place]).output().unwrap();
    assert!(refused.status.code() == Some(1), "{}", text(&refused.stderr));
    tool("chown", ["-R", "65534:65534", image.dir.path().to_str().unwrap()]);
    tool("chmod", ["444", image.file.to_str().unwrap()]);
    let refused = as_nobody(&program).arg("mount").args([&image.file, &place]).output().unwrap();
    assert!(text(&refused.stderr).contains("-o ro"), "{}", text(&refused.stderr));
    tool("chmod", ["644", image.file.to_str().unwrap()]);

    let mut command = as_nobody(&program);
    command.arg("mount").args([&image.file, &place]);
    let mut ours = Mounted::start(command, &place);
    let script = format!(
        "cd {}; echo mine >file; mkdir dir; mv file dir; mkfifo pipe; ! mknod null c 1 3 2>/dev/null",
        place.display()
    );
    let written = as_nobody(Path::new("/bin/sh")).args(["-ec", &script]).output().unwrap();
    assert!(written.status.success(), "{}", text(&written.stderr));
    ours.signal(Signal::INT);
    assert!(ours.wait().success());
    assert_eq!(text(&succeeds(["cat", &image.at("/dir/file")])), "mine\n");
    let kernel = image.mount("ro").unwrap();
    assert_eq!(fs::metadata(kernel.at.join("dir/file")).unwrap().uid(), NOBODY);
    drop(kernel);
    assert_clean(&image.file);
}

#[test]
fn in_the_background_the_image_is_closed_when_the_mount_is_gone() {
    if !mountable() {
        return;
    }
    let image = Maker::Ours(&[]).make(32);
    let place = MountPoint(image.dir.path().join("mnt"));
    fs::create_dir(&place.0).unwrap();
    succeeds(["mount", "--background", image.file.to_str().unwrap(), place.0.to_str().unwrap()]);
    let serving = Background::find(&place.0);
    fs::write(place.0.join("file"), "written").unwrap();
    unmount(&place.0);
    serving.wait();
    assert_clean(&image.file);
    assert_eq!(text(&succeeds(["cat", &image.at("/file")])), "written");
}

/// The socket of the system log, if no daemon listens.
struct Log(UnixDatagram);

impl Log {
    fn new() -> Option<Log> {
        // Left behind by a killed test.
        let connected = UnixDatagram::unbound().unwrap().connect("/dev/log");
        if connected.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused) {
            fs::remove_file("/dev/log").unwrap();
        }
        let log = UnixDatagram::bind("/dev/log").ok()?;
        log.set_nonblocking(true).unwrap();
        Some(Log(log))
    }

    fn read(&self) -> String {
        let mut line = [0; 4096];
        let mut all = String::new();
        while let Ok(len) = self.0.recv(&mut line) {
            all += &text(&line[..len]);
        }
        all
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        let _ = fs::remove_file("/dev/log");
    }
}

#[test]
fn the_figures_of_a_mount_name_its_requests() {
    if !mountable() {
        return;
    }
    let image = Image::new(32, &["-t", "ext4"]);
    let mut mounted = Mounted::new(&image.file, &["--stats"]);
    (0..7).for_each(|number| fs::create_dir(mounted.path().join(number.to_string())).unwrap());
    mounted.signal(Signal::INT);
    assert!(mounted.wait().success());
    let told = mounted.told();
    let line = told.lines().find_map(|line| line.trim().strip_prefix("mount  ")).expect(&told);
    assert!(line.contains(" requests over ") && line.contains(" 7 MKDIR"), "{line}");
}

#[test]
fn a_background_mount_on_a_full_disk_reports_to_the_log_and_marks_the_image() {
    if !mountable() {
        return;
    }
    let Some(log) = Log::new() else {
        println!("skipped: somebody has the system's log");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let below = Small::new(&dir.path().join("below"), 6);
    let image = Image { dir, file: below.path().join("disk.img") };
    succeeds(["mkfs", image.file.to_str().unwrap(), "--size", "64M", "-b", "4096"]);
    let place = MountPoint(image.dir.path().join("mnt"));
    fs::create_dir(&place.0).unwrap();
    succeeds(["mount", "--background", image.file.to_str().unwrap(), place.0.to_str().unwrap()]);
    let serving = Background::find(&place.0);
    // It fits into memory.
    let _ = fs::write(place.0.join("large"), vec![7; 7 << 20]);
    unmount(&place.0);
    serving.wait();
    let told = log.read();
    assert!(told.contains("dentree[") && told.contains("disk.img"), "{told:?}");
    // The next open reports it.
    let refused = dentree(["mkdir", &image.at("/a")]);
    assert_ne!(refused.status.code(), Some(0), "{}", text(&refused.stderr));
}
