//! Images in the formats of virtual machines, and compressed ones, through qemu-nbd and nbdkit.

mod common;
mod mounts;
mod population;

use common::{Image, assert_clean, assert_same_lines, can_mount, dentree, succeeds, text, tool};
use dentree_testing::{detach, linger, wait_until};
use mounts::{Mounted, mountable};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Names of formats, and options of qemu-img's conversion to them.
const WRITABLE: [(&str, &[&str]); 4] =
    [("vmdk", &[]), ("vdi", &[]), ("vhdx", &[]), ("vpc", &["-o", "force_size"])];

/// Whether a program is there; prints why not.
fn has(program: &str) -> bool {
    let has = Command::new(program).arg("--version").output().is_ok();
    if !has {
        println!("skipped: {program} is not installed");
    }
    has
}

/// The image in another format, beside it.
fn convert(image: &Image, format: &str, options: &[&str]) -> PathBuf {
    let made = image.dir.path().join(format!("disk.{format}"));
    let args =
        ["convert", "-f", "raw", "-O", format].into_iter().chain(options.iter().copied()).map(Path::new);
    tool("qemu-img", args.chain([&*image.file, &made]));
    made
}

/// Back to a raw image, in place of the first.
fn convert_back(image: &Image, format: &str, made: &Path) {
    let args = ["convert", "-f", format, "-O", "raw"].map(Path::new);
    tool("qemu-img", args.into_iter().chain([made, &image.file]));
}

/// Programs other than this that have `file` among their arguments.
fn users(file: &Path) -> Vec<Pid> {
    let has_file = |pid: &Pid| {
        let args = fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
        let name = args.split(|byte| *byte == 0).next().unwrap_or_default();
        !name.ends_with(b"dentree")
            && args.windows(file.as_os_str().len()).any(|part| part == file.as_os_str().as_bytes())
    };
    let pids =
        fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    pids.filter_map(Pid::from_raw).filter(has_file).collect()
}

#[test]
fn an_image_reads_the_same_in_every_format() {
    if !can_mount() || !has("qemu-img") || !has("qemu-nbd") {
        return;
    }
    for kind in [&["-t", "ext4"][..], &["-t", "ext4", "-b", "1024", "-O", "inline_data"], &["-t", "ext3"]] {
        let image = Image::new(64, kind);
        population::everything(&image.mount("rw").unwrap().at);
        let raw = succeeds(["checksum".as_ref(), image.file.as_os_str()]);
        let others: [(&str, &[&str]); 2] = [
            ("qcow2", &["-c", "-o", "compression_type=zstd"]),
            ("vmdk", &["-o", "subformat=streamOptimized"]),
        ];
        for (format, options) in WRITABLE.into_iter().chain(others) {
            let made = convert(&image, format, options);
            assert_same_lines(&succeeds(["checksum".as_ref(), made.as_os_str()]), &raw);
            assert_eq!(users(&made), [], "{format}");
        }
    }
}

#[test]
fn a_compressed_image_reads_as_what_is_in_it() {
    if !has("nbdkit") || !has("xz") {
        return;
    }
    let image = Image::new(16, &["-t", "ext4"]);
    succeeds(["mkdir", "-p", &image.at("/a/b/c")]);
    let raw = succeeds(["checksum".as_ref(), image.file.as_os_str()]);
    for (pack, ending) in [("gzip", "gz"), ("xz", "xz")] {
        tool(pack, ["-k".as_ref(), image.file.as_os_str()]);
        let packed = image.file.with_extension(format!("img.{ending}"));
        assert_same_lines(&succeeds(["checksum".as_ref(), packed.as_os_str()]), &raw);
        let output = dentree(["mkdir", &format!("{}:/x", packed.display())]);
        assert!(text(&output.stderr).contains("unpack it first"), "{}", text(&output.stderr));
        assert_eq!((output.status.code(), users(&packed)), (Some(1), vec![]));
    }
}

#[test]
fn what_is_written_to_an_image_of_another_format_is_in_it() {
    if !has("qemu-img") || !has("qemu-nbd") {
        return;
    }
    for (format, options) in WRITABLE {
        let image = Image::new(32, &["-t", "ext4"]);
        let made = convert(&image, format, options);
        let tree = image.dir.path().join("tree");
        fs::create_dir(&tree).unwrap();
        for number in 0..50u8 {
            fs::write(tree.join(format!("{number}")), vec![number; 9999]).unwrap();
        }
        succeeds(["cp".as_ref(), "-a".as_ref(), tree.as_os_str(), format!("{}:/", made.display()).as_ref()]);
        succeeds(["rm".as_ref(), format!("{}:/tree/7", made.display()).as_ref() as &std::ffi::OsStr]);
        let ours = succeeds(["checksum".as_ref(), made.as_os_str()]);
        assert_eq!(users(&made), [], "{format}");
        convert_back(&image, format, &made);
        assert_clean(&image.file);
        assert_same_lines(&ours, &succeeds(["checksum".as_ref(), image.file.as_os_str()]));
    }
}

