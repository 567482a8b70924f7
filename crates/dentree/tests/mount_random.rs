//! Random operations on a writable mount, compared with the kernel's ext4.

mod mounts;
mod writing;

use mounts::Loop;
use rustix::fs::{
    Access, AtFlags, CWD, FallocateFlags, Mode, OFlags, RenameFlags, SeekFrom, Timespec, Timestamps,
};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::{BufReader, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Barrier;
use std::thread;
use writing::{Dice, Image, KINDS, end, has, same_trees, shell};

/// The result of an operation, as text.
type Outcome = Result<String, Errno>;

/// An operation on a tree, by paths in it.
#[derive(Debug)]
enum Op {
    Create(String, usize),
    Overwrite(String, u64, usize),
    Append(String, usize),
    Resize(String, u64),
    Space(String, FallocateFlags, u64, u64),
    Read(String),
    Sync(String),
    Stat(String),
    List(String),
    MakeDir(String),
    RemoveDir(String),
    Remove(String),
    Link(String, String),
    Symlink(String, String),
    ReadLink(String),
    Rename(String, String, RenameFlags),
    Permissions(String, u32),
    Times(String, i64),
    /// Create, unlink, write and read.
    Unnamed(String, usize),
}

/// Generates operations on names of its own.
struct Generator {
    dice: Dice,
    tops: Vec<String>,
}

impl Generator {
    fn path(&mut self) -> String {
        let top = self.dice.roll(self.tops.len());
        let mut path = format!("{}{}", self.tops[top], self.dice.roll(4));
        for _ in 0..self.dice.roll(12).saturating_sub(7) / 2 {
            path.push_str(&format!("/{}", self.dice.roll(4)));
        }
        path
    }

    fn op(&mut self) -> Op {
        let (a, b) = (self.path(), self.path());
        let len = [0, 3, 90, 5_000, 40_000][self.dice.roll(5)];
        let at = [0, 100, 4096, 70_000, 3_000_000][self.dice.roll(5)];
        match self.dice.roll(40) {
            0..6 => Op::Create(a, len),
            6..10 => Op::MakeDir(a),
            10..12 => Op::Overwrite(a, at, len),
            12..14 => Op::Append(a, len),
            14 => Op::Resize(a, at + len as u64),
            15 => {
                let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                let how =
                    [FallocateFlags::empty(), FallocateFlags::KEEP_SIZE, punch, FallocateFlags::ZERO_RANGE];
                Op::Space(a, how[self.dice.roll(4)], at, len as u64)
            }
            16..19 => Op::Read(a),
            19 => Op::Sync(a),
            20..24 => Op::Stat(a),
            24..26 => Op::List(a),
            26..28 => Op::RemoveDir(a),
            28..31 => Op::Remove(a),
            31 => Op::Link(a, b),
            32 => Op::Symlink("x/".repeat(1 + len / 300), a),
            33 => Op::ReadLink(a),
            34..36 => Op::Rename(a, b, RenameFlags::empty()),
            36 => {
                let flags = [RenameFlags::NOREPLACE, RenameFlags::EXCHANGE];
                Op::Rename(a, b, flags[self.dice.roll(2)])
            }
            37 => Op::Permissions(a, self.dice.roll(0o10000) as u32),
            38 => Op::Times(a, (self.dice.next() >> 33) as i64 - (1 << 30)),
            _ => Op::Unnamed(a, len),
        }
    }
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + len) as u8).collect()
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).expect("an error of a system call")
}

fn open(path: &Path, flags: OFlags) -> Result<File, Errno> {
    rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::from_raw_mode(0o640)).map(File::from)
}

