//! FUSE requests in terms of [`Vfs`](dentree_vfs::Vfs).
//!
//! A request costs more than its answer (two context switches), so every answer tells the kernel as
//! much as it may keep: names, missing names, attributes, pages, listings and link targets for as
//! long as it likes, since only the kernel changes the image; what programs write it gathers and
//! sends when it likes; listings bring the attributes of their entries along; opening, closing and
//! flushing are answered once with ENOSYS, after which the kernel does them alone, and makes files
//! without opening them here.
//!
//! Permissions are the kernel's business (`default_permissions` and ACLs): it knows the caller's
//! groups and capabilities. What passes it is answered as for the superuser.
//!
//! FUSE_INTERRUPT is answered with ENOSYS by fuser, after which the kernel sends no more of them: a
//! request is then waited for, as with a file system on a disk.

use crate::adapter::{Adapter, Listed};
use crate::changes::NewAttr;
use crate::convert::{errno, file_type, unreadable_attr};
use crate::known::NodeId;
use crate::seek::Wanted;
use dentree_vfs::{Error, FileSystem, NewKind};
use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, FopenFlags, Generation, INodeNo, InitFlags,
    IoctlFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen,
    ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::SystemTime;

/// What we want of the kernel where it can do it.
///
/// Not `FUSE_ASYNC_DIO`: the kernel drops the cached pages of a range before a direct write is
/// sent, and again after its reply only where the write is synchronous. A page that is read in
/// between would stay stale.
const WANTED: [InitFlags; 8] = [
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_READDIRPLUS_AUTO,
    InitFlags::FUSE_CACHE_SYMLINKS,
    InitFlags::FUSE_EXPLICIT_INVAL_DATA,
    InitFlags::FUSE_POSIX_ACL,
    // A default ACL stands in the umask's place: the side that knows both has to decide.
    InitFlags::FUSE_DONT_MASK,
    // File handles name nodes that were forgotten: see `find`.
    InitFlags::FUSE_EXPORT_SUPPORT,
];

/// Reads that the kernel may have in flight for read-ahead; its own default of 12 starves the
/// threads.
const MAX_BACKGROUND: u16 = 64;

