//! `dentree check`: what is damaged.

use super::blocks::names::names;
use crate::args::CheckArgs;
use crate::fanout::{Width, threads};
use crate::host::OsStrExt;
use crate::image::{SUPERUSER, Session, open_part};
use crate::listed::Paths;
use crate::output::{Output, escape, json};
use crate::progress::Total;
use crate::report::{Problem, Report, Status, Stop};
use dentree_blockdev::{Access, BlockDevice};
use dentree_ext4::{CheckOptions, Error, Ext4, Finding, InodeNumber, Scope};
use dentree_sync::Mutex;
use dentree_vfs::WalkOptions;
use serde::Serialize;
use std::collections::{BTreeMap, HashSet};
use std::io::Write;

/// Each block is read once, but for those that hold several inodes.
const CACHE_BYTES: usize = 8 << 20;

pub(crate) fn run(session: &Session, args: &CheckArgs) -> Result<(), Stop> {
    let label = escape::terminal(args.image.as_bytes()).into_owned();
    let failed = |error: Error| Problem::inside(&*label, &error.into()).with_status(Status::Failed);
    // Held to the end. Other systems have no mount.
    #[cfg(target_os = "linux")]
    let _frozen = crate::frozen::freeze(&args.image).map_err(|error| {
        Problem::new(&*label, Status::Failed, format!("the mount does not freeze: {error}"))
    })?;
    let scope = scope(session, args)?;
    let (device, part) = open_part(&args.image, &session.options, Access::ReadOnly)?;
    let findings = Mutex::new(Vec::new());
    let found = |finding| findings.lock().push(finding);
    let fs = Ext4::open_to_check(part, CACHE_BYTES, &found).map_err(failed)?;
    let sb = fs.superblock();
    let inodes = u64::from(sb.inodes_count.saturating_sub(sb.free_inodes_count));
    let progress = session.progress(Some(Total { files: inodes, bytes: 0 }), false);
    session.catch_interrupts()?;
    let options = CheckOptions {
        scope,
        threads: if device.transfers().is_some() { Width::REMOTE.threads } else { threads() },
        found: &found,
        progress: &|inodes| {
            progress.add(inodes, 0);
            !crate::interrupt::has_come()
        },
    };
    let is_complete = fs.check(&options).map_err(failed)?;
    drop(progress);
    let mut findings = findings.into_inner();
    findings.sort_by_key(|found| (found.code.pass(), found.place.inode, found.place.block, found.code));
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
            write!(out, "pass {}: {finding}", finding.code.pass())?;
            if let Some(path) = path_of(finding, &names) {
                write!(out, " (")?;
                out.write_all(&out.names().show(path))?;
                write!(out, ")")?;
            }
            writeln!(out, " [{}: e2fsck {}]", finding.code, finding.code.repair())?;
        }
    }
    if !findings.is_empty() {
        session.report.remember(Status::Damaged);
    }
    if !args.json && is_complete {
        summary(&mut out, &label, findings.len(), &fs)?;
    }
    Ok(out.flush()?)
}

/// What the options ask for. Paths that are missing are reported.
fn scope(session: &Session, args: &CheckArgs) -> Result<Scope, Stop> {
    let Some(file) = &args.paths else {
        return Ok(if args.quick { Scope::Quick } else { Scope::All });
    };
    let image = session.open(&args.image)?;
    let (root, mut paths, mut inodes) = (image.vfs.root(), Paths::open(file, false)?, Vec::new());
    while let Some(batch) = paths.batch()? {
        let found = image.vfs.walk_many(SUPERUSER, root, &batch, WalkOptions::KEEP_LINK);
        for (path, found) in batch.iter().zip(found) {
            match found {
                Ok(node) => inodes.extend(u32::try_from(node.ino().0).ok().map(InodeNumber)),
                Err(error) => session.report.problem(&image.problem(path, &error)),
            }
        }
    }
    Ok(Scope::Inodes(inodes))
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
    /// As e2fsck's log has it.
    code: String,
    name: &'static str,
    structure: String,
    inode: Option<u32>,
    block: Option<u64>,
    path: Option<json::Path<'a>>,
    problem: String,
    /// What e2fsck does about it.
    repair: String,
}

impl<'a> Line<'a> {
    fn new(finding: &Finding, names: &'a Names) -> Line<'a> {
        let Finding { code, place, defect } = finding;
        Line {
            pass: code.pass(),
            code: format!("{:#08x}", code.number()),
            name: code.name(),
            structure: place.structure.to_string(),
            inode: place.inode.map(|ino| ino.0),
            block: place.block.map(|block| block.0),
            path: path_of(finding, names).map(json::Path::new),
            problem: defect.to_string(),
            repair: code.repair().to_string(),
        }
    }
}
