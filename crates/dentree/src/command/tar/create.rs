//! From an image to an archive: one pass over the tree, directories before their contents.

use super::{ACLS, XATTR, acl, sparse};
use crate::args::TarCreate;
use crate::host::OsStrExt;
use crate::image::{Image, Node, SUPERUSER, Session};
use crate::interrupt::interruptible;
use crate::operands::total_of;
use crate::output::escape;
use crate::path::join;
use crate::progress::Progress;
use crate::report::{self, Problem, Report, Status, Stop};
use crate::tree::{Listing, Tree};
use dentree_vfs::{Attr, Error, Extent, FileType, Ino, WalkOptions};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, IsTerminal, Read, Write};
use std::sync::atomic::Ordering;
use tar::{Builder, EntryType, Header};

/// What fits the fields of a header.
const NAME: usize = 100;
/// Bytes per read.
const CHUNK: usize = 1 << 20;

pub(super) fn run(session: &Session, args: &TarCreate) -> Result<(), Stop> {
    let to: Box<dyn Write> = match &args.file {
        Some(file) if file != "-" => {
            let made = File::create(file);
            Box::new(made.map_err(|error| Problem::local(file.as_bytes(), &error))?)
        }
        _ if io::stdout().is_terminal() => {
            return Err(Problem::usage("tar", "an archive is not written to a terminal: -f FILE").into());
        }
        _ => Box::new(io::stdout().lock()),
    };
    let interrupted = interruptible().map_err(Problem::signals)?;
    let found = session.walk_each(&args.locations, WalkOptions::KEEP_LINK);
    let progress = session.progress(total_of(&found), args.verbose);
    let stopped = || interrupted.load(Ordering::Relaxed);
    let archive = Archive::new(to, &session.report, &stopped, &progress);
    let mut archive = Archive { verbose: args.verbose, ..archive };
    for (at, node) in found {
        archive.links.clear();
        archive.tree(&Tree::new(&at.image, &session.report), node, at.path.clone());
    }
    archive.finish()?;
    if stopped() {
        return Err(Problem::new("tar", Status::Failed, "interrupted; the archive is incomplete").into());
    }
    Ok(())
}

/// Writes an archive of what a path of the image leads to, for a reader that is not told what is
/// missing: the first problem, which is reported, ends it as an error.
pub(crate) fn write(image: &Image, path: &[u8], to: &mut dyn Write) -> io::Result<()> {
    let report = Report::default();
    let stopped = || report.status() != Status::Done;
    let progress = Progress::new(false, None);
    let mut archive = Archive::new(to, &report, &stopped, &progress);
    let tree = Tree::new(image, &report);
    let path = path.strip_suffix(b"/").filter(|path| !path.is_empty()).unwrap_or(path);
    match image.vfs.walk(SUPERUSER, image.vfs.root(), path, WalkOptions::FOLLOW) {
        Ok(node) => archive.tree(&tree, node, path.to_vec()),
        Err(error) => tree.problem(path, &error),
    }
    // What is told of the problem stands in the report.
    if stopped() { Err(io::ErrorKind::InvalidData.into()) } else { archive.finish() }
}

struct Archive<'a> {
    to: Builder<BufWriter<Box<dyn Write + 'a>>>,
    report: &'a Report,
    /// Whether to end early.
    stopped: &'a dyn Fn() -> bool,
    progress: &'a Progress,
    /// The first name of each file that has several.
    links: HashMap<Ino, Vec<u8>>,
    verbose: bool,
    /// Why the archive could not be written to; nothing more is then.
    failed: Option<io::Error>,
}

