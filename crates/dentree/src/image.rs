//! From `IMAGE:PATH` to an inode: parses the argument, opens device, partition and file system.
//!
//! A command opens an image for writing once, locked against other writers, and closes it at the
//! end: its changes are committed together, as far as one transaction holds them.

use crate::args::Global;
use crate::fanout::Width;
use crate::host::{self, OsStrExt, os_str, os_string};
use crate::interrupt::interruptible;
use crate::mounts;
use crate::not_an_image;
use crate::output::escape;
use crate::path::join;
use crate::pressure::Figures;
use crate::progress::{Progress, Total};
use crate::report::{self, Problem, Report, Status};
use dentree_blockdev::{
    Access, BlockDevice, Choice, FileDevice, Holder, MappedDevice, MeteredDevice, RescueMap, Slice, locate,
    open_partition, partitions,
};
use dentree_ext4::{Ext4, Notice, Options};
use dentree_vfs::{Budgets, Error, Identity, Ino, Inode, Vfs, WalkOptions};
use std::cell::{OnceCell, RefCell};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::Path;
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) type Node = Arc<Inode<Ext4>>;

/// No permissions are checked: a process that can read the image file can read all of it.
pub(crate) const SUPERUSER: &Identity = &Identity::Superuser;

pub(crate) struct Image {
    /// As the user named it.
    name: OsString,
    /// Device and inode number of the image file, which may have several names.
    file: Option<(u64, u64)>,
    access: Access,
    pub(crate) vfs: Arc<Vfs<Ext4>>,
    pub(crate) device: Arc<MeteredDevice>,
    /// What memory pressure did to its caches.
    pub(crate) shrinks: Arc<Figures>,
    /// How a mount's requests came, and how many; set when it ends.
    pub(crate) served: Arc<OnceLock<String>>,
}

impl Image {
    fn open(file: &OsStr, options: &Global, access: Access) -> Result<Self, Problem> {
        Self::open_local(file, options, access).map_err(|problem| not_an_image::explain(file, problem))
    }

    fn open_local(file: &OsStr, options: &Global, access: Access) -> Result<Self, Problem> {
        let label = || escape::terminal(file.as_bytes()).into_owned();
        let (device, part) = open_part(file, options, access)?;
        let writable = access == Access::ReadWrite;
        let dx_read_ahead = options.dx_read_ahead.unwrap_or_default();
        let fs = Ext4::open(part, Options { writable, dx_read_ahead, ..Options::default() })
            .map_err(|error| Problem::inside(label(), &error.into()))?;
        for notice in fs.notices() {
            let piece = matches!(notice, Notice::Truncated { .. }).then(|| not_an_image::piece(file));
            if let Some(problem) = piece.flatten() {
                return Err(problem);
            }
            report::print(format_args!("dentree: {}: {}", label(), notice_text(notice, writable)));
        }
        let vfs =
            Vfs::with_budgets(fs, Budgets::default()).map_err(|error| Problem::inside(label(), &error))?;
        Ok(Image {
            name: file.to_owned(),
            file: device_and_inode(file),
            access,
            vfs: Arc::new(vfs),
            device,
            shrinks: Arc::default(),
            served: Arc::default(),
        })
    }

    /// Commits all changes and marks the file system clean. Later changes fail.
    pub(crate) fn close(&self) -> Result<(), Problem> {
        let label = || escape::terminal(self.name.as_bytes());
        self.vfs.fs().close().map_err(|error| Problem::inside(label(), &error.into()))
    }

    /// Commits all changes.
    pub(crate) fn commit(&self) -> Result<(), Problem> {
        if !self.vfs.fs().has_unsynced() {
            return Ok(());
        }
        let label = || escape::terminal(self.name.as_bytes());
        self.vfs.sync().map_err(|error| Problem::inside(label(), &error))
    }

    /// How work that reads contents of it is divided.
    pub(crate) fn width(&self) -> Width {
        if address(&self.name).is_some() { Width::REMOTE } else { Width::local() }
    }

    /// Whether the image file has this device and inode number.
    pub(crate) fn is_file(&self, identity: (u64, u64)) -> bool {
        self.file == Some(identity)
    }

    /// The image file as the user named it.
    pub(crate) fn name(&self) -> &OsStr {
        &self.name
    }

    /// `disk.img:/etc/x`, for messages.
    pub(crate) fn at(&self, path: &[u8]) -> String {
        format!("{}:{}", escape::terminal(self.name.as_bytes()), escape::terminal(path))
    }

