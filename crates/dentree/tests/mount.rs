//! `dentree mount` of images made by mke2fs and the kernel, compared with the kernel's mount.

mod mounts;

use dentree_testing::{MountPoint, device_for_all, is_mount_point, program_in, said, unmount, wait_until};
use mounts::{Loop, Mounted, dentree, mountable};
use rustix::fs::{SeekFrom, XattrFlags};
use rustix::process::Signal;
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use tempfile::TempDir;

const NOBODY: u32 = 65534;

/// Runs a shell command in `dir`; panics with its output where it fails.
fn shell(dir: &Path, command: &str) -> String {
    let output = Command::new("sh").args(["-ec", command]).current_dir(dir).output().unwrap();
    assert!(output.status.success(), "{command}: {}", said(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Everything that both mounts of a tree must agree on.
fn description(top: &Path) -> Vec<(&'static str, String)> {
    let commands = [
        ("attributes", r"find . -printf '%P|%y|%m|%U|%G|%n|%s|%b|%i|%T@|%C@|%A@|%l\n' | LC_ALL=C sort"),
        ("devices", "find . \\( -type b -o -type c \\) -exec stat -c '%n %t %T' {} + | LC_ALL=C sort"),
        ("xattrs", "find . -print0 | LC_ALL=C sort -z | xargs -0 getfattr -h -d -m - -e hex"),
        ("contents", "find . -type f -size -64M -print0 | LC_ALL=C sort -z | xargs -0 -r sha256sum"),
        ("statfs", "stat -f -c '%S %b %f %a %c %d %l' ."),
        ("missing", "for name in none dir/none text/none; do stat $name 2>&1 || true; done"),
    ];
    commands.map(|(what, command)| (what, shell(top, command))).to_vec()
}

/// Starts of data and holes in turn, by SEEK_DATA and SEEK_HOLE.
fn runs(path: &Path) -> Vec<u64> {
    let file = File::open(path).unwrap();
    let mut found = Vec::new();
    let mut at = 0;
    while let Ok(data) = rustix::fs::seek(&file, SeekFrom::Data(at)) {
        at = rustix::fs::seek(&file, SeekFrom::Hole(data)).unwrap();
        found.extend([data, at]);
    }
    found
}

/// A tree with one of everything.
fn populate(top: &Path) {
    fs::create_dir_all(top.join("dir/sub")).unwrap();
    fs::write(top.join("text"), "hello\n").unwrap();
    fs::write(top.join("empty"), "").unwrap();
    let big: Vec<u8> = (0..5_000_000_u32).flat_map(|n| (n / 7).to_le_bytes()).collect();
    fs::write(top.join("dir/big"), big).unwrap();
    fs::hard_link(top.join("text"), top.join("dir/other-name")).unwrap();
    symlink("dir/big", top.join("fast")).unwrap();
    symlink("x/".repeat(100), top.join("slow")).unwrap();
    fs::write(top.join("n".repeat(255)), "long").unwrap();
    let raw: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(b"not \xff utf-8 \n\t name");
    fs::write(top.join(raw), "raw").unwrap();
    let deep = (0..60).fold(top.to_owned(), |path, level| path.join(format!("level-{level}")));
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("bottom"), "deep").unwrap();
    let sparse = File::create(top.join("sparse")).unwrap();
    sparse.set_len(1 << 33).unwrap();
    for at in [1 << 20, 5 << 20, 1 << 32] {
        sparse.write_all_at(&[7; 50_000], at).unwrap();
    }
    for number in 0..1_500 {
        fs::write(top.join(format!("dir/sub/entry-{number}")), number.to_string()).unwrap();
    }
    shell(
        top,
        "mknod char c 5 300; mknod block b 259 70000; mkfifo pipe; touch -d 1931-07-05 old; \
                chown 1000:100 text; chmod 4751 text; chmod 0 empty; touch -d '2040-01-01 00:00:00.25' late",
    );
    for (path, name, value) in [
        ("text", "user.colour", &b"green"[..]),
        ("text", "trusted.seal", b"\x00\x01"),
        ("dir", "user.large", &[b'v'; 900]),
        ("fast", "trusted.on-a-link", b"1"),
    ] {
        rustix::fs::lsetxattr(top.join(path), name, value, XattrFlags::empty()).unwrap();
    }
}

/// An image of the tree that `populate` makes, by mke2fs with `options`.
fn image_of(dir: &TempDir, options: &str, populate: impl Fn(&Path)) -> PathBuf {
    let tree = dir.path().join("tree");
    fs::create_dir(&tree).unwrap();
    populate(&tree);
    let image = dir.path().join("test.img");
    shell(dir.path(), &format!("mke2fs -q -F {options} -d tree test.img 128M"));
    fs::remove_dir_all(tree).unwrap();
    image
}

/// A small image and a mount point; `None`, with the reason printed, where mounting is impossible.
fn small() -> Option<(TempDir, PathBuf)> {
    if !mountable() {
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let image = image_of(&dir, "", |top| fs::write(top.join("text"), "hello\n").unwrap());
    fs::set_permissions(&image, fs::Permissions::from_mode(0o644)).unwrap();
    fs::create_dir(dir.path().join("mnt")).unwrap();
    Some((dir, image))
}

#[test]
fn the_mount_shows_what_the_kernels_mount_shows() {
    if !mountable() {
        return;
    }
    for options in ["-t ext4", "-t ext2 -b 1024", "-t ext4 -O inline_data,ea_inode -I 512", "-t ext3 -I 128"]
    {
        let dir = tempfile::tempdir().unwrap();
        let image = image_of(&dir, options, populate);
        let kernel = Loop::new(&image, "ro");
        let ours = Mounted::new(&image, &["-o", "ro"]);
        for ((what, expected), (_, found)) in
            description(kernel.path()).into_iter().zip(description(ours.path()))
        {
            let differing = expected.lines().zip(found.lines()).find(|(expected, found)| expected != found);
            assert!(expected == found, "{options}: {what}: {differing:?}");
        }
        for file in ["sparse", "text", "dir/big"] {
            assert_eq!(runs(&kernel.path().join(file)), runs(&ours.path().join(file)), "{options}: {file}");
        }
    }
}

#[test]
fn access_control_lists_hold_and_read_as_in_the_kernels_mount() {
    let Some((dir, image)) = small() else { return };
    {
        let writable = Loop::new(&image, "rw");
        shell(
            writable.path(),
            "echo x >for-nobody; chmod 600 for-nobody; setfacl -m u:65534:r for-nobody; \
                                echo x >against-nobody; chmod 644 against-nobody; setfacl -m u:65534:- against-nobody; \
                                mkdir inherit; setfacl -d -m g:100:rwx inherit",
        );
    }
    let kernel = Loop::new(&image, "ro");
    let ours = Mounted::new(&image, &["-o", "ro,allow_other"]);
    let lists = "getfacl -n for-nobody against-nobody inherit";
    assert_eq!(shell(kernel.path(), lists), shell(ours.path(), lists));
    let reads = |name: &str| {
        let mut cat = Command::new("cat");
        cat.arg(ours.path().join(name)).uid(NOBODY).gid(NOBODY).output().unwrap().status.success()
    };
    assert!(reads("for-nobody"));
    assert!(!reads("against-nobody"));
    drop(dir);
}

#[test]
fn a_directory_of_200_000_entries_is_listed_whole_and_once() {
    if !mountable() {
        return;
    }
    const COUNT: usize = 200_000;
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("test.img");
    shell(dir.path(), "mke2fs -q -N 210000 test.img 256M");
    {
        let writable = Loop::new(&image, "rw");
        for number in 0..COUNT {
            File::create(writable.path().join(format!("entry-{number}"))).unwrap();
        }
    }
    let ours = Mounted::new(&image, &[]);
    for _ in 0..2 {
        let names: Vec<_> =
            fs::read_dir(ours.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names.len(), COUNT + 1, "and lost+found");
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), COUNT + 1);
    }
    for number in (0..COUNT).step_by(1000) {
        fs::metadata(ours.path().join(format!("entry-{number}"))).unwrap();
        fs::metadata(ours.path().join(format!("none-{number}"))).unwrap_err();
    }
}

#[test]
fn sparse_files_are_copied_sparse_and_programs_are_mapped() {
    if !mountable() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    // The block size of the host file system, or runs end elsewhere.
    let image = image_of(&dir, "-b 4096", |top| {
        populate(top);
        fs::copy("/bin/cat", top.join("program")).unwrap();
    });
    // A writable mount does not report holes: the kernel may have unsent data.
    let ours = Mounted::new(&image, &["-o", "ro"]);
    shell(dir.path(), &format!("cp {}/sparse copy", ours.path().display()));
    assert_eq!(runs(&dir.path().join("copy")), runs(&ours.path().join("sparse")));
    let ran = Command::new(ours.path().join("program")).arg(ours.path().join("text")).output().unwrap();
    assert_eq!(ran.stdout, b"hello\n");
}

#[test]
fn many_readers_at_once_read_the_same() {
    if !mountable() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let image = image_of(&dir, "", populate);
    let ours = Mounted::new(&image, &[]);
    let sums = || {
        shell(
            ours.path(),
            "find . -type f -size -64M | LC_ALL=C sort | tr '\\n' '\\0' | xargs -0 sha256sum 2>&1 || true",
        )
    };
    let all: HashSet<String> = thread::scope(|scope| {
        let readers: Vec<_> = (0..4).map(|_| scope.spawn(sums)).collect();
        readers.into_iter().map(|reader| reader.join().unwrap()).collect()
    });
    assert_eq!(all.len(), 1);
}

#[test]
fn a_signal_unmounts_and_ends_it_with_success() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let Some((_dir, image)) = small() else { return };
        let mut ours = Mounted::new(&image, &[]);
        let path = ours.path().to_owned();
        assert_eq!(fs::read(path.join("text")).unwrap(), b"hello\n");
        ours.signal(signal);
        assert!(ours.wait().success());
        assert!(!is_mount_point(&path));
    }
}

