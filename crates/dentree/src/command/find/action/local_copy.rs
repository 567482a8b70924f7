//! A copy of one file of the image on this machine, for a command that takes paths.

use super::super::candidate::Candidate;
use crate::host::{self, OsStrExt, is_plain_name, os_str};
use crate::image::Node;
use crate::report::Problem;
use dentree_blockdev::FileExt;
use dentree_vfs::{Attr, Error, Extent, FileType, Timestamp};
use std::fs::{self, File, FileTimes};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Bytes per read.
const CHUNK: u64 = 1 << 20;

/// Makes a copy below `top`, a directory of its own: under the file's whole path, or with `flat`
/// under its name. Returns where it is; `None` after a report.
///
/// No name of the image leads out of `top`: there is nothing in it but what is made here, and names
/// with a slash and `..` are refused.
pub(super) fn make(file: &Candidate<'_>, top: &Path, flat: bool) -> Option<PathBuf> {
    let path = if flat { file.name() } else { file.path() };
    let names: Vec<&[u8]> = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).collect();
    if !names.iter().all(|name| is_plain_name(name)) || flat && names.len() > 1 {
        file.refusal("a file of this name cannot be handed to a command");
        return None;
    }
    let to = names.iter().fold(top.to_owned(), |to, name| to.join(os_str(name)));
    let attr = file.attr()?;
    match content(file, attr, top, &to) {
        Ok(()) => Some(to),
        Err(Failed::Image(error)) => {
            file.problem(&error);
            None
        }
        Err(Failed::Local(error)) => {
            file.tree.report.problem(&Problem::local(to.as_os_str().as_bytes(), &error));
            None
        }
        Err(Failed::Kind) => {
            file.refusal("a device, FIFO or socket cannot be handed to a command; exclude it by -type");
            None
        }
    }
}

enum Failed {
    Image(Error),
    Local(io::Error),
    Kind,
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Failed::Image(error)
    }
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Failed::Local(error)
    }
}

fn content(file: &Candidate<'_>, attr: &Attr, top: &Path, to: &Path) -> Result<(), Failed> {
    if to == top {
        return Ok(());
    }
    if let Some(parent) = to.parent() {
        fs::create_dir_all(parent)?;
    }
    let node = file.tree.image.inode(attr.ino)?;
    match attr.kind {
        FileType::Directory => fs::create_dir(to)?,
        FileType::Symlink => {
            let text = file.tree.image.vfs.readlink(&node)?;
            host::symlink(&text, to)?;
        }
        FileType::Regular => {
            let local = File::create_new(to)?;
            data(file, &node, &local)?;
            local
                .set_times(FileTimes::new().set_accessed(time(attr.atime)).set_modified(time(attr.mtime)))?;
            // Ours to remove and to read, whatever it is in the image.
            host::set_permissions(&local, u32::from(attr.permissions) & 0o777 | 0o400)?;
        }
        _ => return Err(Failed::Kind),
    }
    Ok(())
}

/// Holes stay holes.
fn data(file: &Candidate<'_>, node: &Node, local: &File) -> Result<(), Failed> {
    let vfs = &file.tree.image.vfs;
    let size = node.attr().size;
    local.set_len(size)?;
    let mut buf = vec![0; size.min(CHUNK) as usize];
    let mut offset = 0;
    while offset < size {
        let end = match vfs.extent(node, offset) {
            Ok(Extent::Hole(end)) => {
                offset = end;
                continue;
            }
            Ok(Extent::Data(end)) => end.min(size),
            Err(Error::NoExtent) => break,
            Err(error) => return Err(error.into()),
        };
        while offset < end {
            let want = (end - offset).min(CHUNK) as usize;
            let len = vfs.read(node, offset, &mut buf[..want])?;
            if len == 0 {
                return Ok(());
            }
            local.write_all_at(&buf[..len], offset)?;
            offset += len as u64;
        }
    }
    Ok(())
}

fn time(time: Timestamp) -> SystemTime {
    let seconds = Duration::from_secs(time.seconds.unsigned_abs());
    let whole = if time.seconds < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(seconds)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(seconds)
    };
    whole.map_or(SystemTime::UNIX_EPOCH, |whole| whole + Duration::from_nanos(time.nanos.into()))
}
