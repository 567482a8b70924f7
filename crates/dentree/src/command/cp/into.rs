//! Into an image, from the local file system or from an image.
//!
//! One thread, in the byte order of names. A new file has no name until it is complete: an
//! interrupted copy leaves no part of one, even after a crash. Existing files are written to, as by
//! cp(1). A directory gets its attributes after everything below it.

use super::attributes::{AttributeCopier, Loss};
use super::options::Options;
use super::origin::{Above, Found, Origin, Unreadable, new_kind};
use super::sparse::Holes;
use super::{CUT_SHORT, DANGLING, IN_THE_WAY, INTO_ITSELF, JUST_MADE, NO_LINK, SAME_FILE, each_extent};
use crate::args::CpArgs;
use crate::command::ln::create_or_replace;
use crate::host::{self, OsStrExt, is_plain_name, os_str, read_ready};
use crate::image::{Image, Location, Node, SUPERUSER, Session};
use crate::local::each_data;
use crate::operands::total_of;
use crate::path::join;
use crate::progress::{Progress, Total};
use crate::report::{Problem, Status, Stop};
use dentree_find::Owners;
use dentree_vfs::{Error, FileType, Ino, NewKind, OnExisting, SetAttr, SetTime, SetXattr, WalkOptions};
use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::rc::Rc;

pub(super) fn run(session: &Session, options: &Options<'_>) -> Result<(), Stop> {
    let target = session.locate_for_writing(options.target)?;
    let progress = options.progress(session, total(session, options));
    let copier = AttributeCopier::new(options);
    let mut copy = Copy::new(session, options, &target.image, (&copier, &progress))?;
    copy.all(&target)?;
    copier.report_losses(&session.report);
    Ok(())
}

/// What is copied: known where all sources are local files, or one is a whole image.
fn total(session: &Session, options: &Options<'_>) -> Option<Total> {
    if let [only] = &options.sources[..]
        && session.names_image(only)
    {
        let at = session.locate(only).ok()?;
        let node = at.walk(WalkOptions::FOLLOW).ok()?;
        return total_of(&[(at, node)]);
    }
    options.sources.iter().try_fold(Total::default(), |sum, source| {
        if session.names_image(source) {
            return None;
        }
        let found = std::fs::metadata(source).ok().filter(|found| found.is_file())?;
        Some(Total { files: sum.files + 1, bytes: sum.bytes.saturating_add(found.len()) })
    })
}

/// Copies `from` with all attributes to `to` in another image, and tells whether all of it was.
pub(in crate::command) fn move_between(
    session: &Session,
    from: &Location,
    to: &Location,
) -> Result<bool, Problem> {
    let args = CpArgs::for_moving();
    let node = from.walk(WalkOptions::KEEP_LINK)?;
    let options = Options::of(&args, OsStr::new(""));
    let (progress, copier) = (
        options.progress(session, total_of(&[(from.clone(), node.clone())])),
        AttributeCopier::new(&options),
    );
    let mut copy = Copy::new(session, &options, &to.image, (&copier, &progress))?;
    let origin = Origin::Image { image: from.image.clone(), node, path: from.path.clone() };
    copy.source(&from.path, origin, to, None)?;
    copy.work();
    copier.report_losses(&session.report);
    Ok(!copy.has_failed && !copy.is_cut_short())
}

enum Step {
    /// Make the directory `name` in `parent`, and fill it.
    Directory { parent: Node, name: Vec<u8>, found: Found },
    /// Set the attributes of a directory that is filled.
    Attributes { node: Node, found: Found, is_new: bool },
}

pub(super) struct Copy<'a> {
    session: &'a Session,
    image: &'a Image,
    pub(super) options: &'a Options<'a>,
    /// The owner of `--chown`.
    owner: (Option<u32>, Option<u32>),
    /// Names made for operands.
    made: HashSet<Vec<u8>>,
    copier: &'a AttributeCopier,
    progress: &'a Progress,
    /// Copied files with several names, by file system and inode number.
    links: HashMap<(u64, Ino), Ino>,
    /// Directories of this image that are targets.
    targets: HashSet<Ino>,
    /// Directories of images that were entered for this operand.
    entered: HashSet<(u64, Ino)>,
    left: Vec<Step>,
    is_full: bool,
    /// Something was not copied.
    pub(super) has_failed: bool,
}