    pub(crate) fn problem(&self, path: &[u8], error: &dentree_vfs::Error) -> Problem {
        Problem::inside(self.at(path), error)
    }

    pub(crate) fn inode(&self, ino: Ino) -> dentree_vfs::Result<Node> {
        self.vfs.inode(ino)
    }
}

/// Opens an image file, and the part of it that holds the file system.
pub(crate) fn open_part(
    file: &OsStr,
    options: &Global,
    access: Access,
) -> Result<(Arc<MeteredDevice>, Arc<dyn BlockDevice>), Problem> {
    let label = escape::terminal(file.as_bytes()).into_owned();
    let device = Arc::new(MeteredDevice::new(open_device(file, options, access)?));
    let part = locate(device.clone() as Arc<dyn BlockDevice>, choice(options))
        .map_err(|error| device_problem(&label, &error))?;
    Ok((device, Arc::new(part)))
}

/// Opens an image whose superblock or partition table may be damaged, for reading. What `map` calls
/// bad is not read.
pub(crate) fn open_damaged(
    file: &OsStr,
    options: &Global,
    map: Option<RescueMap>,
) -> Result<Arc<dyn BlockDevice>, Problem> {
    let label = escape::terminal(file.as_bytes()).into_owned();
    let mut device = open_device(file, options, Access::ReadOnly)?;
    if let Some(map) = map {
        device = Arc::new(MappedDevice::new(device, map));
    }
    let size = device.size();
    let part = match choice(options) {
        Choice::Partition(number) => open_partition(device.clone(), number),
        Choice::Offset(start) => Slice::new(device.clone(), start, size.saturating_sub(start)),
        Choice::Auto => match locate(device.clone(), Choice::Auto) {
            // Without partitions all of it is the file system.
            Err(_) if partitions(&*device).is_ok_and(|found| !found.is_empty()) => {
                let message = "none of its partitions has a superblock: name one with --partition N";
                return Err(Problem::usage(label, message));
            }
            Err(_) => Slice::new(device, 0, size),
            found => found,
        },
    };
    Ok(Arc::new(part.map_err(|error| device_problem(&label, &error))?))
}

/// The part of an image that the options name.
pub(crate) fn choice(options: &Global) -> Choice {
    match (options.partition, options.offset) {
        (Some(number), _) => Choice::Partition(number),
        (None, Some(offset)) => Choice::Offset(offset),
        (None, None) => Choice::Auto,
    }
}

/// The argument where it is an address and no local name.
pub(crate) fn address(file: &OsStr) -> Option<&str> {
    file.to_str().filter(|name| dentree_source::scheme(name).is_some())
}

/// Opens an address or a local file, which may be of a format that another program reads.
fn open_device(name: &OsStr, options: &Global, access: Access) -> Result<Arc<dyn BlockDevice>, Problem> {
    let label = escape::terminal(name.as_bytes()).into_owned();
    let source = &options.source;
    if let Some(dir) = &source.cache_dir {
        // One that was asked for must be there; the default one is a help.
        fs::create_dir_all(dir).map_err(|error| Problem::local(dir.as_os_str().as_bytes(), &error))?;
    }
    let how = dentree_source::Options {
        access,
        endpoint: source.endpoint.clone(),
        cache_dir: source.cache_dir().filter(|_| source.cache_size > 0),
        cache_size: source.cache_size,
        overlay: source.overlay.clone(),
    };
    let opened = match address(name) {
        Some(address) => dentree_source::open(address, &how),
        None => dentree_source::open_file(|access| open_file(Path::new(name), access), &how),
    };
    opened.map_err(|error| match error {
        dentree_source::Error::File(error) => device_problem(&label, &error),
        error => {
            let status = if error.is_unsupported() { Status::Unsupported } else { Status::Failed };
            Problem::new(&*label, status, without_label(&label, &error.to_string()))
        }
    })
}