thread_local! {
    /// Where READ is put together, kept so that no megabyte is zeroed or mapped per request.
    static CONTENT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl<F: FileSystem> fuser::Filesystem for Adapter<F> {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        for flag in WANTED {
            // A kernel that cannot do it is asked more often, that is all.
            let _ = config.add_capabilities(flag);
        }
        self.writes_back = self.changes
            && self.kernel_caches
            && config.add_capabilities(InitFlags::FUSE_WRITEBACK_CACHE).is_ok();
        // Else the kernel looks for capabilities of the file before every write that it gathers.
        self.drops_set_id =
            self.changes && config.add_capabilities(InitFlags::FUSE_HANDLE_KILLPRIV_V2).is_ok();
        let _ = config.set_max_background(MAX_BACKGROUND);
        // It shows the times of what it writes back by itself.
        let _ = config.set_time_granularity(self.vfs.fs().time_granularity());
        let can = config.capabilities();
        self.no_open = self.kernel_caches && can.contains(InitFlags::FUSE_NO_OPEN_SUPPORT);
        self.no_opendir = self.kernel_caches && can.contains(InitFlags::FUSE_NO_OPENDIR_SUPPORT);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.find(parent, name).transpose() {
            // Node 0: a missing name that the kernel may remember as missing.
            None => reply.entry(&self.time_to_live(), &unreadable_attr(None, INodeNo(0)), Generation(0)),
            Some(found) => {
                let dir = found.as_ref().ok().filter(|inode| inode.is_dir()).cloned();
                self.send_entry(reply, found);
                // A lookup of a directory is followed by lookups in it: what every lookup
                // there begins with is read while the answer is on its way, and no thread waits for
                // this thread.
                if let Some(dir) = dir {
                    self.vfs.prefetch_lookups(&dir);
                }
            }
        }
    }

    fn forget(&self, _: &Request, node: INodeNo, times: u64) {
        self.shared.known.forget(NodeId(node.0), times);
    }

    fn getattr(&self, _: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.inode(node) {
            Ok(inode) => reply.attr(&self.time_to_live(), &self.attr(&inode)),
            Err(error) => reply.error(self.shared.refusal(&error)),
        }
    }

    fn readlink(&self, _: &Request, node: INodeNo, reply: ReplyData) {
        match self.inode(node).and_then(|link| self.vfs.readlink(&link)) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(self.shared.refusal(&error)),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        if self.no_open {
            reply.error(Errno::ENOSYS);
        } else {
            let mut flags = FopenFlags::FOPEN_KEEP_CACHE;
            flags.set(FopenFlags::FOPEN_NOFLUSH, !self.changes);
            reply.opened(FileHandle(0), flags);
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn read(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let file = match self.inode(node) {
            Ok(file) => file,
            Err(error) => return reply.error(self.shared.refusal(&error)),
        };
        let left = file.attr().size.saturating_sub(offset);
        let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(size as usize);
        CONTENT.with_borrow_mut(|content| {
            if content.len() < wanted {
                content.resize(wanted, 0);
            }
            let content = &mut content[..wanted];
            match self.vfs.read(&file, offset, content) {
                Ok(bytes) => reply.data(&content[..bytes]),
                Err(error) => reply.error(self.shared.refusal(&error)),
            }
        });
    }

    fn lseek(&self, _: &Request, node: INodeNo, _: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        const SEEK_DATA: i32 = 3;
        const SEEK_HOLE: i32 = 4;
        let wanted = match whence {
            SEEK_DATA => Wanted::Data,
            SEEK_HOLE => Wanted::Hole,
            _ => return reply.error(errno(&Error::Invalid)),
        };
        let Ok(offset) = u64::try_from(offset) else {
            return reply.error(errno(&Error::NoExtent));
        };
        self.seek(node, offset, wanted, reply);
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        if self.no_opendir {
            reply.error(Errno::ENOSYS);
        } else if self.kernel_caches {
            reply.opened(FileHandle(0), FopenFlags::FOPEN_CACHE_DIR | FopenFlags::FOPEN_KEEP_CACHE);
        } else {
            reply.opened(FileHandle(0), FopenFlags::empty());
        }
    }

    fn readdir(&self, _: &Request, node: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let mut any = false;
        let listed = self.inode(node).and_then(|dir| {
            self.list(&dir, offset, &mut |listed| {
                let (ino, kind) = match listed {
                    Listed::Dot(inode) | Listed::DotDot(inode) => (inode.ino(), Some(inode.kind())),
                    Listed::Entry(entry) => (entry.ino, entry.kind),
                };
                // An image without `filetype` keeps the type in the inode alone.
                let kind = kind.or_else(|| self.vfs.inode(ino).ok().map(|inode| inode.kind()));
                let kind = file_type(kind.unwrap_or(dentree_vfs::FileType::Regular));
                let full = reply.add(INodeNo(ino.0), listed.offset(), kind, listed.name());
                any |= !full;
                full
            })
        });
        match listed {
            Err(error) if !any => reply.error(self.shared.refusal(&error)),
            _ => reply.ok(),
        }
    }

    fn readdirplus(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let mut any = false;
        let listed = self.inode(node).and_then(|dir| {
            self.list(&dir, offset, &mut |listed| {
                let full = self.add_plus(&mut reply, listed);
                any |= !full;
                full
            })
        });
        match listed {
            // What was listed before the error goes out; the kernel comes back for more and meets
            // it first.
            Err(error) if !any => reply.error(self.shared.refusal(&error)),
            _ => reply.ok(),
        }
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        match self.vfs.statfs() {
            Ok(stat) => reply.statfs(
                stat.blocks,
                stat.blocks_free,
                stat.blocks_available,
                stat.inodes,
                stat.inodes_free,
                stat.block_size,
                stat.name_max,
                stat.block_size,
            ),
            Err(error) => reply.error(self.shared.refusal(&error)),
        }
    }

    fn getxattr(&self, _: &Request, node: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        match self.inode(node).and_then(|inode| self.vfs.getxattr(&inode, name.as_bytes())) {
            Ok(value) => send_xattr(reply, size, &value),
            Err(error) => reply.error(self.shared.refusal(&error)),
        }
    }

    fn listxattr(&self, request: &Request, node: INodeNo, size: u32, reply: ReplyXattr) {
        match self.inode(node).and_then(|inode| self.vfs.listxattr(&inode)) {
            Ok(mut names) => {
                // The kernel's own file systems show these to administrators alone.
                names.retain(|name| request.uid() == 0 || !name.starts_with(b"trusted."));
                let mut list = names.join(&0);
                if !names.is_empty() {
                    list.push(0);
                }
                send_xattr(reply, size, &list);
            }
            Err(error) => reply.error(self.shared.refusal(&error)),
        }
    }

    fn setattr(
        &self,
        request: &Request,
        node: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        ctime: Option<SystemTime>,
        file: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let is_of_file = file.is_some();
        let new = NewAttr { mode, uid, gid, size, atime, mtime, ctime, is_of_file };
        match self.change_attr(request, node, &new) {
            Ok(inode) => reply.attr(&self.time_to_live(), &self.attr(&inode)),
            Err(error) => reply.error(self.shared.refusal(&error)),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        self.send_entry(reply, self.make_node(request, parent, name, (mode, umask), device));
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        self.send_entry(reply, self.make(request, parent, name, NewKind::Directory, (mode, umask)));
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let kind = NewKind::Symlink(target.as_os_str().as_bytes());
        self.send_entry(reply, self.make(request, parent, name, kind, (0o777, 0)));
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.send_done(reply, self.remove(parent, name, false));
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.send_done(reply, self.remove(parent, name, true));
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        self.send_done(reply, self.move_name((parent, name), (new_parent, new_name), flags, request));
    }

    fn link(&self, _: &Request, node: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.send_entry(reply, self.add_link(node, parent, name));
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        // A kernel that opens by itself makes the file with MKNOD then, and tells of no release:
        // one request instead of two.
        if self.no_open {
            return reply.error(Errno::ENOSYS);
        }
        match self.make(request, parent, name, NewKind::Regular, (mode, umask)) {
            Ok(inode) => {
                self.tell(&inode);
                reply.created(
                    &self.time_to_live(),
                    &self.entry_attr(&inode),
                    self.generation(&inode),
                    FileHandle(0),
                    FopenFlags::FOPEN_KEEP_CACHE,
                );
            }
            Err(error) => reply.error(self.shared.refusal(&error)),
        }
    }

    fn write(
        &self,
        request: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        self.send_written(reply, self.write_at(request, node, offset, data, flags));
    }

    fn fallocate(
        &self,
        request: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        len: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        self.send_done(reply, self.change_space(request, node, offset, len, mode));
    }

    fn copy_file_range(
        &self,
        request: &Request,
        from: INodeNo,
        _: FileHandle,
        from_offset: u64,
        to: INodeNo,
        _: FileHandle,
        to_offset: u64,
        len: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        self.send_written(reply, self.copy(request, (from, from_offset), (to, to_offset), len));
    }

    fn ioctl(
        &self,
        request: &Request,
        node: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        command: u32,
        data: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        self.control(request, node, command, data, reply);
    }

    fn fsync(&self, _: &Request, node: INodeNo, _: FileHandle, data_only: bool, reply: ReplyEmpty) {
        self.send_done(reply, self.make_durable(node, data_only));
    }

    fn fsyncdir(&self, _: &Request, node: INodeNo, _: FileHandle, data_only: bool, reply: ReplyEmpty) {
        self.send_done(reply, self.make_durable(node, data_only));
    }

    fn setxattr(
        &self,
        request: &Request,
        node: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        self.send_done(reply, self.set_xattr(request, node, name, value, flags));
    }

    fn removexattr(&self, _: &Request, node: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.send_done(reply, self.remove_xattr(node, name));
    }
}

/// Answers the length to a probe (`size` 0), ERANGE where the caller's buffer is too small, else
/// the bytes.
fn send_xattr(reply: ReplyXattr, size: u32, bytes: &[u8]) {
    match u32::try_from(bytes.len()) {
        Ok(len) if size == 0 => reply.size(len),
        Ok(len) if len <= size => reply.data(bytes),
        _ => reply.error(Errno::ERANGE),
    }
}