enum Failed {
    Image(Error),
    Source(Unreadable),
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

impl From<Unreadable> for Failed {
    fn from(why: Unreadable) -> Self {
        Failed::Source(why)
    }
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Failed::Source(Unreadable::Local(error))
    }
}

impl<'a> Copy<'a> {
    pub(super) fn new(
        session: &'a Session,
        options: &'a Options<'a>,
        image: &'a Image,
        (copier, progress): (&'a AttributeCopier, &'a Progress),
    ) -> Result<Self, Problem> {
        let owner = options.args.chown.as_deref().map(|owner| Owners::of(&image.vfs).parse(owner));
        let owner = owner.transpose().map_err(|why| Problem::usage("--chown", why))?;
        Ok(Copy {
            session,
            image,
            options,
            owner: owner.unwrap_or_default(),
            made: HashSet::new(),
            copier,
            progress,
            links: HashMap::new(),
            targets: HashSet::new(),
            entered: HashSet::new(),
            left: Vec::new(),
            is_full: false,
            has_failed: false,
        })
    }

    /// Copies all operands to `target`.
    fn all(&mut self, target: &Location) -> Result<(), Problem> {
        let directory = target.find(WalkOptions::FOLLOW)?.filter(|node| node.is_dir());
        let into = self.options.target_is_directory();
        let directory = directory.filter(|_| into != Some(false));
        let sources = self.sources(&self.options.sources);
        if (sources.len() > 1 || into == Some(true)) && directory.is_none() {
            return Err(target.problem(&Error::NotADirectory));
        }
        for (source, origin) in sources {
            let copied = origin.and_then(|origin| self.source(&source, origin, target, directory.as_ref()));
            if let Err(problem) = copied {
                self.has_failed = true;
                self.session.report.problem(&problem);
            }
            self.work();
            if self.is_cut_short() {
                break;
            }
        }
        Ok(())
    }

    /// The operands, with their paths.
    fn sources(&self, arguments: &[OsString]) -> Vec<(Vec<u8>, Result<Origin, Problem>)> {
        let options =
            if self.options.follows_sources() { WalkOptions::FOLLOW } else { WalkOptions::KEEP_LINK };
        let mut sources = Vec::new();
        for argument in arguments {
            if !self.session.names_image(argument) {
                let origin = Origin::Local(PathBuf::from(argument));
                sources.push((argument.as_bytes().to_vec(), Ok(origin)));
                continue;
            }
            for at in self.session.expand(std::slice::from_ref(argument)) {
                let (image, path) = (at.image.clone(), at.path.clone());
                let origin = at.walk(options).map(|node| Origin::Image { image, node, path });
                sources.push((at.path, origin));
            }
        }
        sources
    }

    /// A file at its origin, to be copied to `path`.
    pub(super) fn found(&self, origin: Origin, path: Vec<u8>, named: bool) -> Result<Found, Problem> {
        let follows = if named { self.options.follows_sources() } else { self.options.follows_all() };
        match origin.attr(follows) {
            Ok(attr) => Ok(Found::new(origin, attr, path, named)),
            Err(why) => Err(origin.problem(&why)),
        }
    }

    /// Copies an operand: into `directory`, if `target` is one, else to the target's name.
    fn source(
        &mut self,
        source: &[u8],
        origin: Origin,
        target: &Location,
        directory: Option<&Node>,
    ) -> Result<(), Problem> {
        self.entered.clear();
        // `.`, `..` and `/` have no name to make: their contents go into the directory.
        let mut names: Vec<&[u8]> =
            source.split(|&byte| byte == b'/').filter(|name| !name.is_empty()).collect();
        let name = names.pop().filter(|name| is_plain_name(name));
        let found = self.found(origin, target.path.clone(), true)?;
        match (directory, name) {
            (Some(directory), Some(name)) => {
                let mut directory = directory.clone();
                let mut path = target.path.clone();
                if self.options.args.target.parents {
                    (directory, path) = self.parents(directory, path, &names, source, &found.origin)?;
                }
                let found = Found { path: join(&path, name), ..found };
                self.check_outside(&found, &directory)?;
                if !found.is_dir() && !self.made.insert(found.path.clone()) {
                    self.failed(&found, Failed::Refused(JUST_MADE));
                } else {
                    self.entry(&directory, name.to_vec(), found);
                }
            }
            (Some(directory), None) => {
                self.check_outside(&found, directory)?;
                self.contents(directory.clone(), false, found);
            }
            (None, _) => {
                if target.requires_directory() && !found.is_dir() {
                    return Err(target.problem(&Error::NotFound));
                }
                let (dir, name) = target.last()?;
                match target.find(WalkOptions::KEEP_LINK)? {
                    Some(root) if !is_plain_name(name) => self.contents(root, false, found),
                    _ => {
                        self.check_outside(&found, &dir)?;
                        self.entry(&dir, name.to_vec(), found);
                    }
                }
            }
        }
        Ok(())
    }

