//! `dentree mkfs`: makes an image.
//!
//! An image is made in a file without a name in the same directory, and gets its name when it is
//! complete: an interruption leaves the previous file. Other places: [`place`].

mod fill;
mod fill_error;
pub(crate) mod identity;
pub(crate) mod manifest;
#[cfg(test)]
mod memory;
mod place;
mod source;
mod time;

use crate::args::{MkfsArgs, UuidArg};
use crate::command::tar::layers::{Amount, Layers};
use crate::host::{self, Existing, OsStrExt, Parent, TempEntry};
use crate::image::{Session, open_file};
use crate::interrupt::interruptible;
use crate::output::{Output, escape, human};
use crate::progress::{Progress, Total};
use crate::report::{Problem, Status, Stop};
use dentree_blockdev::{Access, BlockDevice, FileDevice};
use dentree_ext4::mkfs::{Features, MkfsError, MkfsOptions, NewFileSystem, mkfs};
use dentree_ext4::{BlockSize, Clock, Ext4, InodeTime, Options};
use dentree_vfs::{Budgets, Vfs};
use fill::{ProgressSink, fill};
use fill_error::FillError;
use identity::Identity;
use manifest::Manifest;
use place::Place;
use source::Source;
use std::cell::RefCell;
use std::fs::Metadata;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use time::Time;

pub(crate) fn run(session: &Session, args: &MkfsArgs) -> Result<(), Stop> {
    let path = ImagePath { image: Path::new(&args.image) };
    if session.options.offset.is_some() {
        let message = "a file system is made in a file, on a device or in a --partition, not at an --offset";
        return Err(path.problem(Status::Usage, message).into());
    }
    let directory = from_directory(&path, args)?;
    if let Some(directory) = directory {
        path.check_outside(directory)?;
    }
    let manifest = read_manifest(args)?;
    let time = if args.reproducible { Time::fixed()? } else { Time::now() };
    let source = directory.map(|directory| Source { directory, manifest: &manifest, time });
    let place = Place::of(session, &path, args)?;
    let interrupted = interruptible().map_err(Problem::signals)?;
    let io = |error: io::Error| path.io(&error);
    let parent = Parent::open(path.parent()).map_err(io)?;
    let archives = if source.is_none() { &args.from[..] } else { &[] };
    let layers = Layers::open(archives, path.parent(), &interrupted)?;
    let amount = match &source {
        Some(source) => amount(source).map_err(|stopped| path.stopped(stopped))?,
        None => layers.amount,
    };
    let size = size(&path, args, place.room(), amount)?;
    let total = Some(Total { files: amount.entries, bytes: amount.bytes });
    let mut options = options(&path, args, time, (size, source.as_ref()))?;
    let mut prepared = place.prepare(&path, (&parent, size, args.dry_run))?;
    options.reads_as_zeros = prepared.reads_as_zeros();
    let device = prepared.device.clone();
    let made = mkfs(&*device, &options).map_err(|error| path.refused(&error))?;
    if args.dry_run {
        return report(args, &made, None);
    }
    prepared.begun();
    if let Some(source) = &source {
        let clock = if args.reproducible { Clock::Fixed(options.now) } else { Clock::System };
        filled((session, total), &path, device, clock, source, &interrupted)?;
    } else if !archives.is_empty() {
        let progress = session.progress(total, false);
        extracted((session, &progress), &path, device, layers, &interrupted)?;
    }
    if interrupted.load(Ordering::Relaxed) {
        return Err(path.problem(Status::Failed, format!("interrupted; {}", prepared.left())).into());
    }
    let number = prepared.publish(&path)?;
    if args.quiet { Ok(()) } else { report(args, &made, number) }
}

fn report(args: &MkfsArgs, made: &NewFileSystem, added: Option<u32>) -> Result<(), Stop> {
    let mut out = Output::new();
    out.write_all(&out.names().show(args.image.as_bytes()))?;
    let added = added.map_or(String::new(), |number| format!(" partition {number}"));
    writeln!(out, "{added}: {}", describe(made))?;
    Ok(out.flush()?)
}

/// The size that is told, that of the place, or enough for what fills it.
fn size(path: &ImagePath<'_>, args: &MkfsArgs, room: Option<u64>, amount: Amount) -> Result<u64, Problem> {
    match (args.size, room) {
        (Some(size), Some(room)) if size > room => {
            Err(path.problem(Status::Usage, format!("--size is larger than the {room} bytes that there are")))
        }
        (None, Some(room)) => Ok(room),
        // Whole blocks, also of a partition.
        (Some(size), _) if args.append_partition => Ok(size.next_multiple_of(4096)),
        (Some(size), _) => Ok(size),
        (None, None) if args.from.is_empty() => {
            Err(path.problem(Status::Usage, "--size says how large it is to be, or --from what fills it"))
        }
        (None, None) => Ok(amount.image_size()),
    }
}