#[test]
fn an_error_of_the_image_is_reported_once() {
    let Some((_dir, image)) = small() else { return };
    let place = shell(image.parent().unwrap(), "debugfs -R 'imap text' test.img 2>/dev/null");
    let numbers: Vec<u64> = place
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter_map(|word| {
            word.strip_prefix("0x").map_or(word.parse().ok(), |hex| u64::from_str_radix(hex, 16).ok())
        })
        .collect();
    let [ino, .., block, within] = numbers[..] else { panic!("{place}") };
    File::options()
        .write(true)
        .open(&image)
        .unwrap()
        .write_all_at(&[0xa5; 8], block * 1024 + within)
        .unwrap();
    let mut ours = Mounted::new(&image, &["-o", "ro"]);
    for _ in 0..3 {
        let error = fs::metadata(ours.path().join("text")).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::UCLEAN.raw_os_error()));
    }
    ours.signal(Signal::INT);
    assert!(ours.wait().success());
    let told = ours.told();
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(told.contains("damaged") && told.contains(&format!("inode {ino}")), "{told}");
}

#[test]
fn open_files_outlive_the_first_signal_and_not_the_second() {
    let Some((_dir, image)) = small() else { return };
    let mut ours = Mounted::new(&image, &[]);
    let mut open = File::open(ours.path().join("text")).unwrap();
    let path = ours.path().to_owned();
    ours.signal(Signal::INT);
    wait_until("unmounted", || !is_mount_point(&path));
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "hello\n");
    ours.signal(Signal::INT);
    assert_eq!(ours.wait().code(), Some(130));
    assert!(open.rewind().is_ok());
}

