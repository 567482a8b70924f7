//! `dentree checksum`: one line per file, equal for equal trees in images and directories.

pub(crate) mod format;

use crate::any_tree::image::InImage;
use crate::any_tree::{Source, digest};
use crate::args::ChecksumArgs;
use crate::fanout::{self, Emit, Order};
use crate::host::{Local, OsStrExt};
use crate::image::Session;
use crate::listed::{Base, Paths, components};
use crate::operands::total_of;
use crate::output::attributes::epoch;
use crate::output::{Output, escape};
use crate::path::join_into;
use crate::report::{Problem, Stop};
use crate::tree::{Entry, Listing, Step, in_path_order};
use dentree_vfs::{FileType, WalkOptions};
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::sync::Arc;

pub(crate) fn run(session: &Session, args: &ChecksumArgs) -> Result<(), Stop> {
    match &args.trees[..] {
        [tree] => one(session, args, tree, false),
        trees if args.listed.files_from.is_none() => {
            trees.iter().try_for_each(|tree| match one(session, args, tree, true) {
                Err(Stop::Problem(problem)) => {
                    session.report.problem(&problem);
                    Ok(())
                }
                done => done,
            })
        }
        _ => Err(Problem::usage("checksum", "--files-from lists paths below one tree").into()),
    }
}

/// Prints the lines of a tree, which is `named` where there are several.
fn one(session: &Session, args: &ChecksumArgs, tree: &OsStr, named: bool) -> Result<(), Stop> {
    let directory = Path::new(tree);
    let show = |total| session.progress(total, io::stdout().is_terminal());
    let list = args.listed.files_from.as_deref().map(|file| Paths::open(file, args.listed.null));
    let list = list.transpose()?;
    if directory.is_dir() && !session.names_image(tree) {
        fanout::raise_file_limit();
        let progress = show(None);
        let source = Local::new(&session.report, directory, &progress);
        let root = source.root()?;
        let name = directory.as_os_str().as_bytes();
        let lead = if named { name.strip_suffix(b"/").unwrap_or(name) } else { b"." };
        let Some(mut list) = list else { return print(&source, lead, vec![Job::Root(Arc::new(root))]) };
        while let Some(batch) = list.batch()? {
            let found = batch.iter().map(|path| label(path));
            let found = found.filter_map(|path| Some(Job::Listed(source.listed(&root, &path)?, path)));
            print(&source, b".", found.collect())?;
        }
        return Ok(());
    }
    let Some(mut list) = list else {
        let at = session.locate(tree)?;
        let root = at.walk(WalkOptions::FOLLOW)?;
        let below = at.path.strip_suffix(b"/").unwrap_or(&at.path);
        let lead = if named { [at.image.name().as_bytes(), b":", below].concat() } else { b".".into() };
        let total = total_of(&[(at.clone(), root.clone())]);
        let progress = show(total);
        let source = InImage::new(&session.report, &at, &progress);
        return print(&source, &lead, vec![Job::Root(Arc::new(root))]);
    };
    let base = Base::new(session, tree, WalkOptions::KEEP_LINK)?;
    let progress = show(None);
    let source = InImage::new(&session.report, &base.at, &progress);
    while let Some(batch) = list.batch()? {
        let found = base.walk(&batch).into_iter().map(|(path, node)| Job::Listed(node, label(path)));
        print(&source, b".", found.collect())?;
    }
    Ok(())
}

/// A listed path in the form of a line.
fn label(path: &[u8]) -> Vec<u8> {
    [&[&b"."[..]], &components(path)[..]].concat().join(&b'/')
}

/// Prints lines with `lead` for the `.` that paths begin with.
fn print<S: Source>(source: &S, lead: &[u8], jobs: Vec<Job<S::File>>) -> Result<(), Stop> {
    let mut out = Output::new();
    let mut written = Ok(());
    fanout::run(
        source.width().threads,
        Order::Stable,
        jobs,
        |job, emit| work(source, lead, job, emit),
        |lines: Vec<u8>| {
            written = out.write_all(&lines);
            if written.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        },
    );
    written?;
    Ok(out.flush()?)
}

