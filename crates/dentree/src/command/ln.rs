//! `dentree ln`: hard and symbolic links.

use crate::args::LnArgs;
use crate::host::OsStrExt;
use crate::image::{Location, Node, SUPERUSER, Session};
use crate::output::escape;
use crate::report::{Problem, Stop};
use dentree_ext4::Ext4;
use dentree_vfs::{Error, NewKind, OnExisting, Vfs, WalkOptions};
use std::ffi::OsStr;
use std::io::{self, Write};
use std::sync::Arc;

pub(crate) fn run(session: &Session, args: &LnArgs) -> Result<(), Stop> {
    let (link, targets) = match (&args.target_directory, args.operands.split_last()) {
        (Some(directory), _) => (directory, &args.operands[..]),
        (None, Some((link, targets))) if !targets.is_empty() => (link, targets),
        _ => return Err(Problem::usage("ln", "needs a target and a new name").into()),
    };
    let link = session.locate_for_writing(link)?;
    let last_link = if args.no_dereference { WalkOptions::KEEP_LINK } else { WalkOptions::FOLLOW };
    let there = if args.no_target_directory { None } else { link.find(last_link)? };
    let is_dir = there.is_some_and(|node| node.is_dir());
    let needs_dir = targets.len() > 1 || args.target_directory.is_some() || link.requires_directory();
    if !is_dir && needs_dir {
        return Err(link.problem(&Error::NotADirectory).into());
    }
    for target in targets {
        let done = if args.symbolic {
            symbolic(args, &link, is_dir, target)
        } else {
            session.locate_for_writing(target).and_then(|target| hard(args, &link, is_dir, &target))
        };
        if let Err(problem) = done {
            session.report.problem(&problem);
        }
        if session.is_interrupted() {
            break;
        }
    }
    Ok(())
}

/// As ln(1) says it: `->` for a symbolic link, `=>` for a hard one.
fn say(args: &LnArgs, at: &Location, arrow: &str, target: &str) {
    if args.verbose {
        let at = at.image.at(&at.path);
        // A closed output is told by the next one that matters.
        let _ = writeln!(io::stdout(), "'{at}' {arrow} '{target}'");
    }
}

fn hard(args: &LnArgs, link: &Location, is_dir: bool, target: &Location) -> Result<(), Problem> {
    if !Arc::ptr_eq(&link.image, &target.image) {
        return Err(target.refusal("is in another image; hard links stay in one"));
    }
    let node = target.walk(if args.logical { WalkOptions::FOLLOW } else { WalkOptions::KEEP_LINK })?;
    if node.is_dir() {
        return Err(target.refusal("is a directory, which cannot have hard links; -s makes a symbolic link"));
    }
    let (_, name) = target.last()?;
    let at = if is_dir { link.below(name) } else { link.clone() };
    let (dir, name) = at.last()?;
    let vfs = &link.image.vfs;
    create_or_replace(vfs, (&dir, name), args.force, &mut |name| vfs.link(SUPERUSER, &node, &dir, name))
        .map_err(|error| at.problem(&error))?;
    say(args, &at, "=>", &target.image.at(&target.path));
    Ok(())
}

fn symbolic(args: &LnArgs, link: &Location, is_dir: bool, target: &OsStr) -> Result<(), Problem> {
    let text = target.as_bytes();
    if text.strip_prefix(link.image.name().as_bytes()).is_some_and(|rest| rest.starts_with(b":")) {
        let message = "with -s the target is a path in the image: leave out the image and the colon";
        return Err(Problem::usage(target.display().to_string(), message));
    }
    let name = text.split(|&byte| byte == b'/').rfind(|name| !name.is_empty()).unwrap_or(b"");
    let at = if is_dir { link.below(name) } else { link.clone() };
    let (dir, name) = at.last()?;
    let vfs = &link.image.vfs;
    create_or_replace(vfs, (&dir, name), args.force, &mut |name| {
        vfs.create(SUPERUSER, &dir, name, NewKind::Symlink(text), 0o777).map(drop)
    })
    .map_err(|error| at.problem(&error))?;
    say(args, &at, "->", &escape::terminal(text));
    Ok(())
}

/// Creates `name` in `dir` by `make`. A name that is taken and may be replaced is replaced by a
/// rename: at each moment the old or the new file has it.
pub(super) fn create_or_replace(
    vfs: &Vfs<Ext4>,
    (dir, name): (&Node, &[u8]),
    replace: bool,
    make: &mut dyn FnMut(&[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    match make(name) {
        Err(Error::Exists) if replace => {
            let temporary = make_temporary(make)?;
            let renamed = vfs.rename(SUPERUSER, dir, &temporary, dir, name, OnExisting::Replace);
            // Left over where the rename failed, or where both were names of one file.
            match vfs.unlink(SUPERUSER, dir, &temporary) {
                Err(Error::NotFound) => renamed.map(drop),
                gone => renamed.and(gone),
            }
        }
        made => made,
    }
}

/// Calls `make` with an unused name, and returns the name.
fn make_temporary(make: &mut dyn FnMut(&[u8]) -> Result<(), Error>) -> Result<Vec<u8>, Error> {
    let mut number = 0_u32;
    loop {
        let name = format!(".dentree-{number}").into_bytes();
        match make(&name) {
            Err(Error::Exists) => number += 1,
            made => return made.map(|()| name),
        }
    }
}