#[test]
fn an_unmount_by_another_program_is_a_success() {
    let Some((_dir, image)) = small() else { return };
    let mut ours = Mounted::new(&image, &[]);
    unmount(ours.path());
    assert!(ours.wait().success());
}

#[test]
fn in_the_background_it_returns_when_the_mount_is_ready() {
    let Some((dir, image)) = small() else { return };
    let place = dir.path().join("mnt");
    let _cleared = MountPoint(place.clone());
    // `output` returns when all writers of its pipes are gone: the background process must have
    // closed them.
    let started = dentree().args(["mount", "--background"]).args([&image, &place]).output().unwrap();
    let serving = mounts::Background::find(&place);
    assert!(started.status.success(), "{}", said(&started));
    assert_eq!(said(&started), "");
    assert_eq!(fs::read(place.join("text")).unwrap(), b"hello\n");
    unmount(&place);
    serving.wait();
}

#[test]
fn a_background_failure_is_reported_and_is_the_exit_status() {
    let Some((dir, image)) = small() else { return };
    let run = |image: &Path, place: &str| {
        let place = dir.path().join(place);
        dentree().args(["mount", "--background"]).args([image, &place]).output().unwrap()
    };
    let failed = run(&image, "nowhere");
    assert_eq!(failed.status.code(), Some(1));
    assert!(said(&failed).contains("does not exist"), "{}", said(&failed));
    fs::write(dir.path().join("no.img"), "no file system").unwrap();
    let failed = run(&dir.path().join("no.img"), "mnt");
    assert!(
        failed.status.code().is_some_and(|code| code > 0) && said(&failed).contains("no.img"),
        "{}",
        said(&failed)
    );
}