/// Opens a local file. Waits a few seconds for a process that is closing the image.
pub(crate) fn open_file(path: &Path, access: Access) -> Result<FileDevice, dentree_blockdev::Error> {
    const TIMEOUT: Duration = Duration::from_secs(5);
    const QUIET_PERIOD: Duration = Duration::from_millis(300);
    const POLL_INTERVAL: Duration = Duration::from_millis(20);
    let began = Instant::now();
    let mut is_told = false;
    loop {
        match FileDevice::open(path, access) {
            Err(dentree_blockdev::Error::Locked { holder: Some(holder), .. })
                if began.elapsed() < TIMEOUT && may_be_closing(&holder, path) =>
            {
                if !is_told && began.elapsed() > QUIET_PERIOD {
                    let path = escape::terminal(path.as_os_str().as_bytes());
                    let message = format!("waiting for {holder} to close it");
                    report::print_problem(&Problem::new(path, Status::Done, message));
                    is_told = true;
                }
                thread::sleep(POLL_INTERVAL);
            }
            opened => return opened,
        }
    }
}

/// Whether an image is about to be released: a dentree process holds it, and it is not mounted.
fn may_be_closing(holder: &Holder, path: &Path) -> bool {
    let Holder::Process { pid, name } = holder else { return false };
    let ours = fs::read_to_string("/proc/self/comm").unwrap_or_default();
    // A process without a name has ended.
    let is_ours = name.as_ref().is_none_or(|name| *name == ours.trim_end());
    is_ours && *pid != process::id() && !mounts::has(path)
}

/// The text of a notice; `writable` means that the image may change.
fn notice_text(notice: &Notice, writable: bool) -> String {
    match notice {
        Notice::JournalReplayed { transactions, blocks } if writable => format!(
            "the file system was not unmounted cleanly: {transactions} transactions of its journal ({blocks} blocks) \
             were replayed"
        ),
        notice => notice.to_string(),
    }
}

/// Device and inode number, the same for all names of a file.
fn device_and_inode(file: &OsStr) -> Option<(u64, u64)> {
    host::stat(Path::new(file), true).ok().map(|found| found.identity())
}

fn device_problem(at: &str, error: &dentree_blockdev::Error) -> Problem {
    let message = error.to_string();
    let message = without_label(at, &message);
    let status = match error {
        dentree_blockdev::Error::PartitionTable { .. } => Status::Damaged,
        dentree_blockdev::Error::SeveralExt { .. } => Status::Usage,
        dentree_blockdev::Error::Foreign { .. } | dentree_blockdev::Error::NoExt { .. } => {
            Status::Unsupported
        }
        _ => Status::Failed,
    };
    Problem::new(at, status, message)
}

/// A message without the name that it begins with.
fn without_label<'a>(label: &str, message: &'a str) -> &'a str {
    message.strip_prefix(label).map_or(message, |rest| rest.trim_start_matches([':', ' ']))
}

/// A path in an opened image.
#[derive(Clone)]
pub(crate) struct Location {
    pub(crate) image: Arc<Image>,
    /// Absolute, or below an inode (`<12>/x`); without slashes at the end.
    pub(crate) path: Vec<u8>,
    /// The argument ended with a slash: only a directory may be there.
    directory: bool,
    /// Paths are shown with the image, as the command has several.
    is_one_of_several: bool,
}

impl Location {
    pub(crate) fn walk(&self, options: WalkOptions) -> Result<Node, Problem> {
        let options = WalkOptions { directory: self.directory, ..options };
        let options =
            if self.directory { WalkOptions { last_link: Default::default(), ..options } } else { options };
        self.end(options).map_err(|error| self.problem(&error))
    }

    /// Where the path ends.
    fn end(&self, options: WalkOptions) -> dentree_vfs::Result<Node> {
        match self.start()? {
            (node, b"") if node.is_dir() || !options.directory => Ok(node),
            (_, b"") => Err(Error::NotADirectory),
            (node, path) => self.image.vfs.walk(SUPERUSER, &node, path, options),
        }
    }

    /// Where a walk begins, and what is left of the path.
    fn start(&self) -> dentree_vfs::Result<(Node, &[u8])> {
        match split_inode(&self.path) {
            Some((ino, path)) => Ok((self.image.inode(ino)?, path)),
            None => Ok((self.image.vfs.root().clone(), &self.path)),
        }
    }

    /// The inode, or `None` where the path does not exist. Unlike [`walk`](Self::walk), a trailing
    /// slash does not follow a link that `options` keep.
    pub(crate) fn find(&self, options: WalkOptions) -> Result<Option<Node>, Problem> {
        let options = WalkOptions { directory: self.directory, ..options };
        match self.end(options) {
            Ok(node) => Ok(Some(node)),
            Err(Error::NotFound) => Ok(None),
            Err(error) => Err(self.problem(&error)),
        }
    }

