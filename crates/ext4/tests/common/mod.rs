//! Images made by mke2fs, and their comparison with the kernel's mount.
#![allow(dead_code, reason = "each test file uses its part")]

pub mod cuts;
pub mod fsck;
pub mod ops;
pub mod story;
pub mod writing;

use dentree_blockdev::{Access, FileDevice};
use dentree_ext4::{Ext4, Node, Options};
use dentree_testing::LoopMount;
use dentree_vfs::{Attr, Extent, FileSystem, FileType, Ino, ReaddirStart};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use tempfile::TempDir;

/// The directory is removed with its last image.
pub struct Image {
    scratch: Arc<TempDir>,
    name: &'static str,
}

impl Image {
    /// mke2fs makes it from the tree that `fill` creates.
    pub fn new(options: &str, size: &str, fill: impl FnOnce(&Path)) -> Image {
        let scratch = Arc::new(tempfile::tempdir().unwrap());
        let tree = scratch.path().join("tree");
        fs::create_dir(&tree).unwrap();
        fill(&tree);
        let image = Image { scratch, name: "image" };
        let mut mke2fs = Command::new("mke2fs");
        mke2fs.args(["-q", "-F"]).args(options.split_whitespace()).arg("-d").arg(&tree);
        run(mke2fs.arg(image.path()).arg(size));
        fs::remove_dir_all(tree).unwrap();
        image
    }

    pub fn path(&self) -> PathBuf {
        self.scratch.path().join(self.name)
    }

    /// The file does not exist yet.
    pub fn beside(&self, name: &'static str) -> Image {
        Image { scratch: self.scratch.clone(), name }
    }

    pub fn open(&self) -> Ext4 {
        self.try_open().unwrap()
    }

    pub fn try_open(&self) -> dentree_ext4::Result<Ext4> {
        let device = FileDevice::open(self.path(), Access::ReadOnly).unwrap();
        Ext4::open(Arc::new(device), Options::default())
    }

    pub fn debugfs(&self, commands: &str) -> String {
        let script = self.scratch.path().join("script");
        fs::write(&script, commands).unwrap();
        run(Command::new("debugfs").arg("-w").arg("-f").arg(&script).arg(self.path()))
    }

    /// Read-only; `None`, with the reason printed, if impossible.
    pub fn mount(&self) -> Option<Mount> {
        Mount::new(self, "ro")
    }

    /// The kernel replays the journal into the image.
    pub fn mount_and_replay(&self) -> Option<Mount> {
        Mount::new(self, "noatime")
    }

    pub fn change(&self, options: &str, change: impl FnOnce(&Path)) -> Option<()> {
        let mount = Mount::new(self, options)?;
        change(mount.path());
        Some(())
    }

    /// Skipped without a mount.
    pub fn agrees_with_the_kernel(&self) {
        if let Some(mount) = self.mount() {
            compare(&self.open(), mount.path());
        }
    }
}

/// The command must succeed. Returns its output.
pub fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

pub struct Mount {
    mount: LoopMount,
    _dir: TempDir,
}

impl Mount {
    fn new(image: &Image, options: &str) -> Option<Mount> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: mounting needs root");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        match LoopMount::new(&image.path(), dir.path(), options) {
            Ok(mount) => Some(Mount { mount, _dir: dir }),
            Err(reason) => {
                eprintln!("skipped: {reason}");
                None
            }
        }
    }

    pub fn path(&self) -> &Path {
        self.mount.path()
    }
}

pub fn list(fs: &Ext4, dir: &Node) -> BTreeMap<OsString, (Ino, Option<FileType>)> {
    let mut entries = BTreeMap::new();
    let each = &mut |entry: dentree_vfs::DirEntry<'_>| {
        let name = OsString::from_vec(entry.name.to_vec());
        assert!(entries.insert(name, (entry.ino, entry.kind)).is_none(), "a name comes twice");
        ControlFlow::Continue(())
    };
    fs.readdir(dir, ReaddirStart::First, each).unwrap();
    entries
}

pub fn find(fs: &Ext4, path: &str) -> Node {
    let mut node = fs.load(fs.root()).unwrap();
    for name in path.split('/').filter(|name| !name.is_empty()) {
        let found = fs.lookup(&node, name.as_bytes()).unwrap();
        node = fs.load(found.unwrap_or_else(|| panic!("no {name} of {path}")).ino).unwrap();
    }
    node
}

pub fn read_all(fs: &Ext4, node: &Node) -> Vec<u8> {
    let mut bytes = vec![0xAA; usize::try_from(fs.attr(node).size).unwrap()];
    assert_eq!(fs.read(node, 0, &mut bytes).unwrap(), bytes.len());
    bytes
}

pub fn compare(fs: &Ext4, mount: &Path) {
    compare_directory(fs, fs.root(), mount);
}

