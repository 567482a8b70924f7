//! `dentree mkfs` on a block device, in a partition of a disk image, and in one that is added.

mod common;
mod oracle;

use common::{assert_clean, can_mount, dentree, from_a_terminal, succeeds, text, tool};
use dentree_testing::{LoopDevice, LoopMount};
use oracle::{end_with, stopped_midway};
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

/// A disk image of 64 MiB with bytes in it, with partitions at 1 (20 MiB), 21 (30 MiB) and 51 MiB
/// (8 MiB). `None` without sfdisk(8), which is printed.
fn disk(dir: &TempDir, table: &str) -> Option<PathBuf> {
    let disk = dir.path().join("disk.img");
    let mut bytes = vec![0xA5; 64 * MIB as usize];
    bytes[..MIB as usize].fill(0);
    fs::write(&disk, bytes).unwrap();
    let rows = "start=2048, size=40960, name=\"first\"\nstart=43008, size=61440\nstart=104448, size=16384\n";
    let rows = if table == "gpt" { rows.to_owned() } else { rows.replace(", name=\"first\"", "") };
    partitioned(&disk, &format!("label: {table}\n{rows}")).then_some(disk)
}

/// Has sfdisk(8) write a table; false where there is none, which is printed.
fn partitioned(disk: &Path, script: &str) -> bool {
    let mut sfdisk = Command::new("/usr/sbin/sfdisk");
    sfdisk.args(["--quiet", "--no-reread", "--wipe", "never"]).arg(disk);
    let Ok(mut child) = sfdisk.stdin(Stdio::piped()).stdout(Stdio::null()).spawn() else {
        println!("skipped: no sfdisk(8)");
        return false;
    };
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    true
}

/// `len` MiB of a disk from MiB `from` on as an image of their own.
fn part(disk: &Path, from: u64, len: u64) -> PathBuf {
    let mut bytes = vec![0; (len * MIB) as usize];
    File::open(disk).unwrap().read_exact_at(&mut bytes, from * MIB).unwrap();
    let part = disk.with_extension("part");
    fs::write(&part, bytes).unwrap();
    part
}

/// A directory with a file of this content.
fn tree(dir: &TempDir, content: impl AsRef<[u8]>) -> PathBuf {
    let tree = dir.path().join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), content).unwrap();
    tree
}

