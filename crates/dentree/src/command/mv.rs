//! `dentree mv`: renames within an image.

use crate::args::MvArgs;
use crate::image::{Location, SUPERUSER, Session};
use crate::report::{Problem, Stop};
use dentree_vfs::{Error, OnExisting, WalkOptions};
use std::sync::Arc;

pub(crate) fn run(session: &Session, args: &MvArgs) -> Result<(), Stop> {
    let Some((target, sources)) = args.locations.split_last() else { return Ok(()) };
    let target = session.locate_for_writing(target)?;
    let is_dir = target.find(WalkOptions::FOLLOW)?.is_some_and(|node| node.is_dir());
    if sources.len() > 1 && !is_dir {
        return Err(target.problem(&Error::NotADirectory).into());
    }
    session.change_each(sources, |from| {
        if !Arc::ptr_eq(&from.image, &target.image) {
            return Err(from.refusal("is in another image: copy it out of there and into the other"));
        }
        let (_, name) = from.last()?;
        let to = if is_dir { target.below(name) } else { target.clone() };
        rename(from, &to, args.no_clobber)
    });
    Ok(())
}

fn rename(from: &Location, to: &Location, no_clobber: bool) -> Result<(), Problem> {
    let moved = from.walk(WalkOptions::KEEP_LINK)?;
    if to.requires_directory() && !moved.is_dir() {
        return Err(to.problem(&Error::NotADirectory));
    }
    let vfs = &from.image.vfs;
    let ((from_dir, old), (to_dir, new)) = (from.last()?, to.last()?);
    match vfs.lookup(SUPERUSER, &to_dir, new).map_err(|error| to.problem(&error))? {
        Some(_) if no_clobber => return Ok(()),
        // rename(2) does nothing for two names of one file.
        Some(there) if there.ino() == moved.ino() => {
            return Err(from.refusal(format!("is the same file as {}", to.image.at(&to.path))));
        }
        _ => {}
    }
    let renamed = vfs.rename(SUPERUSER, &from_dir, old, &to_dir, new, OnExisting::Replace);
    renamed.map(drop).map_err(|error| match error {
        Error::Invalid => from.refusal("cannot be moved into itself"),
        Error::NotFound | Error::Busy => from.problem(&error),
        error => to.problem(&error),
    })
}
