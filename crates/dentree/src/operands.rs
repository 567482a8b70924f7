//! The arguments of a command: patterns of paths inside an image are expanded as a shell expands
//! those of local ones.
//!
//! `*`, `?` and `[set]` match within one component, and no leading dot; a backslash takes their
//! meaning away. What exists under the argument's own name is that, and a pattern that matches
//! nothing stays as it is, so that the command says what is missing.

use crate::image::{Location, Node, SUPERUSER, Session};
use crate::path::join;
use crate::progress::Total;
use crate::report::Problem;
use dentree_find::glob;
use dentree_vfs::{DirEntry, WalkOptions};
use std::ffi::OsString;
use std::ops::ControlFlow;
use std::sync::Arc;

impl Session {
    /// The paths that the arguments name, in their order; failures are reported and left out.
    pub(crate) fn expand(&self, arguments: &[OsString]) -> Vec<Location> {
        self.expand_by(arguments, |argument| self.locate(argument))
    }

    fn expand_by(
        &self,
        arguments: &[OsString],
        locate: impl Fn(&OsString) -> Result<Location, Problem>,
    ) -> Vec<Location> {
        let mut found = Vec::new();
        for argument in arguments {
            match locate(argument) {
                Ok(at) => found.extend(self.matches(at)),
                Err(problem) => self.report.problem(&problem),
            }
        }
        let is_other = |at: &Location| !Arc::ptr_eq(&at.image, &found[0].image);
        if found.iter().any(is_other) {
            found.iter_mut().for_each(Location::name_image);
        }
        found
    }

    /// Opens and walks each argument; failures are reported and left out.
    pub(crate) fn walk_each(&self, arguments: &[OsString], options: WalkOptions) -> Vec<(Location, Node)> {
        let walk = |at: Location| match at.walk(options) {
            Ok(node) => Some((at, node)),
            Err(problem) => {
                self.report.problem(&problem);
                None
            }
        };
        self.expand(arguments).into_iter().filter_map(walk).collect()
    }

    /// Calls `change` for each argument until Ctrl-C. Failures are reported.
    pub(crate) fn change_each(
        &self,
        arguments: &[OsString],
        mut change: impl FnMut(&Location) -> Result<(), Problem>,
    ) {
        for at in self.expand_by(arguments, |argument| self.locate_for_writing(argument)) {
            if let Err(problem) = change(&at) {
                self.report.problem(&problem);
            }
            if self.is_interrupted() {
                break;
            }
        }
    }

    /// The existing paths of a pattern, or `at` itself.
    fn matches(&self, at: Location) -> Vec<Location> {
        if !at.path.iter().any(|byte| b"*?[\\".contains(byte)) || at.walk(WalkOptions::KEEP_LINK).is_ok() {
            return vec![at];
        }
        let mut paths = vec![Vec::new()];
        for component in at.path.split(|byte| *byte == b'/') {
            let is_pattern = component.iter().any(|byte| b"*?[\\".contains(byte));
            let below = |path: Vec<u8>| match is_pattern {
                true => self.names(&at, &path, component),
                false if path.is_empty() && !component.is_empty() => vec![component.to_vec()],
                false => vec![[&path[..], if path == b"/" { b"" } else { b"/" }, component].concat()],
            };
            paths = paths.into_iter().flat_map(below).collect();
        }
        let exists = |at: &Location| at.walk(WalkOptions::KEEP_LINK).is_ok();
        let found: Vec<Location> = paths.into_iter().map(|path| at.with_path(path)).filter(exists).collect();
        if found.is_empty() { vec![at] } else { found }
    }

    /// The paths below the directory `dir` whose names match, sorted.
    fn names(&self, at: &Location, dir: &[u8], pattern: &[u8]) -> Vec<Vec<u8>> {
        let Ok(regex) = glob::compile(pattern, false) else { return Vec::new() };
        let above = at.with_path(dir.to_vec());
        let Ok(node) = above.walk(WalkOptions::FOLLOW) else { return Vec::new() };
        let mut paths = Vec::new();
        let mut each = |entry: DirEntry<'_>| {
            let is_hidden = entry.name.starts_with(b".") && !pattern.starts_with(b".");
            if !is_hidden && regex.is_match(entry.name) {
                paths.push(join(dir, entry.name));
            }
            ControlFlow::Continue(())
        };
        let mut damaged = |error| self.report.problem(&above.problem(&error));
        let vfs = &at.image.vfs;
        if node.is_dir()
            && let Err(error) = vfs.readdir_past_damage(SUPERUSER, &node, &mut each, &mut damaged)
        {
            self.report.problem(&above.problem(&error));
        }
        paths.sort_unstable();
        paths
    }
}

/// What operands and all below them are: known of whole images, which count what is in use, and of
/// files.
pub(crate) fn total_of(operands: &[(Location, Node)]) -> Option<Total> {
    operands.iter().try_fold(Total::default(), |sum, (at, node)| {
        let one = total_below(at, node)?;
        Some(Total { files: sum.files + one.files, bytes: sum.bytes.saturating_add(one.bytes) })
    })
}

fn total_below(at: &Location, node: &Node) -> Option<Total> {
    /// Inodes that are in use without being files.
    const RESERVED: u64 = 10;
    if !node.is_dir() {
        return Some(Total { files: 1, bytes: node.attr().size });
    }
    let found = at.image.vfs.statfs().ok().filter(|_| node.ino() == at.image.vfs.root().ino())?;
    Some(Total {
        files: found.inodes.saturating_sub(found.inodes_free).saturating_sub(RESERVED),
        bytes: found.blocks.saturating_sub(found.blocks_free).saturating_mul(found.block_size.into()),
    })
}