impl Op {
    /// Runs it in the tree below `top`.
    fn apply(&self, top: &Path) -> Outcome {
        let at = |path: &str| top.join(path);
        match self {
            Op::Create(path, len) => {
                let mut file = open(&at(path), OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY)?;
                file.write_all(&bytes(*len)).map_err(errno)?;
            }
            Op::Overwrite(path, offset, len) => {
                open(&at(path), OFlags::WRONLY)?.write_all_at(&bytes(*len), *offset).map_err(errno)?;
            }
            Op::Append(path, len) => {
                open(&at(path), OFlags::WRONLY | OFlags::APPEND)?.write_all(&bytes(*len)).map_err(errno)?;
            }
            Op::Resize(path, len) => open(&at(path), OFlags::WRONLY)?.set_len(*len).map_err(errno)?,
            Op::Space(path, how, offset, len) => {
                rustix::fs::fallocate(open(&at(path), OFlags::WRONLY)?, *how, *offset, *len)?;
            }
            Op::Read(path) => {
                let mut content = Vec::new();
                open(&at(path), OFlags::RDONLY)?.read_to_end(&mut content).map_err(errno)?;
                return Ok(sum(&content));
            }
            Op::Sync(path) => rustix::fs::fsync(open(&at(path), OFlags::RDONLY)?)?,
            Op::Stat(path) => {
                let stat = fs::symlink_metadata(at(path)).map_err(errno)?;
                let size = if stat.is_dir() { 0 } else { stat.len() };
                return Ok(format!("{:o} {} {size} {}", stat.mode(), stat.nlink(), stat.uid()));
            }
            Op::List(path) => {
                let entries = fs::read_dir(at(path)).map_err(errno)?;
                let mut names: Vec<_> =
                    entries.map(|entry| entry.map(|entry| entry.file_name()).map_err(errno)).collect();
                names.sort_by_key(|name| name.clone().ok());
                return Ok(format!("{names:?}"));
            }
            Op::MakeDir(path) => rustix::fs::mkdir(at(path), Mode::from_raw_mode(0o751))?,
            Op::RemoveDir(path) => rustix::fs::rmdir(at(path))?,
            Op::Remove(path) => rustix::fs::unlink(at(path))?,
            Op::Link(old, new) => rustix::fs::link(at(old), at(new))?,
            Op::Symlink(target, path) => rustix::fs::symlink(target.as_str(), at(path))?,
            Op::ReadLink(path) => return Ok(format!("{:?}", rustix::fs::readlink(at(path), Vec::new())?)),
            Op::Rename(old, new, flags) => rustix::fs::renameat_with(CWD, at(old), CWD, at(new), *flags)?,
            Op::Permissions(path, mode) => {
                rustix::fs::access(at(path), Access::EXISTS)?;
                rustix::fs::chmod(at(path), Mode::from_raw_mode(*mode))?;
            }
            Op::Times(path, seconds) => {
                let time = Timespec { tv_sec: *seconds, tv_nsec: 987_654_321 };
                let times = Timestamps { last_access: time, last_modification: time };
                rustix::fs::utimensat(CWD, at(path), &times, AtFlags::SYMLINK_NOFOLLOW)?;
            }
            Op::Unnamed(path, len) => {
                let file = open(&at(path), OFlags::CREATE | OFlags::EXCL | OFlags::RDWR)?;
                rustix::fs::unlink(at(path))?;
                file.write_all_at(&bytes(*len), 10).map_err(errno)?;
                let mut content = vec![0; *len];
                file.read_exact_at(&mut content, 10).map_err(errno)?;
                return Ok(format!("{} {}", file.metadata().map_err(errno)?.nlink(), sum(&content)));
            }
        }
        Ok(String::new())
    }
}

/// A short digest of content.
fn sum(content: &[u8]) -> String {
    let sum = content.iter().fold(0_u64, |sum, &byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte) + 1));
    format!("{} bytes, sum {sum:x}", content.len())
}

