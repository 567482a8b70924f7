//! `ioctl(2)`: the flags of `lsattr` and `chattr`, and trimming.
//!
//! The kernel checks that the caller may set flags; it sends FS_IOC_GETFLAGS and the like also for
//! `file_getattr(2)` and `file_setattr(2)`. Other commands come as a program gave them, with as
//! many bytes as the command's number says. FIEMAP and FIBMAP never come: FUSE has no methods for
//! them.
//!
//! Data written before a file became immutable is its content. The kernel may still cache it, and
//! its write-back would be refused, so it is synced first. That waits for other requests, so a
//! thread that serves none does it, as in `seek.rs`.

use crate::adapter::{Adapter, Shared};
use crate::known::NodeId;
use crate::reply::{self, Reply};
use crate::request::Caller;
use dentree_vfs::{Attr, Error, FileSystem, Identity, Inode, Result};
use rustix::io::Errno;
use std::sync::Arc;

const FS_IOC_GETFLAGS: u32 = 0x8008_6601;
const FS_IOC_SETFLAGS: u32 = 0x4008_6602;
const FS_IOC_GETVERSION: u32 = 0x8008_7601;
const FS_IOC_FSGETXATTR: u32 = 0x801C_581F;
const FS_IOC_FSSETXATTR: u32 = 0x401C_5820;

const FITRIM: u32 = 0xC018_5879;

const IMMUTABLE: u32 = 0x10;
const APPEND_ONLY: u32 = 0x20;

/// Flags of FS_IOC_GETFLAGS, and those of `struct fsxattr`: immutable, append-only, synchronous, no
/// atime, no dump, project, direct access.
const XFLAGS: [(u32, u32); 7] = [
    (IMMUTABLE, 0x8),
    (APPEND_ONLY, 0x10),
    (0x8, 0x20),
    (0x80, 0x40),
    (0x40, 0x80),
    (0x2000_0000, 0x200),
    (0x200_0000, 0x8000),
];

/// `struct fsxattr` as bytes: flags, extent size, extents, project, and fields that ext4 does not
/// have.
const FSXATTR_LEN: usize = 28;
const PROJECT_AT: usize = 12;

fn xflags_of(flags: u32) -> u32 {
    XFLAGS.iter().filter(|(flag, _)| flags & flag != 0).map(|(_, xflag)| xflag).sum()
}

/// The new flags of an inode with `attr`, from the bytes of a command.
fn wanted(command: u32, bytes: &[u8], attr: &Attr) -> Result<u32> {
    let word = |at: usize| {
        let word = bytes.get(at..).and_then(|bytes| bytes.first_chunk());
        word.map(|bytes| u32::from_ne_bytes(*bytes)).ok_or(Error::Invalid)
    };
    if command == FS_IOC_SETFLAGS {
        return word(0);
    }
    let (xflags, project) = (word(0)?, word(PROJECT_AT)?);
    let known: u32 = XFLAGS.iter().map(|(_, xflag)| xflag).sum();
    if xflags & !known != 0 || project != 0 {
        let what = format!("extended flags {:#x} and project {project}", xflags & !known);
        return Err(Error::Unsupported(what.into()));
    }
    let both: u32 = XFLAGS.iter().map(|(flag, _)| flag).sum();
    let set: u32 = XFLAGS.iter().filter(|(_, xflag)| xflags & xflag != 0).map(|(flag, _)| flag).sum();
    Ok(attr.flags & !both | set)
}

/// A 64-bit word of a command's bytes.
fn long(bytes: &[u8], number: usize) -> Result<u64> {
    let (words, _) = bytes.as_chunks();
    words.get(number).map(|word| u64::from_ne_bytes(*word)).ok_or(Error::Invalid)
}

