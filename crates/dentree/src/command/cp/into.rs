//! From the local file system into an image.
//!
//! One thread, in the byte order of names. A new file has no name until it is complete: an
//! interrupted copy leaves no part of one, even after a crash. Existing files are written to, as by
//! cp(1). A directory gets its attributes after everything below it.

use super::attributes::{AttributeCopier, Loss};
use super::target_dir::is_plain_name;
use super::{CUT_SHORT, DANGLING, IN_THE_WAY, JUST_MADE, Progress, local_problem};
use crate::args::CpArgs;
use crate::command::ln::create_or_replace;
use crate::image::{Image, Location, Node, SUPERUSER, Session};
use crate::local::{each_data, read_ready, read_xattrs};
use crate::path::join;
use crate::report::{Problem, Status, Stop};
use dentree_vfs::{Error, FileType, Ino, NewKind, SetAttr, SetTime, SetXattr, Timestamp, WalkOptions};
use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::ops::ControlFlow;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

pub(super) fn run(session: &Session, args: &CpArgs) -> Result<(), Stop> {
    let target = session.locate_for_writing(&args.target)?;
    let directory = target.find(WalkOptions::FOLLOW)?.filter(|node| node.is_dir());
    if args.sources.len() > 1 && directory.is_none() {
        return Err(target.problem(&Error::NotADirectory).into());
    }
    let progress = Progress::new();
    let copier = AttributeCopier::new(args.archive);
    let mut copy = Copy::new(session, args, &target.image, (&copier, &progress));
    for source in &args.sources {
        if let Err(problem) = copy.source(Path::new(source), &target, directory.as_ref()) {
            session.report.problem(&problem);
        }
        copy.work();
        if copy.is_cut_short() {
            break;
        }
    }
    progress.bar.finish_and_clear();
    copier.report_losses(&session.report);
    Ok(())
}

pub(super) struct Found {
    pub(super) local: PathBuf,
    pub(super) metadata: Metadata,
    pub(super) path: Vec<u8>,
    /// The user gave the name in the image.
    pub(super) named: bool,
}

enum Step {
    /// Make the directory `name` in `parent`, and fill it.
    Directory { parent: Node, name: Vec<u8>, found: Found },
    /// Set the attributes of a directory that is filled.
    Attributes { node: Node, found: Found },
}

pub(super) struct Copy<'a> {
    session: &'a Session,
    image: &'a Image,
    pub(super) archive: bool,
    /// Replace existing files instead of writing to them.
    remove: bool,
    /// Names made for operands.
    made: HashSet<Vec<u8>>,
    copier: &'a AttributeCopier,
    progress: &'a Progress,
    /// Copied local files with several names, by device and inode number.
    links: HashMap<(u64, u64), Ino>,
    left: Vec<Step>,
    is_full: bool,
}

enum Failed {
    Image(Error),
    Local(io::Error),
    /// The existing file may not be written to.
    Refused(&'static str),
    Interrupted,
}

/// Bytes per read of a pipe or device.
const CHUNK: usize = 64 << 10;

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Failed::Image(error)
    }
}

impl<'a> Copy<'a> {
    pub(super) fn new(
        session: &'a Session,
        args: &CpArgs,
        image: &'a Image,
        (copier, progress): (&'a AttributeCopier, &'a Progress),
    ) -> Self {
        Copy {
            session,
            image,
            archive: args.archive,
            remove: args.remove_destination,
            made: HashSet::new(),
            copier,
            progress,
            links: HashMap::new(),
            left: Vec::new(),
            is_full: false,
        }
    }

    /// The metadata at `local`, of a link itself with `archive`.
    pub(super) fn metadata(&self, local: &Path) -> Result<Metadata, Problem> {
        let metadata = if self.archive { fs::symlink_metadata(local) } else { fs::metadata(local) };
        metadata.map_err(|error| local_problem(local, &error))
    }

