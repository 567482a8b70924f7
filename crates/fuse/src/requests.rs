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
//! Both channels call [`Serve::serve`]. It reads names and data from the space that the reply goes
//! to, so that no content is copied here.

use crate::abi::{self, ForgetOne, InHeader, InitIn, InitOut, StatfsOut, fopen};
use crate::adapter::{Adapter, Listed};
use crate::convert::unreadable_attr;
use crate::init::{self, Agreed, Limits, Wishes};
use crate::known::NodeId;
use crate::reply::{self, Listing, Reply};
use crate::request::{self, Caller, Operation, Part};
use crate::seek::Wanted;
use dentree_vfs::{Error, FileSystem, FileType, NewKind, Result};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use zerocopy::transmute;

/// What is left to do when the reply is sent.
pub(crate) type Afterwards = Box<dyn FnOnce() + Send>;

/// A file system behind a channel.
pub(crate) trait Serve: Send + Sync + 'static {
    /// Agrees with the kernel on what both sides do, before the first request.
    fn agree(&mut self, offered: &InitIn, limits: Limits) -> (InitOut, Agreed);

    /// Serves a request: `space` begins with the `len` bytes behind its `fixed` part. The reply may
    /// lie in `space`.
    fn serve(
        &self,
        header: &InHeader,
        fixed: &[u8],
        space: &mut [u8],
        len: usize,
    ) -> (Reply, Option<Afterwards>);
}

/// Whether a request may wait for the disk, or takes so long that others should not wait for it.
pub(crate) fn may_sleep(opcode: u32) -> bool {
    matches!(
        opcode,
        abi::READ
            | abi::WRITE
            | abi::FSYNC
            | abi::FSYNCDIR
            | abi::IOCTL
            | abi::FALLOCATE
            | abi::COPY_FILE_RANGE
            | abi::LSEEK
    )
}

impl<F: FileSystem> Serve for Adapter<F> {
    fn agree(&mut self, offered: &InitIn, limits: Limits) -> (InitOut, Agreed) {
        let wishes = Wishes {
            changes: self.changes,
            kernel_caches: self.kernel_caches,
            // The kernel shows the times of what it writes back by itself.
            time_granularity: self.vfs.fs().time_granularity(),
            limits,
        };
        let (reply, agreed) = init::agree(offered, &wishes);
        self.agreed = agreed;
        (reply, agreed)
    }

    fn serve(
        &self,
        header: &InHeader,
        fixed: &[u8],
        space: &mut [u8],
        len: usize,
    ) -> (Reply, Option<Afterwards>) {
        self.shared.requests.count(header.opcode);
        let node = NodeId(header.nodeid);
        let caller = Caller { uid: header.uid, gid: header.gid, pid: header.pid };
        if self.filtered.is_some_and(|owner| !caller.is_root() && caller.uid != owner)
            && !is_anyones(header.opcode)
        {
            return (Reply::Error(Errno::ACCESS), None);
        }
        let Ok(operation) = request::parse(header, fixed, &space[..len]) else {
            return (Reply::Error(Errno::INVAL), None);
        };
        let served = match operation {
            // These return their reply in the space, which holds nothing of the request.
            Operation::Read(part) => self.read(node, part, space),
            Operation::ReadDir(part) => self.list_names(node, part, space),
            Operation::ReadDirPlus(part) => self.list_entries(node, part, space),
            Operation::Lookup(name) => return self.look_up(node, name),
            operation => self.change(caller, node, operation),
        };
        (served.unwrap_or_else(|error| self.shared.refusal(&error)), None)
    }
}

/// Requests that the kernel also makes for no user.
fn is_anyones(opcode: u32) -> bool {
    matches!(
        opcode,
        abi::READ
            | abi::READDIR
            | abi::READDIRPLUS
            | abi::WRITE
            | abi::FSYNC
            | abi::FSYNCDIR
            | abi::FORGET
            | abi::BATCH_FORGET
            | abi::RELEASE
            | abi::RELEASEDIR
            | abi::DESTROY
    )
}