/// The directory to copy; `None` where there is nothing to copy, or archives to extract.
fn from_directory<'a>(path: &ImagePath<'_>, args: &'a MkfsArgs) -> Result<Option<&'a Path>, Problem> {
    match &args.from[..] {
        [only] if only.is_dir() => Ok(Some(only)),
        [] => Ok(None),
        several if several.iter().any(|from| from.is_dir()) => {
            Err(path.problem(Status::Usage, "a directory is copied alone, several archives are layers"))
        }
        _ if args.reproducible || args.manifest.is_some() => {
            Err(path.problem(Status::Usage, "--manifest and --reproducible need a directory, not an archive"))
        }
        _ => Ok(None),
    }
}

/// What is in the directory.
fn amount(source: &Source<'_>) -> Result<Amount, FillError> {
    let mut amount = Amount::default();
    source.each(&mut |entry| amount.add(entry.local.as_ref().map_or(0, |(_, found)| found.attr.size)))?;
    Ok(amount)
}

fn extracted(
    (session, progress): (&Session, &Progress),
    path: &ImagePath<'_>,
    device: Arc<dyn BlockDevice>,
    mut layers: Layers,
    interrupted: &AtomicBool,
) -> Result<(), Problem> {
    let problem = |error: &dentree_vfs::Error| Problem::inside(path.name(), error);
    let options = Options { writable: true, journaled: false, ..Options::default() };
    let fs = Ext4::open(device, options).map_err(|error| problem(&error.into()))?;
    let vfs = Vfs::with_budgets(fs, Budgets::default()).map_err(|error| problem(&error))?;
    let name = |at: &[u8]| format!("{}:/{}", path.name(), escape::terminal(at));
    layers.extract(&vfs, &name, (&session.report, progress), interrupted)?;
    vfs.sync().map_err(|error| problem(&error))?;
    vfs.fs().close().map_err(|error| problem(&error.into()))
}

fn read_manifest(args: &MkfsArgs) -> Result<Manifest, Problem> {
    let Some(file) = &args.manifest else { return Ok(Manifest::default()) };
    let name = file.as_os_str().as_bytes();
    let text = std::fs::read(file).map_err(|error| Problem::local(name, &error))?;
    Manifest::parse(&text, &escape::terminal(name))
}

fn filled(
    (session, total): (&Session, Option<Total>),
    path: &ImagePath<'_>,
    device: Arc<dyn BlockDevice>,
    clock: Clock,
    source: &Source<'_>,
    interrupted: &AtomicBool,
) -> Result<(), Problem> {
    let options = Options { writable: true, journaled: false, clock, ..Options::default() };
    let fs = Ext4::open(device, options).map_err(|error| Problem::inside(path.name(), &error.into()))?;
    let watch = Watch { progress: session.progress(total, false), lost: RefCell::default() };
    let done = fill(&fs, source, &watch, interrupted);
    for lost in watch.lost.into_inner() {
        session.report.problem(&lost);
    }
    match done {
        // The caller says what is left.
        Err(FillError::Interrupted) => {}
        done => done.map_err(|stopped| path.stopped(stopped))?,
    }
    fs.close().map_err(|error| Problem::inside(path.name(), &error.into()))
}

/// Progress on the terminal, and attributes that could not be set.
struct Watch {
    progress: Progress,
    lost: RefCell<Vec<Problem>>,
}

impl ProgressSink for Watch {
    fn add(&self, entries: u64, bytes: u64) {
        self.progress.add(entries, bytes);
    }

    fn lost(&self, path: &[u8], name: &[u8], error: &dentree_vfs::Error) {
        let name = escape::terminal(name);
        let problem = Problem::new(
            escape::terminal(path),
            Status::Failed,
            format!("attribute {name} is not kept: {error}"),
        );
        self.lost.borrow_mut().push(problem);
    }
}

fn options(
    path: &ImagePath<'_>,
    args: &MkfsArgs,
    time: Time,
    (size, source): (u64, Option<&Source<'_>>),
) -> Result<MkfsOptions, Problem> {
    let features = Features::parse(&args.features).map_err(|error| path.refused(&error))?;
    let block_size = args.block_size.map(|bytes| {
        let log2 = bytes.is_power_of_two().then(|| bytes.ilog2().checked_sub(10)).flatten();
        let size = log2.and_then(BlockSize::from_log_block_size);
        size.ok_or_else(|| path.refused(&MkfsError::BlockSize { bytes }))
    });
    let identity = if args.reproducible {
        Identity::reproducible(args, size, source).map_err(|stopped| path.stopped(stopped))
    } else {
        Identity::random().map_err(|error| path.io(&error))
    }?;
    let uuid = match args.uuid {
        UuidArg::Random => identity.uuid,
        UuidArg::Given(uuid) => uuid,
    };
    let now = InodeTime { seconds: time.now.seconds, nanos: 0 };
    Ok(MkfsOptions {
        features,
        block_size: block_size.transpose()?,
        label: args.label.as_bytes().to_vec(),
        inodes: args.inodes,
        bytes_per_inode: args.bytes_per_inode,
        inode_size: args.inode_size,
        reserved: args.reserved,
        ..MkfsOptions::new(uuid, identity.hash_seed, now)
    })
}

/// `20G in 5242880 blocks of 4096 bytes, 1310720 inodes, a journal of 128M`.
fn describe(made: &NewFileSystem) -> String {
    let bytes = |blocks: u64| human(blocks << made.block_size.log2());
    let journal = match made.journal_blocks {
        0 => "no journal".to_owned(),
        blocks => format!("a journal of {}", bytes(u64::from(blocks))),
    };
    let size = bytes(made.blocks);
    let (blocks, block_size, inodes) = (made.blocks, made.block_size.bytes(), made.inodes);
    format!("{size} in {blocks} blocks of {block_size} bytes, {inodes} inodes, {journal}")
}

struct ImagePath<'a> {
    image: &'a Path,
}

