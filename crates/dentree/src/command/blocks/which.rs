//! `dentree which`: what a block belongs to, and the names of inodes.

use super::names::names;
use super::{each_inode, fixed_use};
use crate::args::WhichArgs;
use crate::image::{Image, Session};
use crate::output::{Output, json};
use crate::report::{Problem, Status, Stop};
use dentree_ext4::{BlockNumber, InodeNumber, Layout, Part};
use dentree_sync::Mutex;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io::Write;
use std::ops::ControlFlow;

/// What a block is of an inode.
type Owners = BTreeMap<u64, Vec<(u32, Part)>>;

/// An answer. Fields that do not apply are left out.
#[derive(Serialize, Default)]
struct Line<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    block: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inode: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    used_as: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<json::Path<'a>>,
}

pub(crate) fn run(session: &Session, args: &WhichArgs) -> Result<(), Stop> {
    let at = session.locate(&args.image)?;
    let (image, fs) = (&at.image, at.image.vfs.fs());
    let (inodes, blocks) = (fs.superblock().inodes_count, fs.superblock().blocks_count);
    if let Some(ino) = args.inode.iter().find(|ino| !(1..=inodes).contains(*ino)) {
        return Err(Problem::usage("--inode", format!("{ino}: inodes are 1 to {inodes} here")).into());
    }
    if let Some(block) = args.block.iter().find(|block| **block >= blocks) {
        return Err(Problem::usage("--block", format!("{block}: blocks are 0 to {} here", blocks - 1)).into());
    }
    let layout = fs.layout().map_err(|error| at.problem(&error.into()))?;
    let asked: BTreeSet<u64> = args.block.iter().copied().collect();
    let owners = owners(image, &layout, &asked);
    let wanted: HashSet<u32> =
        args.inode.iter().copied().chain(owners.values().flatten().map(|(ino, _)| *ino)).collect();
    let names = names(image, &wanted, &session.report);
    let paths = |ino: u32| names.get(&ino).into_iter().flatten().map(Vec::as_slice);
    let mut out = Output::new();
    let mut show = |line: Line<'_>, path: Option<&[u8]>| -> std::io::Result<()> {
        if args.json {
            return json::line(&mut out, &Line { path: path.map(json::Path::new), ..line });
        }
        let mut fields: Vec<Vec<u8>> = Vec::new();
        fields.extend(line.block.map(|block| block.to_string().into_bytes()));
        fields.extend(line.inode.map(|ino| ino.to_string().into_bytes()));
        fields.extend(line.used_as.map(String::into_bytes));
        fields.extend(path.map(|path| out.names().show(path).into_owned()));
        out.write_all(&fields.join(&b'\t'))?;
        out.write_all(b"\n")
    };
    for &block in &args.block {
        let fixed = fixed_use(&layout, block);
        let users = owners.get(&block).map(Vec::as_slice).unwrap_or_default();
        for (ino, part) in users {
            let line = || Line {
                block: Some(block),
                inode: Some(*ino),
                used_as: Some(describe(block, part)),
                path: None,
            };
            let mut paths = paths(*ino).peekable();
            if paths.peek().is_none() {
                show(line(), None)?;
            }
            paths.try_for_each(|path| show(line(), Some(path)))?;
        }
        let is_free = layout.is_free(BlockNumber(block)).map_err(|error| at.problem(&error.into()))?;
        let rest = match fixed {
            Some(fixed) => Some(fixed),
            None if !users.is_empty() => None,
            None if is_free => Some("free".to_owned()),
            None => Some("in use, by no inode".to_owned()),
        };
        if rest.is_some() {
            show(Line { block: Some(block), used_as: rest, ..Line::default() }, None)?;
        }
    }
    for &ino in &args.inode {
        let mut paths = paths(ino).peekable();
        if paths.peek().is_none() {
            let message = "has no name: it is free, reserved, or not connected";
            session.report.problem(&Problem::new(format!("inode {ino}"), Status::Failed, message));
        }
        paths.try_for_each(|path| show(Line { inode: Some(ino), ..Line::default() }, Some(path)))?;
    }
    Ok(out.flush()?)
}

fn describe(block: u64, part: &Part) -> String {
    match part {
        Part::Content(extent) => {
            let within = extent.logical + (block - extent.start.0);
            let state = if extent.is_unwritten { ", never written" } else { "" };
            format!("content, block {within}{state}")
        }
        Part::Tree(_) => "block map".to_owned(),
        Part::Xattrs(_) => "extended attributes".to_owned(),
    }
}

/// The inodes that have these blocks.
fn owners(image: &Image, layout: &Layout<'_>, asked: &BTreeSet<u64>) -> Owners {
    let found = Mutex::new(Owners::new());
    if asked.is_empty() {
        return found.into_inner();
    }
    each_inode(image, layout, |ino| search(image, ino, asked, &found));
    let mut owners = found.into_inner();
    owners.values_mut().for_each(|users| users.sort_unstable_by_key(|(ino, _)| *ino));
    owners
}

fn search(image: &Image, ino: InodeNumber, asked: &BTreeSet<u64>, found: &Mutex<Owners>) {
    let mut each = |part: Part| {
        for &block in asked.range(part.blocks()) {
            found.lock().entry(block).or_default().push((ino.0, part));
        }
        ControlFlow::Continue(())
    };
    let _ = image.vfs.fs().inode_blocks(ino, &mut each, &mut |_| {});
}