impl<F: FileSystem> Adapter<F> {
    fn look_up(&self, parent: NodeId, name: &OsStr) -> (Reply, Option<Afterwards>) {
        let found = match self.find(parent, name) {
            // Node 0: a missing name that the kernel may remember as missing.
            Ok(None) => {
                let missing = reply::entry(0, 0, self.time_to_live(), unreadable_attr(None, 0));
                return (Reply::fixed(&missing), None);
            }
            Ok(Some(found)) => found,
            Err(error) => return (self.shared.refusal(&error), None),
        };
        let reply = Reply::fixed(&self.tell(&found));
        // A lookup of a directory is followed by lookups in it: what every lookup there begins with
        // is read while the reply is on its way.
        let prefetch = found.is_dir().then(|| {
            let vfs = self.vfs.clone();
            Box::new(move || vfs.prefetch_lookups(&found)) as Afterwards
        });
        (reply, prefetch)
    }

    fn read(&self, node: NodeId, part: Part, space: &mut [u8]) -> Result<Reply> {
        let file = self.inode(node)?;
        let left = file.attr().size.saturating_sub(part.offset);
        let room = space.len().min(part.size as usize);
        let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(room);
        self.vfs.read(&file, part.offset, &mut space[..wanted]).map(Reply::InPlace)
    }

    fn list_names(&self, node: NodeId, part: Part, space: &mut [u8]) -> Result<Reply> {
        let mut listing = Listing::new(space, part.size);
        let listed = self.inode(node).and_then(|dir| {
            self.list(&dir, part.offset, &mut |listed| {
                let (ino, kind) = match listed {
                    Listed::Dot(inode) | Listed::DotDot(inode) => (inode.ino(), Some(inode.kind())),
                    Listed::Entry(entry) => (entry.ino, entry.kind),
                };
                // An image without `filetype` keeps the type in the inode alone.
                let kind = kind.or_else(|| self.vfs.inode(ino).ok().map(|inode| inode.kind()));
                let mode = kind.unwrap_or(FileType::Regular).mode_bits();
                listing.add(None, (ino.0, listed.offset(), mode), listed.name())
            })
        });
        finish(listing, listed)
    }

    fn list_entries(&self, node: NodeId, part: Part, space: &mut [u8]) -> Result<Reply> {
        let mut listing = Listing::new(space, part.size);
        let listed = self
            .inode(node)
            .and_then(|dir| self.list(&dir, part.offset, &mut |listed| self.add_plus(&mut listing, listed)));
        finish(listing, listed)
    }

    /// Serves everything else.
    fn change(&self, caller: Caller, node: NodeId, operation: Operation<'_>) -> Result<Reply> {
        Ok(match operation {
            Operation::Forget(times) => {
                self.shared.known.forget(node, times);
                Reply::Nothing
            }
            Operation::BatchForget(list) => {
                let one = |bytes: &[u8; size_of::<ForgetOne>()]| -> ForgetOne { transmute!(*bytes) };
                for ForgetOne { nodeid, nlookup } in list.as_chunks().0.iter().map(one) {
                    self.shared.known.forget(NodeId(nodeid), nlookup);
                }
                Reply::Nothing
            }
            Operation::SetAttr(new) => {
                let inode = self.change_attr(caller, node, &new)?;
                reply::attributes(self.time_to_live(), self.attr(&inode))
            }
            Operation::MkNod { name, mode, umask, device } => {
                self.found(self.make_node(caller, node, name, (mode, umask), device))
            }
            Operation::MkDir { name, mode, umask } => {
                self.found(self.make(caller, node, name, NewKind::Directory, (mode, umask)))
            }
            Operation::Symlink { name, target } => {
                self.found(self.make(caller, node, name, NewKind::Symlink(target), (0o777, 0)))
            }
            Operation::Create { name, mode, umask } => self.create(caller, node, name, (mode, umask))?,
            Operation::Link { node: target, name } => self.found(self.add_link(target, node, name)),
            Operation::Unlink(name) => self.done(self.remove(node, name, false)),
            Operation::RmDir(name) => self.done(self.remove(node, name, true)),
            Operation::Rename { name, new_parent, new_name, flags } => {
                self.done(self.move_name((node, name), (new_parent, new_name), flags, caller))
            }
            Operation::Write { offset, flags, data } => {
                self.written(self.write_at(caller, node, offset, data, flags))
            }
            Operation::Allocate { offset, len, mode } => {
                self.done(self.change_space(caller, node, offset, len, mode))
            }
            Operation::Copy { offset, to, to_offset, len } => {
                self.written(self.copy(caller, (node, offset), (to, to_offset), len))
            }
            Operation::Sync { data_only } => self.done(self.make_durable(node, data_only)),
            Operation::SetXattr { name, value, flags } => {
                self.done(self.set_xattr(caller, node, name, value, flags))
            }
            Operation::RemoveXattr(name) => self.done(self.remove_xattr(node, name)),
            Operation::Ioctl { command, data } => self.control(caller, node, command, data)?,
            operation => return self.ask(caller, node, &operation),
        })
    }