    /// The parent directory and the last name: `.` for the root.
    pub(crate) fn last(&self) -> Result<(Node, &[u8]), Problem> {
        let (node, path) = self.start().map_err(|error| self.problem(&error))?;
        if path.is_empty() {
            return Err(self.refusal("an inode number is no name; give the path"));
        }
        let last = self.image.vfs.walk_parent(SUPERUSER, &node, path);
        let last = last.map_err(|error| self.problem(&error))?;
        Ok((last.dir, last.name))
    }

    /// The location of `name` in this directory.
    pub(crate) fn below(&self, name: &[u8]) -> Location {
        Location { path: join(&self.path, name), directory: false, ..self.clone() }
    }

    /// Another path of the same image.
    pub(crate) fn with_path(&self, path: Vec<u8>) -> Location {
        Location { path, ..self.clone() }
    }

    /// Has paths shown with the image.
    pub(crate) fn name_image(&mut self) {
        self.is_one_of_several = true;
    }

    /// What is shown before paths: nothing, or the image and a colon.
    pub(crate) fn prefix(&self) -> Vec<u8> {
        let name = self.image.name().as_bytes();
        if self.is_one_of_several { [name, b":"].concat() } else { Vec::new() }
    }

    /// Whether the argument ended with a slash, so that only a directory may be there.
    pub(crate) fn requires_directory(&self) -> bool {
        self.directory
    }

    pub(crate) fn problem(&self, error: &Error) -> Problem {
        self.image.problem(&self.path, error)
    }

    pub(crate) fn refusal(&self, message: impl Into<String>) -> Problem {
        Problem::new(self.image.at(&self.path), Status::Failed, message)
    }
}

/// An image that stays open over several commands.
#[derive(Clone)]
pub(crate) struct Held {
    pub(crate) image: Arc<Image>,
    /// Where paths begin that name no image; without it operands are as on the command line.
    pub(crate) directory: Option<Vec<u8>>,
}

impl Held {
    fn check(&self, access: Access) -> Result<(), Problem> {
        if access == Access::ReadWrite && self.image.access != access {
            let message = "is open for reading; `dentree shell --write` opens it for changes, too";
            let label = escape::terminal(self.image.name().as_bytes());
            return Err(Problem::new(label, Status::Failed, message));
        }
        Ok(())
    }
}

/// State of one command: options, opened images, problems.
pub(crate) struct Session {
    pub(crate) options: Global,
    pub(crate) report: Report,
    images: RefCell<Vec<Arc<Image>>>,
    held: Option<Held>,
    /// Set by Ctrl-C, once it is caught.
    interrupted: OnceCell<Arc<AtomicBool>>,
}

impl Session {
    pub(crate) fn new(options: Global) -> Self {
        Session {
            options,
            report: Report::default(),
            images: RefCell::default(),
            held: None,
            interrupted: OnceCell::new(),
        }
    }

    /// A session on an image that stays open after it.
    pub(crate) fn on(held: Held, options: Global) -> Self {
        let images = RefCell::new(vec![held.image.clone()]);
        Session { images, held: Some(held), ..Session::new(options) }
    }

    /// The held image and a path in it, where `argument` names no other image.
    fn in_held(&self, argument: &OsStr) -> Option<(&Held, Vec<u8>)> {
        let held = self.held.as_ref()?;
        let directory = held.directory.as_ref()?;
        (!names_another_image(argument)).then(|| (held, from_directory(directory, argument.as_bytes())))
    }

    /// Whether `file` is the image that stays open.
    pub(crate) fn holds(&self, file: &OsStr) -> bool {
        let held = self.held.as_ref().and_then(|held| held.image.file);
        held.is_some() && held == device_and_inode(file)
    }

    /// Whether the arguments name paths in different images.
    pub(crate) fn names_several_images(&self, arguments: &[OsString]) -> bool {
        let mut files = arguments.iter().map(|argument| match self.in_held(argument) {
            Some((held, _)) => held.image.name.clone(),
            None => split(argument, |file| file.exists()).0,
        });
        let Some(first) = files.next() else { return false };
        let identity = device_and_inode(&first);
        files.any(|file| file != first && (identity.is_none() || device_and_inode(&file) != identity))
    }

    /// Whether `argument`, which may also be a local path, names a path in an image.
    pub(crate) fn names_image(&self, argument: &OsStr) -> bool {
        self.in_held(argument).is_some() || names_image(argument)
    }

