//! From an image to the local file system.
//!
//! A directory is made first and gets its attributes after its direct entries. A new file gets its
//! name when it is complete; an existing file is written to. So an interrupted copy leaves new
//! files whole, and new directories at most accessible to their owner alone.

use super::attributes::{AttributeCopier, Loss};
use super::options::Options;
use super::sparse::Holes;
use super::{CHUNK, CUT_SHORT, JUST_MADE, check_interrupted, each_extent, local_problem};
use crate::fanout::{self, Emit, Order};
use crate::host::{self, Destination, Existing, OsStrExt, Rules, Target, TargetDir, is_plain_name, os_str};
use crate::image::{Image, Node, SUPERUSER, Session};
use crate::interrupt::interruptible;
use crate::operands::total_of;
use crate::output::escape;
use crate::path::join;
use crate::progress::Progress;
use crate::report::{Problem, Report, Status, Stop};
use crate::tree::{Entry, Listing, Tree};
use dentree_blockdev::FileExt;
use dentree_find::Owners;
use dentree_sync::Mutex;
use dentree_vfs::{Error, FileType, Ino, WalkOptions};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Write};
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

pub(super) fn run(session: &Session, options: &Options<'_>) -> Result<(), Stop> {
    let links = if options.follows_sources() { WalkOptions::FOLLOW } else { WalkOptions::KEEP_LINK };
    let found = session.walk_each(&options.sources, links);
    let local = Path::new(options.target);
    let into = options.target_is_directory();
    let is_dir = local.is_dir() && into != Some(false);
    if (found.len() > 1 || into == Some(true)) && !is_dir {
        return Err(local_problem(local, &io::ErrorKind::NotADirectory.into()).into());
    }
    let interrupted = interruptible().map_err(Problem::signals)?;
    fanout::raise_file_limit();
    let progress = options.progress(session, total_of(&found));
    let copier = AttributeCopier::new(options);
    let (mut made, first_names) = (HashSet::new(), FirstNames::default());
    for (at, node) in &found {
        // An image's root, `.` and `..` have no name to make: their contents go into the directory.
        let name =
            at.path.rsplit(|&byte| byte == b'/').next().filter(|name| is_plain_name(name)).unwrap_or(b"");
        let (top, name) = if is_dir { (local, name) } else { split(local) };
        let requires_directory = !is_dir && options.target.as_bytes().ends_with(b"/");
        if requires_directory && !node.is_dir() {
            return Err(local_problem(local, &io::ErrorKind::NotADirectory.into()).into());
        }
        let key = if options.args.target.parents { &at.path } else { name };
        if !node.is_dir() && !made.insert(key) {
            session.report.problem(&local_problem(&top.join(os_str(name)), &io::Error::other(JUST_MADE)));
            continue;
        }
        let top = Arc::new(TargetDir::top(top).map_err(|error| local_problem(top, &error))?);
        let shared = (&copier, &*interrupted, &progress, &first_names);
        let copy = Copy::new(&at.image, session, options, top.clone(), shared)?;
        let parents = if options.args.target.parents { copy.parents(&at.path)? } else { Vec::new() };
        let into = parents.last().map_or(top, |(_, dir, _)| dir.clone());
        let job = copy.start(into, name, node, &at.path);
        let work = |job, emit: &mut Emit<'_, Job, ()>| {
            if !copy.stopped() {
                copy.work(job, emit);
            }
        };
        fanout::run(
            at.image.width().threads,
            Order::AsReady,
            vec![job],
            work,
            |()| ControlFlow::Continue(()),
        );
        for (node, dir, is_new) in parents.iter().rev().filter(|(_, _, is_new)| *is_new) {
            copy.apply(node, (&Target::directory(dir), *is_new), &dir.label(b""));
        }
    }
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
    /// The directory that it is in, if it is copied, too.
    above: Option<Arc<Filling>>,
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

/// By the image, told by its address, and the inode.
pub(super) type FirstNames = Mutex<HashMap<(usize, Ino), FirstName>>;

/// What all operands share.
pub(super) type Shared<'a> = (&'a AttributeCopier, &'a AtomicBool, &'a Progress, &'a FirstNames);

/// A directory of a source's path: its inode, its copy, and whether the copy is new.
type Parent = (Node, Arc<TargetDir>, bool);

pub(super) struct Copy<'a> {
    tree: Tree<'a>,
    options: &'a Options<'a>,
    /// The owner of `--chown`.
    owner: (Option<u32>, Option<u32>),
    copier: &'a AttributeCopier,
    top: Arc<TargetDir>,
    links: &'a FirstNames,
    interrupted: &'a AtomicBool,
    progress: &'a Progress,
}

