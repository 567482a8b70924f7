//! Reports of `e2fsck` and `dumpe2fs` on an image.

use std::path::Path;
use std::process::Command;

/// A directory for images, in memory if possible.
pub fn scratch() -> tempfile::TempDir {
    match tempfile::tempdir_in("/dev/shm") {
        Ok(dir) => dir,
        Err(_) => tempfile::tempdir().unwrap(),
    }
}

/// Returns the report if there is anything to repair.
pub fn is_clean(image: &Path) -> Result<(), String> {
    let check = Command::new("e2fsck").arg("-fn").arg(image).output().unwrap();
    let text = String::from_utf8_lossy(&check.stdout).into_owned();
    // For some repairs that `-n` forbids it asks, but reports success. A tree that could be less
    // deep needs no repair.
    let asks = text.replace("Optimize? no", "").contains("? no");
    if check.status.success() && !asks { Ok(()) } else { Err(text) }
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