    /// The opened images, in the order of their opening.
    pub(crate) fn images(&self) -> Vec<Arc<Image>> {
        self.images.borrow().clone()
    }

    /// Opens `file` for reading, once for all calls.
    pub(crate) fn open(&self, file: &OsStr) -> Result<Arc<Image>, Problem> {
        self.open_at(file, &self.options, Access::ReadOnly)
    }

    /// As [`open`](Self::open), with another access, and another partition or offset than the
    /// global options say.
    pub(crate) fn open_at(
        &self,
        file: &OsStr,
        within: &Global,
        access: Access,
    ) -> Result<Arc<Image>, Problem> {
        let wanted = device_and_inode(file);
        let is_same = |image: &Image| match address(file) {
            Some(_) => image.name == file,
            None => wanted.is_some() && image.file == wanted,
        };
        let serves =
            |image: &&Arc<Image>| is_same(image) && (access == Access::ReadOnly || image.access == access);
        if let Some(image) = self.images.borrow().iter().find(serves) {
            return Ok(image.clone());
        }
        if let Some(held) = self.held.as_ref().filter(|held| is_same(&held.image)) {
            held.check(access)?;
        }
        let image = Arc::new(Image::open(file, within, access)?);
        self.images.borrow_mut().push(image.clone());
        Ok(image)
    }

    pub(crate) fn locate(&self, argument: &OsStr) -> Result<Location, Problem> {
        self.locate_for(argument, Access::ReadOnly)
    }

    /// Opens the image of `argument` for writing. From then on Ctrl-C only sets
    /// [`is_interrupted`](Self::is_interrupted), for an orderly end.
    pub(crate) fn locate_for_writing(&self, argument: &OsStr) -> Result<Location, Problem> {
        self.catch_interrupts()?;
        self.locate_for(argument, Access::ReadWrite)
    }

    /// From now on Ctrl-C only sets the flag that is returned, for an orderly end.
    pub(crate) fn catch_interrupts(&self) -> Result<Arc<AtomicBool>, Problem> {
        if let Some(flag) = self.interrupted.get() {
            return Ok(flag.clone());
        }
        let flag = interruptible().map_err(Problem::signals)?;
        Ok(self.interrupted.get_or_init(|| flag).clone())
    }

    fn locate_for(&self, argument: &OsStr, access: Access) -> Result<Location, Problem> {
        let (image, path) = match self.in_held(argument) {
            Some((held, path)) => {
                held.check(access)?;
                (held.image.clone(), path)
            }
            None => {
                let (file, path) = split(argument, |file| file.exists());
                (self.open_at(&file, &self.options, access)?, path)
            }
        };
        let directory = path.len() > 1 && path.ends_with(b"/");
        let path = if split_inode(&path).is_some() { tidy(&path).split_off(1) } else { tidy(&path) };
        Ok(Location { image, path, directory, is_one_of_several: false })
    }

    /// Shows progress, unless the command `talks` on the terminal itself.
    pub(crate) fn progress(&self, total: Option<Total>, talks: bool) -> Progress {
        Progress::new(!self.options.no_progress && !talks, total)
    }

    /// Whether Ctrl-C was pressed since it is caught.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupted.get().is_some_and(|flag| flag.load(Ordering::Relaxed))
    }

    /// Closes the images, but commits one that is held, and reports an interruption.
    pub(crate) fn close(&self) {
        let is_held =
            |image: &Arc<Image>| self.held.as_ref().is_some_and(|held| Arc::ptr_eq(&held.image, image));
        for image in self.images() {
            let stored = if is_held(&image) { image.commit() } else { image.close() };
            if let Err(problem) = stored {
                self.report.problem(&problem);
            }
        }
        if self.is_interrupted() {
            let message = "completed changes are in the image";
            self.report.problem(&Problem::new("interrupted", Status::Failed, message));
        }
    }
}

/// The absolute path without doubled or trailing slashes.
fn tidy(path: &[u8]) -> Vec<u8> {
    let mut tidied = Vec::with_capacity(path.len() + 1);
    for name in path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()) {
        tidied.push(b'/');
        tidied.extend_from_slice(name);
    }
    if tidied.is_empty() { b"/".to_vec() } else { tidied }
}

