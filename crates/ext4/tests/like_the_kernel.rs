//! The same random operations on a kernel's mount and here give the same trees, in all fields of
//! `lstat` but inode numbers and sizes of directories, which are packed better here.

mod common;

use common::Image;
use common::ops::{Op, OpMix, Runner, contents, walk};
use common::writing::{Dice, open};
use dentree_vfs::{Allocate, FileSystem, Identity, OnExisting, SetAttr, SetTime, Timestamp, Vfs};
use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags, RenameFlags, Timestamps, XattrFlags};
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// `inline_data` is left out: here files do not return to their inode, and directories leave it
/// earlier.
const KINDS: [&str; 4] =
    ["-t ext4", "-t ext4 -b 1024 -O metadata_csum_seed,orphan_file", "-t ext3 -b 1024", "-t ext2"];

/// Set before each operation, so that changes show.
const BEFORE: i64 = 1_000_000;

#[derive(Clone, PartialEq, Eq, Debug)]
struct Shown {
    mode: u32,
    nlink: u32,
    owner: (u32, u32),
    /// 0 for a directory.
    size: u64,
    /// Sectors; 0 before write-back, as reserved space is an estimate.
    blocks: u64,
    is_modified: bool,
    same_as: String,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

type Tree = BTreeMap<String, Shown>;

struct Kernel {
    top: PathBuf,
    held: Vec<File>,
}

impl Kernel {
    fn open(&self, path: &str, flags: OFlags) -> io::Result<File> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(rustix::fs::open(self.top.join(path), flags, Mode::from_raw_mode(0o750))?.into())
    }

    fn apply(&mut self, op: &Op) -> io::Result<()> {
        let at = |path: &str| self.top.join(path);
        match op {
            Op::Create(path) => self.open(path, OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY).map(drop),
            Op::Mkdir(path) => Ok(rustix::fs::mkdir(at(path), Mode::from_raw_mode(0o750))?),
            Op::Symlink { path, target } => std::os::unix::fs::symlink(target, at(path)),
            Op::Write { path, at, len, fill } => {
                self.open(path, OFlags::WRONLY)?.write_all_at(&common::ops::data(*fill, *len), *at)
            }
            Op::Append { path, len, fill } => {
                let file = self.open(path, OFlags::WRONLY)?;
                file.write_all_at(&common::ops::data(*fill, *len), file.metadata()?.size())
            }
            Op::Truncate { path, size } => self.open(path, OFlags::WRONLY)?.set_len(*size),
            Op::Allocate { path, at, len, how } => {
                let flags = match how {
                    Allocate::Reserve => FallocateFlags::empty(),
                    Allocate::ReserveKeepSize => FallocateFlags::KEEP_SIZE,
                    Allocate::PunchHole => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                    Allocate::ZeroRange => FallocateFlags::ZERO_RANGE,
                    Allocate::ZeroRangeKeepSize => FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
                };
                Ok(rustix::fs::fallocate(self.open(path, OFlags::WRONLY)?, flags, *at, *len)?)
            }
            Op::Chmod { path, permissions } => {
                let file = self.open(path, OFlags::RDONLY)?;
                Ok(rustix::fs::fchmod(file, Mode::from_raw_mode((*permissions).into()))?)
            }
            Op::Rename { from, to, how } => {
                let flags = match how {
                    OnExisting::Replace => RenameFlags::empty(),
                    OnExisting::Fail => RenameFlags::NOREPLACE,
                    OnExisting::Exchange => RenameFlags::EXCHANGE,
                };
                Ok(rustix::fs::renameat_with(rustix::fs::CWD, at(from), rustix::fs::CWD, at(to), flags)?)
            }
            Op::Link { from, to } => fs::hard_link(at(from), at(to)),
            Op::Unlink(path) => fs::remove_file(at(path)),
            Op::Rmdir(path) => fs::remove_dir(at(path)),
            Op::SetXattr { path, name, value } => {
                Ok(rustix::fs::lsetxattr(at(path), *name, value, XattrFlags::empty())?)
            }
            Op::RemoveXattr { path, name } => Ok(rustix::fs::lremovexattr(at(path), *name)?),
            Op::Hold(path) => {
                let held = self.open(path, OFlags::PATH)?;
                self.held.push(held);
                Ok(())
            }
            Op::Release => {
                self.held.drain(..self.held.len() / 2 + self.held.len() % 2);
                Ok(())
            }
            Op::Fsync(path) => at(path).symlink_metadata().map(drop),
            Op::Sync => Ok(()),
        }
    }

    fn sync(&self) {
        rustix::fs::syncfs(File::open(&self.top).unwrap()).unwrap();
    }

    fn tree(&self, with_blocks: bool) -> Tree {
        let (mut tree, mut first) = (Tree::new(), HashMap::new());
        self.walk("", &mut |path, at| {
            let found = at.symlink_metadata().unwrap();
            let same_as = first.entry(found.ino()).or_insert_with(|| path.to_owned()).clone();
            let shown = Shown {
                mode: found.mode(),
                nlink: u32::try_from(found.nlink()).unwrap(),
                owner: (found.uid(), found.gid()),
                size: if found.is_dir() { 0 } else { found.size() },
                blocks: if with_blocks && !found.is_dir() { found.blocks() } else { 0 },
                is_modified: found.mtime() != BEFORE,
                same_as,
                xattrs: xattrs_at(at),
            };
            tree.insert(path.to_owned(), shown);
        });
        tree
    }

