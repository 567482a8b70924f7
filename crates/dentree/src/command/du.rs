//! `dentree du`: space by directory, as of du(1). A file with several names counts once, where it
//! is met first, and so does what several arguments have in common.

use crate::args::DuArgs;
use crate::args::ls::Time;
use crate::fanout::{self, Emit, Order, Width};
use crate::host::{OsStrExt, os_string};
use crate::image::{Image, Node, Session};
use crate::output::dates::Dates;
use crate::output::size::Scale;
use crate::output::{Names, Output, json};
use crate::path::join;
use crate::report::{Problem, Stop};
use crate::tree::{Listing, Tree};
use dentree_find::glob;
use dentree_vfs::{Attr, FileType, Ino, Timestamp, WalkOptions};
use regex::bytes::Regex;
use serde::Serialize;
use std::collections::HashSet;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::sync::Arc;

pub(crate) fn run(session: &Session, args: &DuArgs) -> Result<(), Stop> {
    let locations = match &args.files0_from {
        Some(file) => named_by(file)?,
        None => args.locations.clone(),
    };
    let options = if args.dereference_args { WalkOptions::FOLLOW } else { WalkOptions::KEEP_LINK };
    let operands = session.walk_each(&locations, options);
    let measure = Measure::new(args, operands.len() > 1)?;
    let mut totals = Totals::new(args)?;
    for (at, node) in operands {
        totals.begin(&at.image, at.prefix());
        if measure.leaves_out(&at.path) {
            continue;
        }
        let sum = Sum { tree: Tree::new(&at.image, &session.report), measure: &measure };
        if !node.is_dir() {
            totals.take(Event::Files {
                sum: Usage::default(),
                each: vec![measure.file(&node.attr(), Some(at.path))],
            })?;
            continue;
        }
        let job = Job::Directory { path: at.path, ino: node.ino() };
        let mut written = Ok(());
        fanout::run(
            fanout::threads(),
            Order::Stable,
            vec![job],
            |job, emit| sum.work(job, emit),
            |event| {
                written = totals.take(event);
                if written.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            },
        );
        written?;
    }
    Ok(totals.end()?)
}

/// The arguments that a file names, each ended by a NUL byte.
fn named_by(file: &Path) -> Result<Vec<OsString>, Problem> {
    let mut text = Vec::new();
    let read = if file.as_os_str() == "-" {
        io::stdin().lock().read_to_end(&mut text).map(drop)
    } else {
        std::fs::read(file).map(|read| text = read)
    };
    read.map_err(|error| Problem::local(file.as_os_str().as_bytes(), &error))?;
    let names = text.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    Ok(names.map(|name| os_string(name.to_vec())).collect())
}

/// Bytes or inodes, and the newest time.
#[derive(Clone, Copy, Default)]
struct Usage {
    size: u64,
    time: Option<Timestamp>,
}

impl Usage {
    fn add(&mut self, other: Usage) {
        self.size = self.size.saturating_add(other.size);
        self.time = self.time.max(other.time);
    }
}

/// What is counted of each file.
struct Measure<'a> {
    args: &'a DuArgs,
    excluded: Vec<Regex>,
    /// Arguments may overlap: no inode is counted twice.
    overlaps: bool,
}

impl<'a> Measure<'a> {
    fn new(args: &'a DuArgs, overlaps: bool) -> Result<Self, Problem> {
        let mut patterns: Vec<Vec<u8>> = args.exclude.iter().map(|glob| glob.as_bytes().to_vec()).collect();
        for file in &args.exclude_from {
            let text =
                std::fs::read(file).map_err(|error| Problem::local(file.as_os_str().as_bytes(), &error))?;
            patterns.extend(
                text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(<[u8]>::to_vec),
            );
        }
        let compile = |glob: &Vec<u8>| {
            let shown = || String::from_utf8_lossy(glob).into_owned();
            glob::compile(glob, false).map_err(|why| Problem::usage(shown(), why))
        };
        Ok(Measure { args, excluded: patterns.iter().map(compile).collect::<Result<_, _>>()?, overlaps })
    }

    /// Whether a pattern matches the path, or the part behind one of its slashes.
    fn leaves_out(&self, path: &[u8]) -> bool {
        let tails = || (0..path.len()).filter(|i| path[*i] == b'/').map(|i| &path[i + 1..]);
        self.excluded.iter().any(|glob| glob.is_match(path) || tails().any(|tail| glob.is_match(tail)))
    }

    fn usage(&self, attr: &Attr) -> Usage {
        let size = if self.args.inodes {
            1
        } else if self.args.apparent_size || self.args.bytes {
            attr.size
        } else {
            attr.blocks.saturating_mul(512)
        };
        Usage { size, time: self.args.time.and_then(|time: Time| time.of(attr)) }
    }