/// What two file systems agree on: not inode numbers, sizes of directories, or times, as the two
/// clocks differ.
fn common_tree(top: &Path) -> String {
    shell(
        top,
        r"find . -mindepth 1 ! -name lost+found -type d -printf '%P|%y|%m|%U|%G|%n\n' | sort
          find . ! -type d -printf '%P|%y|%m|%U|%G|%n|%s|%l\n' | sort
          find . -type f -print0 | sort -z | xargs -0 -r sha256sum",
    )
}

/// Directories that all threads change.
const SHARED: [&str; 2] = ["shared", "shared/below"];
const THREADS: usize = 4;

fn random_changes(kind: &str, seed: u64, steps: usize) {
    // With inline data the kernel shows other bytes before its unmount than after it: it works on
    // extents.
    let (Some(image), Some(theirs)) = (Image::new(kind, "256M"), Image::new("-t ext4", "256M")) else {
        return;
    };
    let (mounted, kernel) = (image.mount(), Loop::new(&theirs.path(), "rw"));
    for top in [mounted.path(), kernel.path()] {
        SHARED.iter().for_each(|shared| fs::create_dir(top.join(shared)).unwrap());
    }
    let barrier = Barrier::new(THREADS);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (ours, kernel, barrier) = (mounted.path(), kernel.path(), &barrier);
            let tops =
                [format!("own-{thread}-"), format!("shared/{thread}-"), format!("shared/below/{thread}-")];
            let mut wishes = Generator { dice: Dice(seed * 1000 + thread as u64), tops: tops.to_vec() };
            scope.spawn(move || {
                barrier.wait();
                let mut done = 0;
                for step in 0..steps {
                    let op = wishes.op();
                    let (answer, must) = (op.apply(ours), op.apply(kernel));
                    assert_eq!(answer, must, "{kind}: thread {thread}, step {step}: {op:?}");
                    done += usize::from(must.is_ok());
                }
                assert!(done > steps / 4, "only {done} of {steps} did anything");
            });
        }
    });
    let shown = common_tree(mounted.path());
    same_trees(&shown, &common_tree(kernel.path()));
    drop(kernel);
    image.finish(mounted, common_tree);
    let mounted = image.mount();
    same_trees(&shown, &common_tree(mounted.path()));
    end(mounted);
    image.check();
}

#[test]
fn random_changes_by_several_threads_come_out_as_on_the_kernels_ext4() {
    for (seed, kind) in (1..).zip(KINDS) {
        // Only extents have unwritten space.
        if kind != "-t ext3" && kind != "-t ext2" {
            random_changes(kind, seed, 1200);
        }
    }
}

#[test]
fn the_kernel_and_dentree_continue_each_others_images() {
    for kind in KINDS {
        let Some(image) = Image::new(kind, "64M") else { return };
        let mut wishes = Generator { dice: Dice(5), tops: vec![String::new()] };
        for _ in 0..3 {
            let mounted = image.mount();
            (0..300).for_each(|_| drop(wishes.op().apply(mounted.path())));
            image.finish(mounted, common_tree);
            let kernel = Loop::new(&image.path(), "rw");
            (0..300).for_each(|_| drop(wishes.op().apply(kernel.path())));
            drop(kernel);
            let shown = common_tree(Loop::new(&image.path(), "ro").path());
            let mounted = image.mount();
            same_trees(&common_tree(mounted.path()), &shown);
            end(mounted);
            image.check();
        }
    }
}

/// The largest size of the file in the second test.
const LONGEST: usize = 3 << 20;

/// A file, and its expected content.
struct Shadowed {
    path: PathBuf,
    /// Two descriptors of one file.
    files: [File; 2],
    shadow: Vec<u8>,
    mapper: Option<Mapper>,
    history: Vec<String>,
}

impl Drop for Shadowed {
    fn drop(&mut self) {
        if thread::panicking() {
            println!(
                "{}: the last of {} steps: {:#?}",
                self.path.display(),
                self.history.len(),
                self.history.rchunks(20).next()
            );
        }
    }
}

