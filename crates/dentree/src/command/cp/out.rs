//! From an image to the local file system.
//!
//! A directory is made first and gets its attributes after its direct entries. A new file gets its
//! name when it is complete; an existing file is written to. So an interrupted copy leaves new
//! files whole, and new directories at most accessible to their owner alone.

use super::attributes::{AttributeCopier, Loss};
use super::target_dir::{Destination, Rules, Target, TargetDir, is_plain_name};
use super::{CUT_SHORT, JUST_MADE, Progress, check_interrupted, local_problem};
use crate::args::CpArgs;
use crate::fanout::{self, Emit, Order};
use crate::image::{Image, Node, Session};
use crate::interrupt::interruptible;
use crate::path::join;
use crate::report::{Problem, Report, Status, Stop};
use crate::temp_entry::Existing;
use crate::tree::{Entry, Listing, Tree, parts};
use dentree_sync::Mutex;
use dentree_vfs::{Error, Extent, FileType, Ino, WalkOptions};
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::ops::{ControlFlow, Range};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Bytes per read.
const CHUNK: usize = 1 << 20;

pub(super) fn run(session: &Session, args: &CpArgs) -> Result<(), Stop> {
    let options = if args.archive { WalkOptions::KEEP_LINK } else { WalkOptions::FOLLOW };
    let found = session.walk_each(&args.sources, options);
    let local = Path::new(&args.target);
    let is_dir = local.is_dir();
    if args.sources.len() > 1 && !is_dir {
        return Err(local_problem(local, &io::ErrorKind::NotADirectory.into()).into());
    }
    let interrupted = interruptible("cp")?;
    fanout::raise_file_limit();
    let progress = Progress::new();
    let copier = AttributeCopier::new(args.archive);
    let mut made = HashSet::new();
    for (at, node) in &found {
        // An image's root, `.` and `..` have no name to make: their contents go into the directory.
        let name =
            at.path.rsplit(|&byte| byte == b'/').next().filter(|name| is_plain_name(name)).unwrap_or(b"");
        let (top, name) = if is_dir { (local, name) } else { split(local) };
        let requires_directory = !is_dir && args.target.as_bytes().ends_with(b"/");
        if requires_directory && !node.is_dir() {
            return Err(local_problem(local, &io::ErrorKind::NotADirectory.into()).into());
        }
        if !node.is_dir() && !made.insert(name) {
            session
                .report
                .problem(&local_problem(&top.join(OsStr::from_bytes(name)), &io::Error::other(JUST_MADE)));
            continue;
        }
        let top = Arc::new(TargetDir::top(top).map_err(|error| local_problem(top, &error))?);
        let copy = Copy::new(&at.image, session, args, top.clone(), (&copier, &interrupted, &progress));
        let job = copy.start(top, name, node, &at.path);
        let work = |job, emit: &mut Emit<'_, Job, ()>| {
            if !copy.stopped() {
                copy.work(job, emit);
            }
        };
        fanout::run(fanout::threads(), Order::AsReady, vec![job], work, |()| ControlFlow::Continue(()));
    }
    progress.bar.finish_and_clear();
    copier.report_losses(&session.report);
    check_interrupted(&interrupted)
}

/// The parent directory and the name.
fn split(local: &Path) -> (&Path, &[u8]) {
    let parent = local.parent().filter(|parent| !parent.as_os_str().is_empty());
    (parent.unwrap_or(Path::new(".")), local.file_name().map_or(b"", |name| name.as_bytes()))
}

struct Filling {
    dir: TargetDir,
    node: Node,
    made: bool,
    /// Jobs with entries directly in it, and one for its listing.
    pending: AtomicUsize,
}

enum Job {
    /// An operand, to be made in `into`.
    Start { into: Arc<TargetDir>, name: Vec<u8>, node: Node, path: Vec<u8> },
    /// The contents of an image's root, into an existing directory.
    Contents { into: Arc<TargetDir>, node: Node, path: Vec<u8> },
    /// A subdirectory.
    Directory { into: Arc<Filling>, name: Vec<u8>, ino: Ino, path: Vec<u8> },
    /// A part of a directory's other entries.
    Part { into: Arc<Filling>, listing: Arc<Listing>, range: Range<usize>, path: Arc<[u8]> },
}

/// The first copied name of an inode, `None` before. Locked while it is made.
type FirstName = Arc<Mutex<Option<Vec<Vec<u8>>>>>;

pub(super) struct Copy<'a> {
    tree: Tree<'a>,
    archive: bool,
    /// Replace existing files instead of writing to them.
    remove: bool,
    copier: &'a AttributeCopier,
    top: Arc<TargetDir>,
    links: Mutex<HashMap<Ino, FirstName>>,
    interrupted: &'a AtomicBool,
    progress: &'a Progress,
}