impl<'a> Copy<'a> {
    pub(super) fn new(
        image: &'a Image,
        session: &'a Session,
        options: &'a Options<'a>,
        top: Arc<TargetDir>,
        (copier, interrupted, progress, links): Shared<'a>,
    ) -> Result<Self, Problem> {
        let owner = options.args.chown.as_deref().map(|owner| Owners::of(&image.vfs).parse(owner));
        let owner = owner.transpose().map_err(|why| Problem::usage("--chown", why))?.unwrap_or_default();
        let tree = Tree::new(image, &session.report);
        Ok(Copy { tree, options, owner, copier, top, links, interrupted, progress })
    }

    /// The directories of a source's path below the top, made where missing, and whether they were.
    fn parents(&self, path: &[u8]) -> Result<Vec<Parent>, Problem> {
        let mut names: Vec<&[u8]> =
            path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()).collect();
        names.pop();
        let vfs = &self.image().vfs;
        let (mut node, mut into) = (vfs.root().clone(), self.top.clone());
        let mut parents = Vec::new();
        for name in names {
            node = vfs
                .walk(SUPERUSER, &node, name, WalkOptions::FOLLOW)
                .map_err(|error| self.image().problem(path, &error))?;
            if is_plain_name(name) {
                let opened = into.directory(name);
                let (dir, is_new) = opened.map_err(|error| local_problem(&into.label(name), &error))?;
                into = Arc::new(dir);
                parents.push((node.clone(), into.clone(), is_new));
            }
        }
        Ok(parents)
    }

    /// Sets the attributes of `node` on a target that is new or not.
    pub(super) fn apply(&self, node: &Node, target: (&Target<'_>, bool), label: &Path) {
        self.copier.apply((self.image(), node), target, self.owner, label);
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
                self.directory((&into, None), &name, node, path, emit);
            }
            Job::Start { into, name, node, path } => self.entry(&into, &name, true, &node, &path),
            Job::Contents { into, node, path } => match TargetDir::top(&into.label(b"")) {
                Ok(dir) => self.fill((dir, false), None, node, path, emit),
                Err(error) => self.report().problem(&local_problem(&into.label(b""), &error)),
            },
            Job::Directory { into, name, ino, path } => {
                if let Some(node) = self.tree.inode(ino, &path) {
                    self.directory((&into.dir, Some(&into)), &name, node, path, emit);
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
        (into, above): (&TargetDir, Option<&Arc<Filling>>),
        name: &[u8],
        node: Node,
        path: Vec<u8>,
        emit: &mut Emit<'_, Job, ()>,
    ) {
        match into.directory(name) {
            Ok(dir) => {
                if dir.1 {
                    self.tell(&path, into, name);
                }
                self.fill(dir, above.cloned(), node, path, emit);
            }
            Err(error) => self.report().problem(&local_problem(&into.label(name), &error)),
        }
    }

    /// Spawns jobs for the contents of directory `node`.
    fn fill(
        &self,
        (dir, made): (TargetDir, bool),
        above: Option<Arc<Filling>>,
        node: Node,
        path: Vec<u8>,
        emit: &mut Emit<'_, Job, ()>,
    ) {
        let mut listing = if self.options.follows_all() {
            self.followed(&node, above.as_ref(), &path)
        } else {
            self.tree.list(&node, &path)
        };
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
        let width = self.image().width();
        let pending = AtomicUsize::new(1 + directories.len() + width.parts(files.len()).count());
        let into = Arc::new(Filling { dir, node, above, made, pending });
        for range in width.parts(files.len()) {
            emit.spawn(Job::Part { into: into.clone(), listing: files.clone(), range, path: path.clone() });
        }
        for (name, ino, path) in directories {
            emit.spawn(Job::Directory { into: into.clone(), name, ino, path });
        }
        self.progress.add(1, 0);
        self.done(&into);
    }

    /// The entries of a directory, with what links lead to in place of the links.
    fn followed(&self, dir: &Node, above: Option<&Arc<Filling>>, path: &[u8]) -> Listing {
        let mut listing = Listing::default();
        let mut next = above;
        while let Some(filling) = next {
            if filling.node.ino() == dir.ino() {
                let message = "not copied: a symbolic link leads back to a directory above it";
                self.report().problem(&Problem::new(self.image().at(path), Status::Failed, message));
                return listing;
            }
            next = filling.above.as_ref();
        }
        // One of its own, as links lead to a directory more than once.
        for entry in Tree::new(self.image(), self.report()).list(dir, path).iter() {
            let below = join(path, entry.name);
            if self.tree.kind(entry, &below) != Some(FileType::Symlink) {
                listing.push(entry);
                continue;
            }
            match self.image().vfs.walk(SUPERUSER, dir, entry.name, WalkOptions::FOLLOW) {
                Ok(end) => listing.push(Entry { ino: end.ino(), kind: Some(end.kind()), ..entry }),
                Err(error) => self.tree.problem(&below, &error),
            }
        }
        listing
    }

    fn tell(&self, path: &[u8], into: &TargetDir, name: &[u8]) {
        if self.options.args.verbose {
            let to = into.label(name);
            self.options.tell(&self.image().at(path), &escape::terminal(to.as_os_str().as_bytes()));
        }
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
        let is_last = into.pending.fetch_sub(1, Ordering::AcqRel) == 1;
        if is_last && (into.made || self.options.sets_attributes()) {
            self.apply(&into.node, (&Target::directory(&into.dir), into.made), &into.dir.label(b""));
        }
    }

    /// Copies an entry that is no directory; `named` means that the user gave its name.
    pub(super) fn entry(&self, into: &TargetDir, name: &[u8], named: bool, node: &Node, path: &[u8]) {
        if let Some(changed) = into.changed(name) {
            let label = escape::terminal(into.label(name).as_os_str().as_bytes()).into_owned();
            if !self.options.overwrites(changed, node.attr().mtime, &label) {
                return;
            }
            let backup = self.options.args.backup.name(name, |name| into.is_there(name));
            if let Some(Err(error)) = backup.map(|backup| into.rename(name, &backup)) {
                return self.report().problem(&local_problem(&into.label(name), &error));
            }
        }
        self.tell(path, into, name);
        let linked = self.options.keep.links && node.attr().nlink > 1;
        let copied = if linked {
            let mut links = self.links.lock();
            let key = (std::ptr::from_ref(self.image()).addr(), node.ino());
            let first = links.entry(key).or_default().clone();
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
            kind => into.node(kind, (attr.rdev_major, attr.rdev_minor)).map_err(Failed::Node)?,
        };
        self.apply(node, (&Target::temp(&temp), true), &into.label(name));
        Ok(temp.publish(name, Existing::Replace)?)
    }

    /// Copies a regular file to an existing or a new one.
    fn file(&self, into: &TargetDir, name: &[u8], named: bool, node: &Node) -> Result<(), Failed> {
        let args = self.options.args;
        let links = self.options.keep.links;
        let rules = Rules { named, links, remove: args.remove_destination, force: args.force };
        let (temp, existing) = match into.destination(name, rules)? {
            Destination::New(temp) => (temp, Existing::Keep),
            Destination::Instead(temp) => (temp, Existing::Replace),
            Destination::Through(file) => return self.through(&file, &into.label(name), node),
            Destination::Stream(mut file) => return self.stream(node, &mut file),
        };
        if let Some(file) = temp.open().filter(|_| !args.attributes_only) {
            self.content(node, file)?;
        }
        self.apply(node, (&Target::temp(&temp), true), &into.label(name));
        Ok(temp.publish(name, existing)?)
    }

    /// Writes to an existing regular file, which keeps its inode and its names.
    fn through(&self, file: &File, label: &Path, node: &Node) -> Result<(), Failed> {
        if self.image().is_file(host::identity(file)?) {
            return Err(io::Error::other("is the image itself").into());
        }
        if !self.options.args.attributes_only {
            file.set_len(0)?;
            match self.content(node, file) {
                Err(Failed::Interrupted) => return Err(io::Error::other(CUT_SHORT).into()),
                done => done?,
            }
        }
        if self.options.sets_attributes() {
            self.apply(node, (&Target::file(file), false), label);
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

    /// Copies data, with holes as the options say.
    fn content(&self, node: &Node, file: &File) -> Result<(), Failed> {
        let size = node.attr().size;
        file.set_len(size)?;
        let mut write = |offset: u64, bytes: &[u8]| {
            if self.stopped() {
                return Err(Failed::Interrupted);
            }
            file.write_all_at(bytes, offset)?;
            self.progress.add(0, bytes.len() as u64);
            Ok(())
        };
        let mut holes = Holes::new(self.options.args.sparse, &mut write);
        each_extent(self.image(), node, &Failed::Image, &mut |offset, bytes| holes.data(offset, bytes))?;
        holes.finish(size)
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