#[test]
fn an_ordinary_user_mounts_through_fusermount3() {
    let Some((dir, image)) = small() else { return };
    if Command::new("fusermount3").arg("-V").output().is_err() {
        println!("skipped: fusermount3 is not installed");
        return;
    }
    let _device = device_for_all();
    let place = dir.path().join("mnt");
    std::os::unix::fs::chown(&place, Some(NOBODY), Some(NOBODY)).unwrap();
    // The build directory may be inaccessible to ordinary users.
    let program = program_in(dir.path(), env!("CARGO_BIN_EXE_dentree"));
    let mut command = Command::new(&program);
    command.args(["mount", "-o", "ro,fakeroot"]).args([&image, &place]).uid(NOBODY).gid(NOBODY);
    let mut ours = Mounted::start(command, &place);
    let as_nobody = |program: &str| {
        let mut command = Command::new(program);
        command.arg(place.join("text")).uid(NOBODY).gid(NOBODY);
        command.output().unwrap()
    };
    assert_eq!(as_nobody("cat").stdout, b"hello\n");
    let shown = said(&as_nobody("stat"));
    assert!(shown.contains("nobody"), "{shown}");
    // Not even root may access it.
    assert!(fs::metadata(place.join("text")).is_err());
    ours.signal(Signal::INT);
    assert!(ours.wait().success());
    assert!(!is_mount_point(&place));

    let allowed = fs::read_to_string("/etc/fuse.conf").unwrap_or_default();
    if !allowed.lines().any(|line| line.trim() == "user_allow_other") {
        let mut command = Command::new(&program);
        command.args(["mount", "-o", "ro,allow_other"]).args([&image, &place]).uid(NOBODY).gid(NOBODY);
        let refused = command.output().unwrap();
        assert_eq!(refused.status.code(), Some(1));
        assert!(said(&refused).contains("/etc/fuse.conf"), "{}", said(&refused));
    }
    let mut command = Command::new(&program);
    command.args(["mount", "-o", "ro,suid"]).args([&image, &place]).uid(NOBODY).gid(NOBODY);
    assert!(said(&command.output().unwrap()).contains("only root"));
}

#[test]
fn a_file_system_within_a_disk_is_mounted_from_its_offset_and_partition() {
    let Some((dir, image)) = small() else { return };
    let disk = dir.path().join("disk.img");
    const START: u64 = 1 << 20;
    let content = fs::read(&image).unwrap();
    let file = File::create(&disk).unwrap();
    file.set_len(START + content.len() as u64).unwrap();
    file.write_all_at(&content, START).unwrap();
    let mut record = [0; 66];
    record[4] = 0x83;
    record[8..12].copy_from_slice(&((START / 512) as u32).to_le_bytes());
    record[12..16].copy_from_slice(&((content.len() / 512) as u32).to_le_bytes());
    record[64..].copy_from_slice(&[0x55, 0xaa]);
    file.write_all_at(&record, 446).unwrap();
    for options in [&[][..], &["-o", "offset=1048576"], &["-o", "ro,partition=1"], &["--offset", "1048576"]] {
        let ours = Mounted::new(&disk, options);
        assert_eq!(fs::read(ours.path().join("text")).unwrap(), b"hello\n", "{options:?}");
    }
}