impl<'a> Copy<'a> {
    pub(super) fn new(
        image: &'a Image,
        session: &'a Session,
        args: &CpArgs,
        top: Arc<TargetDir>,
        (copier, interrupted, progress): (&'a AttributeCopier, &'a AtomicBool, &'a Progress),
    ) -> Self {
        Copy {
            tree: Tree::new(image, &session.report),
            archive: args.archive,
            remove: args.remove_destination,
            copier,
            top,
            links: Mutex::default(),
            interrupted,
            progress,
        }
    }

    fn start(&self, into: Arc<TargetDir>, name: &[u8], node: &Node, path: &[u8]) -> Job {
        let (node, path) = (node.clone(), path.to_vec());
        if name.is_empty() {
            Job::Contents { into, node, path }
        } else {
            Job::Start { into, name: name.to_vec(), node, path }
        }
    }

    pub(super) fn stopped(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    fn image(&self) -> &Image {
        self.tree.image
    }

    pub(super) fn report(&self) -> &Report {
        self.tree.report
    }

    fn work(&self, job: Job, emit: &mut Emit<'_, Job, ()>) {
        match job {
            Job::Start { into, name, node, path } if node.attr().is_dir() => {
                self.directory(&into, &name, node, path, emit);
            }
            Job::Start { into, name, node, path } => self.entry(&into, &name, true, &node, &path),
            Job::Contents { into, node, path } => match TargetDir::top(&into.label(b"")) {
                Ok(dir) => self.fill(dir, false, node, path, emit),
                Err(error) => self.report().problem(&local_problem(&into.label(b""), &error)),
            },
            Job::Directory { into, name, ino, path } => {
                if let Some(node) = self.tree.inode(ino, &path) {
                    self.directory(&into.dir, &name, node, path, emit);
                }
                self.done(&into);
            }
            Job::Part { into, listing, range, path } => {
                for entry in range.map(|index| listing.get(index)).take_while(|_| !self.stopped()) {
                    let path = join(&path, entry.name);
                    if let Some(node) = self.tree.inode(entry.ino, &path) {
                        self.entry(&into.dir, entry.name, false, &node, &path);
                    }
                }
                self.done(&into);
            }
        }
    }

    fn directory(
        &self,
        into: &TargetDir,
        name: &[u8],
        node: Node,
        path: Vec<u8>,
        emit: &mut Emit<'_, Job, ()>,
    ) {
        match into.directory(name) {
            Ok((dir, made)) => self.fill(dir, made, node, path, emit),
            Err(error) => self.report().problem(&local_problem(&into.label(name), &error)),
        }
    }

    /// Spawns jobs for the contents of directory `node`.
    fn fill(&self, dir: TargetDir, made: bool, node: Node, path: Vec<u8>, emit: &mut Emit<'_, Job, ()>) {
        let mut listing = self.tree.list(&node, &path);
        listing.sort_by_inode();
        let mut files = Listing::default();
        let mut directories = Vec::new();
        for entry in listing.iter().filter(|entry| self.is_plain(*entry, &path)) {
            let path = join(&path, entry.name);
            match self.tree.kind(entry, &path) {
                Some(FileType::Directory) => directories.push((entry.name.to_vec(), entry.ino, path)),
                Some(_) => files.push(entry),
                None => {}
            }
        }
        let (files, path) = (Arc::new(files), Arc::<[u8]>::from(path));
        let pending = AtomicUsize::new(1 + directories.len() + parts(files.len()).count());
        let into = Arc::new(Filling { dir, node, made, pending });
        for range in parts(files.len()) {
            emit.spawn(Job::Part { into: into.clone(), listing: files.clone(), range, path: path.clone() });
        }
        for (name, ino, path) in directories {
            emit.spawn(Job::Directory { into: into.clone(), name, ino, path });
        }
        self.progress.add(1, 0);
        self.done(&into);
    }

    fn is_plain(&self, entry: Entry<'_>, dir: &[u8]) -> bool {
        let plain = is_plain_name(entry.name);
        if !plain {
            let message = "not copied: invalid name";
            let at = self.image().at(&join(dir, entry.name));
            self.report().problem(&Problem::new(at, Status::Damaged, message));
        }
        plain
    }

    /// Ends a job of `into`; the last one sets its attributes.
    fn done(&self, into: &Filling) {
        // AcqRel: the last decrement sees what all other jobs made.
        if into.pending.fetch_sub(1, Ordering::AcqRel) == 1 && (into.made || self.archive) {
            self.copier.apply(self.image(), &into.node, &Target::directory(&into.dir), &into.dir.label(b""));
        }
    }

    /// Copies an entry that is no directory; `named` means that the user gave its name.
    pub(super) fn entry(&self, into: &TargetDir, name: &[u8], named: bool, node: &Node, path: &[u8]) {
        let linked = self.archive && node.attr().nlink > 1;
        let copied = if linked {
            let mut links = self.links.lock();
            let first = links.entry(node.ino()).or_default().clone();
            drop(links);
            let mut first = first.lock();
            let link = match &*first {
                Some(below) => {
                    let link = into.link(&self.top, below);
                    let link = link.and_then(|temp| temp.publish(name, Existing::Replace));
                    self.copier.check(Loss::HardLink, &into.label(name), link)
                }
                None => false,
            };
            let make = || self.make(into, name, named, node);
            if link { Ok(()) } else { make().map(|()| *first = Some(into.below(name))) }
        } else {
            self.make(into, name, named, node)
        };
        match copied {
            Ok(()) => self.progress.add(1, 0),
            Err(Failed::Image(error)) => self.tree.problem(path, &error),
            Err(Failed::Local(error)) => self.report().problem(&local_problem(&into.label(name), &error)),
            Err(Failed::Interrupted) => {}
            Err(Failed::Node(error)) => drop(self.copier.check(Loss::Node, &into.label(name), Err(error))),
        }
    }

    fn make(&self, into: &TargetDir, name: &[u8], named: bool, node: &Node) -> Result<(), Failed> {
        let attr = node.attr();
        let temp = match attr.kind {
            FileType::Regular => return self.file(into, name, named, node),
            FileType::Symlink => into.symlink(&self.image().vfs.readlink(node)?)?,
            kind => into.node(node_type(kind), (attr.rdev_major, attr.rdev_minor)).map_err(Failed::Node)?,
        };
        self.copier.apply(self.image(), node, &Target::temp(&temp), &into.label(name));
        Ok(temp.publish(name, Existing::Replace)?)
    }

    /// Copies a regular file to an existing or a new one.
    fn file(&self, into: &TargetDir, name: &[u8], named: bool, node: &Node) -> Result<(), Failed> {
        let rules = Rules { named, archive: self.archive, remove: self.remove };
        let (temp, existing) = match into.destination(name, rules)? {
            Destination::New(temp) => (temp, Existing::Keep),
            Destination::Instead(temp) => (temp, Existing::Replace),
            Destination::Through(file) => return self.through(&file, &into.label(name), node),
            Destination::Stream(mut file) => return self.stream(node, &mut file),
        };
        if let Some(file) = temp.open() {
            self.content(node, file)?;
        }
        self.copier.apply(self.image(), node, &Target::temp(&temp), &into.label(name));
        Ok(temp.publish(name, existing)?)
    }

    /// Writes to an existing regular file, which keeps its inode and its names.
    fn through(&self, file: &File, label: &Path, node: &Node) -> Result<(), Failed> {
        if self.image().is_file(&file.metadata()?) {
            return Err(io::Error::other("is the image itself").into());
        }
        file.set_len(0)?;
        match self.content(node, file) {
            Err(Failed::Interrupted) => return Err(io::Error::other(CUT_SHORT).into()),
            done => done?,
        }
        if self.archive {
            self.copier.apply(self.image(), node, &Target::Open(file.as_fd()), label);
        }
        Ok(())
    }

    /// Writes to a pipe or device.
    fn stream(&self, node: &Node, file: &mut File) -> Result<(), Failed> {
        let mut buf = vec![0; CHUNK];
        let mut offset = 0;
        while !self.stopped() {
            let len = self.image().vfs.read(node, offset, &mut buf)?;
            if len == 0 {
                return Ok(());
            }
            file.write_all(&buf[..len])?;
            offset += len as u64;
            self.progress.add(0, len as u64);
        }
        Err(Failed::Interrupted)
    }

    /// Copies data; holes stay holes.
    fn content(&self, node: &Node, file: &File) -> Result<(), Failed> {
        let vfs = &self.image().vfs;
        let size = node.attr().size;
        file.set_len(size)?;
        let mut buf = vec![0; usize::try_from(size).unwrap_or(CHUNK).min(CHUNK)];
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
                if self.stopped() {
                    return Err(Failed::Interrupted);
                }
                let want = usize::try_from(end - offset).unwrap_or(CHUNK).min(buf.len());
                let len = vfs.read(node, offset, &mut buf[..want])?;
                if len == 0 {
                    return Ok(());
                }
                file.write_all_at(&buf[..len], offset)?;
                offset += len as u64;
                self.progress.add(0, len as u64);
            }
        }
        Ok(())
    }
}

enum Failed {
    Image(Error),
    Local(io::Error),
    /// A device, fifo or socket could not be made.
    Node(io::Error),
    Interrupted,
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

fn node_type(kind: FileType) -> rustix::fs::FileType {
    rustix::fs::FileType::from_raw_mode(kind.mode_bits())
}
