//! A request of the kernel, parsed.
//!
//! The classic channel sends header, fixed part and names in one piece; the ring sends the fixed
//! part apart from the rest. [`fixed_len`] says where to cut.

use crate::abi::{self, InHeader, fattr};
use crate::known::NodeId;
use dentree_vfs::{SetTime, Timestamp};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use zerocopy::FromBytes;

/// The process that a request is made for.
#[derive(Clone, Copy)]
pub(crate) struct Caller {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) pid: u32,
}

impl Caller {
    /// Stands for CAP_FSETID: FUSE sends the caller, not its capabilities.
    pub(crate) fn is_root(self) -> bool {
        self.uid == 0
    }
}

/// The new attributes of SETATTR.
pub(crate) struct NewAttr {
    pub(crate) mode: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) size: Option<u64>,
    pub(crate) atime: Option<SetTime>,
    pub(crate) mtime: Option<SetTime>,
    pub(crate) ctime: Option<Timestamp>,
    /// The file is open.
    pub(crate) is_of_file: bool,
}

/// A part of a file or of a listing, with room for `size` bytes.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    pub(crate) offset: u64,
    pub(crate) size: u32,
}

/// What the kernel wants. Names are without their NUL.
pub(crate) enum Operation<'a> {
    Lookup(&'a OsStr),
    Forget(u64),
    /// Structures [`abi::ForgetOne`], as bytes.
    BatchForget(&'a [u8]),
    GetAttr,
    SetAttr(NewAttr),
    ReadLink,
    Symlink {
        name: &'a OsStr,
        target: &'a [u8],
    },
    MkNod {
        name: &'a OsStr,
        mode: u32,
        umask: u32,
        device: u32,
    },
    MkDir {
        name: &'a OsStr,
        mode: u32,
        umask: u32,
    },
    Unlink(&'a OsStr),
    RmDir(&'a OsStr),
    Rename {
        name: &'a OsStr,
        new_parent: NodeId,
        new_name: &'a OsStr,
        flags: u32,
    },
    Link {
        node: NodeId,
        name: &'a OsStr,
    },
    Open,
    Read(Part),
    Write {
        offset: u64,
        flags: u32,
        data: &'a [u8],
    },
    StatFs,
    Release,
    Sync {
        data_only: bool,
    },
    SetXattr {
        name: &'a OsStr,
        value: &'a [u8],
        flags: u32,
    },
    GetXattr {
        name: &'a OsStr,
        size: u32,
    },
    ListXattr {
        size: u32,
    },
    RemoveXattr(&'a OsStr),
    OpenDir,
    ReadDir(Part),
    ReadDirPlus(Part),
    Create {
        name: &'a OsStr,
        mode: u32,
        umask: u32,
    },
    Ioctl {
        command: u32,
        data: &'a [u8],
    },
    Allocate {
        offset: u64,
        len: u64,
        mode: u32,
    },
    Seek {
        offset: u64,
        whence: u32,
    },
    Copy {
        offset: u64,
        to: NodeId,
        to_offset: u64,
        len: u64,
    },
    /// The connection ends.
    Destroy,
    /// Nothing that this server does.
    Unknown,
}

/// Why the bytes are no request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// Length of the fixed part of a request, before names and data.
pub(crate) fn fixed_len(opcode: u32) -> usize {
    match opcode {
        abi::FORGET => size_of::<abi::ForgetIn>(),
        abi::BATCH_FORGET => size_of::<abi::BatchForgetIn>(),
        abi::GETATTR => size_of::<abi::GetattrIn>(),
        abi::SETATTR => size_of::<abi::SetattrIn>(),
        abi::MKNOD => size_of::<abi::MknodIn>(),
        abi::MKDIR => size_of::<abi::MkdirIn>(),
        abi::RENAME => size_of::<abi::RenameIn>(),
        abi::RENAME2 => size_of::<abi::Rename2In>(),
        abi::LINK => size_of::<abi::LinkIn>(),
        abi::READ | abi::READDIR | abi::READDIRPLUS => size_of::<abi::ReadIn>(),
        abi::WRITE => size_of::<abi::WriteIn>(),
        abi::FSYNC | abi::FSYNCDIR => size_of::<abi::FsyncIn>(),
        abi::SETXATTR => size_of::<abi::SetxattrIn>(),
        abi::GETXATTR | abi::LISTXATTR => size_of::<abi::GetxattrIn>(),
        abi::CREATE => size_of::<abi::CreateIn>(),
        abi::IOCTL => size_of::<abi::IoctlIn>(),
        abi::FALLOCATE => size_of::<abi::FallocateIn>(),
        abi::LSEEK => size_of::<abi::LseekIn>(),
        abi::COPY_FILE_RANGE => size_of::<abi::CopyFileRangeIn>(),
        _ => 0,
    }
}

/// The start of `bytes` as a structure.
fn read<T: FromBytes>(bytes: &[u8]) -> Result<T, Malformed> {
    T::read_from_prefix(bytes).map(|(value, _)| value).map_err(|_| Malformed)
}

/// The name at the start of `bytes`, and what follows its NUL.
fn split_name(bytes: &[u8]) -> Result<(&OsStr, &[u8]), Malformed> {
    let end = bytes.iter().position(|&byte| byte == 0).ok_or(Malformed)?;
    Ok((OsStr::from_bytes(&bytes[..end]), &bytes[end + 1..]))
}

fn name(bytes: &[u8]) -> Result<&OsStr, Malformed> {
    split_name(bytes).map(|(name, _)| name)
}

/// Parses the operation of `header` from its `fixed` part and the `rest`.
pub(crate) fn parse<'a>(header: &InHeader, fixed: &[u8], rest: &'a [u8]) -> Result<Operation<'a>, Malformed> {
    Ok(match header.opcode {
        abi::LOOKUP => Operation::Lookup(name(rest)?),
        abi::FORGET => Operation::Forget(read::<abi::ForgetIn>(fixed)?.nlookup),
        abi::BATCH_FORGET => {
            let count = read::<abi::BatchForgetIn>(fixed)?.count as usize;
            let len = count.checked_mul(size_of::<abi::ForgetOne>()).ok_or(Malformed)?;
            Operation::BatchForget(rest.get(..len).ok_or(Malformed)?)
        }
        abi::GETATTR => Operation::GetAttr,
        abi::SETATTR => Operation::SetAttr(new_attr(&read(fixed)?)),
        abi::READLINK => Operation::ReadLink,
        abi::SYMLINK => {
            let (name, rest) = split_name(rest)?;
            Operation::Symlink { name, target: split_name(rest)?.0.as_bytes() }
        }
        abi::MKNOD => {
            let abi::MknodIn { mode, rdev, umask, .. } = read(fixed)?;
            Operation::MkNod { name: name(rest)?, mode, umask, device: rdev }
        }
        abi::MKDIR => {
            let abi::MkdirIn { mode, umask } = read(fixed)?;
            Operation::MkDir { name: name(rest)?, mode, umask }
        }
        abi::UNLINK => Operation::Unlink(name(rest)?),
        abi::RMDIR => Operation::RmDir(name(rest)?),
        abi::RENAME => rename(read::<abi::RenameIn>(fixed)?.newdir, 0, rest)?,
        abi::RENAME2 => {
            let abi::Rename2In { newdir, flags, .. } = read(fixed)?;
            rename(newdir, flags, rest)?
        }
        abi::LINK => {
            let node = NodeId(read::<abi::LinkIn>(fixed)?.oldnodeid);
            Operation::Link { node, name: name(rest)? }
        }
        abi::OPEN => Operation::Open,
        abi::OPENDIR => Operation::OpenDir,
        abi::RELEASE | abi::RELEASEDIR => Operation::Release,
        abi::READ => Operation::Read(part(fixed)?),
        abi::READDIR => Operation::ReadDir(part(fixed)?),
        abi::READDIRPLUS => Operation::ReadDirPlus(part(fixed)?),
        abi::STATFS => Operation::StatFs,
        abi::CREATE => {
            let abi::CreateIn { mode, umask, .. } = read(fixed)?;
            Operation::Create { name: name(rest)?, mode, umask }
        }
        abi::DESTROY => Operation::Destroy,
        _ => return parse_content(header, fixed, rest),
    })
}

/// [`parse`] for operations on content, space and extended attributes.
fn parse_content<'a>(header: &InHeader, fixed: &[u8], rest: &'a [u8]) -> Result<Operation<'a>, Malformed> {
    Ok(match header.opcode {
        abi::WRITE => {
            let abi::WriteIn { offset, size, write_flags, .. } = read(fixed)?;
            let data = rest.get(..size as usize).ok_or(Malformed)?;
            Operation::Write { offset, flags: write_flags, data }
        }
        abi::FSYNC | abi::FSYNCDIR => {
            let flags = read::<abi::FsyncIn>(fixed)?.fsync_flags;
            Operation::Sync { data_only: flags & abi::FSYNC_FDATASYNC != 0 }
        }
        abi::SETXATTR => {
            let abi::SetxattrIn { size, flags } = read(fixed)?;
            let (name, rest) = split_name(rest)?;
            let value = rest.get(..size as usize).ok_or(Malformed)?;
            Operation::SetXattr { name, value, flags }
        }
        abi::GETXATTR => {
            let size = read::<abi::GetxattrIn>(fixed)?.size;
            Operation::GetXattr { name: name(rest)?, size }
        }
        abi::LISTXATTR => Operation::ListXattr { size: read::<abi::GetxattrIn>(fixed)?.size },
        abi::REMOVEXATTR => Operation::RemoveXattr(name(rest)?),
        abi::IOCTL => {
            let abi::IoctlIn { flags, cmd, in_size, .. } = read(fixed)?;
            if flags & abi::IOCTL_UNRESTRICTED != 0 {
                return Ok(Operation::Unknown);
            }
            let data = rest.get(..in_size as usize).ok_or(Malformed)?;
            Operation::Ioctl { command: cmd, data }
        }
        abi::FALLOCATE => {
            let abi::FallocateIn { offset, length, mode, .. } = read(fixed)?;
            Operation::Allocate { offset, len: length, mode }
        }
        abi::LSEEK => {
            let abi::LseekIn { offset, whence, .. } = read(fixed)?;
            Operation::Seek { offset, whence }
        }
        abi::COPY_FILE_RANGE => {
            let abi::CopyFileRangeIn { off_in, nodeid_out, off_out, len, .. } = read(fixed)?;
            Operation::Copy { offset: off_in, to: NodeId(nodeid_out), to_offset: off_out, len }
        }
        _ => Operation::Unknown,
    })
}

