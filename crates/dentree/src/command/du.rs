//! `dentree du`: allocated space by directory. A file with several names counts once, where it is
//! met first.

use crate::args::DuArgs;
use crate::fanout::{self, Emit, Order};
use crate::image::{Node, Session};
use crate::output::{Names, Output, human};
use crate::path::join;
use crate::report::Stop;
use crate::tree::{Listing, Tree, parts};
use dentree_vfs::{FileType, Ino, WalkOptions};
use std::collections::HashSet;
use std::io::{self, Write};
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

pub(crate) fn run(session: &Session, args: &DuArgs) -> Result<(), Stop> {
    let mut out = Output::new();
    let names = if args.null { Names::RAW } else { out.names() };
    for (at, node) in session.walk_each(&args.locations, WalkOptions::KEEP_LINK) {
        if !node.attr().is_dir() {
            print(&mut out, args, names, node.attr().blocks, &at.path)?;
            continue;
        }
        let sum = Sum { tree: Tree::new(&at.image, &session.report) };
        let mut totals = Totals { args, names, stack: Vec::new(), counted: HashSet::new() };
        let job = Job::Directory { path: at.path.clone(), ino: node.ino() };
        let mut written = Ok(());
        fanout::run(
            fanout::threads(),
            Order::Stable,
            vec![job],
            |job, emit| sum.work(job, emit),
            |event| {
                written = totals.take(event, &mut out);
                if written.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            },
        );
        written?;
    }
    Ok(out.flush()?)
}

enum Job {
    Directory { path: Vec<u8>, ino: Ino },
    Part { path: Arc<[u8]>, listing: Arc<Listing>, range: Range<usize> },
}

/// Summands in the order of the tree. Blocks have 512 bytes.
enum Event {
    Enter(Vec<u8>),
    /// Files: the sum of those with one name, and the others one by one.
    Files {
        blocks: u64,
        linked: Vec<(Ino, u64)>,
    },
    Leave,
}

struct Sum<'a> {
    tree: Tree<'a>,
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
        self.tree.expect(listing.iter());
        self.tree.expect_lists(listing.iter());
        listing.sort_by_name();
        emit.put(Event::Enter(path.clone()));
        emit.put(Event::Files { blocks: node.attr().blocks, linked: Vec::new() });
        let mut files = Listing::default();
        for entry in listing.iter() {
            let path = join(&path, entry.name);
            match self.tree.kind(entry, &path) {
                Some(FileType::Directory) => emit.spawn(Job::Directory { path, ino: entry.ino }),
                Some(_) => files.push(entry),
                None => {}
            }
        }
        files.sort_by_inode();
        let (path, listing) = (Arc::<[u8]>::from(path), Arc::new(files));
        for range in parts(listing.len()) {
            emit.spawn(Job::Part { path: path.clone(), listing: listing.clone(), range });
        }
        emit.put(Event::Leave);
    }

    fn files(&self, dir: &[u8], listing: &Listing, range: Range<usize>, emit: &mut Emit<'_, Job, Event>) {
        let (mut blocks, mut linked) = (0_u64, Vec::new());
        for entry in range.map(|index| listing.get(index)) {
            let Some(node) = self.tree.inode(entry.ino, &join(dir, entry.name)) else { continue };
            let attr = node.attr();
            if attr.nlink > 1 {
                linked.push((attr.ino, attr.blocks));
            } else {
                blocks = blocks.saturating_add(attr.blocks);
            }
        }
        emit.put(Event::Files { blocks, linked });
    }
}

struct Totals<'a> {
    args: &'a DuArgs,
    names: Names,
    /// Open directories with their sums, the innermost last.
    stack: Vec<(Vec<u8>, u64)>,
    counted: HashSet<Ino>,
}

impl Totals<'_> {
    fn take(&mut self, event: Event, out: &mut Output) -> io::Result<()> {
        match event {
            Event::Enter(path) => self.stack.push((path, 0)),
            Event::Files { blocks, linked } => {
                let first = linked.into_iter().filter(|(ino, _)| self.counted.insert(*ino));
                let sum = first.fold(blocks, |sum, (_, blocks)| sum.saturating_add(blocks));
                self.add(sum);
            }
            Event::Leave => {
                let Some((path, sum)) = self.stack.pop() else { return Ok(()) };
                self.add(sum);
                if self.stack.is_empty() || !self.args.summarize {
                    print(out, self.args, self.names, sum, &path)?;
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, blocks: u64) {
        if let Some((_, sum)) = self.stack.last_mut() {
            *sum = sum.saturating_add(blocks);
        }
    }
}

fn print(out: &mut Output, args: &DuArgs, names: Names, blocks: u64, path: &[u8]) -> io::Result<()> {
    if args.human_readable {
        write!(out, "{}\t", human(blocks.saturating_mul(512)))?;
    } else {
        write!(out, "{}\t", blocks.div_ceil(2))?;
    }
    out.write_all(&names.show(path))?;
    out.write_all(if args.null { b"\0" } else { b"\n" })
}

/// The blocks of a whole image, and the number of its directories: for a test.
#[cfg(test)]
pub(super) fn sum_up(image: &crate::image::Image) -> (u64, usize) {
    let report = crate::report::Report::default();
    let sum = Sum { tree: Tree::new(image, &report) };
    let job = Job::Directory { path: b"/".to_vec(), ino: image.vfs.root().ino() };
    let (mut all, mut directories) = (0, 0);
    fanout::run(
        2,
        Order::Stable,
        vec![job],
        |job, emit| sum.work(job, emit),
        |event| {
            match event {
                Event::Enter(_) => directories += 1,
                Event::Files { blocks, .. } => all += blocks,
                Event::Leave => {}
            }
            ControlFlow::Continue(())
        },
    );
    (all, directories)
}
