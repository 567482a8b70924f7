//! Into an image: the paths of a list.

use super::attributes::AttributeCopier;
use super::into::Copy;
use super::options::Options;
use super::origin::{Found, Origin};
use super::{LEADS_OUT, local_problem};
use crate::host::{is_plain_name, os_str};
use crate::image::{Location, Node, Session};
use crate::listed::{Paths, components, only};
use crate::report::{Problem, Stop};
use dentree_vfs::{Error, WalkOptions};
use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};

pub(super) fn run(session: &Session, options: &Options<'_>, file: &Path) -> Result<(), Stop> {
    let base = Path::new(only(&options.sources, "SOURCE")?);
    let target = session.locate_for_writing(options.target)?;
    let top = target.find(WalkOptions::FOLLOW)?.filter(|node| node.is_dir());
    let top = top.ok_or_else(|| target.problem(&Error::NotADirectory))?;
    let mut paths = Paths::open(file, options.args.null)?;
    let (progress, copier) = (options.progress(session, None), AttributeCopier::new(options));
    let copy = Copy::new(session, options, &target.image, (&copier, &progress))?;
    let last = (Vec::new(), top.clone());
    let mut listed = Listed { copy, base, target: &target, top, last, directories: Vec::new() };
    let mut copied = HashSet::new();
    while let Some(batch) = paths.batch()? {
        for path in &batch {
            if listed.copy.is_cut_short() {
                break;
            }
            let names: Vec<Vec<u8>> = components(path).into_iter().map(<[u8]>::to_vec).collect();
            if !copied.insert(names.clone()) {
                continue;
            }
            if let Err(problem) = listed.path(&names) {
                session.report.problem(&problem);
            }
        }
    }
    for (node, found, made) in std::mem::take(&mut listed.directories).into_iter().rev() {
        listed.copy.attributes(&node, &found, made);
    }
    copier.report_losses(&session.report);
    Ok(())
}

struct Listed<'a> {
    copy: Copy<'a>,
    base: &'a Path,
    target: &'a Location,
    /// The directory at `target`.
    top: Node,
    /// Cache of the last parent: neighbours in a list often share it.
    last: (Vec<Vec<u8>>, Node),
    /// Directories that get their attributes at the end, parents before children.
    directories: Vec<(Node, Found, bool)>,
}

impl Listed<'_> {
    /// Copies one path, a directory without its contents.
    fn path(&mut self, names: &[Vec<u8>]) -> Result<(), Problem> {
        let local = self.local(names);
        if !names.iter().all(|name| is_plain_name(name)) {
            return Err(local_problem(&local, &io::Error::other(LEADS_OUT)));
        }
        let Some((name, above)) = names.split_last() else { return Ok(()) };
        let path = self.target.below(&names.join(&b'/')).path;
        let options = self.copy.options;
        let origin = Origin::Local(local);
        let attr = origin.attr(options.follows_sources()).map_err(|why| origin.problem(&why))?;
        let found = Found::new(origin, attr, path, false);
        if found.is_dir() {
            return self.directory(names, true).map(drop);
        }
        let dir = self.directory(above, false)?;
        self.copy.entry(&dir, name.clone(), found);
        Ok(())
    }

    fn local(&self, names: &[Vec<u8>]) -> PathBuf {
        self.base.join(os_str(&names.join(&b'/')))
    }

    /// The directory of these names below the target, made with its parents where missing.
    fn directory(&mut self, names: &[Vec<u8>], is_listed: bool) -> Result<Node, Problem> {
        if !is_listed && self.last.0 == names {
            return Ok(self.last.1.clone());
        }
        let mut node = self.top.clone();
        for depth in 1..=names.len() {
            let below = &names[..depth];
            let at = self.target.below(&below.join(&b'/'));
            let made;
            (node, made) = match self.copy.directory(&node, &names[depth - 1]) {
                Ok(found) => found,
                Err(error) => return Err(self.copy.image_problem(&at.path, &error)),
            };
            if made || (is_listed && depth == names.len() && self.copy.options.sets_attributes()) {
                let origin = Origin::Local(self.local(below));
                // A link to a directory becomes a directory.
                let attr = origin.attr(true).map_err(|why| origin.problem(&why))?;
                self.directories.push((node.clone(), Found::new(origin, attr, at.path, false), made));
            }
        }
        self.last = (names.to_vec(), node.clone());
        Ok(node)
    }
}
