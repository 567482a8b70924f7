//! `dentree find`: searches directories.
//!
//! Most searches read directories alone: inodes are loaded only for conditions or output beyond
//! name and type, or where directories do not record types.

mod filter;
pub(crate) mod glob;
#[cfg(test)]
mod slow_device;

use crate::args::FindArgs;
use crate::fanout::{self, Emit, Order};
use crate::image::{Location, Node, Session};
use crate::output::{Names, Output, json};
use crate::path::join_into;
use crate::report::{Problem, Stop};
use crate::tree::{Entry, Listing, Step, Tree, in_path_order};
use dentree_vfs::{FileType, Ino, Timestamp, WalkOptions};
use filter::Filter;
use rustix::time::{ClockId, clock_gettime};
use std::ffi::OsStr;
use std::io::Write;
use std::ops::{ControlFlow, Range};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

/// Bytes of output per buffer, about.
const BATCH: usize = 32 << 10;

pub(crate) fn run(session: &Session, args: &FindArgs) -> Result<(), Stop> {
    let filter =
        Filter::new(args, newer(session, args)?, now()).map_err(|why| Problem::usage("find", why))?;
    let mut out = Output::new();
    let style = Style {
        names: if args.print0 { Names::RAW } else { out.names() },
        end: if args.print0 { 0 } else { b'\n' },
        json: args.json,
    };
    let order = if args.sort { Order::Stable } else { Order::AsReady };
    for (at, node) in session.walk_each(&args.locations, WalkOptions::KEEP_LINK) {
        let search = Search {
            tree: Tree::new(&at.image, &session.report),
            filter: &filter,
            style,
            order,
            depth: args.maxdepth.unwrap_or(u32::MAX),
        };
        let mut written = Ok(());
        fanout::run(
            fanout::threads(),
            order,
            vec![start(&at, &node)],
            |job, emit| search.work(job, emit),
            |found| {
                written = out.write_all(&found);
                if written.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            },
        );
        written?;
    }
    Ok(out.flush()?)
}

/// The modification time of the file of `-newer`.
fn newer(session: &Session, args: &FindArgs) -> Result<Option<Timestamp>, Problem> {
    let Some(file) = &args.newer else { return Ok(None) };
    match Path::new(file).metadata() {
        Ok(metadata) => {
            Ok(Some(Timestamp { seconds: metadata.mtime(), nanos: metadata.mtime_nsec() as u32 }))
        }
        Err(error) if !OsStr::as_bytes(file).contains(&b':') => Err(Problem::local(file.as_bytes(), &error)),
        Err(_) => Ok(Some(session.locate(file)?.walk(WalkOptions::FOLLOW)?.attr().mtime)),
    }
}

fn now() -> Timestamp {
    let now = clock_gettime(ClockId::Realtime);
    Timestamp { seconds: now.tv_sec, nanos: now.tv_nsec as u32 }
}

/// How a found file is printed.
#[derive(Clone, Copy)]
struct Style {
    names: Names,
    end: u8,
    json: bool,
}

struct Search<'a> {
    tree: Tree<'a>,
    filter: &'a Filter,
    style: Style,
    order: Order,
    /// Levels below the start.
    depth: u32,
}

enum Job {
    /// The start, and its contents.
    Start { path: Arc<[u8]>, node: Node },
    /// The contents of a directory.
    Directory { path: Arc<[u8]>, ino: Ino, depth: u32 },
    /// A part of a directory whose inodes are needed.
    Part { path: Arc<[u8]>, listing: Arc<Listing>, steps: Arc<[Step]>, range: Range<usize>, depth: u32 },
}

fn start(at: &Location, node: &Node) -> Job {
    Job::Start { path: at.path.as_slice().into(), node: node.clone() }
}

