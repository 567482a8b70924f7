//! `--timeline`: a line of the bodyfile of The Sleuth Kit 3, which mactime(1) reads:
//! `MD5|name|inode|mode_as_string|UID|GID|size|atime|mtime|ctime|crtime`.

use super::super::candidate::Candidate;
use crate::output::Names;
use crate::output::attributes::mode;
use dentree_vfs::{Attr, FileType};
use std::io::Write;

/// No digest is computed: its field is 0, and so is a time that the inode does not have.
pub(super) fn print(file: &Candidate<'_>, names: Names, out: &mut Vec<u8>) -> Option<()> {
    let Attr { ino, kind, uid, gid, size, atime, mtime, ctime, crtime, .. } = file.attr()?;
    let mut name = file.shown().into_owned();
    if *kind == FileType::Symlink {
        name.extend_from_slice(b" -> ");
        name.extend(file.link_text()?);
    }
    // One field of one line.
    for byte in &mut name {
        if byte.is_ascii_control() || *byte == b'|' {
            *byte = b'^';
        }
    }
    // Of the entry, and of the inode.
    let types = match kind {
        FileType::Regular => "r/r",
        FileType::Socket => "s/h",
        FileType::Directory => "d/d",
        FileType::Symlink => "l/l",
        FileType::CharDevice => "c/c",
        FileType::BlockDevice => "b/b",
        FileType::Fifo => "p/p",
    };
    let mode = mode(file.attr()?);
    let permissions = mode.get(1..10).unwrap_or_default();
    out.extend_from_slice(b"0|");
    out.extend_from_slice(&names.show(&name));
    let [atime, mtime, ctime] = [atime, mtime, ctime].map(|time| time.seconds);
    let born = crtime.map_or(0, |time| time.seconds);
    // Writing to a vector cannot fail.
    let _ = writeln!(out, "|{ino}|{types}{permissions}|{uid}|{gid}|{size}|{atime}|{mtime}|{ctime}|{born}");
    Some(())
}