    /// Copies an operand: into `directory`, if `target` is one, else to the target's name.
    fn source(&mut self, source: &Path, target: &Location, directory: Option<&Node>) -> Result<(), Problem> {
        let bytes = source.as_os_str().as_bytes();
        // `.`, `..` and `/` have no name to make: their contents go into the directory.
        let name = bytes
            .split(|&byte| byte == b'/')
            .rfind(|name| !name.is_empty())
            .filter(|name| is_plain_name(name));
        let metadata = self.metadata(source)?;
        let found = |path| Found { local: source.to_owned(), metadata: metadata.clone(), path, named: true };
        match (directory, name) {
            (Some(directory), Some(name)) => {
                let found = found(join(&target.path, name));
                if !metadata.is_dir() && !self.made.insert(name.to_vec()) {
                    self.failed(&found, Failed::Refused(JUST_MADE));
                } else {
                    self.entry(directory, name.to_vec(), found);
                }
            }
            (Some(directory), None) => {
                self.contents(directory.clone(), false, found(target.path.clone()));
            }
            (None, _) => {
                if target.requires_directory() && !metadata.is_dir() {
                    return Err(target.problem(&Error::NotFound));
                }
                let (dir, name) = target.last()?;
                self.entry(&dir, name.to_vec(), found(target.path.clone()));
            }
        }
        Ok(())
    }

    /// Whether the copy ends early.
    pub(super) fn is_cut_short(&self) -> bool {
        self.is_full || self.session.is_interrupted()
    }

    /// Runs all steps, the last one first.
    fn work(&mut self) {
        while let Some(step) = self.left.pop() {
            match step {
                // Finished directories still get their attributes.
                Step::Directory { .. } if self.is_cut_short() => {}
                Step::Directory { parent, name, found } => match self.directory(&parent, &name) {
                    Ok((node, made)) => self.contents(node, made, found),
                    Err(error) => self.failed(&found, Failed::Image(error)),
                },
                Step::Attributes { node, found } => self.attributes(&node, &found),
            }
        }
    }

    /// Sets the attributes of a filled directory.
    pub(super) fn attributes(&mut self, node: &Node, found: &Found) {
        if let Err(error) = self.keep(node, found) {
            self.failed(found, error);
        }
    }

    /// Makes or finds the directory `name`, and tells whether it was made.
    pub(super) fn directory(&self, parent: &Node, name: &[u8]) -> Result<(Node, bool), Error> {
        let vfs = &self.image.vfs;
        match vfs.make(SUPERUSER, parent, name, NewKind::Directory, 0o700) {
            Ok(node) => Ok((node, true)),
            Err(Error::Exists) => match vfs.lookup(SUPERUSER, parent, name)? {
                Some(node) if node.is_dir() => Ok((node, false)),
                // Links are not followed: they may lead anywhere.
                _ => Err(Error::NotADirectory),
            },
            Err(error) => Err(error),
        }
    }

    /// Copies the entries of a local directory into `node`; subdirectories become steps.
    fn contents(&mut self, node: Node, made: bool, found: Found) {
        let list = || -> io::Result<Vec<OsString>> {
            fs::read_dir(&found.local)?.map(|entry| Ok(entry?.file_name())).collect()
        };
        let mut names = list().unwrap_or_else(|error| {
            self.session.report.problem(&local_problem(&found.local, &error));
            Vec::new()
        });
        names.sort_unstable();
        self.progress.add(1, 0);
        let (local, path) = (found.local.clone(), found.path.clone());
        if made || self.archive {
            self.left.push(Step::Attributes { node: node.clone(), found });
        }
        let first = self.left.len();
        for name in names {
            if self.is_cut_short() {
                break;
            }
            let local = local.join(&name);
            match fs::symlink_metadata(&local) {
                Ok(metadata) => {
                    let name = name.into_vec();
                    let path = join(&path, &name);
                    self.entry(&node, name, Found { local, metadata, path, named: false });
                }
                Err(error) => self.session.report.problem(&local_problem(&local, &error)),
            }
        }
        self.left[first..].reverse();
    }

    /// Copies an entry; a directory becomes a step.
    pub(super) fn entry(&mut self, dir: &Node, name: Vec<u8>, found: Found) {
        if found.metadata.is_dir() {
            self.left.push(Step::Directory { parent: dir.clone(), name, found });
            return;
        }
        if self.image.is_file(&found.metadata) {
            let label = self.image.at(&found.path);
            let message = "not copied: this is the image itself";
            return self.session.report.problem(&Problem::new(label, Status::Failed, message));
        }
        match self.file(dir, &name, &found) {
            Ok(()) => self.progress.add(1, 0),
            Err(why) => self.failed(&found, why),
        }
    }