impl<F: FileSystem> Adapter<F> {
    pub(crate) fn control(&self, caller: Caller, node: NodeId, command: u32, bytes: &[u8]) -> Result<Reply> {
        let inode = self.inode(node)?;
        let attr = inode.attr();
        Ok(match command {
            FS_IOC_GETFLAGS => reply::ioctl(&attr.flags.to_ne_bytes()),
            FS_IOC_GETVERSION => reply::ioctl(&attr.generation.to_ne_bytes()),
            FS_IOC_FSGETXATTR => {
                let mut fsxattr = [0; FSXATTR_LEN];
                fsxattr[..4].copy_from_slice(&xflags_of(attr.flags).to_ne_bytes());
                reply::ioctl(&fsxattr)
            }
            FS_IOC_SETFLAGS | FS_IOC_FSSETXATTR => {
                self.set_flags(node, inode, wanted(command, bytes, &attr)?)
            }
            FITRIM => reply::ioctl(&self.trim(caller, bytes)?),
            _ => Reply::Error(Errno::NOTTY),
        })
    }

    /// Trims a `struct fstrim_range`: start, length, shortest run. Returns it with the number of
    /// trimmed bytes. For root and the user that mounts.
    fn trim(&self, caller: Caller, range: &[u8]) -> Result<Vec<u8>> {
        if !caller.is_root() && caller.uid != rustix::process::geteuid().as_raw() {
            return Err(Error::NotPermitted);
        }
        let (start, len, least) = (long(range, 0)?, long(range, 1)?, long(range, 2)?);
        if len < u64::from(self.vfs.statfs()?.block_size) {
            return Err(Error::Invalid);
        }
        let trimmed = self.vfs.trim(start..start.saturating_add(len), least)?;
        Ok([start, trimmed, least].map(u64::to_ne_bytes).concat())
    }

    fn set_flags(&self, node: NodeId, inode: Arc<Inode<F>>, flags: u32) -> Reply {
        let newly = flags & !inode.attr().flags & (IMMUTABLE | APPEND_ONLY);
        if newly == 0 || inode.is_dir() || !self.agreed.writes_back {
            let set = self.vfs.set_flags(&Identity::Superuser, &inode, flags);
            return self.shared.controlled(set);
        }
        let (vfs, shared) = (Arc::clone(&self.vfs), Arc::clone(&self.shared));
        let find = move || {
            let sent = shared.let_go(node, 0..u64::MAX);
            let set = sent.and_then(|()| vfs.set_flags(&Identity::Superuser, &inode, flags));
            shared.controlled(set)
        };
        Reply::Later { find: Box::new(find), instead: Box::new(Reply::Error(Errno::AGAIN)) }
    }
}

impl<F: FileSystem> Shared<F> {
    fn controlled(&self, done: Result<()>) -> Reply {
        done.map_or_else(|error| self.refusal(&error), |()| reply::ioctl(&[]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_go_into_both_forms_and_back_and_others_stay() {
        const OTHERS: u32 = 0x8_1000;
        let vfs = dentree_vfs::Vfs::new(dentree_vfs::MemoryFs::default()).unwrap();
        for flags in [0, IMMUTABLE, 0xF8, 0x2000_0008, 0x2200_00F8] {
            let attr = Attr { flags: OTHERS | 0xF8, ..vfs.root().attr() };
            let mut fsxattr = [0; FSXATTR_LEN];
            fsxattr[..4].copy_from_slice(&xflags_of(flags | OTHERS).to_ne_bytes());
            assert_eq!(wanted(FS_IOC_FSSETXATTR, &fsxattr, &attr).unwrap(), flags | OTHERS);
            fsxattr[PROJECT_AT] = 1;
            assert!(matches!(wanted(FS_IOC_FSSETXATTR, &fsxattr, &attr), Err(Error::Unsupported(_))));
            assert!(matches!(wanted(FS_IOC_FSSETXATTR, &fsxattr[..10], &attr), Err(Error::Invalid)));
            let as_long = u64::from(flags).to_ne_bytes();
            assert_eq!(wanted(FS_IOC_SETFLAGS, &as_long, &attr).unwrap(), flags);
        }
    }
}
