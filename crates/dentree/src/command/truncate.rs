//! `dentree truncate`: shortens files, or extends them by holes.

use super::touch::make;
use crate::args::{NewSize, TruncateArgs};
use crate::host::{OsStrExt, umask};
use crate::image::{SUPERUSER, Session};
use crate::report::{Problem, Stop};
use dentree_vfs::{SetAttr, WalkOptions};
use std::ffi::OsStr;
use std::fs;

pub(crate) fn run(session: &Session, args: &TruncateArgs) -> Result<(), Stop> {
    let permissions = 0o666 & !umask();
    // The reference may be in an image that is changed: that one is opened for writing first.
    for argument in &args.locations {
        let _ = session.locate_for_writing(argument);
    }
    let reference = args.reference.as_deref().map(|file| size_of(session, file)).transpose()?;
    if reference.is_some() && matches!(args.size, Some(NewSize::Exactly(_))) {
        return Err(Problem::usage("truncate", "with a reference the size is relative: +N, -N").into());
    }
    session.change_each(&args.locations, |at| {
        let node = match at.find(WalkOptions::FOLLOW)? {
            Some(node) => node,
            None if args.no_create => return Ok(()),
            None => make(at, permissions)?,
        };
        let base = reference.unwrap_or(node.attr().size);
        let unit = if args.io_blocks { u64::from(node.attr().block_size) } else { 1 };
        let size = args.size.map_or(base, |size| size.times(unit).of(base));
        // As by truncate(2), also where the size does not change.
        let changes =
            SetAttr { size: Some(size), mtime: Some(dentree_vfs::SetTime::Now), ..SetAttr::default() };
        at.image.vfs.set_attr(SUPERUSER, &node, &changes).map_err(|error| at.problem(&error))
    });
    Ok(())
}

fn size_of(session: &Session, file: &OsStr) -> Result<u64, Problem> {
    if session.names_image(file) {
        return Ok(session.locate(file)?.walk(WalkOptions::FOLLOW)?.attr().size);
    }
    let found = fs::metadata(file).map_err(|error| Problem::local(file.as_bytes(), &error))?;
    Ok(found.len())
}
