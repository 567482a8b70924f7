//! Nodes: what a path leads to, and what is in it.

use crate::error::{Failure, returns};
use crate::image::{CALLER, Fs, dentree_image};
use crate::pointer::{copy, give, handle, set, take, text};
use crate::stat::dentree_stat;
use dentree_ext4::Ext4;
use dentree_vfs::{Inode, WalkOptions};
use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

/// A file, directory or symbolic link that a path led to.
pub struct dentree_node {
    pub(crate) fs: Fs,
    pub(crate) inode: Arc<Inode<Ext4>>,
    path: Vec<u8>,
}

impl dentree_node {
    pub(crate) fn failed(&self, error: &dentree_vfs::Error) -> Failure {
        Failure::at(&self.path, error)
    }
}

/// Walks to a path from the image's root. `follow` not 0: a symbolic link at its end is followed,
/// as stat(2) does; 0: it is what is found, as with lstat(2).
///
/// Returns 0, and a node for `dentree_put`; or a negative errno.
///
/// # Safety
/// `image` is open, `path` a string, and `node` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dentree_walk(
    image: *const dentree_image,
    path: *const c_char,
    follow: c_int,
    node: *mut *mut dentree_node,
) -> c_int {
    returns(|| {
        // SAFETY: as this function's caller says.
        let (image, path) = unsafe { (handle(image, "image")?, text(path, "path")?) };
        let options = if follow == 0 { WalkOptions::KEEP_LINK } else { WalkOptions::FOLLOW };
        let found = image.fs.walk(CALLER, image.fs.root(), path, options);
        let inode = found.map_err(|error| Failure::at(path, &error))?;
        let found = dentree_node { fs: Arc::clone(&image.fs), inode, path: path.to_vec() };
        // SAFETY: as this function's caller says.
        unsafe { give(node, found, "node") }?;
        Ok(0)
    })
}

/// Gives a node back. Null is none.
///
/// # Safety
/// `node` came from `dentree_walk`, and nothing uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dentree_put(node: *mut dentree_node) {
    // SAFETY: as this function's caller says.
    drop(unsafe { take(node) });
}

/// The attributes of a node. Returns 0 or a negative errno.
///
/// # Safety
/// `node` is valid, and `stat` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dentree_stat(node: *const dentree_node, stat: *mut dentree_stat) -> c_int {
    returns(|| {
        // SAFETY: as this function's caller says.
        let node = unsafe { handle(node, "node") }?;
        // SAFETY: as this function's caller says.
        unsafe { set(stat, dentree_stat::from(&node.inode.attr()), "stat") }?;
        Ok(0)
    })
}

/// Reads a regular file from byte `offset` on. Returns how many bytes were read, fewer than `len`
/// only at the end, or a negative errno.
///
/// # Safety
/// `node` is valid, and `len` bytes at `buf` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dentree_read(
    node: *const dentree_node,
    offset: u64,
    buf: *mut c_void,
    len: usize,
) -> i64 {
    /// Read into memory of ours at a time: a caller's may not be initialised.
    const PIECE: usize = 256 << 10;
    returns(|| {
        // SAFETY: as this function's caller says.
        let node = unsafe { handle(node, "node") }?;
        let mut piece = vec![0; PIECE.min(len)];
        let mut done = 0;
        while done < len {
            let part = &mut piece[..PIECE.min(len - done)];
            let read = node.fs.read(&node.inode, offset.saturating_add(done as u64), part);
            let read = read.map_err(|error| node.failed(&error))?;
            if read == 0 {
                break;
            }
            // SAFETY: `done + read` is at most `len`; the rest is as this function's caller says.
            unsafe { copy(&part[..read], buf.wrapping_byte_add(done), read, "buf") }?;
            done += read;
        }
        Ok(done as i64)
    })
}

/// The target of a symbolic link, without a zero at its end. Returns its whole length, of which as
/// much as fits is in `buf`, or a negative errno.
///
/// # Safety
/// `node` is valid, and `len` bytes at `buf` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dentree_readlink(node: *const dentree_node, buf: *mut c_void, len: usize) -> i64 {
    returns(|| {
        // SAFETY: as this function's caller says.
        let node = unsafe { handle(node, "node") }?;
        let target = node.fs.readlink(&node.inode).map_err(|error| node.failed(&error))?;
        // SAFETY: as this function's caller says.
        unsafe { copy(&target, buf, len, "buf") }?;
        Ok(target.len() as i64)
    })
}

/// The value of an extended attribute, by its full name (`user.note`). Returns its whole length, of
/// which as much as fits is in `buf`, or a negative errno: `-ENODATA` where there is none.
///
/// # Safety
/// `node` is valid, `name` a string, and `len` bytes at `buf` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dentree_getxattr(
    node: *const dentree_node,
    name: *const c_char,
    buf: *mut c_void,
    len: usize,
) -> i64 {
    returns(|| {
        // SAFETY: as this function's caller says.
        let (node, name) = unsafe { (handle(node, "node")?, text(name, "name")?) };
        let value = node.fs.getxattr(&node.inode, name).map_err(|error| node.failed(&error))?;
        // SAFETY: as this function's caller says.
        unsafe { copy(&value, buf, len, "buf") }?;
        Ok(value.len() as i64)
    })
}
