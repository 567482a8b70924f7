//! Reports of `e2fsck`, of `dumpe2fs` and of our own check on an image.

use dentree_blockdev::{Access, FileDevice};
use dentree_ext4::{CheckOptions, Ext4, Options};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

/// A directory for images, in memory if possible.
pub fn scratch() -> tempfile::TempDir {
    match tempfile::tempdir_in("/dev/shm") {
        Ok(dir) => dir,
        Err(_) => tempfile::tempdir().unwrap(),
    }
}

/// Returns the report if there is anything to repair, by e2fsck or by our own check.
pub fn is_clean(image: &Path) -> Result<(), String> {
    let check = Command::new("e2fsck").arg("-fn").arg(image).output().unwrap();
    let text = String::from_utf8_lossy(&check.stdout).into_owned();
    // For some repairs that `-n` forbids it asks, but reports success. A tree that could be less
    // deep needs no repair.
    let asks = text.replace("Optimize? no", "").contains("? no");
    if check.status.success() && !asks { own_check(image) } else { Err(text) }
}

fn own_check(image: &Path) -> Result<(), String> {
    let device = FileDevice::open(image, Access::ReadOnly).map_err(|error| error.to_string())?;
    let fs = Ext4::open(Arc::new(device), Options::default()).map_err(|error| error.to_string())?;
    let report = Mutex::new(String::new());
    let found = |finding: dentree_ext4::Finding| {
        *report.lock().unwrap() += &format!("pass {}: {finding}\n", finding.pass)
    };
    let options = CheckOptions { threads: 2, found: &found, progress: &|_| true };
    fs.check(&options).map_err(|error| error.to_string())?;
    let report = report.into_inner().unwrap();
    if report.is_empty() { Ok(()) } else { Err(format!("e2fsck finds nothing, our check does:\n{report}")) }
}

/// Replays the journal and frees orphans, as at boot. Returns the report if it has more than that
/// and `also`.
pub fn recover(image: &Path, also: &[&str]) -> Result<(), String> {
    let check = Command::new("e2fsck").arg("-fp").arg(image).output().unwrap();
    let text = String::from_utf8_lossy(&check.stdout).into_owned();
    // Free counts of the superblock are old while a file system is in use, and its orphan_present
    // flag precedes the orphans.
    let expected = ["recovering journal", "orphan", "count wrong (", "non-contiguous"];
    let unmarked = "orphan_present is set but orphan file is clean.\nCLEARED.";
    // It keeps freed orphans in the orphan file until its last pass, which then reports them; the
    // kernel's images do the same.
    let freed = " is not clean.\nCLEARED.";
    let text = text.replace(unmarked, "orphan_present cleared").replace(freed, " had orphans");
    let expected = expected.iter().chain(also);
    let is_rest = |line: &&str| !line.is_empty() && !expected.clone().any(|words| line.contains(words));
    let rest: Vec<&str> = text.lines().filter(is_rest).collect();
    match check.status.code() {
        Some(0 | 1) if rest.is_empty() => Ok(()),
        _ => Err(text),
    }
}

/// A line of `dumpe2fs -h`.
pub fn header(image: &Path, field: &str) -> Option<String> {
    let dump = Command::new("dumpe2fs").arg("-h").arg(image).output().unwrap();
    let text = String::from_utf8_lossy(&dump.stdout).into_owned();
    let line = text.lines().find_map(|line| line.strip_prefix(field))?;
    Some(line.trim_start_matches(':').trim().to_owned())
}

/// Free blocks and inodes: of the superblock, and the sum over groups.
pub fn free_counts(image: &Path) -> [(u64, u64); 2] {
    let number = |field| header(image, field).unwrap().parse().unwrap();
    let dump = Command::new("dumpe2fs").arg(image).output().unwrap();
    let text = String::from_utf8_lossy(&dump.stdout).into_owned();
    let (mut blocks, mut inodes) = (0, 0);
    for line in text.lines().filter(|line| line.contains(" free blocks, ")) {
        let numbers: Vec<u64> = line.split(' ').filter_map(|word| word.trim().parse().ok()).collect();
        (blocks, inodes) = (blocks + numbers[0], inodes + numbers[1]);
    }
    [(number("Free blocks"), number("Free inodes")), (blocks, inodes)]
}