enum Job<F> {
    Root(Arc<F>),
    /// A file and its path; its contents are not traversed.
    Listed(F, Vec<u8>),
    /// The contents of directory `name` in `parent`.
    Inside {
        parent: Arc<F>,
        listing: Arc<Listing>,
        index: usize,
        path: Vec<u8>,
    },
    /// Some steps through directory `dir`.
    Part {
        dir: Arc<F>,
        path: Arc<[u8]>,
        listing: Arc<Listing>,
        steps: Arc<[Step]>,
        range: Range<usize>,
    },
}

fn work<S: Source>(source: &S, lead: &[u8], job: Job<S::File>, emit: &mut Emit<'_, Job<S::File>, Vec<u8>>) {
    match job {
        Job::Root(root) => {
            emit.put(line(source, lead, &root, b".").into_bytes());
            if source.facts(&root).kind == FileType::Directory {
                directory(source, root, b".", emit);
            }
        }
        Job::Listed(file, path) => emit.put(line(source, lead, &file, &path).into_bytes()),
        Job::Inside { parent, listing, index, path } => {
            if let Some(dir) = source.open(&parent, listing.get(index), &path) {
                directory(source, Arc::new(dir), &path, emit);
            }
        }
        Job::Part { dir, path, listing, steps, range } => {
            let mut lines = String::new();
            for &step in &steps[range] {
                match step {
                    Step::Entry(index) => {
                        let entry = listing.get(index);
                        let mut path = path.to_vec();
                        join_into(&mut path, b"", entry.name);
                        if let Some(file) = source.open(&dir, entry, &path) {
                            lines += &line(source, lead, &file, &path);
                        }
                    }
                    Step::Inside(index) => {
                        emit.put(std::mem::take(&mut lines).into_bytes());
                        let mut path = path.to_vec();
                        join_into(&mut path, b"", listing.get(index).name);
                        let (parent, listing) = (dir.clone(), listing.clone());
                        emit.spawn(Job::Inside { parent, listing, index, path });
                    }
                }
            }
            emit.put(lines.into_bytes());
        }
    }
}

fn directory<S: Source>(
    source: &S,
    dir: Arc<S::File>,
    path: &[u8],
    emit: &mut Emit<'_, Job<S::File>, Vec<u8>>,
) {
    let listing = source.list(&dir, path);
    let is_dir = |entry: Entry<'_>| entry.kind == Some(FileType::Directory);
    let steps = in_path_order(listing.iter().map(|entry| (entry.name, is_dir(entry))));
    let (path, listing, steps) = (Arc::<[u8]>::from(path), Arc::new(listing), Arc::<[Step]>::from(steps));
    for range in source.width().parts(steps.len()) {
        let (dir, path, listing, steps) = (dir.clone(), path.clone(), listing.clone(), steps.clone());
        emit.spawn(Job::Part { dir, path, listing, steps, range });
    }
}

/// A file's line. See [`format::FORMAT`].
fn line<S: Source>(source: &S, lead: &[u8], file: &S::File, path: &[u8]) -> String {
    let facts = source.facts(file);
    let or_mark = |field: Option<String>| field.unwrap_or_else(|| "!".into());
    let nothing = || "-".to_owned();
    let is_dir = facts.kind == FileType::Directory;
    let target = match facts.kind {
        FileType::Symlink => {
            or_mark(source.target(file, path).map(|target| escape::field(&target).into_owned()))
        }
        FileType::BlockDevice | FileType::CharDevice => format!("{}:{}", facts.rdev.0, facts.rdev.1),
        _ => nothing(),
    };
    let xattrs = match source.xattrs(file, path) {
        Some(xattrs) if xattrs.is_empty() => nothing(),
        xattrs => or_mark(xattrs.map(|xattrs| digest::xattrs(xattrs).to_string())),
    };
    let content = match facts.kind {
        FileType::Regular => or_mark(source.content(file, path).map(|hash| hash.to_string())),
        _ => nothing(),
    };
    source.progress().add(1, 0);
    let mut line = String::new();
    let _ = writeln!(
        line,
        "{}\t{}\t{:04o}\t{}\t{}\t{}\t{}\t{}\t{target}\t{xattrs}\t{content}",
        escape::field(&[lead, path.strip_prefix(b".").unwrap_or(path)].concat()),
        facts.kind.letter(),
        facts.permissions,
        facts.uid,
        facts.gid,
        if is_dir { nothing() } else { facts.size.to_string() },
        epoch(facts.mtime),
        if is_dir { nothing() } else { facts.nlink.to_string() },
    );
    line
}