    /// A file; with `path` if its line may be printed.
    fn file(&self, attr: &Attr, path: Option<Vec<u8>>) -> File {
        let is_shared = (attr.nlink > 1 || self.overlaps) && !self.args.count_links;
        File { ino: is_shared.then_some(attr.ino), usage: self.usage(attr), path }
    }
}

enum Job {
    Directory { path: Vec<u8>, ino: Ino },
    Part { path: Arc<[u8]>, listing: Arc<Listing>, range: Range<usize> },
}

/// A file that is counted by itself.
struct File {
    /// If it may be met again.
    ino: Option<Ino>,
    usage: Usage,
    path: Option<Vec<u8>>,
}

/// Summands in the order of the tree.
enum Event {
    Enter { path: Vec<u8>, ino: Ino, own: Usage },
    Files { sum: Usage, each: Vec<File> },
    Leave,
}

struct Sum<'a> {
    tree: Tree<'a>,
    measure: &'a Measure<'a>,
}

impl Sum<'_> {
    fn work(&self, job: Job, emit: &mut Emit<'_, Job, Event>) {
        match job {
            Job::Directory { path, ino } => {
                let Some(node) = self.tree.inode(ino, &path) else { return };
                self.directory(path, &node, emit);
            }
            Job::Part { path, listing, range } => self.files(&path, &listing, range, emit),
        }
    }

    fn directory(&self, path: Vec<u8>, node: &Node, emit: &mut Emit<'_, Job, Event>) {
        let mut listing = self.tree.list(node, &path);
        self.tree.prefetch_inodes(listing.iter());
        self.tree.prefetch_listings(listing.iter());
        listing.sort_by_name();
        emit.put(Event::Enter { path: path.clone(), ino: node.ino(), own: self.measure.usage(&node.attr()) });
        let mut files = Listing::default();
        for entry in listing.iter() {
            let path = join(&path, entry.name);
            if self.measure.leaves_out(&path) {
                continue;
            }
            match self.tree.kind(entry, &path) {
                Some(FileType::Directory) => emit.spawn(Job::Directory { path, ino: entry.ino }),
                Some(_) => files.push(entry),
                None => {}
            }
        }
        files.sort_by_inode();
        let (path, listing) = (Arc::<[u8]>::from(path), Arc::new(files));
        for range in Width::local().parts(listing.len()) {
            emit.spawn(Job::Part { path: path.clone(), listing: listing.clone(), range });
        }
        emit.put(Event::Leave);
    }

    fn files(&self, dir: &[u8], listing: &Listing, range: Range<usize>, emit: &mut Emit<'_, Job, Event>) {
        let (mut sum, mut each) = (Usage::default(), Vec::new());
        for entry in range.map(|index| listing.get(index)) {
            let path = join(dir, entry.name);
            let Some(node) = self.tree.inode(entry.ino, &path) else { continue };
            let file = self.measure.file(&node.attr(), self.measure.args.all.then_some(path));
            if file.ino.is_none() && file.path.is_none() {
                sum.add(file.usage);
            } else {
                each.push(file);
            }
        }
        emit.put(Event::Files { sum, each });
    }
}

/// A directory whose end has not come yet.
struct Open {
    path: Vec<u8>,
    own: Usage,
    below: Usage,
    /// It was counted before, and so is not now.
    is_repeated: bool,
}

/// Adds up, and prints.
struct Totals<'a> {
    args: &'a DuArgs,
    lines: Lines<'a>,
    /// The innermost last.
    stack: Vec<Open>,
    images: Vec<Arc<Image>>,
    /// The index of the argument's image.
    image: usize,
    counted: HashSet<(usize, Ino)>,
    all: Usage,
}

impl<'a> Totals<'a> {
    fn new(args: &'a DuArgs) -> Result<Self, Problem> {
        let lines = Lines::new(args)?;
        let (stack, images, counted) = (Vec::new(), Vec::new(), HashSet::new());
        Ok(Totals { args, lines, stack, images, image: 0, counted, all: Usage::default() })
    }

    /// Begins an argument, whose paths are shown after `prefix`.
    fn begin(&mut self, image: &Arc<Image>, prefix: Vec<u8>) {
        self.lines.prefix = prefix;
        let known = self.images.iter().position(|known| Arc::ptr_eq(known, image));
        self.image = known.unwrap_or_else(|| {
            self.images.push(image.clone());
            self.images.len() - 1
        });
    }