    fn failed(&mut self, found: &Found, why: Failed) {
        match why {
            Failed::Image(error) => {
                let problem = self.image_problem(&found.path, &error);
                self.session.report.problem(&problem);
            }
            Failed::Local(error) => self.session.report.problem(&local_problem(&found.local, &error)),
            Failed::Refused(why) => {
                let problem = Problem::new(self.image.at(&found.path), Status::Failed, why);
                self.session.report.problem(&problem);
            }
            Failed::Interrupted => {}
        }
    }

    /// An error in the image. A full image ends the copy.
    pub(super) fn image_problem(&mut self, path: &[u8], error: &Error) -> Problem {
        let problem = self.image.problem(path, error);
        if !matches!(error, Error::NoSpace) {
            return problem;
        }
        self.is_full = true;
        problem.with_hint("nothing more is copied; complete files are in the image")
    }

    fn file(&mut self, dir: &Node, name: &[u8], found: &Found) -> Result<(), Failed> {
        let vfs = &self.image.vfs;
        let several = self.archive && found.metadata.nlink() > 1;
        let key = several.then(|| (found.metadata.dev(), found.metadata.ino()));
        if let Some(&first) = key.and_then(|key| self.links.get(&key)) {
            let first = self.image.inode(first)?;
            return Ok(create_or_replace(vfs, (dir, name), true, &mut |name| {
                vfs.link(SUPERUSER, &first, dir, name)
            })?);
        }
        let node = if found.metadata.is_file() || (found.named && !self.archive) {
            self.regular(dir, name, found)?
        } else {
            let target = read_target(found).map_err(Failed::Local)?;
            let kind = new_kind(&found.metadata, &target);
            let mut made = None;
            create_or_replace(vfs, (dir, name), true, &mut |name| {
                made = Some(vfs.make(SUPERUSER, dir, name, kind, 0o600)?);
                Ok(())
            })?;
            let node = made.ok_or(Error::Stale)?;
            self.keep(&node, found)?;
            node
        };
        if let Some(key) = key {
            self.links.insert(key, node.ino());
        }
        Ok(())
    }

    /// Copies a regular file to an existing or a new one.
    fn regular(&self, dir: &Node, name: &[u8], found: &Found) -> Result<Node, Failed> {
        let vfs = &self.image.vfs;
        let Some(node) = self.to_write_through(dir, name, found)? else {
            let node = vfs.make_unnamed(SUPERUSER, dir, 0o600)?;
            self.content(&node, found)?;
            self.keep(&node, found)?;
            create_or_replace(vfs, (dir, name), true, &mut |name| vfs.link(SUPERUSER, &node, dir, name))?;
            return Ok(node);
        };
        vfs.set_attr(SUPERUSER, &node, &SetAttr { size: Some(0), ..SetAttr::default() })?;
        match self.content(&node, found) {
            Err(Failed::Interrupted) => return Err(Failed::Refused(CUT_SHORT)),
            done => done?,
        }
        if self.archive {
            self.keep(&node, found)?;
        }
        Ok(node)
    }

    /// The existing regular file to write to; `None` where a new one is made.
    fn to_write_through(&self, dir: &Node, name: &[u8], found: &Found) -> Result<Option<Node>, Failed> {
        let vfs = &self.image.vfs;
        let Some(mut there) = vfs.lookup(SUPERUSER, dir, name)? else { return Ok(None) };
        if there.kind() == FileType::Symlink && found.named && !self.remove {
            there = match vfs.walk(SUPERUSER, dir, name, WalkOptions::FOLLOW) {
                Err(Error::NotFound) => return Err(Failed::Refused(DANGLING)),
                end => end?,
            };
        }
        match there.kind() {
            FileType::Directory => Err(Error::IsADirectory.into()),
            _ if self.remove => Ok(None),
            // The other names of that file would change too.
            FileType::Regular if self.archive && there.attr().nlink > 1 => Ok(None),
            FileType::Regular => Ok(Some(there)),
            _ => Err(Failed::Refused(IN_THE_WAY)),
        }
    }

    /// Copies data; holes stay holes.
    fn content(&self, node: &Node, found: &Found) -> Result<(), Failed> {
        // Does not block on the other end of a pipe: `read_ready` waits where Ctrl-C is noticed.
        let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let file = OpenOptions::new().read(true).custom_flags(flags).open(&found.local);
        let mut file = file.map_err(Failed::Local)?;
        let metadata = file.metadata().map_err(Failed::Local)?;
        let size = if metadata.is_file() { metadata.len() } else { 0 };
        let copied = each_data(&file, size, 1, &mut |offset, bytes| {
            if self.session.is_interrupted() {
                return ControlFlow::Break(Failed::Interrupted);
            }
            match self.write(node, offset, bytes) {
                Ok(()) => ControlFlow::Continue(()),
                Err(why) => ControlFlow::Break(why),
            }
        });
        match copied.map_err(Failed::Local)? {
            ControlFlow::Continue(end) if end < size => {
                let size = SetAttr { size: Some(size), ..SetAttr::default() };
                self.image.vfs.set_attr(SUPERUSER, node, &size)?;
            }
            ControlFlow::Continue(_) => {}
            ControlFlow::Break(why) => return Err(why),
        }
        self.rest(node, &mut file, size)
    }

