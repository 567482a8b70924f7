//! `dentree check`: what is damaged.

use super::blocks::names::names;
use crate::args::CheckArgs;
use crate::fanout::{Width, threads};
use crate::image::{Session, open_part};
use crate::output::{Output, escape, json};
use crate::progress::Total;
use crate::report::{Problem, Report, Status, Stop};
use dentree_blockdev::{Access, BlockDevice};
use dentree_ext4::{CheckOptions, Error, Ext4, Finding, Options};
use dentree_sync::Mutex;
use serde::Serialize;
use std::collections::{BTreeMap, HashSet};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// Each block is read once, but for those that hold several inodes.
const CACHE_BYTES: usize = 8 << 20;

pub(crate) fn run(session: &Session, args: &CheckArgs) -> Result<(), Stop> {
    let label = escape::terminal(args.image.as_bytes()).into_owned();
    let failed = |error: Error| Problem::inside(&*label, &error.into()).with_status(Status::Failed);
    let (device, part) = open_part(&args.image, &session.options, Access::ReadOnly)?;
    let findings = Mutex::new(Vec::new());
    let (fs, problem) = open(part).map_err(failed)?;
    let sb = fs.superblock();
    let inodes = u64::from(sb.inodes_count.saturating_sub(sb.free_inodes_count));
    let progress = session.progress(Some(Total { files: inodes, bytes: 0 }), false);
    session.catch_interrupts()?;
    let options = CheckOptions {
        threads: if device.transfers().is_some() { Width::REMOTE.threads } else { threads() },
        found: &|finding| findings.lock().push(finding),
        progress: &|inodes| {
            progress.add(inodes, 0);
            !crate::interrupt::has_come()
        },
    };
    let is_complete = fs.check(&options).map_err(failed)?;
    drop(progress);
    let mut findings = findings.into_inner();
    findings.sort_by_key(|found| (found.pass, found.place.inode, found.place.block));
    let count = findings.len() + usize::from(problem.is_some());
    let inodes: HashSet<u32> =
        findings.iter().filter_map(|found| found.place.inode).map(|ino| ino.0).collect();
    // Where the tree can be walked: names help to judge what is lost.
    let image = if inodes.is_empty() { None } else { session.open(&args.image).ok() };
    let names = image.map(|image| names(&image, &inodes, &Report::silent())).unwrap_or_default();
    let mut out = Output::new();
    if args.json {
        findings.iter().try_for_each(|finding| json::line(&mut out, &Line::new(finding, &names)))?;
    } else {
        for finding in &findings {
            write!(out, "pass {}: {finding}", finding.pass)?;
            if let Some(path) = path_of(finding, &names) {
                write!(out, " (")?;
                out.write_all(&out.names().show(path))?;
                write!(out, ")")?;
            }
            writeln!(out)?;
        }
    }
    if let Some(problem) = problem {
        session.report.problem(&Problem::inside(&*label, &problem.into()));
    }
    if count > 0 {
        session.report.remember(Status::Damaged);
    }
    if !args.json && is_complete {
        summary(&mut out, &label, count, &fs)?;
    }
    Ok(out.flush()?)
}

/// Opens a file system; without its journal, and with what is wrong with that, where it must be.
fn open(part: Arc<dyn BlockDevice>) -> Result<(Ext4, Option<Error>), Error> {
    let options = Options { cache_bytes: CACHE_BYTES, ..Options::default() };
    match Ext4::open(part.clone(), options.clone()) {
        Err(error @ Error::Journal(dentree_ext4::JournalError::Corrupt { .. }))
        | Err(error @ Error::Corrupt { .. }) => {
            let options = Options { replay_journal: false, ..options };
            match Ext4::open(part, options) {
                Ok(fs) => Ok((fs, Some(error))),
                Err(_) => Err(error),
            }
        }
        opened => opened.map(|fs| (fs, None)),
    }
}

fn summary(out: &mut Output, label: &str, count: usize, fs: &Ext4) -> std::io::Result<()> {
    let sb = fs.superblock();
    let (inodes, blocks) = (sb.inodes_count, sb.blocks_count);
    let used = (inodes.saturating_sub(sb.free_inodes_count), blocks.saturating_sub(sb.free_blocks_count));
    match count {
        0 => writeln!(out, "{label}: clean, {}/{inodes} inodes, {}/{blocks} blocks", used.0, used.1),
        1 => writeln!(out, "{label}: 1 problem; e2fsck -f repairs it: try it on a copy"),
        count => writeln!(out, "{label}: {count} problems; e2fsck -f repairs them: try it on a copy"),
    }
}

type Names = BTreeMap<u32, Vec<Vec<u8>>>;

/// One name of the inode that a finding is about.
fn path_of<'n>(finding: &Finding, names: &'n Names) -> Option<&'n [u8]> {
    names.get(&finding.place.inode?.0)?.first().map(Vec::as_slice)
}

/// A finding as JSON.
#[derive(Serialize)]
struct Line<'a> {
    pass: u8,
    structure: String,
    inode: Option<u32>,
    block: Option<u64>,
    path: Option<json::Path<'a>>,
    problem: String,
}

impl<'a> Line<'a> {
    fn new(finding: &Finding, names: &'a Names) -> Line<'a> {
        let Finding { pass, place, defect } = finding;
        Line {
            pass: *pass,
            structure: place.structure.to_string(),
            inode: place.inode.map(|ino| ino.0),
            block: place.block.map(|block| block.0),
            path: path_of(finding, names).map(json::Path::new),
            problem: defect.to_string(),
        }
    }
}