/// Splits a path that begins with an inode number as debugfs(8) has them: `<12>`, `<12>/x`. The
/// rest has no slash before it.
fn split_inode(path: &[u8]) -> Option<(Ino, &[u8])> {
    let end = path.iter().position(|byte| *byte == b'>')?;
    let digits = path[..end].strip_prefix(b"<")?;
    let rest = &path[end + 1..];
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let number = std::str::from_utf8(digits).ok().filter(|_| is_number)?.parse().ok()?;
    let rest = if rest.is_empty() { rest } else { rest.strip_prefix(b"/")? };
    Some((Ino(number), rest))
}

/// Splits `IMAGE:PATH`.
///
/// An address ends at the last `:/` or `:<` behind its `://`. A local image ends at the first `:/`
/// before which a file of that name exists; else it is the whole argument, if that exists; else it
/// ends at the first `:` before which one exists. Where no file exists, the first `:/` (or `:`)
/// splits, for the message.
fn split(argument: &OsStr, exists: impl Fn(&Path) -> bool) -> (OsString, Vec<u8>) {
    let bytes = argument.as_bytes();
    let end = match address(argument) {
        Some(address) => address_end(address),
        None => {
            let file = |end: usize| exists(Path::new(&os_str(&bytes[..end])));
            let colons = || (1..bytes.len()).filter(|&i| bytes[i] == b':');
            let rooted = || colons().filter(|&i| bytes.get(i + 1) == Some(&b'/'));
            rooted()
                .find(|&i| file(i))
                .or_else(|| file(bytes.len()).then_some(bytes.len()))
                .or_else(|| colons().find(|&i| file(i)))
                .or_else(|| rooted().next())
                .or_else(|| colons().next())
                .unwrap_or(bytes.len())
        }
    };
    let path = bytes.get(end + 1..).unwrap_or(b"");
    (os_string(bytes[..end].to_vec()), path.to_vec())
}

/// Where the image of an address ends, and `:` and the path within begin.
fn address_end(address: &str) -> usize {
    let start = address.find("://").map_or(0, |colon| colon + 3);
    let begins = |&(at, _): &(usize, &str)| {
        let behind = &address.as_bytes()[at + 1..];
        // An address may hold another one.
        behind.starts_with(b"<") || behind.starts_with(b"/") && !behind.starts_with(b"//")
    };
    let colons = address.rmatch_indices(':').take_while(|(at, _)| *at > start);
    colons.filter(|colon| begins(colon)).map(|(at, _)| at).next().unwrap_or(address.len())
}

/// The path that `path` names from a directory. `.` and `..` at its beginning are taken from the
/// directory's name, as by cd(1).
pub(crate) fn from_directory(directory: &[u8], path: &[u8]) -> Vec<u8> {
    if path.starts_with(b"/") || split_inode(path).is_some() {
        return path.to_vec();
    }
    let end = path.iter().position(|byte| *byte == b'/');
    let (first, rest) = end.map_or((path, &b""[..]), |end| (&path[..end], &path[end + 1..]));
    match first {
        b"" | b"." if rest.is_empty() => directory.to_vec(),
        b"" | b"." => from_directory(directory, rest),
        b".." => from_directory(&above(directory), rest),
        _ => join(directory, path),
    }
}

fn above(directory: &[u8]) -> Vec<u8> {
    match directory.iter().rposition(|byte| *byte == b'/') {
        Some(0) => b"/".to_vec(),
        Some(end) if !directory.ends_with(b"/..") => directory[..end].to_vec(),
        // An inode that is named by its number.
        _ => join(directory, b".."),
    }
}

/// Whether `argument` names a path in an image of its own: an existing file before the colon, or an
/// address.
fn names_another_image(argument: &OsStr) -> bool {
    let (file, _) = split(argument, |file| file.exists());
    file.len() < argument.len() && fs::metadata(&file).is_ok_and(|found| !found.is_dir())
        || address(argument).is_some()
}

/// Whether `argument`, which may also be a local path, names a path in an image: an existing file
/// before the colon, or nothing there and a colon with a slash. The address of a device always
/// does.
fn names_image(argument: &OsStr) -> bool {
    let (file, _) = split(argument, |file| file.exists());
    let has_path = file.len() < argument.len();
    if address(argument).is_some() {
        return has_path;
    }
    let has_slash = argument.as_bytes().get(file.len() + 1) == Some(&b'/');
    match fs::metadata(&file) {
        Ok(found) => has_path && !found.is_dir(),
        Err(_) => has_path && has_slash,
    }
}