    /// Copies what follows the reported size: pipes, devices and files of /proc report 0.
    fn rest(&self, node: &Node, file: &mut File, size: u64) -> Result<(), Failed> {
        if size > 0 {
            file.seek(SeekFrom::Start(size)).map_err(Failed::Local)?;
        }
        let mut chunk = vec![0; CHUNK];
        let mut offset = size;
        loop {
            if self.session.is_interrupted() {
                return Err(Failed::Interrupted);
            }
            match read_ready(file, &mut chunk).map_err(Failed::Local)? {
                Some(0) => return Ok(()),
                Some(len) => {
                    self.write(node, offset, &chunk[..len])?;
                    offset += len as u64;
                }
                None => {}
            }
        }
    }

    fn write(&self, node: &Node, offset: u64, bytes: &[u8]) -> Result<(), Failed> {
        if self.image.vfs.write(SUPERUSER, node, offset, bytes)? != bytes.len() {
            return Err(Error::NoSpace.into());
        }
        self.progress.add(0, bytes.len() as u64);
        Ok(())
    }

    /// Sets attributes: all with `archive`, else those of `cp -r`.
    fn keep(&self, node: &Node, found: &Found) -> Result<(), Failed> {
        let Found { metadata, path, .. } = found;
        let permissions = if self.archive { metadata.mode() } else { self.copier.reduced(metadata.mode()) };
        // The mask leaves permission bits only.
        let permissions = (node.kind() != FileType::Symlink).then_some((permissions & 0o7777) as u16);
        if !self.archive {
            return Ok(self.image.vfs.set_attr(
                SUPERUSER,
                node,
                &SetAttr { permissions, ..SetAttr::default() },
            )?);
        }
        // The owner first: a change of it clears capabilities and special bits.
        let owner = SetAttr { uid: Some(metadata.uid()), gid: Some(metadata.gid()), ..SetAttr::default() };
        self.image.vfs.set_attr(SUPERUSER, node, &owner)?;
        for (name, value) in read_xattrs(&found.local).map_err(Failed::Local)? {
            let set = self.image.vfs.setxattr(SUPERUSER, node, &name, &value, SetXattr::Any);
            let label = PathBuf::from(OsStr::from_bytes(path));
            self.copier.check(Loss::Xattr, &label, set.map_err(io::Error::other));
        }
        let time = |seconds, nanos: i64| {
            Some(SetTime::At(Timestamp { seconds, nanos: u32::try_from(nanos).unwrap_or(0) }))
        };
        let changes = SetAttr {
            permissions,
            atime: time(metadata.atime(), metadata.atime_nsec()),
            mtime: time(metadata.mtime(), metadata.mtime_nsec()),
            ..SetAttr::default()
        };
        Ok(self.image.vfs.set_attr(SUPERUSER, node, &changes)?)
    }
}

fn read_target(found: &Found) -> io::Result<Vec<u8>> {
    if found.metadata.is_symlink() {
        Ok(fs::read_link(&found.local)?.into_os_string().into_vec())
    } else {
        Ok(Vec::new())
    }
}

fn new_kind<'t>(metadata: &Metadata, target: &'t [u8]) -> NewKind<'t> {
    let (major, minor) = (rustix::fs::major(metadata.rdev()), rustix::fs::minor(metadata.rdev()));
    match FileType::from_mode(metadata.mode()) {
        Some(FileType::Symlink) => NewKind::Symlink(target),
        Some(FileType::CharDevice) => NewKind::CharDevice { major, minor },
        Some(FileType::BlockDevice) => NewKind::BlockDevice { major, minor },
        Some(FileType::Fifo) => NewKind::Fifo,
        Some(FileType::Socket) => NewKind::Socket,
        Some(FileType::Regular | FileType::Directory) | None => NewKind::Regular,
    }
}