    /// Makes the directories of a source's path below `directory`.
    fn parents(
        &mut self,
        directory: Node,
        path: Vec<u8>,
        names: &[&[u8]],
        source: &[u8],
        origin: &Origin,
    ) -> Result<(Node, Vec<u8>), Problem> {
        let (mut node, mut path) = (directory, path);
        let mut above = match origin {
            Origin::Local(_) if source.starts_with(b"/") => Ok(Origin::Local(PathBuf::from("/"))),
            Origin::Local(_) => Ok(Origin::Local(PathBuf::new())),
            Origin::Image { image, .. } => {
                let node = image.vfs.root().clone();
                Ok(Origin::Image { image: image.clone(), node, path: b"/".to_vec() })
            }
        };
        for name in names {
            let at = above?;
            let below = at.below(name, true).map_err(|why| at.problem(&why))?;
            if !is_plain_name(name) {
                above = Ok(below);
                continue;
            }
            path = join(&path, name);
            let made;
            (node, made) = self.directory(&node, name).map_err(|error| self.image_problem(&path, &error))?;
            let attr = below.attr(true).map_err(|why| below.problem(&why))?;
            if made {
                let found = Found::new(below.clone(), attr, path.clone(), false);
                self.left.push(Step::Attributes { node: node.clone(), found, is_new: true });
            }
            above = Ok(below);
        }
        above.map(|_| (node, path))
    }

