use super::model::Outcome;
use super::ops::Op;
use dentree_vfs::{Allocate, Identity, OnExisting, SetXattr};
use rustix::fs::*;
use rustix::io::Errno;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A directory of the kernel's file system.
pub struct Kernel {
    pub top: PathBuf,
    here: File,
    _dir: TempDir,
}

/// For this thread.
pub fn become_user(caller: &Identity) {
    if let Identity::User { uid, gid, groups } = caller {
        let groups: Vec<Gid> = groups.iter().map(|&group| Gid::from_raw(group)).collect();
        let (uid, gid) = (Uid::from_raw(*uid), Gid::from_raw(*gid));
        rustix::thread::set_thread_groups(&groups).unwrap();
        rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
        rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
    }
}

impl Kernel {
    pub fn new() -> Self {
        rustix::process::umask(Mode::empty());
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().join("top");
        std::fs::create_dir(&top).unwrap();
        rustix::fs::chmod(dir.path(), Mode::from_raw_mode(0o755)).unwrap();
        rustix::fs::chmod(&top, Mode::from_raw_mode(0o755)).unwrap();
        let here = File::open(&top).unwrap();
        Kernel { top, here, _dir: dir }
    }

    pub fn apply(&self, op: &Op) -> Outcome {
        self.run(op).map_err(Errno::raw_os_error)
    }

    fn open(&self, path: &str, flags: OFlags, mode: u16) -> Result<File, Errno> {
        // Otherwise a pipe without a reader would wait.
        let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK;
        Ok(openat(&self.here, path, flags, Mode::from_raw_mode(mode.into()))?.into())
    }

    fn run(&self, op: &Op) -> Result<Vec<u64>, Errno> {
        let here = &self.here;
        let mode = |mode: u16| Mode::from_raw_mode(mode.into());
        match op {
            Op::Create { path, exclusive, mode } => {
                let mut flags = OFlags::CREATE | OFlags::WRONLY | OFlags::NOFOLLOW;
                flags.set(OFlags::EXCL, *exclusive);
                no_reader(self.open(path, flags, *mode).map(drop))?;
            }
            Op::Mkdir { path, mode: bits } => mkdirat(here, path, mode(*bits))?,
            Op::Mknod { path, fifo, mode: bits } => {
                let kind = if *fifo { FileType::Fifo } else { FileType::CharacterDevice };
                mknodat(here, path, kind, mode(*bits), if *fifo { 0 } else { makedev(1, 3) })?;
            }
            Op::Symlink { target, path } => symlinkat(target, here, path)?,
            Op::Link { from, to } => linkat(here, from, here, to, AtFlags::empty())?,
            Op::Unlink { path } => unlinkat(here, path, AtFlags::empty())?,
            Op::Rmdir { path } => unlinkat(here, path, AtFlags::REMOVEDIR)?,
            Op::Rename { from, to, how } => {
                let flags = match how {
                    OnExisting::Replace => RenameFlags::empty(),
                    OnExisting::Fail => RenameFlags::NOREPLACE,
                    OnExisting::Exchange => RenameFlags::EXCHANGE,
                };
                renameat_with(here, from, here, to, flags)?;
            }
            Op::Chmod { path, mode: bits } => chmodat(here, path, mode(*bits), AtFlags::empty())?,
            Op::Chown { path, uid, gid } => {
                // Without either, the kernel still clears bits; `Vfs` is not called.
                if uid.is_some() || gid.is_some() {
                    let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
                    chownat(here, path, uid, gid, AtFlags::empty())?;
                } else {
                    statat(here, path, AtFlags::empty())?;
                }
            }
            Op::Utimes { path, atime, mtime } => {
                let time = |wanted: Option<Option<i64>>| match wanted {
                    None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
                    Some(None) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
                    Some(Some(seconds)) => Timespec { tv_sec: seconds, tv_nsec: 0 },
                };
                let times = Timestamps { last_access: time(*atime), last_modification: time(*mtime) };
                if atime.is_none() && mtime.is_none() {
                    statat(here, path, AtFlags::empty())?;
                } else {
                    utimensat(here, path, &times, AtFlags::empty())?;
                }
            }
            Op::Truncate { path, size } => {
                let file = no_pipe(self.open(path, OFlags::WRONLY, 0))?;
                no_device(&file)?;
                ftruncate(&file, *size)?;
            }
            Op::Write { path, offset, len, append } => {
                let mut flags = OFlags::WRONLY;
                flags.set(OFlags::APPEND, *append);
                let file = no_pipe(self.open(path, flags, 0))?;
                let data = vec![*len as u8; *len];
                let offset = if *append { 0 } else { *offset };
                let written = no_device(&file)
                    .and_then(|()| file.write_at(&data, offset).map_err(|error| errno(&error)))?;
                return Ok(vec![written as u64]);
            }
            Op::Allocate { path, offset, len, how } => {
                let file = no_pipe(self.open(path, OFlags::WRONLY, 0))?;
                no_device(&file)?;
                let flags = match how {
                    Allocate::Reserve => FallocateFlags::empty(),
                    Allocate::ReserveKeepSize => FallocateFlags::KEEP_SIZE,
                    Allocate::PunchHole => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                    Allocate::ZeroRange => FallocateFlags::ZERO_RANGE,
                    Allocate::ZeroRangeKeepSize => FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
                };
                fallocate(&file, flags, *offset, *len)?;
            }
            Op::SetXattr { path, name, len, how } => {
                let flags = match how {
                    SetXattr::Any => XattrFlags::empty(),
                    SetXattr::Create => XattrFlags::CREATE,
                    SetXattr::Replace => XattrFlags::REPLACE,
                };
                setxattr(self.by_path(path), *name, &vec![b'v'; *len], flags)?;
            }
            Op::RemoveXattr { path, name } => removexattr(self.by_path(path), *name)?,
            Op::Stat { path } => {
                let stat = statat(here, path, AtFlags::empty())?;
                return Ok(vec![stat.st_mode.into(), stat.st_uid.into(), stat.st_gid.into()]);
            }
            Op::List { path } => {
                let dir = self.open(path, OFlags::RDONLY | OFlags::DIRECTORY, 0)?;
                let entries = Dir::new(dir)?.count();
                return Ok(vec![entries as u64 - 2]);
            }
        }
        Ok(Vec::new())
    }

    fn by_path(&self, path: &str) -> PathBuf {
        Path::new("/proc/self/fd").join(raw(&self.here)).join(path)
    }
}

fn raw(file: &File) -> String {
    std::os::fd::AsRawFd::as_raw_fd(file).to_string()
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// ENXIO: no reader, but permissions are checked.
fn no_reader(opened: Result<(), Errno>) -> Result<(), Errno> {
    if opened == Err(Errno::NXIO) { Ok(()) } else { opened }
}

/// As `Vfs` for files that are not regular.
fn no_pipe(opened: Result<File, Errno>) -> Result<File, Errno> {
    opened.map_err(|errno| if errno == Errno::NXIO { Errno::INVAL } else { errno })
}

fn no_device(file: &File) -> Result<(), Errno> {
    let kind = FileType::from_raw_mode(fstat(file)?.st_mode);
    if kind == FileType::RegularFile { Ok(()) } else { Err(Errno::INVAL) }
}
