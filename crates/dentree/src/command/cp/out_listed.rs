//! Out of an image: the paths of a list.
//!
//! A batch of paths is looked up together. Directories are made one by one, and get their
//! attributes at the end, the deepest first. The other files of a batch are copied in parallel.

use super::attributes::AttributeCopier;
use super::options::Options;
use super::out::{Copy, FirstNames};
use super::{LEADS_OUT, check_interrupted, local_problem};
use crate::fanout::{self, Emit, Order};
use crate::host::{Target, TargetDir, is_plain_name};
use crate::image::{Node, SUPERUSER, Session};
use crate::interrupt::interruptible;
use crate::listed::{Base, Paths, components, only};
use crate::path::join;
use crate::report::{Problem, Stop};
use dentree_vfs::WalkOptions;
use std::cmp::Reverse;
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub(super) fn run(session: &Session, options: &Options<'_>, file: &Path) -> Result<(), Stop> {
    let links = if options.follows_sources() { WalkOptions::FOLLOW } else { WalkOptions::KEEP_LINK };
    let base = Base::new(session, only(&options.sources, "SOURCE")?, links)?;
    let target = Path::new(options.target);
    let top = Arc::new(TargetDir::top(target).map_err(|error| local_problem(target, &error))?);
    let mut paths = Paths::open(file, options.args.null)?;
    let interrupted = interruptible().map_err(Problem::signals)?;
    fanout::raise_file_limit();
    let (progress, copier) = (options.progress(session, None), AttributeCopier::new(options));
    let first_names = FirstNames::default();
    let shared = (&copier, &*interrupted, &progress, &first_names);
    let copy = Copy::new(&base.at.image, session, options, top.clone(), shared)?;
    let mut listed = Listed { base: &base, options, copy, top, last: None, directories: Vec::new() };
    let mut copied = HashSet::new();
    while let Some(batch) = paths.batch()? {
        let jobs = base.walk(&batch).into_iter().filter_map(|(path, node)| {
            let names: Vec<Vec<u8>> = components(path).into_iter().map(<[u8]>::to_vec).collect();
            let is_new = copied.insert(names.clone());
            if is_new { listed.job(names, path, node) } else { None }
        });
        let jobs: Vec<Job> = jobs.collect();
        if interrupted.load(Ordering::Relaxed) {
            break;
        }
        let work = |job: Job, _: &mut Emit<'_, Job, ()>| {
            if !listed.copy.stopped() {
                listed.copy.entry(&job.into, &job.name, false, &job.node, &job.path);
            }
        };
        fanout::run(
            base.at.image.width().threads,
            Order::AsReady,
            jobs,
            work,
            |()| ControlFlow::Continue(()),
        );
    }
    listed.finish();
    copier.report_losses(&session.report);
    check_interrupted(&interrupted)
}

/// A file to be made in `into`.
struct Job {
    into: Arc<TargetDir>,
    name: Vec<u8>,
    node: Node,
    path: Vec<u8>,
}

struct Listed<'a> {
    base: &'a Base<'a>,
    options: &'a Options<'a>,
    copy: Copy<'a>,
    top: Arc<TargetDir>,
    /// Cache of the last parent: neighbours in a list often share it.
    last: Option<(Vec<Vec<u8>>, Arc<TargetDir>)>,
    /// Directories that get their attributes at the end.
    directories: Vec<(Vec<Vec<u8>>, Node, bool)>,
}

impl Listed<'_> {
    /// Makes the parents of a path, and the path itself if it is a directory.
    fn job(&mut self, names: Vec<Vec<u8>>, path: &[u8], node: Node) -> Option<Job> {
        if !names.iter().all(|name| is_plain_name(name)) {
            self.copy.report().problem(&self.base.at.below(path).refusal(LEADS_OUT));
            return None;
        }
        let (name, above) = names.split_last()?;
        match self.directory(above, None) {
            Ok(_) if node.is_dir() => {
                self.directory(&names, Some(node)).map_err(|problem| self.report(&problem)).ok();
                None
            }
            Ok(into) => Some(Job { into, name: name.clone(), node, path: self.base.at.below(path).path }),
            Err(problem) => {
                self.report(&problem);
                None
            }
        }
    }

    fn report(&self, problem: &Problem) {
        self.copy.report().problem(problem);
    }

    /// The directory of these names below the target, made with its parents where missing. `listed`
    /// is its inode in the image, if the list names it.
    fn directory(&mut self, names: &[Vec<u8>], listed: Option<Node>) -> Result<Arc<TargetDir>, Problem> {
        if let Some((last, dir)) = &self.last
            && listed.is_none()
            && last == names
        {
            return Ok(dir.clone());
        }
        let mut dir = self.top.clone();
        for (depth, name) in names.iter().enumerate() {
            let (next, made) =
                dir.directory(name).map_err(|error| local_problem(&dir.label(name), &error))?;
            dir = Arc::new(next);
            let below = &names[..=depth];
            let is_listed = listed.is_some() && below.len() == names.len();
            if made || (is_listed && self.options.sets_attributes()) {
                let node = match &listed {
                    Some(node) if is_listed => node.clone(),
                    _ => self.original(below)?,
                };
                self.directories.push((below.to_vec(), node, made));
            }
        }
        self.last = Some((names.to_vec(), dir.clone()));
        Ok(dir)
    }

    /// The image's directory of these names below the source.
    fn original(&self, names: &[Vec<u8>]) -> Result<Node, Problem> {
        let options = WalkOptions { directory: true, ..WalkOptions::FOLLOW };
        let at = names.iter().fold(self.base.at.path.clone(), |path, name| join(&path, name));
        let vfs = &self.base.at.image.vfs;
        let found = vfs.walk(SUPERUSER, vfs.root(), &at, options);
        found.map_err(|error| self.base.at.image.problem(&at, &error))
    }

    fn finish(&mut self) {
        // The deepest first: a parent may become inaccessible.
        self.directories.sort_by_key(|(names, ..)| Reverse(names.len()));
        for (names, node, made) in &self.directories {
            let opened = names.iter().try_fold(None::<TargetDir>, |above, name| {
                Ok(Some(above.as_ref().unwrap_or(&self.top).directory(name)?.0))
            });
            match opened {
                Ok(None) => {}
                Ok(Some(dir)) => {
                    self.copy.apply(node, (&Target::directory(&dir), *made), &dir.label(b""));
                }
                Err(error) => self.report(&local_problem(&self.top.label(&names.join(&b'/')), &error)),
            }
        }
    }
}
