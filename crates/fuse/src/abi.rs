//! Structures and numbers of the FUSE protocol, version 7.42, under the kernel's names
//! (`include/uapi/linux/fuse.h`). Integers have the machine's byte order.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub(crate) const KERNEL_VERSION: u32 = 7;
pub(crate) const KERNEL_MINOR_VERSION: u32 = 42;

/// Defines structures without padding, whose size the compiler checks.
macro_rules! structures {
    ($($(#[$doc:meta])* $name:ident: $size:literal { $($field:ident: $kind:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
        #[repr(C)]
        pub(crate) struct $name {
            $(pub(crate) $field: $kind,)*
        }
        const _: () = assert!(size_of::<$name>() == $size);
    )*};
}

structures! {
    InHeader: 40 {
        len: u32, opcode: u32, unique: u64, nodeid: u64, uid: u32, gid: u32, pid: u32,
        total_extlen: u16, padding: u16,
    }
    OutHeader: 16 { len: u32, error: i32, unique: u64, }
    ForgetIn: 8 { nlookup: u64, }
    ForgetOne: 16 { nodeid: u64, nlookup: u64, }
    BatchForgetIn: 8 { count: u32, dummy: u32, }
    GetattrIn: 16 { getattr_flags: u32, dummy: u32, fh: u64, }
    SetattrIn: 88 {
        valid: u32, padding: u32, fh: u64, size: u64, lock_owner: u64,
        atime: i64, mtime: i64, ctime: i64, atimensec: u32, mtimensec: u32, ctimensec: u32,
        mode: u32, unused4: u32, uid: u32, gid: u32, unused5: u32,
    }
    MknodIn: 16 { mode: u32, rdev: u32, umask: u32, padding: u32, }
    MkdirIn: 8 { mode: u32, umask: u32, }
    RenameIn: 8 { newdir: u64, }
    Rename2In: 16 { newdir: u64, flags: u32, padding: u32, }
    LinkIn: 8 { oldnodeid: u64, }
    OpenIn: 8 { flags: u32, open_flags: u32, }
    CreateIn: 16 { flags: u32, mode: u32, umask: u32, open_flags: u32, }
    ReleaseIn: 24 { fh: u64, flags: u32, release_flags: u32, lock_owner: u64, }
    FlushIn: 24 { fh: u64, unused: u32, padding: u32, lock_owner: u64, }
    ReadIn: 40 {
        fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32, padding: u32,
    }
    WriteIn: 40 {
        fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32, padding: u32,
    }
    FsyncIn: 16 { fh: u64, fsync_flags: u32, padding: u32, }
    SetxattrIn: 8 { size: u32, flags: u32, }
    GetxattrIn: 8 { size: u32, padding: u32, }
    IoctlIn: 32 { fh: u64, flags: u32, cmd: u32, arg: u64, in_size: u32, out_size: u32, }
    FallocateIn: 32 { fh: u64, offset: u64, length: u64, mode: u32, padding: u32, }
    LseekIn: 24 { fh: u64, offset: u64, whence: u32, padding: u32, }
    CopyFileRangeIn: 56 {
        fh_in: u64, off_in: u64, nodeid_out: u64, fh_out: u64, off_out: u64, len: u64, flags: u64,
    }
    InitIn: 64 {
        major: u32, minor: u32, max_readahead: u32, flags: u32, flags2: u32, unused: [u32; 11],
    }
    InitOut: 64 {
        major: u32, minor: u32, max_readahead: u32, flags: u32, max_background: u16,
        congestion_threshold: u16, max_write: u32, time_gran: u32, max_pages: u16,
        map_alignment: u16, flags2: u32, max_stack_depth: u32, request_timeout: u16,
        unused: [u16; 11],
    }
    Attr: 88 {
        ino: u64, size: u64, blocks: u64, atime: i64, mtime: i64, ctime: i64,
        atimensec: u32, mtimensec: u32, ctimensec: u32, mode: u32, nlink: u32, uid: u32, gid: u32,
        rdev: u32, blksize: u32, flags: u32,
    }
    AttrOut: 104 { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: Attr, }
    EntryOut: 128 {
        nodeid: u64, generation: u64, entry_valid: u64, attr_valid: u64, entry_valid_nsec: u32,
        attr_valid_nsec: u32, attr: Attr,
    }
    OpenOut: 16 { fh: u64, open_flags: u32, backing_id: u32, }
    CreateOut: 144 { entry: EntryOut, open: OpenOut, }
    WriteOut: 8 { size: u32, padding: u32, }
    StatfsOut: 80 {
        blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64, bsize: u32, namelen: u32,
        frsize: u32, padding: u32, spare: [u32; 6],
    }
    GetxattrOut: 8 { size: u32, padding: u32, }
    IoctlOut: 16 { result: i32, flags: u32, in_iovs: u32, out_iovs: u32, }
    LseekOut: 8 { offset: u64, }
    Dirent: 24 { ino: u64, off: u64, namelen: u32, kind: u32, }
    NotifyInvalInodeOut: 24 { ino: u64, off: i64, len: i64, }
}

/// Defines the operations that are told apart, and their names.
macro_rules! opcodes {
    ($($name:ident = $number:literal,)*) => {
        $(pub(crate) const $name: u32 = $number;)*
        pub(crate) const OPCODES: &[(u32, &str)] = &[$(($name, stringify!($name)),)*];
    };
}

opcodes! {
    LOOKUP = 1, FORGET = 2, GETATTR = 3, SETATTR = 4, READLINK = 5, SYMLINK = 6, MKNOD = 8,
    MKDIR = 9, UNLINK = 10, RMDIR = 11, RENAME = 12, LINK = 13, OPEN = 14, READ = 15, WRITE = 16,
    STATFS = 17, RELEASE = 18, FSYNC = 20, SETXATTR = 21, GETXATTR = 22, LISTXATTR = 23,
    REMOVEXATTR = 24, FLUSH = 25, INIT = 26, OPENDIR = 27, READDIR = 28, RELEASEDIR = 29,
    FSYNCDIR = 30, CREATE = 35, INTERRUPT = 36, DESTROY = 38, IOCTL = 39, POLL = 40,
    BATCH_FORGET = 42, FALLOCATE = 43, READDIRPLUS = 44, RENAME2 = 45, LSEEK = 46,
    COPY_FILE_RANGE = 47, TMPFILE = 51, STATX = 52, COPY_FILE_RANGE_64 = 53,
}

pub(crate) const NOTIFY_INVAL_INODE: i32 = 2;

/// Bits of [`SetattrIn::valid`].
pub(crate) mod fattr {
    pub(crate) const MODE: u32 = 1;
    pub(crate) const UID: u32 = 1 << 1;
    pub(crate) const GID: u32 = 1 << 2;
    pub(crate) const SIZE: u32 = 1 << 3;
    pub(crate) const ATIME: u32 = 1 << 4;
    pub(crate) const MTIME: u32 = 1 << 5;
    pub(crate) const FH: u32 = 1 << 6;
    pub(crate) const ATIME_NOW: u32 = 1 << 7;
    pub(crate) const MTIME_NOW: u32 = 1 << 8;
    pub(crate) const CTIME: u32 = 1 << 10;
}

/// Bits of [`WriteIn::write_flags`].
pub(crate) mod write {
    pub(crate) const CACHE: u32 = 1;
    pub(crate) const KILL_SUIDGID: u32 = 1 << 2;
}

/// Bits of [`OpenOut::open_flags`].
pub(crate) mod fopen {
    pub(crate) const KEEP_CACHE: u32 = 1 << 1;
    pub(crate) const CACHE_DIR: u32 = 1 << 3;
    pub(crate) const NOFLUSH: u32 = 1 << 5;
}

/// A bit of [`FsyncIn::fsync_flags`].
pub(crate) const FSYNC_FDATASYNC: u32 = 1;
/// A bit of [`IoctlIn::flags`].
pub(crate) const IOCTL_UNRESTRICTED: u32 = 1 << 1;
