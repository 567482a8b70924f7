//! What e2fsck and the check find in an image, as sets of problem codes.

use dentree_blockdev::{Access, FileDevice};
use dentree_ext4::{CheckOptions, Error, Ext4, Finding, Scope};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::{env, fs};

/// Headings and questions about what was reported already.
const NO_PROBLEMS: [u32; 14] = [
    0x00_000A, // a hint about relocation
    0x00_003E, // "one or more descriptor checksums are invalid"
    0x01_0010, 0x01_0011, 0x01_0013, 0x01_002D, // "inode has illegal blocks", too many of them
    0x01_0037, // "inodes of a corrupt orphan list found"
    0x06_0009, // what it fails to repair, as it may not write
    0x05_0003, 0x05_0006, 0x05_0007, 0x05_000A, // around differences of bitmaps
    0x01_007F, // a tree that could be less deep
    0x01_4006, // a tree that could be shorter
];

/// Damaged superblock, descriptors, journal: e2fsck goes on from a backup that is old, or not at
/// all. What it says besides is not compared.
const GIVES_UP: [u32; 8] =
    [0x00_0004, 0x00_0045, 0x00_000F, 0x00_0011, 0x00_0025, 0x00_0026, 0x00_0027, 0x00_0015];

fn compared(codes: impl Iterator<Item = u32>) -> BTreeSet<u32> {
    let codes: BTreeSet<u32> = codes.filter_map(canonical).collect();
    match GIVES_UP.into_iter().find(|code| codes.contains(code)) {
        Some(code) => BTreeSet::from([code]),
        None => codes,
    }
}

/// What a program says about an image.
pub struct Report {
    pub codes: BTreeSet<u32>,
    pub is_clean: bool,
    /// It has features that the program does not know.
    pub is_refused: bool,
    /// It stopped at a question: its last pass is not complete.
    pub is_aborted: bool,
    pub said: String,
}

/// One number for problems that e2fsck reports in several ways.
fn canonical(code: u32) -> Option<u32> {
    match code {
        _ if NO_PROBLEMS.contains(&code) => None,
        0x01_4007 => None,
        // Runs of bits, single bits.
        0x05_0014..=0x05_0015 => Some(code - 0x10),
        0x05_0016..=0x05_0017 => Some(code - 0xE),
        // Blocks with several users, and their users.
        0x01_1000..=0x01_3FFF => Some(0x01_1002),
        // The superblock is damaged: it gives up, or takes a backup.
        0x00_0008 | 0x00_000B | 0x00_0044 => Some(GIVES_UP[0]),
        _ => Some(code),
    }
}

/// Runs e2fsck with a log of problem codes.
pub struct E2fsck {
    dir: tempfile::TempDir,
}

impl E2fsck {
    pub fn new() -> E2fsck {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let conf = format!("[options]\nproblem_log_filename = {}\n", log.display());
        fs::write(dir.path().join("e2fsck.conf"), conf).unwrap();
        E2fsck { dir }
    }

    fn log(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    pub fn check(&self, image: &Path) -> Report {
        let path = format!("{}:/usr/sbin:/sbin", env::var("PATH").unwrap_or_default());
        let _ = fs::remove_file(self.log());
        let conf = self.dir.path().join("e2fsck.conf");
        let mut e2fsck = Command::new("e2fsck");
        e2fsck.env("PATH", path).env("E2FSCK_CONFIG", conf).arg("-fn").arg(image);
        let output = e2fsck.output().unwrap();
        let said =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        let numbers = log.lines().filter_map(|line| line.strip_prefix("<problem code=\"0x"));
        let numbers = numbers.filter_map(|rest| u32::from_str_radix(rest.get(..6)?, 16).ok());
        let mut codes = compared(numbers);
        if codes.is_empty() && output.status.code() == Some(8) {
            codes.insert(GIVES_UP[0]);
        }
        let is_refused = said.contains("unsupported feature");
        // It reads damaged descriptors from their backups, and calls the result clean.
        let is_patched = said.contains("trying backup blocks");
        let is_clean = codes.is_empty() && output.status.code() == Some(0) && !is_patched;
        let is_aborted = said.contains("e2fsck: aborted");
        Report { codes, is_clean, is_refused, is_aborted, said }
    }
}

/// What the check says.
pub fn check(image: &Path) -> Report {
    let device = Arc::new(FileDevice::open(image, Access::ReadOnly).unwrap());
    let findings = Mutex::new(Vec::new());
    let found = |finding: Finding| findings.lock().unwrap().push(finding);
    let options = CheckOptions { scope: Scope::All, threads: 2, found: &found, progress: &|_| true };
    let checked = Ext4::open_to_check(device, 8 << 20, &found).and_then(|fs| fs.check(&options));
    if let Err(error) = checked {
        let is_refused = matches!(error, Error::Unsupported(_));
        let (codes, said) = (BTreeSet::from([4]), error.to_string());
        return Report { codes, is_clean: false, is_refused, is_aborted: false, said };
    }
    let findings = findings.into_inner().unwrap();
    let codes = compared(findings.iter().map(|finding| finding.code.number()));
    let lines: Vec<String> = findings.iter().map(|finding| format!("{finding} [{}]", finding.code)).collect();
    let is_clean = findings.is_empty();
    Report { codes, is_clean, is_refused: false, is_aborted: false, said: lines.join("\n") }
}
