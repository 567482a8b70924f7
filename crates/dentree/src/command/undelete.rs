//! `dentree undelete`: deleted files, listed and brought back.

use crate::args::UndeleteArgs;
use crate::command::touch::parse_date;
use crate::host::{self, OsStrExt, is_plain_name, os_str};
use crate::image::{Location, Session};
use crate::output::attributes::Clock;
use crate::output::{Output, json};
use crate::report::{Problem, Status, Stop};
use dentree_blockdev::FileExt;
use dentree_ext4::{Deleted, Error};
use dentree_vfs::{FileType, Timestamp};
use jiff::tz::TimeZone;
use serde::Serialize;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A deleted file as JSON. Times are seconds since 1970.
#[derive(Serialize)]
struct Line<'a> {
    inode: u32,
    path: Option<json::Path<'a>>,
    size: u64,
    mode: u16,
    removed: Option<i64>,
    modified: i64,
    blocks: u64,
    reused: u64,
    complete: bool,
    truncated: bool,
}

pub(crate) fn run(session: &Session, args: &UndeleteArgs) -> Result<(), Stop> {
    let at = session.locate(&args.location)?;
    let since = args.since.as_deref().map(parse_since).transpose()?;
    let mut found = at.image.vfs.fs().deleted().map_err(|error| at.problem(&error.into()))?;
    found.retain(|file| since.is_none_or(|since| file.removed.unwrap_or(file.modified) >= since));
    if at.path != b"/" {
        found.retain(|file| is_named(file, &at.path));
        if found.is_empty() {
            return Err(at.refusal("no deleted file of this name is known").into());
        }
    }
    match &args.output {
        None => list(args, &found),
        Some(output) if args.all => all(session, &at, &found, output),
        Some(output) if at.path != b"/" => one(&at, &found, output),
        Some(_) => {
            let message = "name one deleted file (IMAGE:PATH), or bring back all with --all";
            Err(Problem::usage("--output", message).into())
        }
    }
}

fn parse_since(text: &str) -> Result<i64, Problem> {
    parse_date(text, &TimeZone::system())
        .map(|time| time.as_second())
        .ok_or_else(|| Problem::usage("--since", format!("{text}: no date such as 2026-11-24 or @0")))
}

/// Whether a file has this path, or this inode as `<N>`.
fn is_named(file: &Deleted, path: &[u8]) -> bool {
    file.path.as_deref() == Some(path) || path == format!("<{}>", file.ino).as_bytes()
}

fn list(args: &UndeleteArgs, found: &[Deleted]) -> Result<(), Stop> {
    let (mut out, clock) = (Output::new(), Clock::local());
    for file in found {
        if args.json {
            let path = file.path.as_deref().map(json::Path::new);
            let (inode, size, mode) = (file.ino.0, file.size, file.mode);
            let (removed, modified, blocks, reused) = (file.removed, file.modified, file.blocks, file.reused);
            let (complete, truncated) = (file.is_whole, file.is_truncated);
            json::line(
                &mut out,
                &Line { inode, path, size, mode, removed, modified, blocks, reused, complete, truncated },
            )?;
            continue;
        }
        let state = state(file);
        let removed = file.removed.map(|seconds| clock.minute(Timestamp { seconds, nanos: 0 }));
        write!(out, "{state}\t{}\t{}\t{}\t", file.ino, file.size, removed.as_deref().unwrap_or("-"))?;
        let path = match &file.path {
            Some(path) => path.clone(),
            None => format!("<{}>", file.ino).into_bytes(),
        };
        let shown = out.names().show(&path).into_owned();
        out.write_all(&shown)?;
        let mark = if file.is_truncated { b" (truncated)\n" } else { &b"\n"[..] };
        out.write_all(if file.kind == FileType::Directory { b"/\n" } else { mark })?;
    }
    Ok(out.flush()?)
}

/// What is left of a file, in a word or two.
pub(super) fn state(file: &Deleted) -> String {
    match (file.is_whole, file.reused) {
        (false, _) => "incomplete".to_owned(),
        (true, 0) => "free".to_owned(),
        (true, reused) => format!("{reused}/{} reused", file.blocks),
    }
}