    fn walk(&self, path: &str, each: &mut dyn FnMut(&str, &Path)) {
        let at = self.top.join(path.trim_start_matches('/'));
        each(path, &at);
        if at.symlink_metadata().unwrap().is_dir() {
            let names = fs::read_dir(&at).unwrap().map(|entry| entry.unwrap().file_name());
            let names: std::collections::BTreeSet<_> = names.collect();
            names.iter().for_each(|name| self.walk(&format!("{path}/{}", name.to_str().unwrap()), each));
        }
    }

    fn reset_times(&self) {
        let then = rustix::fs::Timespec { tv_sec: BEFORE, tv_nsec: 0 };
        let times = Timestamps { last_access: then, last_modification: then };
        self.walk("", &mut |_, at| {
            rustix::fs::utimensat(rustix::fs::CWD, at, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
        });
    }
}

fn xattrs_at(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let (mut names, mut value) = ([0; 4096], [0; 4096]);
    let len = rustix::fs::llistxattr(path, &mut names).unwrap();
    let names = names[..len].split(|&byte| byte == 0).filter(|name| !name.is_empty());
    names
        .map(|name| {
            let len = rustix::fs::lgetxattr(path, name, &mut value).unwrap();
            (name.to_vec(), value[..len].to_vec())
        })
        .collect()
}

fn tree<F: FileSystem>(vfs: &Vfs<F>, with_blocks: bool) -> Tree {
    let (mut tree, mut first) = (Tree::new(), HashMap::new());
    walk(vfs, &mut |path, inode| {
        let found = inode.attr();
        let same_as = first.entry(found.ino).or_insert_with(|| path.to_owned()).clone();
        let shown = Shown {
            mode: found.mode(),
            nlink: found.nlink,
            owner: (found.uid, found.gid),
            size: if found.is_dir() { 0 } else { found.size },
            blocks: if with_blocks && !found.is_dir() { found.blocks } else { 0 },
            is_modified: found.mtime.seconds != BEFORE,
            same_as,
            xattrs: common::ops::xattrs(vfs, inode),
        };
        tree.insert(path.to_owned(), shown);
    });
    tree
}

fn reset_times<F: FileSystem>(vfs: &Vfs<F>) {
    let then = Some(SetTime::At(Timestamp { seconds: BEFORE, nanos: 0 }));
    walk(vfs, &mut |_, inode| {
        let changes = SetAttr { mtime: then, atime: then, ..SetAttr::default() };
        vfs.set_attr(&Identity::Superuser, inode, &changes).unwrap();
    });
}

fn differences(ours: &Tree, theirs: &Tree) -> String {
    let mut text = String::new();
    for path in ours.keys().chain(theirs.keys().filter(|path| !ours.contains_key(*path))) {
        if ours.get(path) != theirs.get(path) {
            text += &format!("{path:?}: {:?}, but the kernel has {:?}\n", ours.get(path), theirs.get(path));
        }
    }
    text
}

fn do_both(options: &str, seed: u64, steps: usize) {
    let image = Image::new(options, "32M", |_| {});
    // A copy has the same hash seed, so names have the same leaves.
    let theirs = image.beside("theirs");
    fs::copy(image.path(), theirs.path()).unwrap();
    let Some(mount) = theirs.mount_and_replay() else { return };
    let mut kernel = Kernel { top: mount.path().to_owned(), held: Vec::new() };
    let ours = Vfs::new(open(&image)).unwrap();
    let mut runner = Runner::new(&ours);
    let mix = OpMix { top: String::new(), allocates: options.contains("ext4"), durable_one_of: 30 };
    let mut dice = Dice(0x2545_F491 * seed + 1);
    for step in 0..steps {
        kernel.reset_times();
        reset_times(&ours);
        let op = mix.op(&mut dice);
        let (result, must) = (runner.apply(&op), kernel.apply(&op));
        let what = format!("{options}, seed {seed}, step {step}: {op:?}");
        assert_eq!(result.is_ok(), must.is_ok(), "{what}: {result:?}, but the kernel {must:?}");
        let differences = differences(&tree(&ours, false), &kernel.tree(false));
        assert!(differences.is_empty(), "{what}: {differences}");
    }
    drop(runner);
    kernel.held.clear();
    kernel.sync();
    ours.sync().unwrap();
    let (mut shown, must) = (tree(&ours, true), kernel.tree(true));
    for (path, shown) in &mut shown {
        // Fragments, and so map blocks, may differ.
        let there = must.get(path).map_or(0, |must| must.blocks);
        shown.blocks = if shown.blocks.abs_diff(there) <= 1024 / 512 { there } else { shown.blocks };
    }
    let differences = differences(&shown, &must);
    assert!(differences.is_empty(), "{options}, seed {seed}: {differences}");
    for (path, content) in contents(&ours) {
        let must = fs::read(kernel.top.join(path.trim_start_matches('/'))).unwrap();
        assert!(content == must, "{options}, seed {seed}: the content of {path}");
    }
    ours.into_fs().expect("no inode is in use").close().unwrap();
}

#[test]
fn random_operations_leave_the_same_tree_as_the_kernel() {
    rustix::process::umask(Mode::empty());
    for options in KINDS {
        for seed in [1, 5] {
            do_both(options, seed, 200);
        }
    }
}