/// Another process that maps the file: memory and system calls must agree.
struct Mapper {
    child: Child,
    wishes: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Mapper {
    const SCRIPT: &str = "
import mmap, os, sys
file = os.open(sys.argv[1], os.O_RDWR)
for line in sys.stdin:
    how, at, size, byte = (int(word) for word in line.split())
    skipped = at % mmap.ALLOCATIONGRANULARITY
    with mmap.mmap(file, skipped + size, offset=at - skipped) as memory:
        if how > 0:
            memory[skipped:] = bytes([byte]) * size
            if how > 1: memory.flush()
        sys.stdout.buffer.write(memory[skipped:])
    sys.stdout.buffer.flush()
";

    fn new(file: &Path) -> Self {
        let mut command = Command::new("python3");
        command.args(["-c", Self::SCRIPT]).arg(file).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (wishes, answers) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Mapper { child, wishes, answers: BufReader::new(answers) }
    }

    /// Reads (0), writes (1), or writes and flushes (2) `len` bytes at `at`; returns the bytes
    /// then.
    fn map(&mut self, how: u8, at: usize, len: usize, byte: u8) -> Vec<u8> {
        writeln!(self.wishes, "{how} {at} {len} {byte}").unwrap();
        let mut content = vec![0; len];
        self.answers.read_exact(&mut content).unwrap();
        content
    }
}

impl Drop for Mapper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Shadowed {
    fn new(path: PathBuf) -> Self {
        let open =
            || File::options().read(true).write(true).create(true).truncate(false).open(&path).unwrap();
        let files = [open(), open()];
        let mapper = has("python3").then(|| Mapper::new(&path));
        Shadowed { path, files, shadow: Vec::new(), mapper, history: Vec::new() }
    }

    fn step(&mut self, dice: &mut Dice, extents: bool) {
        let file = self.files[dice.roll(2)].try_clone().unwrap();
        let at = dice.roll(LONGEST);
        let most = [300, 9_000, 200_000][dice.roll(3)];
        let len = 1 + dice.roll(most).min(LONGEST - at - 1);
        let within = dice.roll(self.shadow.len().max(1));
        let byte = dice.roll(256) as u8;
        let done = match dice.roll(if extents { 17 } else { 13 }) {
            0..3 => self.write(&file, at, len, byte),
            3..6 => self.read(&file, within, len),
            6 => self.resize(&file, at),
            7 => self.map(dice.roll(3) as u8, within, len, byte),
            8 => self.map(0, within, len, byte),
            9 => {
                file.sync_all().unwrap();
                "fsync".to_owned()
            }
            10 => {
                // Clean data is read from the file system again.
                file.sync_data().unwrap();
                rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
                "fdatasync and forget".to_owned()
            }
            11 => self.copy(&file, dice),
            12 => self.seek(&file, within),
            13 => self.space(&file, FallocateFlags::empty(), at, len),
            14 => self.space(&file, FallocateFlags::KEEP_SIZE, at, len),
            15 => self.space(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, within, len),
            _ => self.space(&file, FallocateFlags::ZERO_RANGE, at, len),
        };
        self.history.push(done);
        assert_eq!(file.metadata().unwrap().len(), self.shadow.len() as u64);
    }

    fn reach(&mut self, end: usize) {
        if self.shadow.len() < end {
            self.shadow.resize(end, 0);
        }
    }

    fn write(&mut self, file: &File, at: usize, len: usize, byte: u8) -> String {
        self.reach(at + len);
        let target = &mut self.shadow[at..at + len];
        target.iter_mut().enumerate().for_each(|(number, target)| *target = byte.wrapping_add(number as u8));
        file.write_all_at(target, at as u64).unwrap();
        format!("write {len} at {at}")
    }

