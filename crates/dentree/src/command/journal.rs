//! `dentree journal`: what the log holds.

use super::blocks::fixed_use;
use crate::args::{JournalArgs, JournalCommand, JournalShow};
use crate::image::{Location, Session};
use crate::output::attributes::Clock;
use crate::output::{Output, json};
use crate::report::Stop;
use dentree_ext4::{History, InodeNumber, LoggedTransaction};
use dentree_vfs::Timestamp;
use serde::Serialize;
use std::io::Write;

pub(crate) fn run(session: &Session, args: &JournalArgs) -> Result<(), Stop> {
    let image = match &args.command {
        JournalCommand::Ls(args) => &args.image,
        JournalCommand::Show(args) => &args.image,
    };
    let at = session.locate(image)?;
    let history = at.image.vfs.fs().history().map_err(|error| at.problem(&error.into()))?;
    let Some(history) = history else { return Err(at.refusal("there is no journal in this image").into()) };
    let mut out = Output::new();
    match &args.command {
        JournalCommand::Ls(args) => ls(&mut out, &history, args.json)?,
        JournalCommand::Show(args) if args.inode.is_some() => versions(&mut out, &at, &history, args)?,
        JournalCommand::Show(args) => show(&mut out, &at, &history, args)?,
    }
    Ok(out.flush()?)
}

/// Times are seconds since 1970.
#[derive(Serialize)]
struct Transaction {
    transaction: u32,
    committed: Option<u64>,
    state: &'static str,
    blocks: usize,
    revoked: usize,
}

fn ls(out: &mut Output, history: &History, is_json: bool) -> Result<(), Stop> {
    let clock = Clock::local();
    for one in history.transactions() {
        let line = Transaction {
            transaction: one.tid.0,
            committed: one.committed,
            state: state(one),
            blocks: one.copies.len(),
            revoked: one.revoked.len(),
        };
        if is_json {
            json::line(out, &line)?;
            continue;
        }
        let time = one.committed.and_then(|seconds| i64::try_from(seconds).ok());
        let time = time.map_or("-".to_owned(), |seconds| clock.exact(Timestamp { seconds, nanos: 0 }));
        let Transaction { transaction, state, blocks, revoked, .. } = line;
        writeln!(out, "{transaction}\t{time}\t{state}\t{blocks}\t{revoked}")?;
    }
    Ok(())
}

fn state(one: &LoggedTransaction) -> &'static str {
    match (one.committed, one.is_pending) {
        (None, _) => "uncommitted",
        (Some(_), true) => "pending",
        (Some(_), false) => "old",
    }
}

#[derive(Serialize)]
struct Copy {
    transaction: u32,
    block: u64,
    journal_block: u32,
    used_as: Option<String>,
}

fn show(out: &mut Output, at: &Location, history: &History, args: &JournalShow) -> Result<(), Stop> {
    let layout = at.image.vfs.fs().layout().map_err(|error| at.problem(&error.into()))?;
    let chosen =
        history.transactions().iter().filter(|one| args.transaction.is_none_or(|tid| tid == one.tid.0));
    let mut last = None;
    for one in chosen {
        for copy in one.copies.iter().filter(|copy| args.block.is_none_or(|block| block == copy.block)) {
            last = Some(copy);
            if args.dump {
                continue;
            }
            let used_as = fixed_use(&layout, copy.block);
            let (transaction, block, journal_block) = (one.tid.0, copy.block, copy.at);
            if args.json {
                json::line(out, &Copy { transaction, block, journal_block, used_as })?;
            } else {
                let used_as = used_as.unwrap_or("-".to_owned());
                writeln!(out, "{transaction}\t{block}\t{journal_block}\t{used_as}")?;
            }
        }
    }
    if let Some(copy) = last.filter(|_| args.dump) {
        let content =
            history.content(copy).map_err(|error| at.problem(&dentree_ext4::Error::from(error).into()))?;
        let Some(content) = content else {
            return Err(at.refusal("the checksum of the copy is wrong").into());
        };
        out.write_all(&content)?;
    }
    match last {
        Some(_) => Ok(()),
        None => Err(at.refusal("the journal holds no copy of that").into()),
    }
}

/// Times are seconds since 1970; extents are logical block, block and length.
#[derive(Serialize)]
struct Version {
    transaction: u32,
    mode: u16,
    links: u16,
    size: u64,
    modified: i64,
    extents: Vec<(u64, u64, u64)>,
}

fn versions(out: &mut Output, at: &Location, history: &History, args: &JournalShow) -> Result<(), Stop> {
    let (fs, clock) = (at.image.vfs.fs(), Clock::local());
    let ino = InodeNumber(args.inode.unwrap_or_default());
    let versions = fs.inode_versions(history, ino).map_err(|error| at.problem(&error.into()))?;
    for version in versions.iter().filter(|one| args.transaction.is_none_or(|tid| tid == one.tid.0)) {
        let extents: Vec<_> =
            version.extents.iter().map(|extent| (extent.logical, extent.start.0, extent.len)).collect();
        let (transaction, mode, links) = (version.tid.0, version.mode, version.links);
        let (size, modified) = (version.size, version.modified);
        if args.json {
            json::line(out, &Version { transaction, mode, links, size, modified, extents })?;
            continue;
        }
        let time = clock.minute(Timestamp { seconds: modified, nanos: 0 });
        let extents: Vec<String> =
            extents.iter().map(|(logical, start, len)| format!("{logical}:{start}+{len}")).collect();
        writeln!(out, "{transaction}\t{mode:o}\t{links}\t{size}\t{time}\t{}", extents.join(" "))?;
    }
    if versions.is_empty() {
        return Err(at.refusal(format!("the journal holds no version of inode {ino}")).into());
    }
    Ok(())
}