    /// Refuses to copy a directory of this image into itself or below.
    fn check_outside(&self, found: &Found, target: &Node) -> Result<(), Problem> {
        if !found.is_dir() || !self.is_here(&found.origin) {
            return Ok(());
        }
        let mut seen = HashSet::new();
        let mut up = target.clone();
        while seen.insert(up.ino()) {
            if up.ino() == found.attr.ino {
                return Err(Problem::new(found.origin.label(), Status::Failed, INTO_ITSELF));
            }
            up = self.image.vfs.parent(&up).map_err(|error| self.image.problem(&found.path, &error))?;
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
                    Ok((node, made)) => {
                        if made {
                            self.options.tell(&found.origin.label(), &self.image.at(&found.path));
                        }
                        self.contents(node, made, found);
                    }
                    Err(error) => self.failed(&found, Failed::Image(error)),
                },
                Step::Attributes { node, found, is_new } => self.attributes(&node, &found, is_new),
            }
        }
    }

    /// Sets the attributes of a filled directory.
    pub(super) fn attributes(&mut self, node: &Node, found: &Found, is_new: bool) {
        if let Err(error) = self.keep(node, found, is_new) {
            self.failed(found, error);
        }
    }

    /// Makes or finds the directory `name`, and tells whether it was made.
    pub(super) fn directory(&self, parent: &Node, name: &[u8]) -> Result<(Node, bool), Error> {
        let vfs = &self.image.vfs;
        match vfs.create(SUPERUSER, parent, name, NewKind::Directory, 0o700) {
            Ok(node) => Ok((node, true)),
            Err(Error::Exists) => match vfs.lookup(SUPERUSER, parent, name)? {
                Some(node) if node.is_dir() => Ok((node, false)),
                // Links are not followed: they may lead anywhere.
                _ => Err(Error::NotADirectory),
            },
            Err(error) => Err(error),
        }
    }

    /// Copies the entries of a directory into `node`; subdirectories become steps.
    fn contents(&mut self, node: Node, made: bool, found: Found) {
        self.targets.insert(node.ino());
        let Some(above) = self.enter(&found) else { return };
        // A mount point is made, and stays empty.
        let is_other = found.above.as_ref().is_some_and(|above| above.device != found.device);
        let names = if is_other && self.options.args.one_file_system {
            Vec::new()
        } else {
            found.origin.names(&self.session.report).unwrap_or_else(|why| {
                self.failed(&found, Failed::Source(why));
                Vec::new()
            })
        };
        self.progress.add(1, 0);
        let (origin, path) = (found.origin.clone(), found.path.clone());
        if made || self.options.sets_attributes() {
            self.left.push(Step::Attributes { node: node.clone(), found, is_new: made });
        }
        let first = self.left.len();
        for name in names {
            if self.is_cut_short() {
                break;
            }
            let below = origin.below(&name, self.options.follows_all()).map_err(|why| origin.problem(&why));
            match below.and_then(|below| self.found(below, join(&path, &name), false)) {
                Ok(found) => self.entry(&node, name, Found { above: Some(above.clone()), ..found }),
                Err(problem) => {
                    self.has_failed = true;
                    self.session.report.problem(&problem);
                }
            }
        }
        self.left[first..].reverse();
    }

    /// Checks that a directory is neither above itself nor a target; reports it where it is.
    fn enter(&mut self, found: &Found) -> Option<Rc<Above>> {
        let follows = self.options.follows_all();
        let is_of_image = matches!(found.origin, Origin::Image { .. });
        let is_repeated = is_of_image && !follows && !self.entered.insert((found.device, found.attr.ino));
        let above = found.as_above().filter(|_| !is_repeated);
        let (status, message) = match above {
            None if follows => {
                (Status::Failed, "not copied: a symbolic link leads back to a directory above it")
            }
            None => (Status::Damaged, "the directory has a second name here; not entered again"),
            Some(_) if self.is_here(&found.origin) && self.targets.contains(&found.attr.ino) => {
                (Status::Failed, INTO_ITSELF)
            }
            above => return above,
        };
        self.has_failed = true;
        self.session.report.problem(&Problem::new(found.origin.label(), status, message));
        None
    }

    /// Whether a source is in the target's image.
    fn is_here(&self, origin: &Origin) -> bool {
        matches!(origin, Origin::Image { image, .. } if std::ptr::eq(&**image, self.image))
    }

    /// Copies an entry; a directory becomes a step.
    pub(super) fn entry(&mut self, dir: &Node, name: Vec<u8>, found: Found) {
        if found.is_dir() {
            self.left.push(Step::Directory { parent: dir.clone(), name, found });
            return;
        }
        let is_local = matches!(found.origin, Origin::Local(_));
        if is_local && self.image.is_file((found.device, found.attr.ino.0)) {
            return self.failed(&found, Failed::Refused("not copied: this is the image itself"));
        }
        match self.file(dir, &name, &found) {
            Ok(()) => self.progress.add(1, 0),
            Err(why) => self.failed(&found, why),
        }
    }

    fn failed(&mut self, found: &Found, why: Failed) {
        self.has_failed = true;
        let problem = match why {
            Failed::Image(error) => self.image_problem(&found.path, &error),
            Failed::Source(why) => found.origin.problem(&why),
            Failed::Refused(why) => Problem::new(self.image.at(&found.path), Status::Failed, why),
            Failed::Interrupted => return,
        };
        self.session.report.problem(&problem);
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
        if let Some(there) = vfs.lookup(SUPERUSER, dir, name)? {
            if self.is_here(&found.origin) && there.ino() == found.attr.ino {
                return Err(Failed::Refused(SAME_FILE));
            }
            let label = self.image.at(&found.path);
            if !there.is_dir() && !self.options.overwrites(there.attr().mtime, found.attr.mtime, &label) {
                return Ok(());
            }
            let exists = |name: &[u8]| !matches!(vfs.lookup(SUPERUSER, dir, name), Ok(None));
            let backup = self.options.args.backup.name(name, exists).filter(|_| !there.is_dir());
            if let Some(backup) = backup {
                vfs.rename(SUPERUSER, dir, name, dir, &backup, OnExisting::Replace)?;
            }
        }
        self.options.tell(&found.origin.label(), &self.image.at(&found.path));
        if self.options.args.link || self.options.args.symbolic_link {
            return self.link(dir, name, found);
        }
        let several = self.options.keep.links && found.attr.nlink > 1;
        let key = several.then_some((found.device, found.attr.ino));
        if let Some(&first) = key.and_then(|key| self.links.get(&key)) {
            let first = self.image.inode(first)?;
            return Ok(create_or_replace(vfs, (dir, name), true, &mut |name| {
                vfs.link(SUPERUSER, &first, dir, name)
            })?);
        }
        let kind = found.attr.kind;
        let is_of_image = matches!(found.origin, Origin::Image { .. });
        let copies_bytes =
            kind != FileType::Symlink && !is_of_image && self.options.copies_bytes(found.named);
        let node = if kind == FileType::Regular || copies_bytes {
            self.regular(dir, name, found)?
        } else {
            let is_link = kind == FileType::Symlink;
            let target = if is_link { found.origin.link_target()? } else { Vec::new() };
            let kind = new_kind(&found.attr, &target);
            let mut made = None;
            create_or_replace(vfs, (dir, name), true, &mut |name| {
                made = Some(vfs.create(SUPERUSER, dir, name, kind, 0o600)?);
                Ok(())
            })?;
            let node = made.ok_or(Error::Stale)?;
            self.keep(&node, found, true)?;
            node
        };
        if let Some(key) = key {
            self.links.insert(key, node.ino());
        }
        Ok(())
    }

    /// Makes a link to a file of the same image.
    fn link(&self, dir: &Node, name: &[u8], found: &Found) -> Result<(), Failed> {
        let Origin::Image { node, path, .. } = &found.origin else { return Err(Failed::Refused(NO_LINK)) };
        if !self.is_here(&found.origin) {
            return Err(Failed::Refused(NO_LINK));
        }
        let (args, vfs) = (self.options.args, &self.image.vfs);
        let replaces = args.force || args.remove_destination;
        Ok(create_or_replace(vfs, (dir, name), replaces, &mut |name| match args.symbolic_link {
            true => vfs.create(SUPERUSER, dir, name, NewKind::Symlink(path), 0o777).map(drop),
            false => vfs.link(SUPERUSER, node, dir, name),
        })?)
    }

    /// Copies a regular file to an existing or a new one.
    fn regular(&self, dir: &Node, name: &[u8], found: &Found) -> Result<Node, Failed> {
        let vfs = &self.image.vfs;
        let copies_content = !self.options.args.attributes_only;
        let Some(node) = self.to_write_through(dir, name, found)? else {
            let node = vfs.create_unnamed(SUPERUSER, dir, 0o600)?;
            if copies_content {
                self.content(&node, found)?;
            }
            self.keep(&node, found, true)?;
            create_or_replace(vfs, (dir, name), true, &mut |name| vfs.link(SUPERUSER, &node, dir, name))?;
            return Ok(node);
        };
        if copies_content {
            vfs.set_attr(SUPERUSER, &node, &SetAttr { size: Some(0), ..SetAttr::default() })?;
            match self.content(&node, found) {
                Err(Failed::Interrupted) => return Err(Failed::Refused(CUT_SHORT)),
                done => done?,
            }
        }
        self.keep(&node, found, false)?;
        Ok(node)
    }

    /// The existing regular file to write to; `None` where a new one is made.
    fn to_write_through(&self, dir: &Node, name: &[u8], found: &Found) -> Result<Option<Node>, Failed> {
        let vfs = &self.image.vfs;
        let Some(mut there) = vfs.lookup(SUPERUSER, dir, name)? else { return Ok(None) };
        let remove = self.options.args.remove_destination;
        if there.kind() == FileType::Symlink && found.named && !remove {
            there = match vfs.walk(SUPERUSER, dir, name, WalkOptions::FOLLOW) {
                Err(Error::NotFound) => return Err(Failed::Refused(DANGLING)),
                end => end?,
            };
        }
        match there.kind() {
            FileType::Directory => Err(Error::IsADirectory.into()),
            _ if remove => Ok(None),
            // The other names of that file would change too.
            FileType::Regular if self.options.keep.links && there.attr().nlink > 1 => Ok(None),
            FileType::Regular => Ok(Some(there)),
            _ => Err(Failed::Refused(IN_THE_WAY)),
        }
    }

    /// Copies data, with holes as the options say.
    fn content(&self, node: &Node, found: &Found) -> Result<(), Failed> {
        let mut write = |offset: u64, bytes: &[u8]| {
            if self.session.is_interrupted() {
                Err(Failed::Interrupted)
            } else {
                self.write(node, offset, bytes)
            }
        };
        let mut holes = Holes::new(self.options.args.sparse, &mut write);
        let path = match &found.origin {
            Origin::Local(path) => path,
            Origin::Image { image, node: source, .. } => {
                let unreadable = |error| Failed::Source(Unreadable::Image(error));
                each_extent(image, source, &unreadable, &mut |offset, bytes| holes.data(offset, bytes))?;
                holes.finish(found.attr.size)?;
                return self.lengthen(node, found.attr.size);
            }
        };
        let mut file = host::open_source(path)?;
        let metadata = file.metadata()?;
        let size = if metadata.is_file() { metadata.len() } else { 0 };
        let copied = each_data(&file, size, 1, &mut |offset, bytes| match holes.data(offset, bytes) {
            Ok(()) => ControlFlow::Continue(()),
            Err(why) => ControlFlow::Break(why),
        });
        if let ControlFlow::Break(why) = copied? {
            return Err(why);
        }
        holes.finish(size)?;
        self.lengthen(node, size)?;
        self.rest(node, &mut file, size)
    }

    /// Makes the end of a file that ends with a hole.
    fn lengthen(&self, node: &Node, size: u64) -> Result<(), Failed> {
        if node.attr().size < size {
            let size = SetAttr { size: Some(size), ..SetAttr::default() };
            self.image.vfs.set_attr(SUPERUSER, node, &size)?;
        }
        Ok(())
    }

    /// Copies what follows the reported size: pipes, devices and files of /proc report 0.
    fn rest(&self, node: &Node, file: &mut File, size: u64) -> Result<(), Failed> {
        if size > 0 {
            file.seek(SeekFrom::Start(size))?;
        }
        let mut chunk = vec![0; CHUNK];
        let mut offset = size;
        loop {
            if self.session.is_interrupted() {
                return Err(Failed::Interrupted);
            }
            match read_ready(file, &mut chunk)? {
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

    /// Sets the attributes that are kept or given; a new file gets permissions in any case.
    fn keep(&self, node: &Node, found: &Found, is_new: bool) -> Result<(), Failed> {
        let (options, attr, vfs) = (self.options, &found.attr, &self.image.vfs);
        let keep = options.keep;
        // The owner first: a change of it clears capabilities and special bits.
        let uid = self.owner.0.or(keep.owner.then_some(attr.uid));
        let gid = self.owner.1.or(keep.owner.then_some(attr.gid));
        vfs.set_attr(SUPERUSER, node, &SetAttr { uid, gid, ..SetAttr::default() })?;
        if keep.xattrs || keep.mode {
            let label = PathBuf::from(&os_str(&found.path));
            for (name, value) in found.origin.xattrs()?.iter().filter(|(name, _)| keep.keeps_xattr(name)) {
                let set = vfs.setxattr(SUPERUSER, node, name, value, SetXattr::Any);
                self.copier.check(Loss::Xattr, &label, set.map_err(io::Error::other));
            }
        }
        let permissions = match (keep.mode, is_new) {
            (true, _) => Some(attr.permissions),
            (false, true) => Some(self.copier.reduced(attr)),
            (false, false) => None,
        };
        let before = permissions.unwrap_or(node.attr().permissions);
        let changed = options.chmod.as_ref().map(|mode| mode.of(before, node.is_dir()));
        let permissions = changed.or(permissions).filter(|_| node.kind() != FileType::Symlink);
        let time = |time| keep.times.then_some(SetTime::At(time));
        let (atime, mtime) = (time(attr.atime), time(attr.mtime));
        Ok(vfs.set_attr(SUPERUSER, node, &SetAttr { permissions, atime, mtime, ..SetAttr::default() })?)
    }
}
