//! `dentree cp`: copies between an image and the local file system, in either direction, and
//! between images.

pub(crate) mod attributes;
mod into;
mod into_listed;
pub(crate) mod options;
mod origin;
mod out;
mod out_listed;
mod sparse;

use crate::args::CpArgs;
use crate::host::OsStrExt;
use crate::image::{Image, Node, Session};
use crate::report::{Problem, Status, Stop};
use dentree_vfs::{Error, Extent};
pub(super) use into::move_between;
use options::Options;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes per read.
const CHUNK: usize = 1 << 20;

pub(crate) fn run(session: &Session, args: &CpArgs) -> Result<(), Stop> {
    let options = Options::new(args)?;
    let images = options.sources.iter().filter(|source| session.names_image(source)).count();
    let all = images == options.sources.len();
    if (args.link || args.symbolic_link) && !session.names_image(options.target) {
        return Err(Problem::usage("cp", NO_LINK).into());
    }
    match (&args.files_from, all, session.names_image(options.target)) {
        (None, _, true) => into::run(session, &options),
        (None, true, false) => out::run(session, &options),
        (Some(file), true, false) => out_listed::run(session, &options, file),
        (Some(file), false, true) if images == 0 => into_listed::run(session, &options, file),
        (Some(_), _, true) => {
            let message = "with --files-from one side is in an image, and the other is not";
            Err(Problem::usage("cp", message).into())
        }
        (_, false, false) if images == 0 => {
            let message = "neither side is in an image: write IMAGE:PATH, or IMAGE:/ for all of it";
            Err(Problem::usage("cp", message).into())
        }
        (_, false, false) => {
            let message = "some sources are in an image and some are not";
            Err(Problem::usage("cp", message).into())
        }
    }
}

/// Passes on the data of a file in an image, without its holes.
fn each_extent<E>(
    image: &Image,
    node: &Node,
    unreadable: &dyn Fn(Error) -> E,
    each: sparse::Write<'_, E>,
) -> Result<(), E> {
    let size = node.attr().size;
    let mut buf = vec![0; usize::try_from(size).unwrap_or(CHUNK).min(CHUNK)];
    let mut offset = 0;
    while offset < size {
        let end = match image.vfs.extent(node, offset) {
            Ok(Extent::Hole(end)) => {
                offset = end;
                continue;
            }
            Ok(Extent::Data(end)) => end.min(size),
            Err(Error::NoExtent) => break,
            Err(error) => return Err(unreadable(error)),
        };
        while offset < end {
            let want = usize::try_from(end - offset).unwrap_or(CHUNK).min(buf.len());
            let len = image.vfs.read(node, offset, &mut buf[..want]).map_err(unreadable)?;
            if len == 0 {
                return Ok(());
            }
            each(offset, &buf[..len])?;
            offset += len as u64;
        }
    }
    Ok(())
}

/// Why an existing entry is not written to.
pub(crate) const DANGLING: &str = "is a dangling symbolic link, which is not written through";
pub(crate) const IN_THE_WAY: &str = "exists and is not a regular file; --remove-destination replaces it";
/// State of an existing file after an interruption.
const CUT_SHORT: &str = "interrupted: its content is incomplete";
/// Two operands have one name: the second neither overwrites nor follows what the first made.
const JUST_MADE: &str = "not copied: this command has just made a file of this name";

/// A source and its target are one.
const SAME_FILE: &str = "source and target are the same file";
const INTO_ITSELF: &str = "a directory cannot be copied into itself";

const NO_LINK: &str = "not made: links stay within one image";

const LEADS_OUT: &str = "not copied: a listed path may not contain `..`";

/// Fails where the copy was interrupted.
fn check_interrupted(interrupted: &AtomicBool) -> Result<(), Stop> {
    if interrupted.load(Ordering::Relaxed) {
        let message = "interrupted; new files under their names are complete";
        return Err(Problem::new("cp", Status::Failed, message).into());
    }
    Ok(())
}

pub(super) fn local_problem(path: &Path, error: &io::Error) -> Problem {
    Problem::local(path.as_os_str().as_bytes(), error)
}
