//! JSON of files for `--json`.

use crate::output::attributes::{epoch, kind};
use dentree_vfs::{Attr, FileType, Timestamp};
use serde::Serialize;
use std::io::{self, Write};

/// A name as a string; bytes that are not UTF-8 become replacement characters, with the hex in a
/// second field.
#[derive(Serialize)]
pub(crate) struct Path<'a> {
    path: std::borrow::Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
}

impl<'a> Path<'a> {
    pub(crate) fn new(path: &'a [u8]) -> Self {
        let text = String::from_utf8_lossy(path);
        let path_hex = match text {
            std::borrow::Cow::Borrowed(_) => None,
            std::borrow::Cow::Owned(_) => Some(hex(path)),
        };
        Path { path: text, path_hex }
    }
}

/// The attributes of a file. Times are decimal strings of seconds since 1970, with nanoseconds.
#[derive(Serialize)]
pub(crate) struct File<'a> {
    #[serde(flatten)]
    path: Path<'a>,
    ino: u64,
    #[serde(rename = "type")]
    kind: &'static str,
    mode: String,
    nlink: u32,
    uid: u32,
    gid: u32,
    size: u64,
    blocks: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    rdev: Option<String>,
    atime: String,
    mtime: String,
    ctime: String,
    crtime: Option<String>,
    generation: u32,
    flags: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<Path<'a>>,
}

impl<'a> File<'a> {
    pub(crate) fn new(path: &'a [u8], attr: &Attr, target: Option<&'a [u8]>) -> Self {
        let device = matches!(attr.kind, FileType::BlockDevice | FileType::CharDevice);
        let time = |time: Timestamp| epoch(time);
        File {
            path: Path::new(path),
            ino: attr.ino.0,
            kind: kind(attr.kind),
            mode: format!("{:04o}", attr.permissions),
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            size: attr.size,
            blocks: attr.blocks,
            rdev: device.then(|| format!("{}:{}", attr.rdev_major, attr.rdev_minor)),
            atime: time(attr.atime),
            mtime: time(attr.mtime),
            ctime: time(attr.ctime),
            crtime: attr.crtime.map(time),
            generation: attr.generation,
            flags: attr.flags,
            target: target.map(Path::new),
        }
    }
}

pub(crate) fn line(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    out.write_all(b"\n")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
