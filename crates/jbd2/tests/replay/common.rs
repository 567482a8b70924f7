//! Images, mounts and the judges.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use dentree_blockdev::{Access, BlockDevice, FileDevice};
use dentree_jbd2::{Error, JournalLocation, Recovered, recover};
use dentree_testing::{LoopDevice, LoopMount};
use tempfile::TempDir;

/// The file system's superblock on a device.
pub const SUPERBLOCK: Range<usize> = 1024..2048;

/// `Err`: the program is missing or failed.
pub fn run(program: &str, args: &[&str]) -> Result<Output, String> {
    let output = Command::new(program).args(args).env("LC_ALL", "C").output();
    let output = output.map_err(|error| format!("{program} is missing here: {error}"))?;
    if output.status.success() {
        return Ok(output);
    }
    let text =
        String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    Err(format!("{program} {args:?}: {}: {text}", output.status))
}

pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// In memory if possible.
fn image_dir() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// An image in a temporary directory.
pub struct Image {
    dir: TempDir,
    pub path: PathBuf,
}

impl Image {
    /// Created by mke2fs.
    pub fn new(options: &[&str]) -> Result<Image, String> {
        let dir = image_dir();
        let path = dir.path().join("image");
        let args =
            [&["-q", "-F", "-E", "lazy_itable_init=0,nodiscard"], options, &[text(&path), "16M"]].concat();
        run("mke2fs", &args)?;
        Ok(Image { dir, path })
    }

    /// A copy in the same directory.
    pub fn copy(&self, name: &str) -> PathBuf {
        let copy = self.dir.path().join(name);
        std::fs::copy(&self.path, &copy).unwrap();
        copy
    }

    /// A copy with other bytes in a journal block.
    pub fn patched(&self, name: &str, journal_block: u64, at: usize, bytes: &[u8]) -> Image {
        let location = location(&self.path);
        let mut left = journal_block;
        let run = location.runs.iter().find(|&&(_, count)| {
            let is_here = left < count;
            left -= if is_here { 0 } else { count };
            is_here
        });
        let start = usize::try_from(run.unwrap().0 + left).unwrap() * location.block_size + at;
        let mut all = std::fs::read(&self.path).unwrap();
        all[start..start + bytes.len()].copy_from_slice(bytes);
        let dir = image_dir();
        let path = dir.path().join(name);
        std::fs::write(&path, all).unwrap();
        Image { dir, path }
    }

    /// Whether the kernel mounts it.
    pub fn mounts(&self) -> bool {
        Mount::new(&self.copy("mounted"), "ro").is_ok()
    }

    pub fn open(&self) -> Arc<FileDevice> {
        Arc::new(FileDevice::open(&self.path, Access::ReadOnly).unwrap())
    }

    pub fn recover(&self) -> Result<Recovered, Error> {
        recover(self.open(), &location(&self.path))
    }
}

/// Parsed from debugfs.
pub fn location(image: &Path) -> JournalLocation {
    let stats = run("debugfs", &["-R", "stats -h", text(image)]).unwrap();
    let stats = String::from_utf8_lossy(&stats.stdout).into_owned();
    let size = stats.lines().find_map(|line| line.strip_prefix("Block size:")).unwrap();
    let stat = run("debugfs", &["-R", "stat <8>", text(image)]).unwrap();
    let stat = String::from_utf8_lossy(&stat.stdout).into_owned();
    let mut runs = Vec::new();
    // `(0-11):33-44, (IND):45, (12):46`, over several lines.
    for part in stat.split_once("TOTAL").map_or(&*stat, |(blocks, _)| blocks).split('(').skip(1) {
        let Some((logical, physical)) = part.split_once("):") else { continue };
        if logical.starts_with(|first: char| first.is_ascii_digit()) {
            let (first, last) = range(physical);
            runs.push((first, last - first + 1));
        }
    }
    JournalLocation { block_size: size.trim().parse().unwrap(), runs }
}

fn range(text: &str) -> (u64, u64) {
    let text = text.split([',', '\n']).next().unwrap().trim();
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    (first.parse().unwrap(), last.parse().unwrap())
}

/// A mount over a writable loop device: even a read-only mount replays the journal.
pub struct Mount {
    // Dropped first.
    _mount: LoopMount,
    pub dir: TempDir,
    _device: LoopDevice,
}

impl Mount {
    pub fn new(image: &Path, options: &str) -> Result<Mount, String> {
        let dir = tempfile::tempdir().unwrap();
        let device = LoopDevice::new(image, &[])?;
        let mount = LoopMount::of(&device, dir.path(), options)?;
        Ok(Mount { _mount: mount, dir, _device: device })
    }
}

/// A device without what a replay changes in both superblocks.
pub fn bytes(device: &dyn BlockDevice, location: &JournalLocation) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(device.size()).unwrap()];
    device.read_at(0, &mut bytes).unwrap();
    bytes[SUPERBLOCK].fill(0);
    let journal = usize::try_from(location.runs[0].0).unwrap() * location.block_size;
    bytes[journal..journal + SUPERBLOCK.len()].fill(0);
    bytes
}

/// The reference for replays.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Judges {
    /// e2fsck, and the kernel where available.
    Both,
    /// e2fsck has a known defect.
    Kernel,
}

/// `s_last_orphan` is set.
fn has_orphans(device: &dyn BlockDevice) -> bool {
    let mut first = [0; 4];
    device.read_at(SUPERBLOCK.start as u64 + 0xE8, &mut first).unwrap();
    first != [0; 4]
}

/// Checks that our replay and the judges' give the same bytes.
pub fn assert_same_replay(image: &Image, what: &str, judges: Judges) -> Recovered {
    let location = location(&image.path);
    let before = std::fs::read(&image.path).unwrap();
    let recovered = image.recover().unwrap_or_else(|error| panic!("{what}: {error}"));
    let ours = bytes(&*recovered.device, &location);

    let by_kernel = image.copy("kernel");
    match Mount::new(&by_kernel, "ro") {
        Ok(mount) if has_orphans(&*recovered.device) => {
            // The mount also frees orphans.
            drop(mount);
            println!("{what}: not compared with the kernel: it has freed orphans");
        }
        Ok(mount) => {
            drop(mount);
            assert_same_blocks(&ours, &by_kernel, &location, &format!("{what}, kernel"));
        }
        Err(reason) => println!("not compared with the kernel: {reason}"),
    }
    let by_e2fsck = image.copy("e2fsck");
    if judges == Judges::Both {
        // 1: errors corrected.
        let output =
            Command::new("e2fsck").args(["-y", "-E", "journal_only"]).arg(&by_e2fsck).output().unwrap();
        assert!(matches!(output.status.code(), Some(0 | 1)), "{what}: {output:?}");
        assert_same_blocks(&ours, &by_e2fsck, &location, &format!("{what}, e2fsck"));
    }
    assert!(std::fs::read(&image.path).unwrap() == before, "{what}: replay changed the image");
    recovered
}

fn assert_same_blocks(ours: &[u8], theirs: &Path, location: &JournalLocation, what: &str) {
    let theirs = FileDevice::open(theirs, Access::ReadOnly).unwrap();
    let theirs = bytes(&theirs, location);
    let size = location.block_size;
    let differ: Vec<usize> = ours
        .chunks(size)
        .zip(theirs.chunks(size))
        .enumerate()
        .filter_map(|(block, (a, b))| (a != b).then_some(block))
        .collect();
    assert!(differ.is_empty() && ours.len() == theirs.len(), "{what}: blocks {differ:?} differ");
}