impl ImagePath<'_> {
    fn name(&self) -> String {
        escape::terminal(self.image.as_os_str().as_bytes()).into_owned()
    }

    fn problem(&self, status: Status, message: impl Into<String>) -> Problem {
        Problem::new(self.name(), status, message)
    }

    fn io(&self, error: &io::Error) -> Problem {
        Problem::local(self.image.as_os_str().as_bytes(), error)
    }

    fn refused(&self, error: &MkfsError) -> Problem {
        let status = match error {
            MkfsError::Unsupported { .. } => Status::Unsupported,
            MkfsError::Device { .. } => Status::Failed,
            _ => Status::Usage,
        };
        self.problem(status, error.to_string())
    }

    fn stopped(&self, stopped: FillError) -> Problem {
        match stopped {
            FillError::Local(path, error) => Problem::local(path.as_os_str().as_bytes(), &error),
            FillError::Image(path, error) => {
                let problem = Problem::inside(format!("{}:{}", self.name(), escape::terminal(&path)), &error);
                match error {
                    dentree_vfs::Error::NoSpace => problem.with_hint("a larger --size makes room"),
                    _ => problem,
                }
            }
            FillError::Line(number, why) => Problem::usage(format!("line {number} of the manifest"), why),
            FillError::Interrupted => self.problem(Status::Failed, "interrupted; nothing was made"),
        }
    }

    /// Refuses an image inside the directory that fills it.
    fn check_outside(&self, directory: &Path) -> Result<(), Problem> {
        let canonical = |path: &Path| std::fs::canonicalize(path);
        let inside = canonical(self.parent())
            .is_ok_and(|parent| canonical(directory).is_ok_and(|directory| parent.starts_with(directory)));
        if inside {
            let message = "is inside the directory to copy; make it elsewhere";
            return Err(self.problem(Status::Usage, message));
        }
        Ok(())
    }

    fn parent(&self) -> &Path {
        let parent = self.image.parent().filter(|parent| !parent.as_os_str().is_empty());
        parent.unwrap_or(Path::new("."))
    }

    /// Refuses to replace what must stay. Returns the file to replace, locked against writers.
    fn check(&self, force: bool) -> Result<Option<(FileDevice, Metadata)>, Problem> {
        let found = match std::fs::symlink_metadata(self.image) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.io(&error)),
        };
        if !found.is_file() {
            let message = "not a regular file, nor a block device";
            return Err(self.problem(Status::Failed, message));
        }
        if host::stat(self.image, false).is_ok_and(|found| found.attr.nlink > 1) {
            let message = "has other hard links, which would not change; remove it first";
            return Err(self.problem(Status::Failed, message));
        }
        if found.len() > 0 && !force {
            return Err(self.problem(Status::Failed, "exists and is not empty; --force replaces it"));
        }
        Ok(Some((self.open()?, found)))
    }

    /// Opens the file or device, locked against other writers.
    fn open(&self) -> Result<FileDevice, Problem> {
        let at = self.image.display().to_string();
        open_file(self.image, Access::ReadWrite).map_err(|error| {
            let message = error.to_string();
            let message =
                message.strip_prefix(&at).map_or(&*message, |rest| rest.trim_start_matches([':', ' ']));
            self.problem(Status::Failed, message)
        })
    }

    /// Publishes the image, with owner and mode of the replaced file. A file that appeared
    /// meanwhile is replaced only if one was to be.
    fn publish(&self, temp: TempEntry<'_>, replaced: Option<&Metadata>) -> io::Result<()> {
        if let (Some(file), Some(found)) = (temp.open(), replaced) {
            host::copy_owner(file, found)?;
        }
        let name = self.image.file_name().ok_or(io::ErrorKind::IsADirectory)?;
        let existing = if replaced.is_some() { Existing::Replace } else { Existing::Keep };
        temp.publish(name.as_bytes(), existing)
    }
}