    fn read(&mut self, file: &File, at: usize, len: usize) -> String {
        let mut content = vec![0; len];
        let read = file.read_at(&mut content, at as u64).unwrap();
        let expected = &self.shadow[at..(at + len).min(self.shadow.len())];
        assert!(content[..read] == *expected, "read {len} at {at} differs");
        format!("read {len} at {at}")
    }

    fn resize(&mut self, file: &File, len: usize) -> String {
        file.set_len(len as u64).unwrap();
        self.shadow.resize(len, 0);
        format!("truncate to {len}")
    }

    fn map(&mut self, how: u8, at: usize, len: usize, byte: u8) -> String {
        let len = len.min(self.shadow.len() - at);
        if let Some(mapper) = self.mapper.as_mut().filter(|_| len > 0) {
            if how > 0 {
                self.shadow[at..at + len].fill(byte);
            }
            assert!(mapper.map(how, at, len, byte) == self.shadow[at..at + len], "mapped at {at} differs");
        }
        format!("map ({how}) {len} at {at}")
    }

    /// Copies within the file, without overlap.
    fn copy(&mut self, file: &File, dice: &mut Dice) -> String {
        let half = self.shadow.len() / 2;
        let len = 1 + dice.roll(half.min(150_000));
        if half < 2 || len >= half {
            return "nothing to copy".to_owned();
        }
        let (from, to) = (dice.roll(half - len), half + dice.roll(half));
        let mut done = 0;
        while done < len {
            let (mut from_at, mut to_at) = ((from + done) as u64, (to + done) as u64);
            done += rustix::fs::copy_file_range(file, Some(&mut from_at), file, Some(&mut to_at), len - done)
                .unwrap();
        }
        self.reach(to + len);
        self.shadow.copy_within(from..from + len, to);
        format!("copy {len} from {from} to {to}")
    }

    /// A byte that is not zero must not be in a hole.
    fn seek(&mut self, file: &File, at: usize) -> String {
        let size = self.shadow.len();
        let data = match rustix::fs::seek(file, SeekFrom::Data(at as u64)) {
            Err(Errno::NXIO) => size,
            other => other.unwrap() as usize,
        };
        assert!(
            self.shadow[at.min(size)..data].iter().all(|&byte| byte == 0),
            "SEEK_DATA from {at} found {data}"
        );
        if data < size {
            let hole = rustix::fs::seek(file, SeekFrom::Hole(data as u64)).unwrap() as usize;
            assert!(hole > data && hole <= size, "SEEK_HOLE from {data} found {hole} of {size}");
        }
        format!("seek from {at}")
    }

    fn space(&mut self, file: &File, how: FallocateFlags, at: usize, len: usize) -> String {
        rustix::fs::fallocate(file, how, at as u64, len as u64).unwrap();
        if !how.contains(FallocateFlags::KEEP_SIZE) {
            self.reach(at + len);
        }
        if how.intersects(FallocateFlags::PUNCH_HOLE | FallocateFlags::ZERO_RANGE) {
            let end = (at + len).min(self.shadow.len());
            self.shadow[at.min(end)..end].fill(0);
        }
        format!("fallocate {how:?} {len} at {at}")
    }
}

#[test]
fn random_operations_on_one_file_keep_its_content() {
    for (seed, kind) in (1..).zip(KINDS) {
        let Some(image) = Image::new(kind, "64M") else { return };
        let mounted = image.mount();
        let mut file = Shadowed::new(mounted.path().join("file"));
        let mut dice = Dice(seed);
        let extents = kind != "-t ext2" && kind != "-t ext3";
        (0..1500).for_each(|_| file.step(&mut dice, extents));
        assert!(fs::read(&file.path).unwrap() == file.shadow, "{kind}");
        let shadow = std::mem::take(&mut file.shadow);
        drop(file);
        image.finish(mounted, common_tree);
        let mounted = image.mount();
        assert!(fs::read(mounted.path().join("file")).unwrap() == shadow, "{kind}: after a new mount");
        end(mounted);
        image.check();
    }
}