fn args<'a>(disk: &'a Path, more: &[&'a str]) -> Vec<&'a str> {
    [&["mkfs", disk.to_str().unwrap()], more].concat()
}

/// Asserts that mkfs fails with this message, and changes nothing.
fn refused(disk: &Path, more: &[&str], message: &str) {
    let before = fs::read(disk).unwrap();
    let done = dentree(args(disk, more));
    assert!(!done.status.success() && text(&done.stderr).contains(message), "{}", text(&done.stderr));
    assert!(before == fs::read(disk).unwrap(), "{more:?}");
}

#[test]
fn a_file_system_is_made_in_a_partition_and_nothing_around_it_changes() {
    for table in ["gpt", "dos"] {
        let dir = tempfile::tempdir().unwrap();
        let Some(disk) = disk(&dir, table) else { return };
        let tree = tree(&dir, "content");
        let before = fs::read(&disk).unwrap();
        let second = ["--partition", "2"];
        succeeds(args(&disk, &[&second[..], &["-n"]].concat()));
        assert!(fs::read(&disk).unwrap() == before, "-n writes nothing");
        let from = ["--from", tree.to_str().unwrap()];
        let said = text(&succeeds(args(&disk, &[second, from].concat())));
        assert!(said.contains("30M in"), "{said}");
        let after = fs::read(&disk).unwrap();
        let (start, end) = ((21 * MIB) as usize, (51 * MIB) as usize);
        assert!(before[..start] == after[..start] && before[end..] == after[end..], "{table}");
        assert_clean(part(&disk, 21, 30));
        assert_eq!(succeeds(["cat", &format!("{}:/file", disk.display())]), b"content");

        refused(&disk, &second, "file system; --force replaces it");
        refused(&disk, &["--partition", "7"], "7");
        refused(&disk, &["--partition", "1", "--size", "21M"], "--size is larger");
        refused(&disk, &["--partition", "1", "--size", "8K"], "too few");
        refused(&disk, &["--offset", "1048576"], "--offset");
        succeeds(args(&disk, &["--partition", "2", "--force", "--size", "16M"]));
        assert_eq!(dentree(["stat", &format!("{}:/file", disk.display())]).status.code(), Some(1));
        let after = fs::read(&disk).unwrap();
        assert!(before[..start] == after[..start] && before[end..] == after[end..], "{table}");
    }
}

#[test]
fn a_partition_is_added_with_its_file_system_and_the_others_stay_as_they_are() {
    for (table, added) in [("gpt", &[("4", 59, 3), ("5", 62, 40)][..]), ("dos", &[("4", 59, 40)])] {
        let dir = tempfile::tempdir().unwrap();
        let Some(disk) = disk(&dir, table) else { return };
        let tree = tree(&dir, "content");
        let (before, rows_before) = (fs::read(&disk).unwrap(), rows(&disk));
        // Into the space behind the others, and into what the image grows by.
        for (number, start, mib) in added {
            let size = format!("{mib}M");
            let from = ["--append-partition", "--size", &size, "--from", tree.to_str().unwrap()];
            let said = text(&succeeds(args(&disk, &from)));
            assert!(said.contains(&format!("partition {number}: ")), "{said}");
            let verified = text(&tool("sfdisk", ["--verify".as_ref(), disk.as_os_str()]));
            assert!(!verified.contains("overlaps") && !verified.contains("rror(s)"), "{verified}");
            assert!(rows(&disk).last().unwrap().contains(&format!("start={:>12}", start * 2048)));
            assert_clean(part(&disk, *start, *mib));
            let file = ["--partition", number, "cat", &format!("{}:/file", disk.display())];
            assert_eq!(succeeds(file), b"content");
        }
        assert_eq!(rows(&disk)[..rows_before.len()], rows_before);
        let after = fs::read(&disk).unwrap();
        let (start, end) = (MIB as usize, 59 * MIB as usize);
        assert!(before[..440] == after[..440] && before[start..end] == after[start..end]);
        assert_eq!(after.len() as u64, (added.last().unwrap().1 + 41) * MIB);
        mount_added(&dir, &disk, *added.last().unwrap());
    }
}

/// The rows of a table as sfdisk(8) lists them.
fn rows(disk: &Path) -> Vec<String> {
    let listed = text(&tool("sfdisk", ["--dump".as_ref(), disk.as_os_str()]));
    listed.lines().filter(|line| !line.starts_with("last-lba")).map(str::to_owned).collect()
}

/// Has the kernel find a partition by its number, and mount what lies there.
fn mount_added(dir: &TempDir, disk: &Path, (number, start, mib): (&str, u64, u64)) {
    if !can_mount() {
        return;
    }
    let device = LoopDevice::new(disk, &["--partscan"]).unwrap();
    let name = device.path().file_name().unwrap().to_str().unwrap();
    let about = PathBuf::from(format!("/sys/class/block/{name}p{number}"));
    if about.exists() {
        let sectors = |what: &str| fs::read_to_string(about.join(what)).unwrap().trim().parse();
        assert_eq!((sectors("start"), sectors("size")), (Ok(start * 2048), Ok(mib * 2048)));
    } else {
        println!("skipped: the kernel looks for no partitions in loop devices");
    }
    drop(device);
    let [start, size] = [start, mib].map(|mib| (mib * MIB).to_string());
    let device = LoopDevice::new(disk, &["--offset", &start, "--sizelimit", &size]).unwrap();
    let found = text(&tool("blkid", ["-p".as_ref(), device.path().as_os_str()]));
    assert!(found.contains(" TYPE=\"ext4\""), "{found}");
    let mounted = LoopMount::of(&device, &at(dir), "rw").unwrap();
    assert_eq!(fs::read_to_string(mounted.path().join("file")).unwrap(), "content");
}

/// A directory to mount at.
fn at(dir: &TempDir) -> PathBuf {
    let at = dir.path().join("mnt");
    fs::create_dir_all(&at).unwrap();
    at
}

#[test]
fn no_partition_is_added_where_the_table_could_not_stay_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let Some(disk) = disk(&dir, "dos") else { return };
    let append = ["--append-partition", "--size", "8M"];
    let file = dir.path().join("file");
    fs::write(&file, vec![0; MIB as usize]).unwrap();
    refused(&file, &append, "the disk has no partitions");
    partitioned(&disk, "label: dos\nsize=2048\nsize=2048\nsize=2048\nsize=2048\n");
    refused(&disk, &append, "all four records of the MBR are used");
    partitioned(&disk, "label: gpt\n1: start=2048, size=40960\n3: start=43008, size=61440\n");
    refused(&disk, &append, "numbers of partitions are missing");
    partitioned(&disk, "label: gpt\nstart=2048, size=40960\n");
    refused(&disk, &["--append-partition"], "--size says how large");
    refused(&disk, &["--append-partition", "--size", "8K"], "too few");
    refused(&disk, &[&append[..], &["--partition", "1"]].concat(), "--append-partition adds one");
    let before = fs::read(&disk).unwrap();
    succeeds(args(&disk, &[&append[..], &["-n"]].concat()));
    assert!(before == fs::read(&disk).unwrap());
}