impl<'a> Archive<'a> {
    fn new(
        to: impl Write + 'a,
        report: &'a Report,
        stopped: &'a dyn Fn() -> bool,
        progress: &'a Progress,
    ) -> Self {
        let to = Builder::new(BufWriter::with_capacity(CHUNK, Box::new(to) as Box<dyn Write + 'a>));
        Archive { to, report, stopped, progress, links: HashMap::new(), verbose: false, failed: None }
    }

    fn finish(self) -> io::Result<()> {
        match self.failed {
            Some(error) => Err(error),
            None => self.to.into_inner()?.flush(),
        }
    }

    /// Archives `node` and all below it. A directory comes right before its contents: tar(1) sets
    /// its times when it meets the first member that is not below it.
    fn tree(&mut self, tree: &Tree<'_>, node: Node, path: Vec<u8>) {
        let is_root = path == b"/";
        let mut next = Some((node, path));
        let mut left: Vec<(Listing, usize, Vec<u8>)> = Vec::new();
        while self.failed.is_none() && !(self.stopped)() {
            if let Some((node, path)) = next.take() {
                if let Err(error) = self.member(tree.image, &node, &path, is_root) {
                    tree.problem(&path, &error);
                }
                if node.is_dir() {
                    let mut listing = tree.list(&node, &path);
                    listing.sort_by_inode();
                    tree.prefetch_inodes(listing.iter());
                    left.push((listing, 0, path));
                }
            }
            let Some((listing, at, dir)) = left.last_mut() else { break };
            if *at == listing.len() {
                left.pop();
                continue;
            }
            let entry = listing.get(*at);
            *at += 1;
            let path = join(dir, entry.name);
            next = tree.inode(entry.ino, &path).map(|node| (node, path));
        }
    }

    fn member(&mut self, image: &Image, node: &Node, path: &[u8], is_root: bool) -> Result<(), Error> {
        let attr = node.attr();
        let name = member_name(path, is_root, attr.is_dir());
        if self.verbose {
            report::print(escape::terminal(&name));
        }
        if attr.kind == FileType::Socket {
            let message = "not in the archive, which has no sockets";
            report::print_problem(&Problem::new(image.at(path), Status::Done, message));
            return Ok(());
        }
        let mut header = Member::new(&attr, name.clone());
        if attr.nlink > 1 && !attr.is_dir() {
            if let Some(first) = self.links.get(&attr.ino) {
                header.link(EntryType::Link, first);
                self.append(header, io::empty());
                return Ok(());
            }
            self.links.insert(attr.ino, name);
        }
        header.attributes(image, node)?;
        match attr.kind {
            FileType::Symlink => header.link(EntryType::Symlink, &image.vfs.readlink(node)?),
            FileType::Regular => {
                let segments = segments(image, node, attr.size)?;
                let report = |error: &Error| self.report.problem(&image.problem(path, error));
                let content = Content::new(image, node, &report, (self.stopped, self.progress));
                let (header, content) = header.content(attr.size, segments, content);
                let buffer = usize::try_from(attr.size).map_or(CHUNK, |size| size.min(CHUNK));
                self.append(header, BufReader::with_capacity(buffer, content));
                return Ok(());
            }
            _ => {}
        }
        self.append(header, io::empty());
        Ok(())
    }

    fn append(&mut self, member: Member, content: impl Read) {
        self.failed = member.write(&mut self.to, content).err();
        self.progress.add(1, 0);
    }
}

/// `etc/hosts`, as tar(1) strips the slash; `./etc/hosts` of a whole image, whose root is `./`.
fn member_name(path: &[u8], is_root: bool, is_dir: bool) -> Vec<u8> {
    let mut name = if is_root { b"./".to_vec() } else { Vec::new() };
    name.extend_from_slice(path.strip_prefix(b"/").unwrap_or(path));
    if is_dir && !name.ends_with(b"/") {
        name.push(b'/');
    }
    name
}

/// A member before it is written: its header, and the pax records for what does not fit.
struct Member {
    header: Header,
    name: Vec<u8>,
    pax: Vec<(String, Vec<u8>)>,
}

impl Member {
    fn new(attr: &Attr, name: Vec<u8>) -> Member {
        let mut header = Header::new_ustar();
        header.set_entry_type(match attr.kind {
            FileType::Directory => EntryType::Directory,
            FileType::CharDevice => EntryType::Char,
            FileType::BlockDevice => EntryType::Block,
            FileType::Fifo => EntryType::Fifo,
            FileType::Symlink => EntryType::Symlink,
            FileType::Regular | FileType::Socket => EntryType::Regular,
        });
        header.set_mode(u32::from(attr.permissions));
        header.set_uid(attr.uid.into());
        header.set_gid(attr.gid.into());
        header.set_size(0);
        let mtime = attr.mtime;
        header.set_mtime(u64::try_from(mtime.seconds).unwrap_or(0));
        let mut pax = Vec::new();
        if mtime.nanos != 0 || mtime.seconds < 0 {
            pax.push(("mtime".to_owned(), decimal(mtime.seconds, mtime.nanos).into_bytes()));
        }
        let (major, minor) = (attr.rdev_major, attr.rdev_minor);
        // In a header of this kind neither can fail.
        let _ = header.set_device_major(major).and(header.set_device_minor(minor));
        Member { header, name, pax }
    }

    /// Extended attributes and lists.
    fn attributes(&mut self, image: &Image, node: &Node) -> Result<(), Error> {
        for name in image.vfs.listxattr(node)? {
            let value = image.vfs.getxattr(node, &name)?;
            let list = ACLS.iter().find(|(_, attribute)| *attribute == name);
            match list.and_then(|(key, _)| Some((key, acl::to_text(&value)?))) {
                Some((key, text)) => self.pax.push(((*key).to_owned(), text.into_bytes())),
                // As GNU tar writes a name with an equals sign.
                None => {
                    let name = String::from_utf8_lossy(&name).replace('%', "%25").replace('=', "%3D");
                    self.pax.push((format!("{XATTR}{name}"), value));
                }
            }
        }
        Ok(())
    }

    fn link(&mut self, kind: EntryType, target: &[u8]) {
        self.header.set_entry_type(kind);
        let old = self.header.as_old_mut();
        match old.linkname.get_mut(..target.len()) {
            Some(field) => field.copy_from_slice(target),
            None => self.pax.push(("linkpath".to_owned(), target.to_vec())),
        }
    }

    /// Sets the size, and puts a map before the data of a file with holes.
    fn content<'c>(
        mut self,
        size: u64,
        segments: Vec<sparse::Segment>,
        mut content: Content<'c>,
    ) -> (Member, Content<'c>) {
        let data: u64 = segments.iter().map(|&(_, len)| len).sum();
        if data == size {
            self.header.set_size(size);
        } else {
            content.map = sparse::encode(&segments);
            self.header.set_size(content.map.len() as u64 + data);
            let records = [
                ("GNU.sparse.major", b"1".to_vec()),
                ("GNU.sparse.minor", b"0".to_vec()),
                ("GNU.sparse.name", self.name.clone()),
                ("GNU.sparse.realsize", size.to_string().into_bytes()),
            ];
            self.pax.extend(records.map(|(key, value)| (key.to_owned(), value)));
            self.name = [b"GNUSparseFile.0/", &self.name[..]].concat();
        }
        content.segments = segments;
        (self, content)
    }

    fn write(mut self, to: &mut Builder<impl Write>, content: impl Read) -> io::Result<()> {
        let fits = self.name.len().min(NAME);
        self.header.as_old_mut().name[..fits].copy_from_slice(&self.name[..fits]);
        if fits < self.name.len() {
            self.pax.push(("path".to_owned(), std::mem::take(&mut self.name)));
        }
        self.header.set_cksum();
        if !self.pax.is_empty() {
            to.append_pax_extensions(self.pax.iter().map(|(key, value)| (key.as_str(), value.as_slice())))?;
        }
        to.append(&self.header, content)
    }
}

/// `-1.25`: seconds with a fraction.
fn decimal(seconds: i64, nanos: u32) -> String {
    match (seconds, nanos) {
        (..0, 1..) => {
            let nanos = 1_000_000_000 - nanos;
            format!("-{}.{nanos:09}", (seconds + 1).unsigned_abs())
        }
        _ => format!("{seconds}.{nanos:09}"),
    }
}

/// The data of a file. The last segment ends at the file's end, if need be without bytes.
fn segments(image: &Image, node: &Node, size: u64) -> Result<Vec<sparse::Segment>, Error> {
    let (mut segments, mut offset) = (Vec::new(), 0);
    while offset < size {
        match image.vfs.extent(node, offset) {
            Ok(Extent::Hole(end)) => offset = end,
            Ok(Extent::Data(end)) => {
                let end = end.min(size);
                match segments.last_mut() {
                    Some((start, len)) if *start + *len == offset => *len += end - offset,
                    _ => segments.push((offset, end - offset)),
                }
                offset = end;
            }
            Err(Error::NoExtent) => break,
            Err(error) => return Err(error),
        }
    }
    if segments.last().is_none_or(|&(start, len)| start + len < size) {
        segments.push((size, 0));
    }
    Ok(segments)
}

/// Reads the data of a file for the archive. What cannot be read is reported and becomes zeros: a
/// member has as many bytes as its header says.
struct Content<'c> {
    image: &'c Image,
    node: &'c Node,
    report: &'c dyn Fn(&Error),
    stopped: &'c dyn Fn() -> bool,
    progress: &'c Progress,
    map: Vec<u8>,
    segments: Vec<sparse::Segment>,
    /// The segment that is read, and how much of it was.
    at: (usize, u64),
    map_at: usize,
    is_damaged: bool,
}