fn compare_directory(fs: &Ext4, ino: Ino, path: &Path) {
    let dir = fs.load(ino).unwrap();
    compare_node(fs, &dir, path);
    let ours = list(fs, &dir);
    let theirs: Vec<OsString> = {
        let mut names: Vec<_> = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(ours.keys().collect::<Vec<_>>(), theirs.iter().collect::<Vec<_>>(), "{path:?}");
    for (name, &(child, kind)) in &ours {
        let found = fs
            .lookup(&dir, name.as_bytes())
            .unwrap()
            .unwrap_or_else(|| panic!("{path:?}: {name:?} not found"));
        assert_eq!((found.ino, found.kind), (child, kind));
        let path = path.join(name);
        let node = fs.load(child).unwrap();
        assert!(kind.is_none_or(|kind| kind == fs.attr(&node).kind));
        if fs.attr(&node).is_dir() {
            assert_eq!(fs.parent(&node).unwrap(), ino);
            compare_directory(fs, child, &path);
        } else {
            compare_node(fs, &node, &path);
        }
    }
}

fn compare_node(fs: &Ext4, node: &Node, path: &Path) {
    let attr = fs.attr(node);
    let meta = fs::symlink_metadata(path).unwrap();
    assert_eq!(stat_of(&attr), stat_of_kernel(&meta), "{path:?}");
    match attr.kind {
        FileType::Regular => compare_content(fs, node, path),
        FileType::Symlink => {
            let target = OsString::from_vec(fs.readlink(node).unwrap());
            assert_eq!(target, fs::read_link(path).unwrap(), "{path:?}");
        }
        _ => {}
    }
    compare_xattrs(fs, node, path);
}

type Stat = ((u64, u32, u64, u32, u32), (u32, u32, u64, u64, u64), [(i64, i64); 3]);

fn stat_of(attr: &Attr) -> Stat {
    let time = |time: dentree_vfs::Timestamp| (time.seconds, i64::from(time.nanos));
    (
        (attr.ino.0, attr.mode(), u64::from(attr.nlink), attr.uid, attr.gid),
        (attr.rdev_major, attr.rdev_minor, attr.size, attr.blocks, u64::from(attr.block_size)),
        [time(attr.atime), time(attr.mtime), time(attr.ctime)],
    )
}

fn stat_of_kernel(meta: &fs::Metadata) -> Stat {
    let device = meta.rdev();
    (
        (meta.ino(), meta.mode(), meta.nlink(), meta.uid(), meta.gid()),
        (rustix::fs::major(device), rustix::fs::minor(device), meta.size(), meta.blocks(), meta.blksize()),
        [
            (meta.atime(), meta.atime_nsec()),
            (meta.mtime(), meta.mtime_nsec()),
            (meta.ctime(), meta.ctime_nsec()),
        ],
    )
}

/// Extents, then data; small files also in one read.
fn compare_content(fs: &Ext4, node: &Node, path: &Path) {
    let size = fs.attr(node).size;
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NOKEY.raw_os_error()) => {
            assert!(matches!(fs.read(node, 0, &mut [0; 9]), Err(dentree_vfs::Error::Encrypted)), "{path:?}");
            return;
        }
        Err(error) => panic!("{path:?}: {error}"),
    };
    // Before any read: the kernel counts unwritten blocks in its page cache as data.
    let theirs = kernel_extents(&file, size);
    assert_eq!(extents(fs, node, size), theirs, "{path:?}");
    for (start, end) in theirs {
        let mut ours = vec![0xAA; usize::try_from(end - start).unwrap()];
        let mut theirs = ours.clone();
        assert_eq!(fs.read(node, start, &mut ours).unwrap(), ours.len());
        file.read_exact_at(&mut theirs, start).unwrap();
        assert!(ours == theirs, "{path:?}: content from {start} to {end} differs");
    }
    if size < 64 << 20 {
        assert!(read_all(fs, node) == fs::read(path).unwrap(), "{path:?}: content read at once differs");
    }
}

fn extents(fs: &Ext4, node: &Node, size: u64) -> Vec<(u64, u64)> {
    let mut data = Vec::new();
    let mut at = 0;
    while at < size {
        at = match fs.extent(node, at).unwrap() {
            Extent::Hole(end) => end,
            Extent::Data(end) => {
                data.push((at, end));
                end
            }
        };
    }
    data
}

fn kernel_extents(file: &fs::File, size: u64) -> Vec<(u64, u64)> {
    use rustix::fs::{SeekFrom, seek};
    let mut data = Vec::new();
    let mut at = 0;
    while at < size {
        let start = match seek(file, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(rustix::io::Errno::NXIO) => break,
            Err(error) => panic!("{error}"),
        };
        at = seek(file, SeekFrom::Hole(start)).unwrap();
        data.push((start, at));
    }
    data
}

fn compare_xattrs(fs: &Ext4, node: &Node, path: &Path) {
    let mut ours = fs.listxattr(node).unwrap();
    ours.sort();
    let mut theirs = xattr_names(path);
    theirs.sort();
    assert_eq!(ours.iter().map(|n| OsStr::from_bytes(n)).collect::<Vec<_>>(), theirs, "{path:?}");
    for name in theirs {
        let ours = fs.getxattr(node, name.as_bytes()).unwrap();
        let mut value = vec![0; 1 << 17];
        let len = rustix::fs::lgetxattr(path, &name, &mut value[..]).unwrap();
        assert_eq!(ours.as_deref(), value.get(..len), "{path:?}: {name:?}");
    }
}

fn xattr_names(path: &Path) -> Vec<OsString> {
    let mut names = vec![0; 1 << 16];
    let len = rustix::fs::llistxattr(path, &mut names[..]).unwrap();
    let names = names[..len].split(|&byte| byte == 0).filter(|name| !name.is_empty());
    names.map(|name| OsString::from_vec(name.to_vec())).collect()
}
