//! `dentree mkdir`: makes directories.

use super::chmod::parse_mode;
use crate::args::MkdirArgs;
use crate::host::umask;
use crate::image::{Location, Node, SUPERUSER, Session};
use crate::report::{Problem, Stop};
use dentree_vfs::{Error, NewKind, WalkOptions};

pub(crate) fn run(session: &Session, args: &MkdirArgs) -> Result<(), Stop> {
    let umask = umask();
    let wanted = match &args.mode {
        // A symbolic mode changes the default of a directory without umask.
        Some(text) => parse_mode(text)?.of(0o777, true),
        None => 0o777 & !umask,
    };
    session.change_each(&args.locations, |at| {
        let made = if args.parents { with_parents(at, wanted, umask)? } else { make(at, wanted)? };
        let Some(entries) = args.expect else { return Ok(()) };
        at.image.vfs.reserve_entries(SUPERUSER, &made, entries).map_err(|error| at.problem(&error))
    });
    Ok(())
}

fn make(at: &Location, permissions: u16) -> Result<Node, Problem> {
    let (dir, name) = at.last()?;
    let vfs = &at.image.vfs;
    let made = vfs
        .create(SUPERUSER, &dir, name, NewKind::Directory, permissions)
        .map_err(|error| at.problem(&error))?;
    Ok(made)
}

fn with_parents(at: &Location, permissions: u16, umask: u16) -> Result<Node, Problem> {
    let vfs = &at.image.vfs;
    let mut dir = vfs.root().clone();
    let names: Vec<&[u8]> = at.path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()).collect();
    let mut path = Vec::new();
    for (index, name) in names.iter().enumerate() {
        path.push(b'/');
        path.extend_from_slice(name);
        let is_last = index + 1 == names.len();
        // Missing parents stay accessible to their owner, whatever the umask.
        let permissions = if is_last { permissions } else { 0o777 & !umask | 0o300 };
        let problem = |error: &Error| at.image.problem(&path, error);
        let found = match vfs.walk(SUPERUSER, &dir, name, WalkOptions::FOLLOW) {
            Err(Error::NotFound) => vfs
                .create(SUPERUSER, &dir, name, NewKind::Directory, permissions)
                .map_err(|error| problem(&error))?,
            found => found.map_err(|error| problem(&error))?,
        };
        if !found.is_dir() {
            return Err(problem(if is_last { &Error::Exists } else { &Error::NotADirectory }));
        }
        dir = found;
    }
    Ok(dir)
}