impl Search<'_> {
    fn work(&self, job: Job, emit: &mut Emit<'_, Job, Vec<u8>>) {
        let mut found = Vec::new();
        match job {
            Job::Start { path, node } => {
                let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(b"");
                let name = if name.is_empty() { b"/" } else { name };
                let entry = Entry { name, ino: node.ino(), kind: Some(node.attr().kind) };
                if self.filter.entry(entry.name) && self.filter.kind(node.attr().kind) {
                    self.print(&mut found, entry, &path, None);
                }
                if node.attr().is_dir() && self.depth > 0 {
                    flush(&mut found, emit);
                    emit.spawn(Job::Directory { path, ino: node.ino(), depth: 1 });
                }
            }
            Job::Directory { path, ino, depth } => self.directory(path, ino, depth, &mut found, emit),
            Job::Part { path, listing, steps, range, depth } => {
                for &step in &steps[range] {
                    self.step(&path, &listing, step, depth, &mut found, emit);
                }
            }
        }
        flush(&mut found, emit);
    }

    fn directory(
        &self,
        path: Arc<[u8]>,
        ino: Ino,
        depth: u32,
        found: &mut Vec<u8>,
        emit: &mut Emit<'_, Job, Vec<u8>>,
    ) {
        let Some(node) = self.tree.inode(ino, &path) else { return };
        let mut listing = self.tree.list(&node, &path);
        let asks = |entry: &Entry<'_>| {
            self.asks_inodes()
                || entry.kind.is_none_or(|kind| kind == FileType::Directory && depth < self.depth)
        };
        self.tree.expect(listing.iter().filter(asks));
        if depth < self.depth {
            self.tree.expect_lists(listing.iter());
        }
        let steps = match self.order {
            Order::AsReady => {
                listing.sort_by_inode();
                steps_as_listed(&listing)
            }
            Order::Stable => {
                let descends = |entry: Entry<'_>| entry.kind.is_none_or(|kind| kind == FileType::Directory);
                in_path_order(listing.iter().map(|entry| (entry.name, descends(entry))))
            }
        };
        if !self.asks_inodes() {
            steps.into_iter().for_each(|step| self.step(&path, &listing, step, depth, found, emit));
            return;
        }
        let (listing, steps) = (Arc::new(listing), Arc::<[Step]>::from(steps));
        for range in crate::tree::parts(steps.len()) {
            let (path, listing, steps) = (path.clone(), listing.clone(), steps.clone());
            emit.spawn(Job::Part { path, listing, steps, range, depth });
        }
    }

    /// Whether inodes are loaded for what directories lack.
    fn asks_inodes(&self) -> bool {
        self.style.json || self.filter.needs_attributes()
    }

    fn step(
        &self,
        dir: &Arc<[u8]>,
        listing: &Listing,
        step: Step,
        depth: u32,
        found: &mut Vec<u8>,
        emit: &mut Emit<'_, Job, Vec<u8>>,
    ) {
        match step {
            Step::Entry(index) => {
                let entry = listing.get(index);
                if self.filter.entry(entry.name) && self.kind_matches(dir, entry) {
                    self.print(found, entry, dir, Some(entry.name));
                    if found.len() >= BATCH {
                        flush(found, emit);
                    }
                }
            }
            Step::Inside(index) if depth < self.depth => {
                let entry = listing.get(index);
                let mut path = Vec::new();
                join_into(&mut path, dir, entry.name);
                if self.tree.kind(entry, &path) == Some(FileType::Directory) {
                    flush_in_order(self.order, found, emit);
                    emit.spawn(Job::Directory { path: path.into(), ino: entry.ino, depth: depth + 1 });
                }
            }
            Step::Inside(_) => {}
        }
    }

    fn kind_matches(&self, dir: &[u8], entry: Entry<'_>) -> bool {
        if !self.filter.needs_kind() {
            return true;
        }
        let kind = entry.kind.or_else(|| self.tree.kind(entry, &crate::path::join(dir, entry.name)));
        kind.is_some_and(|kind| self.filter.kind(kind))
    }

    /// Prints the entry `dir/name`, or `dir` itself, if its attributes match.
    fn print(&self, found: &mut Vec<u8>, entry: Entry<'_>, dir: &[u8], name: Option<&[u8]>) {
        let begin = found.len();
        let join = |out: &mut Vec<u8>| match name {
            Some(name) => join_into(out, dir, name),
            None => out.extend_from_slice(dir),
        };
        let joined = || {
            let mut path = Vec::new();
            join(&mut path);
            path
        };
        if self.asks_inodes() {
            let Some(attr) = self.tree.attr(entry.ino, joined) else { return };
            if !self.filter.attributes(&attr) {
                return;
            }
            if self.style.json {
                let _ = json::line(found, &json::File::new(&joined(), &attr, None));
                return;
            }
        }
        join(found);
        if !self.style.names.is_raw() {
            let path = found.split_off(begin);
            found.extend_from_slice(&self.style.names.show(&path));
        }
        found.push(self.style.end);
    }
}

fn steps_as_listed(listing: &Listing) -> Vec<Step> {
    let mut steps = Vec::with_capacity(listing.len());
    for (index, entry) in listing.iter().enumerate() {
        steps.push(Step::Entry(index));
        if entry.kind.is_none_or(|kind| kind == FileType::Directory) {
            steps.push(Step::Inside(index));
        }
    }
    steps
}

fn flush(found: &mut Vec<u8>, emit: &mut Emit<'_, Job, Vec<u8>>) {
    if !found.is_empty() {
        emit.put(std::mem::take(found));
    }
}

/// In a stable order, emits the output before the next job is spawned.
fn flush_in_order(order: Order, found: &mut Vec<u8>, emit: &mut Emit<'_, Job, Vec<u8>>) {
    if order == Order::Stable {
        flush(found, emit);
    }
}
