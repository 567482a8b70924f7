//! `dentree mv`: renames within an image, and moves between images.

use super::cp::move_between;
use super::rm::remove_all;
use crate::args::MvArgs;
use crate::ask::confirms;
use crate::image::{Location, Node, SUPERUSER, Session};
use crate::report::{Problem, Stop};
use dentree_vfs::{Error, OnExisting, WalkOptions};
use std::io::{self, Write};
use std::sync::Arc;

pub(crate) fn run(session: &Session, args: &MvArgs) -> Result<(), Stop> {
    let (target, sources) = match (&args.target_directory, args.locations.split_last()) {
        (Some(directory), _) => (directory, &args.locations[..]),
        (None, Some((target, sources))) if !sources.is_empty() => (target, sources),
        _ => return Err(Problem::usage("mv", "needs a source and a target").into()),
    };
    let target = session.locate_for_writing(target)?;
    let there = if args.no_target_directory { None } else { target.find(WalkOptions::FOLLOW)? };
    let is_dir = there.is_some_and(|node| node.is_dir());
    if (sources.len() > 1 || args.target_directory.is_some()) && !is_dir {
        return Err(target.problem(&Error::NotADirectory).into());
    }
    session.change_each(sources, |from| {
        let (_, name) = from.last()?;
        let to = if is_dir { target.below(name) } else { target.clone() };
        move_one(session, args, from, &to)
    });
    Ok(())
}

fn move_one(session: &Session, args: &MvArgs, from: &Location, to: &Location) -> Result<(), Problem> {
    let moved = from.walk(WalkOptions::KEEP_LINK)?;
    if to.requires_directory() && !moved.is_dir() {
        return Err(to.problem(&Error::NotADirectory));
    }
    let is_same_image = Arc::ptr_eq(&from.image, &to.image);
    let (to_dir, new) = to.last()?;
    let there = to.image.vfs.lookup(SUPERUSER, &to_dir, new).map_err(|error| to.problem(&error))?;
    if let Some(there) = there {
        if !replaces(args, &there, &moved, to) {
            return Ok(());
        }
        if let Some(backup) = backup_of(args, to, &to_dir, new).filter(|_| there.ino() != moved.ino()) {
            let kept = to.image.vfs.rename(SUPERUSER, &to_dir, new, &to_dir, &backup, OnExisting::Replace);
            kept.map_err(|error| to.problem(&error))?;
        }
        // rename(2) does nothing for two names of one file.
        if is_same_image && there.ino() == moved.ino() {
            return Err(from.refusal(format!("is the same file as {}", to.image.at(&to.path))));
        }
        let is_left = backup_of(args, to, &to_dir, new).is_none() && !is_same_image;
        if is_left && there.is_dir() != moved.is_dir() {
            return Err(to.problem(&if there.is_dir() { Error::IsADirectory } else { Error::NotADirectory }));
        }
        if is_left && there.is_dir() {
            // Only an empty directory is replaced, as by rename(2).
            let gone = to.image.vfs.rmdir(SUPERUSER, &to_dir, new);
            gone.map_err(|error| to.problem(&error))?;
        }
    }
    if is_same_image {
        rename(from, to)?;
    } else if move_between(session, from, to)? {
        remove_all(session, from)?;
    } else {
        return Err(from.refusal("stays, as not all of it was copied"));
    }
    if args.verbose {
        let (from, to) = (from.image.at(&from.path), to.image.at(&to.path));
        // A closed output is told by the next one that matters.
        let _ = writeln!(io::stdout(), "renamed '{from}' -> '{to}'");
    }
    Ok(())
}

/// The name under which what is replaced is kept.
fn backup_of(args: &MvArgs, to: &Location, dir: &Node, name: &[u8]) -> Option<Vec<u8>> {
    let exists = |name: &[u8]| !matches!(to.image.vfs.lookup(SUPERUSER, dir, name), Ok(None));
    args.backup.name(name, exists)
}

/// Whether an existing file is replaced.
fn replaces(args: &MvArgs, there: &Node, moved: &Node, to: &Location) -> bool {
    let is_kept = args.no_clobber || (args.update && there.attr().mtime >= moved.attr().mtime);
    let at = || to.image.at(&to.path);
    !is_kept && (!args.interactive || confirms(format_args!("overwrite '{}'", at())))
}

fn rename(from: &Location, to: &Location) -> Result<(), Problem> {
    let ((from_dir, old), (to_dir, new)) = (from.last()?, to.last()?);
    let renamed = from.image.vfs.rename(SUPERUSER, &from_dir, old, &to_dir, new, OnExisting::Replace);
    renamed.map(drop).map_err(|error| match error {
        Error::Invalid => from.refusal("cannot be moved into itself"),
        Error::NotFound | Error::Busy => from.problem(&error),
        error => to.problem(&error),
    })
}