#[cfg(test)]
impl Image {
    /// Opens the file system on a device for reading.
    pub(crate) fn on(disk: Arc<dyn BlockDevice>) -> dentree_vfs::Result<Self> {
        let device = Arc::new(MeteredDevice::new(disk));
        let fs = Ext4::open(device.clone(), Options::default())?;
        let vfs = Arc::new(Vfs::with_budgets(fs, Budgets::default())?);
        let (shrinks, served) = (Arc::default(), Arc::default());
        Ok(Image { name: "image".into(), file: None, access: Access::ReadOnly, vfs, device, shrinks, served })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split_with(argument: &str, existing: &[&str]) -> (String, String) {
        let exists = |path: &Path| existing.iter().any(|name| Path::new(name) == path);
        let (file, path) = split(OsStr::new(argument), exists);
        (file.into_string().unwrap(), String::from_utf8(tidy(&path)).unwrap())
    }

    fn pair(file: &str, path: &str) -> (String, String) {
        (file.into(), path.into())
    }

    #[test]
    fn the_path_begins_after_the_first_colon_and_slash() {
        assert_eq!(split_with("d.img:/etc/x", &["d.img"]), pair("d.img", "/etc/x"));
        assert_eq!(split_with("d.img:/a:/b", &["d.img"]), pair("d.img", "/a:/b"));
        assert_eq!(split_with("gone.img:/a", &[]), pair("gone.img", "/a"));
    }

    #[test]
    fn the_path_in_the_image_of_an_address_begins_at_the_last_colon_and_slash() {
        for (argument, image, path) in [
            ("s3://a/b.img:/c", "s3://a/b.img", "/c"),
            ("https://h:8080/disk.img", "https://h:8080/disk.img", "/"),
            ("https://h:8080/disk.img:/etc/x", "https://h:8080/disk.img", "/etc/x"),
            ("https://h/a:b.img:<12>/x", "https://h/a:b.img", "/<12>/x"),
            ("https://h/x?of=s3://b/c.img", "https://h/x?of=s3://b/c.img", "/"),
            ("nbd+unix:///disk?socket=/run/x:/etc", "nbd+unix:///disk?socket=/run/x", "/etc"),
            ("nbd+unix:///e?socket=/tmp/a:/b:/etc", "nbd+unix:///e?socket=/tmp/a:/b", "/etc"),
            ("nbd://[::1]/e:/", "nbd://[::1]/e", "/"),
        ] {
            assert_eq!(split_with(argument, &["https", "nbd", "s3"]), pair(image, path), "{argument}");
        }
    }

    #[test]
    fn a_path_without_a_slash_starts_at_the_root() {
        assert_eq!(split_with("d.img:etc/x:y", &["d.img"]), pair("d.img", "/etc/x:y"));
        assert_eq!(split_with("d.img:", &["d.img"]), pair("d.img", "/"));
    }

    #[test]
    fn an_image_alone_means_its_root() {
        assert_eq!(split_with("d.img", &["d.img"]), pair("d.img", "/"));
        assert_eq!(split_with("a:b.img", &["a", "a:b.img"]), pair("a:b.img", "/"));
    }

    #[test]
    fn an_image_with_a_colon_in_its_name_can_be_named() {
        assert_eq!(split_with("./a:b.img:/x", &["./a:b.img"]), pair("./a:b.img", "/x"));
        assert_eq!(split_with("a:/b.img:/x", &["a:/b.img"]), pair("a:/b.img", "/x"));
        assert_eq!(split_with("a:b.img:/x", &["a", "a:b.img"]), pair("a:b.img", "/x"));
    }

    #[test]
    fn a_number_in_angle_brackets_names_an_inode() {
        assert_eq!(split_inode(b"<12>"), Some((Ino(12), &b""[..])));
        assert_eq!(split_inode(b"<2>/a/b"), Some((Ino(2), &b"a/b"[..])));
        for path in [&b"/<12>"[..], b"<>", b"<12>x", b"<+1>", b"<99999999999999999999>", b"12", b""] {
            assert_eq!(split_inode(path), None);
        }
    }

    #[test]
    fn slashes_are_neither_doubled_nor_left_at_the_end() {
        assert_eq!(tidy(b"//etc///x/"), b"/etc/x");
        assert_eq!(tidy(b"///"), b"/");
    }
}
