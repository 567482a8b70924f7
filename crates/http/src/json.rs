//! A directory as JSON in nginx's fields: an array of `name`, `type`, `size` and `mtime`, an entry
//! per line.
//!
//! Entries come in directory order, a chunk in memory at a time.

use crate::body::{Pieces, Unreadable};
use crate::conditional::http_date;
use crate::options::Limits;
use crate::site::{Site, WHO};
use crate::target::encode;
use dentree_vfs::{DirEntry, FileSystem, FileType, Ino, Inode, ReaddirStart};
use hyper::body::Bytes;
use hyper::header::{ACCEPT, HeaderMap};
use serde::Serialize;
use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Largest growth of a byte of a name: `\u0001`, `%01` and `01`.
const BYTE_GROWS: usize = 11;
/// Rest of an entry.
const ENTRY: usize = 160;

/// Whether `Accept` lists JSON; browsers do not.
pub(crate) fn is_wanted(headers: &HeaderMap) -> bool {
    let lists = headers.get_all(ACCEPT).iter().filter_map(|list| list.to_str().ok());
    let mut kinds = lists.flat_map(|list| list.split(',')).map(|kind| kind.split(';').next().unwrap_or(kind));
    kinds.any(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}

struct Read {
    name: Vec<u8>,
    ino: Ino,
    kind: Option<FileType>,
    cookie: u64,
}

#[derive(Serialize)]
struct Sent<'a> {
    /// With replacement characters for invalid UTF-8.
    name: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name_hex: Option<String>,
    /// Relative to the directory; exact for any name.
    url: String,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mtime: Option<String>,
}

pub(crate) struct Listing<F: FileSystem> {
    site: Arc<Site<F>>,
    dir: Arc<Inode<F>>,
    path: Vec<u8>,
    next: Next,
}

enum Next {
    First,
    After(u64),
    End,
}

impl<F: FileSystem> Listing<F> {
    /// Problems are logged for `path`.
    pub(crate) fn new(site: Arc<Site<F>>, dir: Arc<Inode<F>>, path: Vec<u8>) -> Self {
        Listing { site, dir, path, next: Next::First }
    }

    /// Entries of the next chunk, and whether they are the last.
    fn read(&self, start: ReaddirStart) -> Result<(Vec<Read>, bool), Unreadable> {
        let (mut entries, mut bytes) = (Vec::new(), 0);
        let mut each = |DirEntry { name, ino, kind, cookie }: DirEntry<'_>| {
            bytes += ENTRY + BYTE_GROWS * name.len();
            if bytes > Limits::CHUNK {
                return ControlFlow::Break(());
            }
            entries.push(Read { name: name.to_vec(), ino, kind, cookie });
            ControlFlow::Continue(())
        };
        let read = self.site.vfs.readdir(WHO, &self.dir, start, &mut each);
        read.map(|()| (entries, bytes <= Limits::CHUNK)).map_err(|error| {
            self.site.log.problem(&self.path, &error);
            Unreadable
        })
    }

    fn write(&self, text: &mut Vec<u8>, entry: &Read) {
        let name = &entry.name[..];
        // An unreadable inode has an entry without size and time.
        let attr = self.site.vfs.inode(entry.ino).ok().map(|inode| inode.attr());
        let kind = attr.map(|attr| attr.kind).or(entry.kind);
        let slash = if kind == Some(FileType::Directory) { "/" } else { "" };
        let lossy = String::from_utf8_lossy(name);
        let sent = Sent {
            name_hex: matches!(lossy, Cow::Owned(_))
                .then(|| name.iter().map(|byte| format!("{byte:02x}")).collect()),
            name: lossy,
            url: format!("{}{slash}", encode(name)),
            kind: kind.map(word),
            size: attr.filter(|attr| attr.kind == FileType::Regular).map(|attr| attr.size),
            mtime: attr.and_then(|attr| http_date(attr.mtime)),
        };
        // Writing to memory does not fail.
        let _ = serde_json::to_writer(text, &sent);
    }
}

impl<F: FileSystem> Pieces for Listing<F> {
    fn next(&mut self) -> Result<Option<Bytes>, Unreadable> {
        let (start, mut before) = match self.next {
            Next::First => (ReaddirStart::First, "[\n"),
            Next::After(cookie) => (ReaddirStart::After(cookie), ",\n"),
            Next::End => return Ok(None),
        };
        let (entries, are_last) = self.read(start)?;
        self.site.vfs.prefetch_inodes(entries.iter().map(|entry| entry.ino));
        let mut text = Vec::new();
        for entry in &entries {
            text.extend_from_slice(before.as_bytes());
            self.write(&mut text, entry);
            before = ",\n";
        }
        self.next = match entries.last() {
            Some(last) if !are_last => Next::After(last.cookie),
            last => {
                text.extend_from_slice(if last.is_some() { b"\n]\n" } else { b"[]\n" });
                Next::End
            }
        };
        Ok(Some(text.into()))
    }
}

fn word(kind: FileType) -> &'static str {
    match kind {
        FileType::Regular => "file",
        FileType::Directory => "directory",
        FileType::Symlink => "symlink",
        FileType::CharDevice | FileType::BlockDevice | FileType::Fifo | FileType::Socket => "other",
    }
}