    fn take(&mut self, event: Event) -> io::Result<()> {
        match event {
            Event::Enter { path, ino, own } => {
                let is_repeated =
                    self.stack.last().is_some_and(|above| above.is_repeated) || !self.is_new(ino);
                self.stack.push(Open { path, own, below: Usage::default(), is_repeated });
            }
            Event::Files { sum, each } => {
                self.add(sum);
                for file in each {
                    if file.ino.is_none_or(|ino| self.is_new(ino)) {
                        self.add(file.usage);
                        if let Some(path) = &file.path {
                            self.print(file.usage, path)?;
                        }
                    }
                }
            }
            Event::Leave => {
                let Some(Open { path, own, mut below, is_repeated }) = self.stack.pop() else {
                    return Ok(());
                };
                if is_repeated {
                    return Ok(());
                }
                below.add(own);
                match self.stack.last_mut() {
                    Some(above) => above.below.add(below),
                    None => self.all.add(below),
                }
                self.print(if self.args.separate_dirs { own } else { below }, &path)?;
            }
        }
        Ok(())
    }

    fn is_new(&mut self, ino: Ino) -> bool {
        self.args.count_links || self.counted.insert((self.image, ino))
    }

    fn add(&mut self, usage: Usage) {
        match self.stack.last_mut() {
            Some(directory) => directory.own.add(usage),
            None => self.all.add(usage),
        }
    }

    fn print(&mut self, usage: Usage, path: &[u8]) -> io::Result<()> {
        let deepest = if self.args.summarize { Some(0) } else { self.args.max_depth };
        let is_shown = deepest.is_none_or(|deepest| self.stack.len() <= deepest);
        if is_shown && self.args.threshold.is_none_or(|threshold| threshold.admits(usage.size)) {
            self.lines.print(usage, path)?;
        }
        Ok(())
    }

    fn end(mut self) -> io::Result<()> {
        if self.args.total {
            self.lines.prefix.clear();
            self.lines.print(self.all, b"total")?;
        }
        self.lines.out.flush()
    }
}

/// A line as JSON.
#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    path: json::Path<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inodes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<String>,
}

struct Lines<'a> {
    args: &'a DuArgs,
    out: Output,
    scale: Scale,
    dates: Dates,
    /// Shown before paths.
    prefix: Vec<u8>,
}

impl<'a> Lines<'a> {
    fn new(args: &'a DuArgs) -> Result<Self, Problem> {
        let chosen = [
            (args.human_readable, Scale::HUMAN),
            (args.si, Scale::SI),
            (args.bytes || args.inodes, Scale::unit(1)),
            (args.mib, Scale::unit(1 << 20)),
        ];
        let chosen = chosen.into_iter().find_map(|(is_set, scale)| is_set.then_some(scale));
        let scale = chosen.or(args.block_size).unwrap_or(Scale::unit(1024));
        let style = &args.time_style;
        let dates = Dates::new(style).map_err(|why| Problem::usage(style, why))?;
        Ok(Lines { args, out: Output::new(), scale, dates, prefix: Vec::new() })
    }

    fn print(&mut self, usage: Usage, path: &[u8]) -> io::Result<()> {
        let path = [&self.prefix[..], path].concat();
        let time = self.args.time.and(usage.time).map(|time| self.dates.show(time));
        if self.args.json {
            let size = |is_shown: bool| is_shown.then_some(usage.size);
            let (bytes, inodes) = (size(!self.args.inodes), size(self.args.inodes));
            return json::line(&mut self.out, &Line { path: json::Path::new(&path), bytes, inodes, time });
        }
        write!(self.out, "{}\t", self.scale.show(usage.size))?;
        if let Some(time) = time {
            write!(self.out, "{time}\t")?;
        }
        let names = if self.args.null { Names::RAW } else { self.out.names() };
        self.out.write_all(&names.show(&path))?;
        self.out.write_all(if self.args.null { b"\0" } else { b"\n" })
    }
}

/// The blocks of a whole image, and the number of its directories: for a test.
#[cfg(test)]
pub(super) fn sum_up(image: &Image) -> (u64, usize) {
    use clap::Parser;
    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        du: DuArgs,
    }
    let args = Command::parse_from(["du", "image"]).du;
    let measure = Measure { args: &args, excluded: Vec::new(), overlaps: false };
    let report = crate::report::Report::default();
    let sum = Sum { tree: Tree::new(image, &report), measure: &measure };
    let job = Job::Directory { path: b"/".to_vec(), ino: image.vfs.root().ino() };
    let (mut all, mut directories) = (0, 0);
    fanout::run(
        2,
        Order::Stable,
        vec![job],
        |job, emit| sum.work(job, emit),
        |event| {
            match event {
                Event::Enter { own, .. } => {
                    directories += 1;
                    all += own.size / 512;
                }
                Event::Files { sum, .. } => all += sum.size / 512,
                Event::Leave => {}
            }
            ControlFlow::Continue(())
        },
    );
    (all, directories)
}