impl<'c> Content<'c> {
    fn new(
        image: &'c Image,
        node: &'c Node,
        report: &'c dyn Fn(&Error),
        (stopped, progress): (&'c dyn Fn() -> bool, &'c Progress),
    ) -> Content<'c> {
        let (map, segments) = (Vec::new(), Vec::new());
        Content {
            image,
            node,
            report,
            stopped,
            progress,
            map,
            segments,
            at: (0, 0),
            map_at: 0,
            is_damaged: false,
        }
    }
}

impl Read for Content<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.map_at < self.map.len() {
            let len = (&self.map[self.map_at..]).read(buf)?;
            self.map_at += len;
            return Ok(len);
        }
        while let Some(&(start, len)) = self.segments.get(self.at.0).filter(|_| !(self.stopped)()) {
            if self.at.1 == len {
                self.at = (self.at.0 + 1, 0);
                continue;
            }
            let want = usize::try_from(len - self.at.1).unwrap_or(buf.len()).min(buf.len());
            let buf = &mut buf[..want];
            let read = match self.is_damaged {
                false => self.image.vfs.read(self.node, start + self.at.1, buf),
                true => Ok(0),
            };
            let len = match read {
                Ok(len @ 1..) => {
                    self.progress.add(0, len as u64);
                    len
                }
                Ok(0) => {
                    buf.fill(0);
                    want
                }
                Err(error) => {
                    (self.report)(&error);
                    self.is_damaged = true;
                    continue;
                }
            };
            self.at.1 += len as u64;
            return Ok(len);
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_the_epoch_are_decimal_fractions() {
        let cases = [((0, 5), "0.000000005"), ((-1, 500_000_000), "-0.500000000"), ((-2, 0), "-2.000000000")];
        for ((seconds, nanos), text) in cases {
            assert_eq!(decimal(seconds, nanos), text);
        }
    }

    #[test]
    fn members_have_no_leading_slash() {
        assert_eq!(member_name(b"/", true, true), b"./");
        assert_eq!(member_name(b"/etc", true, true), b"./etc/");
        assert_eq!(member_name(b"/etc/x", false, false), b"etc/x");
    }
}
