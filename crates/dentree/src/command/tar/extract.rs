//! From an archive into an image: members in their order, below one directory.
//!
//! No member leads outside of that directory: `..` is refused, and a link on the way to a member is
//! followed only to a directory below it. Directories get their attributes at the end, as entries
//! made in them change their times.

use super::read::{Head, Members, parts};
use super::sparse::invalid;
use crate::args::TarExtract;
use crate::command::ln::create_or_replace;
use crate::host::{self, OsStrExt, read_ready};
use crate::image::{Node, SUPERUSER, Session};
use crate::output::escape;
use crate::path::join;
use crate::progress::Progress;
use crate::report::{self, Problem, Report, Status, Stop};
use dentree_ext4::Ext4;
use dentree_vfs::{Error, FileType, Ino, NewKind, SetAttr, SetTime, SetXattr, Vfs, WalkOptions};
use flate2::read::MultiGzDecoder;
use ruzstd::decoding::StreamingDecoder;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use tar::EntryType;

/// Bytes per read, and the granularity of holes.
const CHUNK: usize = 1 << 20;
const GRAIN: usize = 4096;

pub(super) fn run(session: &Session, args: &TarExtract) -> Result<(), Stop> {
    let at = session.locate_for_writing(&args.location)?;
    let top = at.walk(WalkOptions::FOLLOW)?;
    if !top.is_dir() {
        return Err(at.problem(&Error::NotADirectory).into());
    }
    let file = archive_file(args.file.as_deref())?;
    let interrupted = session.catch_interrupts()?;
    let from = Interruptible { file, flag: &interrupted };
    let name = |path: &[u8]| at.image.at(&join(&at.path, path));
    let progress = session.progress(None, args.verbose);
    let place = Place { vfs: &at.image.vfs, top, name: &name, report: &session.report, progress: &progress };
    let mut extractor = Extractor::new(place, args.verbose, None);
    let done = unpacked(from).and_then(|archive| extractor.archive(archive, &|| session.is_interrupted()));
    extractor.finish();
    done.map_err(|error| {
        let name = args.file.as_deref().map_or(b"-".as_slice(), |file| file.as_bytes());
        archive_problem(&escape::terminal(name), &error)
            .with_hint("members before that are in the image")
            .into()
    })
}

/// Opens an archive; `-` and none are standard input.
pub(super) fn archive_file(file: Option<&OsStr>) -> Result<File, Stop> {
    match file {
        Some(file) if file != "-" => {
            Ok(File::open(file).map_err(|error| Problem::local(file.as_bytes(), &error))?)
        }
        _ if io::stdin().is_terminal() => {
            Err(Problem::usage("tar", "an archive is not read from a terminal: -f FILE").into())
        }
        _ => Ok(host::stdin()?),
    }
}

/// The problem of an archive that cannot be read to its end.
pub(super) fn archive_problem(name: &str, error: &io::Error) -> Problem {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    Problem::new(name, Status::Failed, format!("the archive cannot be read: {text}"))
}

/// Fails after Ctrl-C, also while a pipe has no data.
pub(super) struct Interruptible<'a> {
    pub(super) file: File,
    pub(super) flag: &'a AtomicBool,
}

impl Read for Interruptible<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.flag.load(Ordering::Relaxed) {
                return Err(io::Error::other("interrupted"));
            }
            if let Some(len) = read_ready(&mut self.file, buf)? {
                return Ok(len);
            }
        }
    }
}

/// The archive in a stream that may be compressed by gzip or zstd.
pub(super) fn unpacked<'r>(from: impl Read + 'r) -> io::Result<Box<dyn Read + 'r>> {
    let mut from = BufReader::with_capacity(CHUNK, from);
    let begin = from.fill_buf()?;
    if begin.starts_with(&[0x1f, 0x8b]) {
        return Ok(Box::new(MultiGzDecoder::new(from)));
    }
    if begin.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        let decoder = StreamingDecoder::new(from);
        return Ok(Box::new(decoder.map_err(|error| invalid(&format!("it is no zstd stream: {error}")))?));
    }
    for (magic, program) in [(&b"\xfd7zXZ\0"[..], "xz"), (b"BZh", "bzip2"), (b"\x04\"M\x18", "lz4")] {
        if begin.starts_with(magic) {
            return Err(invalid(&format!(
                "it is compressed by {program}: `{program} -dc FILE |` unpacks it"
            )));
        }
    }
    Ok(Box::new(from))
}

