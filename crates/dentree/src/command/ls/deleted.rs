//! `dentree ls --deleted`: names that were removed from directories.

use crate::args::LsArgs;
use crate::command::undelete::state;
use crate::image::{Image, Location, Session};
use crate::output::{Output, json};
use crate::path::join;
use crate::report::{Problem, Stop};
use dentree_ext4::{Deleted, DeletedName, InodeNumber};
use dentree_vfs::{FileSystem, Ino, WalkOptions};
use serde::Serialize;
use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;

/// A removed name as JSON.
#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    path: json::Path<'a>,
    inode: u32,
    /// As in the listing of `undelete`.
    state: &'a str,
    size: Option<u64>,
}

pub(super) fn run(session: &Session, args: &LsArgs) -> Result<(), Stop> {
    let mut out = Output::new();
    // The search goes through the whole image: once for all its directories.
    let mut searched: Option<(Arc<Image>, Vec<Deleted>)> = None;
    for at in session.expand(&args.locations) {
        let names = match names(&at) {
            Ok(names) => names,
            Err(problem) => {
                session.report.problem(&problem);
                continue;
            }
        };
        if searched.as_ref().is_none_or(|(image, _)| !Arc::ptr_eq(image, &at.image)) {
            let found = at.image.vfs.fs().deleted().map_err(|error| at.problem(&error.into()))?;
            searched = Some((at.image.clone(), found));
        }
        let found = searched.as_ref().map_or(&[][..], |(_, found)| found);
        list(&at, args, &names, found, &mut out)?;
    }
    Ok(out.flush()?)
}

fn names(at: &Location) -> Result<Vec<DeletedName>, Problem> {
    let node = at.walk(WalkOptions::FOLLOW)?;
    if !node.is_dir() {
        return Err(at.refusal("is no directory"));
    }
    let fs = at.image.vfs.fs();
    let dir = fs.load(node.ino()).map_err(|error| at.problem(&error))?;
    fs.deleted_names(&dir).map_err(|error| at.problem(&error.into()))
}

fn list(
    at: &Location,
    args: &LsArgs,
    names: &[DeletedName],
    found: &[Deleted],
    out: &mut Output,
) -> Result<(), Stop> {
    let by_ino: HashMap<InodeNumber, &Deleted> =
        found.iter().rev().filter(|file| !file.is_truncated).map(|file| (file.ino, file)).collect();
    for DeletedName { name, ino } in names {
        let file = by_ino.get(ino);
        let state = file.map_or_else(|| without_content(at, *ino).to_owned(), |file| state(file));
        let size = file.map(|file| file.size);
        if args.layout.json {
            let path = join(&at.path, name);
            let path = json::Path::new(&path);
            json::line(out, &Line { path, inode: ino.0, state: &state, size })?;
            continue;
        }
        let size = size.map_or_else(|| "-".to_owned(), |size| size.to_string());
        write!(out, "{state}\t{ino}\t{size}\t")?;
        let shown = out.names().show(name).into_owned();
        out.write_all(&shown)?;
        writeln!(out)?;
    }
    Ok(())
}

/// Why nothing of a file can be brought back.
fn without_content(at: &Location, ino: InodeNumber) -> &'static str {
    // A file that was moved has its inode, and so has another one that got it since.
    let is_in_use = at.image.vfs.fs().has_name(Ino(u64::from(ino.0)));
    if is_in_use.unwrap_or(false) { "in use" } else { "gone" }
}