fn part(fixed: &[u8]) -> Result<Part, Malformed> {
    let abi::ReadIn { offset, size, .. } = read(fixed)?;
    Ok(Part { offset, size })
}

fn rename(new_parent: u64, flags: u32, rest: &[u8]) -> Result<Operation<'_>, Malformed> {
    let (old, rest) = split_name(rest)?;
    Ok(Operation::Rename { name: old, new_parent: NodeId(new_parent), new_name: name(rest)?, flags })
}

fn new_attr(new: &abi::SetattrIn) -> NewAttr {
    let has = |bit: u32| new.valid & bit != 0;
    let time = |set: u32, now: u32, seconds: i64, nanos: u32| {
        let at = || if has(now) { SetTime::Now } else { SetTime::At(timestamp(seconds, nanos)) };
        has(set).then(at)
    };
    NewAttr {
        mode: has(fattr::MODE).then_some(new.mode),
        uid: has(fattr::UID).then_some(new.uid),
        gid: has(fattr::GID).then_some(new.gid),
        size: has(fattr::SIZE).then_some(new.size),
        atime: time(fattr::ATIME, fattr::ATIME_NOW, new.atime, new.atimensec),
        mtime: time(fattr::MTIME, fattr::MTIME_NOW, new.mtime, new.mtimensec),
        ctime: has(fattr::CTIME).then(|| timestamp(new.ctime, new.ctimensec)),
        is_of_file: has(fattr::FH),
    }
}