/// Where members go.
pub(super) struct Place<'a> {
    pub(super) vfs: &'a Vfs<Ext4>,
    pub(super) top: Node,
    /// The name of a path below `top` in messages.
    pub(super) name: &'a dyn Fn(&[u8]) -> String,
    pub(super) report: &'a Report,
    pub(super) progress: &'a Progress,
}

pub(super) struct Extractor<'a> {
    place: Place<'a>,
    verbose: bool,
    /// Names of members that are left out.
    left_out: Option<&'a [u8]>,
    /// The directory of the member before, whose neighbours often come next.
    recent: Option<(Vec<u8>, Node)>,
    /// Attributes of directories, to be set at the end.
    directories: Vec<(Ino, Head)>,
    is_full: bool,
}

enum Failed {
    Image(Error),
    /// The archive cannot be read on.
    Archive(io::Error),
    /// The member is not extracted.
    Refused(&'static str),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Failed::Image(error)
    }
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Failed::Archive(error)
    }
}

impl<'a> Extractor<'a> {
    pub(super) fn new(place: Place<'a>, verbose: bool, left_out: Option<&'a [u8]>) -> Extractor<'a> {
        Extractor { place, verbose, left_out, recent: None, directories: Vec::new(), is_full: false }
    }

    /// Extracts all members, until `is_stopped`.
    pub(super) fn archive(&mut self, from: impl Read, is_stopped: &dyn Fn() -> bool) -> io::Result<()> {
        let mut members = Members::new(from);
        while let Some(head) = members.next()? {
            if self.is_full || is_stopped() {
                break;
            }
            let parts = head.parts();
            let name = parts.last().copied().unwrap_or_default();
            if self.left_out.is_some_and(|prefix| name.starts_with(prefix)) {
                continue;
            }
            if self.verbose {
                report::print(escape::terminal(&head.path));
            }
            match self.member(&mut members, &head, &parts, is_stopped) {
                Ok(None) => self.place.progress.add(1, 0),
                Ok(Some(directory)) => self.directories.push((directory, head)),
                Err(Failed::Archive(error)) => return Err(error),
                Err(Failed::Image(error)) => self.failed(&head.path, &error),
                Err(Failed::Refused(why)) => {
                    let problem = Problem::new((self.place.name)(&head.path), Status::Failed, why);
                    self.place.report.problem(&problem);
                }
            }
        }
        Ok(())
    }

    fn failed(&mut self, path: &[u8], error: &Error) {
        let mut problem = Problem::inside((self.place.name)(path), error);
        if matches!(error, Error::NoSpace) {
            self.is_full = true;
            problem = problem.with_hint("nothing more is extracted; complete files are in the image");
        }
        self.place.report.problem(&problem);
    }

    /// Whether the image had no more space.
    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Sets the attributes of directories, those below first.
    pub(super) fn finish(&mut self) {
        for (ino, head) in std::mem::take(&mut self.directories).into_iter().rev() {
            let done = self.place.vfs.inode(ino).and_then(|node| self.keep(&node, &head));
            match done {
                // Removed by a later member.
                Ok(()) | Err(Error::Stale | Error::NotFound) => {}
                Err(error) => self.failed(&head.path, &error),
            }
        }
    }

    /// Extracts a member. Returns the directory that it is, whose attributes are set at the end.
    fn member(
        &mut self,
        content: &mut impl Read,
        head: &Head,
        parts: &[&[u8]],
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Option<Ino>, Failed> {
        if parts.contains(&&b".."[..]) {
            return Err(Failed::Refused("not extracted: its name contains `..`"));
        }
        let kind = head.kind;
        let Some((name, above)) = parts.split_last() else {
            return Ok((kind == EntryType::Directory).then(|| self.place.top.ino()));
        };
        let dir = self.directory(above)?;
        let vfs = self.place.vfs;
        if kind == EntryType::Directory {
            return Ok(Some(self.make_directory(&dir, name)?.ino()));
        }
        if vfs.lookup(SUPERUSER, &dir, name)?.is_some_and(|old| old.is_dir()) {
            vfs.rmdir(SUPERUSER, &dir, name)?;
        }
        let (major, minor) = head.device;
        let new = match kind {
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                self.regular(&dir, name, (content, head), is_stopped)?;
                return Ok(None);
            }
            EntryType::Symlink => NewKind::Symlink(&head.link),
            EntryType::Char => NewKind::CharDevice { major, minor },
            EntryType::Block => NewKind::BlockDevice { major, minor },
            EntryType::Fifo => NewKind::Fifo,
            EntryType::Link => {
                let first = self.linked(&head.link)?;
                create_or_replace(vfs, (&dir, name), true, &mut |name| {
                    vfs.link(SUPERUSER, &first, &dir, name)
                })?;
                return Ok(None);
            }
            _ => return Err(Failed::Refused("not extracted: a member of an unknown type")),
        };
        let mut made = None;
        create_or_replace(vfs, (&dir, name), true, &mut |name| {
            made = Some(vfs.create(SUPERUSER, &dir, name, new, 0o600)?);
            Ok(())
        })?;
        self.keep(&made.ok_or(Error::Stale)?, head)?;
        Ok(None)
    }

    /// Extracts a regular file, which gets its name when it is complete.
    fn regular(
        &self,
        dir: &Node,
        name: &[u8],
        (content, head): (&mut impl Read, &Head),
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<(), Failed> {
        let vfs = self.place.vfs;
        let node = vfs.create_unnamed(SUPERUSER, dir, 0o600)?;
        self.content(&node, content, head, is_stopped)?;
        self.keep(&node, head)?;
        Ok(create_or_replace(vfs, (dir, name), true, &mut |name| vfs.link(SUPERUSER, &node, dir, name))?)
    }

    /// The directory of these names below the top, made where there is none.
    fn directory(&mut self, parts: &[&[u8]]) -> Result<Node, Failed> {
        let path = parts.join(&b'/');
        if let Some((recent, node)) = &self.recent
            && *recent == path
            && !node.is_removed()
        {
            return Ok(node.clone());
        }
        let mut node = self.place.top.clone();
        for name in parts {
            node = match self.place.vfs.walk(SUPERUSER, &node, name, WalkOptions::FOLLOW) {
                Ok(found) if found.is_dir() => found,
                Ok(_) => return Err(Error::NotADirectory.into()),
                Err(Error::NotFound) => {
                    self.place.vfs.create(SUPERUSER, &node, name, NewKind::Directory, 0o755)?
                }
                Err(error) => return Err(error.into()),
            };
        }
        if !self.is_inside(&node)? {
            return Err(Failed::Refused("not extracted: a link on the way to it leads outside"));
        }
        self.recent = Some((path, node.clone()));
        Ok(node)
    }

    /// Whether a directory is the top or below it.
    fn is_inside(&self, node: &Node) -> Result<bool, Error> {
        let (vfs, top) = (self.place.vfs, self.place.top.ino());
        let mut at = node.clone();
        while at.ino() != top {
            if at.ino() == vfs.root().ino() {
                return Ok(false);
            }
            at = vfs.parent(&at)?;
        }
        Ok(true)
    }

    fn make_directory(&self, dir: &Node, name: &[u8]) -> Result<Node, Failed> {
        let vfs = self.place.vfs;
        match vfs.create(SUPERUSER, dir, name, NewKind::Directory, 0o700) {
            Err(Error::Exists) => match vfs.walk(SUPERUSER, dir, name, WalkOptions::FOLLOW) {
                // A link to a directory stays, as tar(1) keeps it.
                Ok(found) if found.is_dir() && self.is_inside(&found)? => Ok(found),
                _ => {
                    self.make_room(dir, name)?;
                    Ok(vfs.create(SUPERUSER, dir, name, NewKind::Directory, 0o700)?)
                }
            },
            made => Ok(made?),
        }
    }

    /// Removes what has the name, unless it is a directory that is not empty.
    fn make_room(&self, dir: &Node, name: &[u8]) -> Result<(), Failed> {
        let vfs = self.place.vfs;
        match vfs.lookup(SUPERUSER, dir, name)? {
            None => Ok(()),
            Some(old) if old.is_dir() => Ok(vfs.rmdir(SUPERUSER, dir, name)?),
            Some(_) => Ok(vfs.unlink(SUPERUSER, dir, name)?),
        }
    }

    /// The file that a hard link names.
    fn linked(&mut self, target: &[u8]) -> Result<Node, Failed> {
        let parts = parts(target);
        if parts.contains(&&b".."[..]) {
            return Err(Failed::Refused("not extracted: the file that it links to is named with `..`"));
        }
        let Some((name, above)) = parts.split_last() else { return Err(Error::IsADirectory.into()) };
        let dir = self.directory(above)?;
        Ok(self.place.vfs.lookup(SUPERUSER, &dir, name)?.ok_or(Error::NotFound)?)
    }

    /// Writes the content; zeros become holes.
    fn content(
        &self,
        node: &Node,
        content: &mut impl Read,
        head: &Head,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<(), Failed> {
        let (segments, size) = (head.segments(content)?, head.size());
        let mut chunk = vec![0; usize::try_from(size).map_or(CHUNK, |size| size.min(CHUNK))];
        let mut end = 0;
        for (start, len) in segments {
            if start < end || start.checked_add(len).is_none_or(|end| end > size) {
                return Err(invalid("a map of holes is damaged").into());
            }
            end = start + len;
            let mut offset = start;
            while offset < end {
                if is_stopped() {
                    return Err(Failed::Refused("interrupted; not extracted"));
                }
                let want = usize::try_from(end - offset).map_or(chunk.len(), |left| left.min(chunk.len()));
                content.read_exact(&mut chunk[..want])?;
                self.write(node, offset, &chunk[..want])?;
                self.place.progress.add(0, want as u64);
                offset += want as u64;
            }
        }
        Ok(self.place.vfs.set_attr(SUPERUSER, node, &SetAttr { size: Some(size), ..SetAttr::default() })?)
    }

    fn write(&self, node: &Node, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        for (at, run) in crate::local::without_zeros(bytes, GRAIN).into_iter().map(|run| (run.start, run)) {
            let len = run.len();
            if self.place.vfs.write(SUPERUSER, node, offset + at as u64, &bytes[run])? != len {
                return Err(Error::NoSpace);
            }
        }
        Ok(())
    }

    /// Sets attributes: the owner first, as a change of it clears capabilities.
    fn keep(&self, node: &Node, head: &Head) -> Result<(), Error> {
        let Head { permissions, uid, gid, mtime, xattrs, .. } = head;
        let vfs = self.place.vfs;
        vfs.set_attr(SUPERUSER, node, &SetAttr { uid: Some(*uid), gid: Some(*gid), ..SetAttr::default() })?;
        if head.has_lost_list() {
            let message = "its access control list names users without numbers and is not kept: pack it with \
                           --numeric-owner";
            self.place.report.problem(&Problem::new((self.place.name)(&head.path), Status::Differs, message));
        }
        for (name, value) in xattrs {
            if let Err(error) = vfs.setxattr(SUPERUSER, node, name, value, SetXattr::Any) {
                let name = escape::terminal(name);
                let message = format!("attribute {name} is not kept: {error}");
                let at = (self.place.name)(&head.path);
                self.place.report.problem(&Problem::new(at, Status::Differs, message));
            }
        }
        let time = Some(SetTime::At(*mtime));
        let permissions = (node.kind() != FileType::Symlink).then_some(*permissions);
        vfs.set_attr(
            SUPERUSER,
            node,
            &SetAttr { permissions, atime: time, mtime: time, ..SetAttr::default() },
        )
    }
}
