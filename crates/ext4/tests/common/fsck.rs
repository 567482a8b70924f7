//! Reports of e2fsck, of dumpe2fs and of our own check.

use dentree_blockdev::{Access, FileDevice};
use dentree_ext4::{CheckOptions, Ext4, Options, Scope};
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

/// Returns what there is to repair.
pub fn is_clean(image: &Path) -> Result<(), String> {
    let check = Command::new("e2fsck").arg("-fn").arg(image).output().unwrap();
    let text = String::from_utf8_lossy(&check.stdout).into_owned();
    // Some repairs that `-n` forbids are reported as success. A tree that could be less deep needs
    // none.
    let asks = text.replace("Optimize? no", "").contains("? no");
    if check.status.success() && !asks { own_check(image) } else { Err(text) }
}

fn own_check(image: &Path) -> Result<(), String> {
    let device = FileDevice::open(image, Access::ReadOnly).map_err(|error| error.to_string())?;
    let fs = Ext4::open(Arc::new(device), Options::default()).map_err(|error| error.to_string())?;
    let report = Mutex::new(String::new());
    let found = |finding: dentree_ext4::Finding| *report.lock().unwrap() += &format!("{finding}\n");
    let options = CheckOptions { scope: Scope::All, threads: 2, found: &found, progress: &|_| true };
    fs.check(&options).map_err(|error| error.to_string())?;
    let report = report.into_inner().unwrap();
    if report.is_empty() { Ok(()) } else { Err(format!("e2fsck finds nothing, our check does:\n{report}")) }
}

/// Recovers as at boot. Returns a report of more than replay, orphans and `also`.
pub fn recover(image: &Path, also: &[&str]) -> Result<(), String> {
    let check = Command::new("e2fsck").arg("-fp").arg(image).output().unwrap();
    let text = String::from_utf8_lossy(&check.stdout).into_owned();
    // An image in use has stale free counts in the superblock, and the flag `orphan_present`
    // precedes the orphans.
    let expected = ["recovering journal", "orphan", "count wrong (", "non-contiguous"];
    let unmarked = "orphan_present is set but orphan file is clean.\nCLEARED.";
    // e2fsck clears the orphan file in its last pass, also in the kernel's images.
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

pub fn header(image: &Path, field: &str) -> Option<String> {
    let dump = Command::new("dumpe2fs").arg("-h").arg(image).output().unwrap();
    let text = String::from_utf8_lossy(&dump.stdout).into_owned();
    let line = text.lines().find_map(|line| line.strip_prefix(field))?;
    Some(line.trim_start_matches(':').trim().to_owned())
}

/// Free blocks and inodes: by the superblock, and by the groups.
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