#[test]
fn options_show_in_the_mount_and_wrong_ones_are_usage_errors() {
    let Some((dir, image)) = small() else { return };
    let ours = Mounted::new(&image, &["-o", "noexec,fsname=shown,uid=1234", "-o", "gid=99,noatime"]);
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = table.lines().find(|line| line.contains(ours.path().to_str().unwrap())).unwrap();
    assert!(line.contains("rw,nosuid,nodev,noexec") && line.contains("fuse.dentree shown"), "{line}");
    let text = fs::metadata(ours.path().join("text")).unwrap();
    assert_eq!((text.uid(), text.gid()), (1234, 99));
    for wrong in ["sync", "frobnicate", "offset=x"] {
        let place = dir.path().join("mnt");
        let refused = dentree().args(["mount", "-o", wrong]).args([&image, &place]).output().unwrap();
        assert_eq!(refused.status.code(), Some(2), "{wrong}");
        assert!(said(&refused).contains(wrong), "{}", said(&refused));
    }
}

#[test]
fn an_unusable_mount_point_is_refused_with_the_reason() {
    let Some((dir, image)) = small() else { return };
    fs::write(dir.path().join("file"), "x").unwrap();
    for (place, reason) in [("none", "does not exist"), ("file", "not a directory"), ("", "not empty")] {
        let place = dir.path().join(place);
        let refused = dentree().arg("mount").args([&image, &place]).output().unwrap();
        assert_eq!(refused.status.code(), Some(1));
        assert!(said(&refused).contains(reason), "{}", said(&refused));
    }
    // A mount namespace in which /dev is empty.
    let hidden = format!(
        "mount -t tmpfs none /dev && exec {} mount {} {}",
        env!("CARGO_BIN_EXE_dentree"),
        image.display(),
        dir.path().join("mnt").display()
    );
    let refused = Command::new("unshare").args(["-m", "sh", "-c", &hidden]).output().unwrap();
    assert!(said(&refused).contains("modprobe fuse"), "{}", said(&refused));
}

#[test]
fn a_background_mount_interrupted_at_its_start_does_not_stay() {
    let Some((dir, image)) = small() else { return };
    let place = dir.path().join("mnt");
    let _cleared = MountPoint(place.clone());
    // The first process, played by this test, is gone when the second reports.
    let mut second = dentree();
    second.args(["mount", "--background"]).args([&image, &place]).env("DENTREE_MOUNT_BACKGROUND", "1");
    let mut second =
        second.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(second.stdout.take());
    second.stdin.take().unwrap().flush().unwrap();
    let ended = second.wait().unwrap();
    assert!(!ended.success());
    assert!(!is_mount_point(&place));
}

#[test]
fn memory_pressure_shrinks_the_caches_of_a_mount() {
    const NAMES: u32 = 600;
    if !mountable() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let image = image_of(&dir, "-t ext4", |tree| {
        (0..NAMES).for_each(|n| fs::write(tree.join(n.to_string()), "x").unwrap());
    });
    let fifo = dir.path().join("pressure");
    shell(dir.path(), "mkfifo pressure");
    let mut events = File::options().read(true).write(true).open(&fifo).unwrap();
    let place = MountPoint(dir.path().join("mnt"));
    fs::create_dir(&place.0).unwrap();
    let mut command = dentree();
    command.args(["mount", "--stats"]).args([&image, &place.0]).env("MEMORY_PRESSURE_WATCH", &fifo);
    let mut mounted = Mounted::start(command, &place.0);
    let all_are_there = || (0..NAMES).all(|n| mounted.path().join(n.to_string()).exists());
    assert!(all_are_there());
    events.write_all(b"x").unwrap();
    assert!(all_are_there());
    // An event before the end counts.
    mounted.signal(Signal::INT);
    assert!(mounted.wait().success());
    let told = mounted.told();
    let line = told.lines().find_map(|line| line.trim().strip_prefix("pressure  ")).expect(&told);
    let expected = format!("shrunk 1 times, by {}; ", fifo.display());
    let dropped: Vec<&str> =
        line.strip_prefix(&expected).unwrap_or_else(|| panic!("{line}")).split(' ').collect();
    for what in ["names,", "blocks"] {
        let at = dropped.iter().position(|word| *word == what).unwrap_or_else(|| panic!("{line}"));
        assert!(dropped[at - 1].parse::<u32>().unwrap() > 0, "{what} in {told}");
    }
}