/// Writes the last version that a path had.
fn one(at: &Location, found: &[Deleted], output: &Path) -> Result<(), Stop> {
    let Some(file) = found.iter().find(|file| file.kind != FileType::Directory) else {
        return Err(at.refusal("is a directory: its files come back one by one, or with --all").into());
    };
    write(at, file, output)?;
    Ok(warn(at, file)?)
}

/// Tells what may be wrong with a file that was written.
fn warn(at: &Location, file: &Deleted) -> Result<(), Problem> {
    let message = match (file.is_whole, file.reused) {
        (true, 0) => return Ok(()),
        (false, _) => "a part of its block map is gone: it is not complete".to_owned(),
        (true, reused) => {
            format!("{reused} of its {} blocks were used again: they hold other data", file.blocks)
        }
    };
    Err(at.refusal(message))
}

/// Writes all files that are whole, as far as is known.
fn all(session: &Session, at: &Location, found: &[Deleted], output: &Path) -> Result<(), Stop> {
    session.catch_interrupts()?;
    let progress = session.progress(None, false);
    let mut count = 0;
    for file in found.iter().filter(|file| file.kind != FileType::Directory) {
        if session.is_interrupted() {
            break;
        }
        if file.reused > 0 || !file.is_whole {
            continue;
        }
        let target = free_name(&output.join(below(file)));
        let made = match target.parent() {
            Some(parent) => fs::create_dir_all(parent),
            None => Ok(()),
        };
        made.map_err(|error| Problem::local(target.as_os_str().as_bytes(), &error))?;
        match write(at, file, &target) {
            Ok(()) => count += 1,
            Err(problem) => session.report.problem(&problem),
        }
        progress.add(1, file.size);
    }
    drop(progress);
    let mut out = Output::new();
    let rest = found.iter().filter(|file| file.kind != FileType::Directory).count() - count;
    writeln!(out, "{count} files below {}, {rest} left out", output.display())?;
    Ok(out.flush()?)
}

/// The path of a file below a directory: nothing leads out of it.
fn below(file: &Deleted) -> PathBuf {
    let unnamed = PathBuf::from(format!("inode-{}", file.ino));
    let Some(path) = &file.path else { return unnamed };
    let names = || path.split(|&byte| byte == b'/').filter(|name| !matches!(*name, b"" | b"." | b".."));
    let below: PathBuf = names().map(os_str).collect();
    if names().all(is_plain_name) && names().next().is_some() { below } else { unnamed }
}

/// The name, or with a number behind it where a file has it.
fn free_name(name: &Path) -> PathBuf {
    let is_free = |name: &Path| fs::symlink_metadata(name).is_err();
    let numbered = |number: u32| {
        let mut name = name.as_os_str().to_owned();
        name.push(format!(".~{number}~"));
        PathBuf::from(name)
    };
    if is_free(name) {
        return name.to_owned();
    }
    (1..).map(numbered).find(|name| is_free(name)).unwrap_or_default()
}

/// An error of the image or of the file that is written.
enum Failure {
    Image(Error),
    Local(io::Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Image(error)
    }
}

/// Writes a file; an existing one is refused.
fn write(at: &Location, file: &Deleted, target: &Path) -> Result<(), Problem> {
    let local = |error: &io::Error| Problem::local(target.as_os_str().as_bytes(), error);
    if file.kind == FileType::Symlink {
        let mut text = Vec::new();
        at.image
            .vfs
            .fs()
            .read_deleted(file, |_, bytes| {
                text.extend_from_slice(bytes);
                Ok::<(), Failure>(())
            })
            .map_err(|failure| problem(at, failure, &local))?;
        return host::symlink(&text, target).map_err(|error| local(&error));
    }
    let made: File =
        OpenOptions::new().write(true).create_new(true).open(target).map_err(|error| local(&error))?;
    let put = |offset: u64, bytes: &[u8]| made.write_all_at(bytes, offset).map_err(Failure::Local);
    let written = at.image.vfs.fs().read_deleted(file, put);
    let written = written.and_then(|()| made.set_len(file.size).map_err(Failure::Local));
    written.map_err(|failure| {
        // What is not complete is not left.
        let _ = fs::remove_file(target);
        problem(at, failure, &local)
    })
}

fn problem(at: &Location, failure: Failure, local: &dyn Fn(&io::Error) -> Problem) -> Problem {
    match failure {
        Failure::Image(error) => at.problem(&error.into()),
        Failure::Local(error) => local(&error),
    }
    .with_status(Status::Failed)
}
