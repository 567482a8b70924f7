//! Paths from a file, as tar(1) takes them by `--files-from`: many at once, so that lookups overlap.

use crate::args::ListedArgs;
use crate::image::{Location, Node, Session, WHO};
use crate::report::{Problem, Status, Stop};
use dentree_vfs::{LastLink, WalkOptions};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

/// Paths that are looked up together.
const BATCH: usize = 256;

/// Calls `each` with what the arguments name, or with what the file of paths names below the one argument. Paths of which
/// nothing is there are reported and left out.
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
    let [argument] = arguments else {
        return Err(Problem::usage("--files-from", "takes one IMAGE:PATH, which its paths are below").into());
    };
    let base = session.locate(argument)?;
    let to_directory = WalkOptions { last_link: LastLink::Follow, directory: true, ..options };
    let dir = base.walk(to_directory)?;
    let mut paths = Paths { lines: open(file)?, end: if listed.null { 0 } else { b'\n' } };
    loop {
        let batch = paths.batch().map_err(|why| unreadable(file, &why))?;
        if batch.is_empty() {
            return Ok(());
        }
        let vfs = &base.image.vfs;
        for (path, found) in batch.iter().zip(vfs.walk_many(WHO, &dir, &batch, options)) {
            let at = base.below(path);
            match found {
                Ok(node) => each(at, node)?,
                Err(error) => session.report.problem(&at.problem(&error)),
            }
        }
    }
}

fn open(file: &Path) -> Result<Box<dyn BufRead>, Problem> {
    if file.as_os_str() == "-" {
        return Ok(Box::new(io::stdin().lock()));
    }
    let opened = File::open(file).map_err(|why| unreadable(file, &why))?;
    Ok(Box::new(BufReader::new(opened)))
}

fn unreadable(file: &Path, why: &io::Error) -> Problem {
    Problem::new(file.display().to_string(), Status::Failed, format!("cannot be read: {why}"))
}

/// Paths that end with a byte. Empty ones are left out, and slashes before a path have no meaning.
struct Paths {
    lines: Box<dyn BufRead>,
    end: u8,
}

impl Paths {
    /// The next paths; none at the end.
    fn batch(&mut self) -> io::Result<Vec<Vec<u8>>> {
        let mut batch = Vec::with_capacity(BATCH);
        while batch.len() < BATCH {
            let mut line = Vec::new();
            if self.lines.read_until(self.end, &mut line)? == 0 {
                break;
            }
            line.pop_if(|last| *last == self.end);
            let path = line.iter().position(|&byte| byte != b'/').map_or(&[][..], |from| &line[from..]);
            if !path.is_empty() {
                batch.push(path.to_vec());
            }
        }
        Ok(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_come_in_batches_whole_and_without_the_slashes_before_them() {
        let all = |text: &'static [u8], end| {
            let mut paths = Paths { lines: Box::new(text), end };
            paths.batch().unwrap()
        };
        assert_eq!(all(b"/a\n\nb/c \n//d", b'\n'), [&b"a"[..], b"b/c ", b"d"]);
        assert_eq!(all(b"a\nb\0/\0c", 0), [&b"a\nb"[..], b"c"]);
        let many: &'static [u8] = b"x\n".repeat(BATCH + 1).leak();
        let mut paths = Paths { lines: Box::new(many), end: b'\n' };
        assert_eq!([(); 3].map(|()| paths.batch().unwrap().len()), [BATCH, 1, 0]);
    }
}
