//! Paths from a file, as tar(1) takes them by `--files-from`: in batches, whose lookups overlap.

use crate::args::ListedArgs;
use crate::image::{Location, Node, SUPERUSER, Session};
use crate::report::{Problem, Status, Stop};
use dentree_vfs::{LastLink, WalkOptions};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

/// Paths per batch.
const BATCH: usize = 256;

/// Calls `each` for each argument, or for the paths of a file below the one argument. Missing paths
/// are reported and left out.
pub(crate) fn walk(
    session: &Session,
    arguments: &[OsString],
    listed: &ListedArgs,
    options: WalkOptions,
    mut each: impl FnMut(Location, Node) -> Result<(), Stop>,
) -> Result<(), Stop> {
    let Some(file) = &listed.files_from else {
        return session.walk_each(arguments, options).into_iter().try_for_each(|(at, node)| each(at, node));
    };
    let base = Base::new(session, only(arguments, "IMAGE:PATH")?, options)?;
    let mut paths = Paths::open(file, listed.null)?;
    while let Some(batch) = paths.batch()? {
        for (path, node) in base.walk(&batch) {
            each(base.at.below(path), node)?;
        }
    }
    Ok(())
}

/// The one argument to which the paths of a file are relative.
pub(crate) fn only<'a>(arguments: &'a [OsString], kind: &str) -> Result<&'a OsStr, Problem> {
    match arguments {
        [argument] => Ok(argument),
        _ => Err(Problem::usage("--files-from", format!("takes one {kind}, which its paths are below"))),
    }
}

/// The directory of an image to which the paths of a file are relative.
pub(crate) struct Base<'s> {
    session: &'s Session,
    pub(crate) at: Location,
    pub(crate) dir: Node,
    options: WalkOptions,
}

impl<'s> Base<'s> {
    pub(crate) fn new(session: &'s Session, argument: &OsStr, options: WalkOptions) -> Result<Self, Problem> {
        let at = session.locate(argument)?;
        let to_directory = WalkOptions { last_link: LastLink::Follow, directory: true, ..options };
        let dir = at.walk(to_directory)?;
        Ok(Base { session, at, dir, options })
    }

    /// The paths that exist, with their inodes. The others are reported.
    pub(crate) fn walk<'p>(&self, batch: &'p [Vec<u8>]) -> Vec<(&'p [u8], Node)> {
        let found = self.at.image.vfs.walk_many(SUPERUSER, &self.dir, batch, self.options);
        let found = batch.iter().zip(found).filter_map(|(path, found)| match found {
            Ok(node) => Some((&path[..], node)),
            Err(error) => {
                self.session.report.problem(&self.at.below(path).problem(&error));
                None
            }
        });
        found.collect()
    }
}

/// The components of a listed path, without `.` and doubled slashes.
pub(crate) fn components(path: &[u8]) -> Vec<&[u8]> {
    path.split(|&byte| byte == b'/').filter(|name| !name.is_empty() && *name != b".").collect()
}

/// Paths of a file, each ended by a byte. Empty ones and leading slashes are dropped.
pub(crate) struct Paths<'a> {
    lines: Box<dyn BufRead>,
    end: u8,
    file: &'a Path,
}

impl<'a> Paths<'a> {
    /// `-` is standard input; with `null` paths end with a NUL byte.
    pub(crate) fn open(file: &'a Path, null: bool) -> Result<Self, Problem> {
        let lines: Box<dyn BufRead> = if file.as_os_str() == "-" {
            Box::new(io::stdin().lock())
        } else {
            Box::new(BufReader::new(File::open(file).map_err(|why| unreadable(file, &why))?))
        };
        Ok(Paths { lines, end: if null { 0 } else { b'\n' }, file })
    }

    /// The next paths; `None` at the end.
    pub(crate) fn batch(&mut self) -> Result<Option<Vec<Vec<u8>>>, Problem> {
        let mut batch = Vec::with_capacity(BATCH);
        while batch.len() < BATCH {
            let mut line = Vec::new();
            let len = self.lines.read_until(self.end, &mut line);
            if len.map_err(|why| unreadable(self.file, &why))? == 0 {
                break;
            }
            line.pop_if(|last| *last == self.end);
            let path = line.iter().position(|&byte| byte != b'/').map_or(&[][..], |from| &line[from..]);
            if !path.is_empty() {
                batch.push(path.to_vec());
            }
        }
        Ok(Some(batch).filter(|batch| !batch.is_empty()))
    }
}

fn unreadable(file: &Path, why: &io::Error) -> Problem {
    Problem::new(file.display().to_string(), Status::Failed, format!("cannot be read: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_come_in_batches_whole_and_without_the_slashes_before_them() {
        let paths = |text: &'static [u8], end| Paths { lines: Box::new(text), end, file: Path::new("") };
        let all = |text, end| paths(text, end).batch().unwrap().unwrap_or_default();
        assert_eq!(all(b"/a\n\nb/c \n//d", b'\n'), [&b"a"[..], b"b/c ", b"d"]);
        assert_eq!(all(b"a\nb\0/\0c", 0), [&b"a\nb"[..], b"c"]);
        let mut many = paths(b"x\n".repeat(BATCH + 1).leak(), b'\n');
        assert_eq!([(); 3].map(|()| many.batch().unwrap().map(|b| b.len())), [Some(BATCH), Some(1), None]);
    }

    #[test]
    fn components_have_neither_dots_nor_doubled_slashes() {
        assert_eq!(components(b"./a//b/./c/"), [b"a", b"b", b"c"]);
        assert_eq!(components(b"../a"), [&b".."[..], b"a"]);
        assert!(components(b"./").is_empty());
    }
}