/// The kernel counts nanoseconds forwards, also before 1970.
fn timestamp(seconds: i64, nanos: u32) -> Timestamp {
    Timestamp { seconds, nanos: nanos.min(999_999_999) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::IntoBytes;

    fn header(opcode: u32) -> InHeader {
        InHeader { opcode, ..InHeader::default() }
    }

    #[test]
    fn what_is_cut_short_is_malformed() {
        assert!(parse(&header(abi::LOOKUP), &[], b"name").is_err(), "no NUL");
        assert!(parse(&header(abi::SETATTR), &[0; 87], b"").is_err());
        assert!(parse(&header(abi::SYMLINK), &[], b"name\0target").is_err());
        let write = abi::WriteIn { size: 4, ..abi::WriteIn::default() };
        assert!(parse(&header(abi::WRITE), write.as_bytes(), b"abc").is_err());
        let forget = abi::BatchForgetIn { count: u32::MAX, dummy: 0 };
        assert!(parse(&header(abi::BATCH_FORGET), forget.as_bytes(), &[0; 64]).is_err());
    }

    #[test]
    fn names_and_values_come_apart() {
        let Ok(Operation::Symlink { name, target }) = parse(&header(abi::SYMLINK), &[], b"name\0to\0") else {
            panic!("a symlink");
        };
        assert_eq!((name.as_bytes(), target), (&b"name"[..], &b"to"[..]));
        let set = abi::SetxattrIn { size: 3, flags: 1 };
        let parsed = parse(&header(abi::SETXATTR), set.as_bytes(), b"user.a\0x\0y");
        let Ok(Operation::SetXattr { name, value, flags: 1 }) = parsed else { panic!("an attribute") };
        assert_eq!((name.as_bytes(), value), (&b"user.a"[..], &b"x\0y"[..]));
    }

    #[test]
    fn times_before_1970_and_the_current_time_are_told_apart() {
        let valid = fattr::ATIME | fattr::MTIME | fattr::MTIME_NOW;
        let set = abi::SetattrIn { valid, atime: -2, atimensec: 300, ..abi::SetattrIn::default() };
        let new = new_attr(&set);
        assert_eq!(new.atime, Some(SetTime::At(Timestamp { seconds: -2, nanos: 300 })));
        assert_eq!((new.mtime, new.ctime, new.mode), (Some(SetTime::Now), None, None));
    }

    #[test]
    fn an_unknown_operation_is_no_error() {
        assert!(matches!(parse(&header(4711), &[], b""), Ok(Operation::Unknown)));
    }
}