#[test]
fn an_image_that_a_program_writes_has_no_other_writer() {
    if !mountable() || !has("qemu-img") || !has("qemu-nbd") {
        return;
    }
    let image = Image::new(16, &["-t", "ext4"]);
    let made = convert(&image, "vdi", &[]);
    let mounted = Mounted::new(&made, &[]);
    let output = dentree(["mkdir", &format!("{}:/x", made.display())]);
    assert!(text(&output.stderr).contains("is being written by"), "{}", text(&output.stderr));
    drop(mounted);
}

#[test]
fn no_program_stays_when_dentree_is_killed_and_what_was_synced_is_there() {
    if !mountable() || !has("qemu-img") || !has("qemu-nbd") {
        return;
    }
    let image = Image::new(32, &["-t", "ext4"]);
    let made = convert(&image, "vdi", &[]);
    let mut mounted = Mounted::new(&made, &[]);
    let synced = mounted.path().join("synced");
    fs::write(&synced, vec![7; 1 << 20]).unwrap();
    fs::File::open(&synced).unwrap().sync_all().unwrap();
    assert_eq!(users(&made).len(), 1);
    mounted.signal(Signal::KILL);
    let _ = mounted.wait();
    detach(mounted.path());
    wait_until("ended", || users(&made).is_empty());
    convert_back(&image, "vdi", &made);
    tool("sh", ["-c".as_ref(), "e2fsck -fp \"$0\" >&2 || [ $? = 1 ]".as_ref(), image.file.as_os_str()]);
    assert_clean(&image.file);
    assert!(succeeds(["cat", &image.at("/synced")]) == vec![7; 1 << 20]);
}

#[test]
fn no_program_stays_when_dentree_is_killed_while_it_starts_one() {
    if !has("qemu-img") || !has("qemu-nbd") || !has("setpriv") {
        return;
    }
    let image = Image::new(16, &["-t", "ext4"]);
    let made = convert(&image, "vdi", &[]);
    for number in 0..60 {
        let mut child = mounts::dentree().arg("ls").arg(&made).stdout(Stdio::null()).spawn().unwrap();
        // From before its first step until after its last.
        linger(Duration::from_micros(700 * number));
        let _ = child.kill();
        child.wait().unwrap();
    }
    wait_until("ended", || users(&made).is_empty());
}

#[test]
fn a_program_that_is_killed_under_a_mount_is_an_error_and_nothing_hangs() {
    if !mountable() || !has("qemu-img") || !has("qemu-nbd") {
        return;
    }
    let image = Image::new(32, &["-t", "ext4"]);
    let made = convert(&image, "vdi", &[]);
    let mut mounted = Mounted::new(&made, &[]);
    fs::write(mounted.path().join("file"), "content").unwrap();
    for pid in users(&made) {
        kill_process(pid, Signal::KILL).unwrap();
    }
    let file = fs::File::open(mounted.path().join("file")).unwrap();
    assert!(file.sync_all().is_err());
    drop(file);
    dentree_testing::unmount(mounted.path());
    assert!(!mounted.wait().success());
    assert_eq!(users(&made), []);
}

#[test]
fn a_missing_program_is_named_with_its_package_and_a_failing_one_by_what_it_says() {
    if !has("qemu-img") || !has("qemu-nbd") {
        return;
    }
    let image = Image::new(16, &["-t", "ext4"]);
    let made = convert(&image, "vdi", &[]);
    let without =
        Command::new(env!("CARGO_BIN_EXE_dentree")).arg("ls").arg(&made).env("PATH", "/nowhere").output();
    let without = without.unwrap();
    let message = text(&without.stderr);
    assert_eq!(without.status.code(), Some(4));
    assert!(message.contains("qemu-nbd") && message.contains("package qemu-utils"), "{message}");

    let mut bytes = fs::read(&made).unwrap();
    bytes[0x44..0x48].fill(99);
    fs::write(&made, bytes).unwrap();
    let damaged = dentree(["ls".as_ref(), made.as_os_str()]);
    let message = text(&damaged.stderr);
    assert_eq!(damaged.status.code(), Some(1));
    assert!(message.contains("qemu-nbd cannot open it: ") && message.contains("version"), "{message}");
    assert_eq!(users(&made), []);
}
