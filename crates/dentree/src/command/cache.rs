//! `dentree cache`: what is kept on disk of images that are not local.

use crate::args::{CacheArgs, CacheCommand};
use crate::host::OsStrExt;
use crate::image::Session;
use crate::output::{escape, human};
use crate::report::{Problem, Status, Stop};
use dentree_source::Cached;
use std::ffi::OsString;
use std::io::{self, Write};

pub(super) fn run(session: &Session, args: &CacheArgs) -> Result<(), Stop> {
    let Some(dir) = session.options.source.cache_dir() else {
        let message = "neither $XDG_CACHE_HOME nor $HOME says where it is; --cache-dir does";
        return Err(Problem::new("cache", Status::Failed, message).into());
    };
    let found = dentree_source::cached(&dir);
    let found = found.map_err(|error| Problem::local(dir.as_os_str().as_bytes(), &error))?;
    match &args.command {
        CacheCommand::Ls => list(&found)?,
        CacheCommand::Rm { all: true, .. } => found.iter().for_each(|cached| remove(session, cached)),
        CacheCommand::Rm { addresses, .. } => {
            addresses.iter().for_each(|address| remove_address(session, &found, address));
        }
    }
    Ok(())
}

fn list(found: &[Cached]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for Cached { address, len, on_disk, .. } in found {
        writeln!(out, "{:>7} {:>7}  {}", human(*on_disk), human(*len), escape::terminal(address.as_bytes()))?;
    }
    Ok(())
}

fn remove_address(session: &Session, found: &[Cached], address: &OsString) {
    match found.iter().find(|cached| address.as_bytes() == cached.address.as_bytes()) {
        Some(cached) => remove(session, cached),
        None => {
            let at = escape::terminal(address.as_bytes());
            let message = "is not in the cache; `dentree cache ls` lists what is";
            session.report.problem(&Problem::new(at, Status::Failed, message));
        }
    }
}

fn remove(session: &Session, cached: &Cached) {
    if let Err(error) = cached.remove() {
        session.report.problem(&Problem::local(cached.address.as_bytes(), &error));
    }
}