    /// Serves requests that change nothing.
    fn ask(&self, caller: Caller, node: NodeId, operation: &Operation<'_>) -> Result<Reply> {
        Ok(match *operation {
            Operation::GetAttr => reply::attributes(self.time_to_live(), self.attr(&*self.inode(node)?)),
            Operation::ReadLink => Reply::Bytes(self.vfs.readlink(&*self.inode(node)?)?),
            Operation::Open if self.agreed.no_open => Reply::Error(Errno::NOSYS),
            Operation::Open => opened(fopen::KEEP_CACHE | if self.changes { 0 } else { fopen::NOFLUSH }),
            Operation::OpenDir if self.agreed.no_opendir => Reply::Error(Errno::NOSYS),
            Operation::OpenDir if self.kernel_caches => opened(fopen::CACHE_DIR | fopen::KEEP_CACHE),
            Operation::OpenDir => opened(0),
            Operation::Release | Operation::Destroy => Reply::DONE,
            Operation::StatFs => self.stat_fs()?,
            Operation::GetXattr { name, size } => {
                reply::xattr(size, self.vfs.getxattr(&*self.inode(node)?, name.as_bytes())?)
            }
            Operation::ListXattr { size } => reply::xattr(size, self.xattr_names(caller, node)?),
            Operation::Seek { offset, whence } => {
                const SEEK_DATA: u32 = 3;
                const SEEK_HOLE: u32 = 4;
                let wanted = match whence {
                    SEEK_DATA => Wanted::Data,
                    SEEK_HOLE => Wanted::Hole,
                    _ => return Err(Error::Invalid),
                };
                // The kernel sends a signed offset.
                if i64::try_from(offset).is_err() {
                    return Err(Error::NoExtent);
                }
                self.seek(node, offset, wanted)?
            }
            _ => Reply::Error(Errno::NOSYS),
        })
    }

    fn create(&self, caller: Caller, parent: NodeId, name: &OsStr, mode: (u32, u32)) -> Result<Reply> {
        // A kernel that opens by itself makes the file with MKNOD then, and tells of no release:
        // one request instead of two.
        if self.agreed.no_open {
            return Ok(Reply::Error(Errno::NOSYS));
        }
        let inode = self.make(caller, parent, name, NewKind::Regular, mode)?;
        let open = abi::OpenOut { open_flags: fopen::KEEP_CACHE, ..abi::OpenOut::default() };
        Ok(Reply::fixed(&abi::CreateOut { entry: self.tell(&inode), open }))
    }

    fn stat_fs(&self) -> Result<Reply> {
        let stat = self.vfs.statfs()?;
        Ok(Reply::fixed(&StatfsOut {
            blocks: stat.blocks,
            bfree: stat.blocks_free,
            bavail: stat.blocks_available,
            files: stat.inodes,
            ffree: stat.inodes_free,
            bsize: stat.block_size,
            namelen: stat.name_max,
            frsize: stat.block_size,
            ..StatfsOut::default()
        }))
    }

    fn xattr_names(&self, caller: Caller, node: NodeId) -> Result<Vec<u8>> {
        let mut names = self.vfs.listxattr(&*self.inode(node)?)?;
        // The kernel's own file systems show these to administrators alone.
        names.retain(|name| caller.is_root() || !name.starts_with(b"trusted."));
        Ok(names.iter().flat_map(|name| name.iter().copied().chain([0])).collect())
    }
}

fn opened(flags: u32) -> Reply {
    Reply::fixed(&abi::OpenOut { open_flags: flags, ..abi::OpenOut::default() })
}

/// What was listed before an error is returned; the kernel asks for more and meets the error first.
fn finish(listing: Listing<'_>, listed: Result<()>) -> Result<Reply> {
    match listed {
        Err(error) if listing.is_empty() => Err(error),
        _ => Ok(listing.finish()),
    }
}