/// Runs mkfs on a disk of `mib` MiB with these partitions, with 300 MiB to copy, and presses Ctrl-C
/// in the middle. Returns the disk, its bytes before, and the message.
fn interrupted(dir: &TempDir, mib: u64, script: &str, more: &[&str]) -> Option<(PathBuf, Vec<u8>, String)> {
    let (disk, tree) = (dir.path().join("disk.img"), tree(dir, vec![1; 300 << 20]));
    let fresh = || {
        let _ = fs::remove_file(&disk);
        File::create(&disk).unwrap().set_len(mib * MIB).unwrap();
        partitioned(&disk, script)
    };
    if !fresh() {
        return None;
    }
    let before = fs::read(&disk).unwrap();
    let child = stopped_midway(|| {
        fs::write(&disk, &before).unwrap();
        let mut mkfs = from_a_terminal();
        mkfs.args(args(&disk, more)).arg("--from").arg(&tree);
        mkfs.stderr(Stdio::piped()).spawn().unwrap()
    });
    let output = end_with(child, Signal::INT);
    assert_eq!(output.status.code(), Some(1));
    Some((disk, before, text(&output.stderr)))
}

#[test]
fn an_interruption_adds_no_partition_and_leaves_the_others_and_the_table_as_they_were() {
    let dir = tempfile::tempdir().unwrap();
    let ran = interrupted(&dir, 16, "label: gpt\nstart=2048, size=8192\n", &["--append-partition"]);
    let Some((disk, before, said)) = ran else { return };
    assert!(said.contains("interrupted; nothing was made"), "{said}");
    let after = fs::read(&disk).unwrap();
    assert_eq!(before.len(), after.len());
    let (end, backup) = (5 << 20, 15 << 20);
    assert!(before[..end] == after[..end] && before[backup..] == after[backup..]);
}

#[test]
fn an_interruption_leaves_no_incomplete_file_system_in_a_partition() {
    let dir = tempfile::tempdir().unwrap();
    let script = "label: gpt\nstart=2048, size=8192\nstart=10240, size=819200\n";
    let Some((disk, before, said)) = interrupted(&dir, 410, script, &["--partition", "2"]) else { return };
    assert!(said.contains("interrupted; no file system is left there"), "{said}");
    let after = fs::read(&disk).unwrap();
    let (start, end) = (5 << 20, 405 << 20);
    assert!(before[..start] == after[..start] && before[end..] == after[end..]);
    let part = part(&disk, 5, 400);
    let found = Command::new("/usr/sbin/blkid").arg("-p").arg(&part).output().unwrap();
    assert_eq!(text(&found.stdout), "");
}

#[test]
fn a_block_device_gets_a_file_system_unless_it_is_in_use_or_holds_something() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, vec![0xA5; 32 * MIB as usize]).unwrap();
    let device = LoopDevice::new(&file, &[]).unwrap();
    succeeds(args(device.path(), &["-q", "-L", "ours"]));
    assert_clean(device.path());
    refused(device.path(), &[], "--force replaces it");
    refused(device.path(), &["--append-partition", "--size", "1M"], "--append-partition adds one");
    let mounted = LoopMount::of(&device, &at(&dir), "rw").unwrap();
    let done = dentree(args(device.path(), &["--force"]));
    assert_eq!(done.status.code(), Some(1), "mounted: {}", text(&done.stderr));
    let done = dentree(args(&file, &["--force"]));
    assert_eq!(done.status.code(), Some(1), "behind a loop device: {}", text(&done.stderr));
    drop(mounted);
    assert!(text(&succeeds(["label".as_ref(), device.path().as_os_str()])).contains("ours"));
    succeeds(args(device.path(), &["--force", "-q"]));
    assert_clean(device.path());
}

#[test]
fn a_disk_with_a_partition_table_is_not_made_one_file_system_by_mistake() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let Some(disk) = disk(&dir, "gpt") else { return };
    let device = LoopDevice::new(&disk, &[]).unwrap();
    refused(device.path(), &[], "a partition table");
}
