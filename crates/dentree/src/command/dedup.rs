//! `dentree dedup`: files with equal extended attributes share their xattr blocks, and equal large
//! values share their inodes.

use crate::args::DedupArgs;
use crate::image::{Location, Session};
use crate::operands::total_of;
use crate::output::Output;
use crate::progress::Total;
use crate::report::{Problem, Stop};
use crate::tree::Tree;
use dentree_ext4::{Ext4, Node};
use dentree_vfs::{FileSystem, Ino, WalkOptions};
use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::hash::Hash;
use std::io::Write;

pub(crate) fn run(session: &Session, args: &DedupArgs) -> Result<(), Stop> {
    let mut out = Output::new();
    for image in &args.images {
        match dedup(session, image) {
            Ok(summary) => writeln!(out, "{summary}")?,
            Err(problem) => session.report.problem(&problem),
        }
    }
    Ok(out.flush()?)
}

fn dedup(session: &Session, image: &std::ffi::OsStr) -> Result<String, Problem> {
    let at = session.locate_for_writing(image)?;
    let top = at.walk(WalkOptions::FOLLOW)?;
    let work = Work { session, at: &at, top };
    let block_of = |fs: &Ext4, node: &Node| Ok(fs.attribute_block(node)?.into_iter().collect());
    let share_block = |fs: &Ext4, node: &Node| Ok(fs.share_attribute_block(node)?.into_iter().collect());
    // All blocks and values are known before the first is released, to find those released later.
    let (blocks, values) = (work.pass(&block_of), work.pass(&Ext4::attribute_values));
    let fs = at.image.vfs.fs();
    // Freed blocks count as free after a sync.
    let free = || fs.sync().and_then(|()| fs.statfs()).map_err(|error| at.problem(&error));
    let free_before = free()?.blocks_free;
    // Values first: blocks contain the inode numbers of values, and are equal only when those are.
    let values_now = work.share(&Ext4::share_attribute_values);
    let blocks_now = work.share(&share_block);
    let saved = free()?.blocks_free.saturating_sub(free_before);
    let mut summary = format!(
        "{}: {} files have attributes in blocks: {} blocks before, {} now",
        at.image.name().display(),
        blocks.len(),
        different(&blocks),
        different(&blocks_now)
    );
    if !values.is_empty() {
        let (before, now) = (different(&values), different(&values_now));
        let _ = write!(summary, "; {} have long values: {before} inodes before, {now} now", values.len());
    }
    let _ = write!(summary, ", {} bytes saved", saved * u64::from(fs.superblock().block_size.bytes()));
    Ok(summary)
}

/// The files of an image.
struct Work<'a> {
    session: &'a Session,
    at: &'a Location,
    top: crate::image::Node,
}

/// Returns what a file uses, or changes it.
type Uses<'a, T> = &'a dyn Fn(&Ext4, &Node) -> dentree_ext4::Result<Vec<T>>;

/// Blocks or value inodes used, by inode.
type Used<T> = HashMap<Ino, Vec<T>>;

impl Work<'_> {
    /// Calls `of` for every file.
    fn pass<T>(&self, of: Uses<'_, T>) -> Used<T> {
        let mut used = HashMap::new();
        let total = total_of(&[(self.at.clone(), self.top.clone())]).map(|all| Total { bytes: 0, ..all });
        let progress = self.session.progress(total, false);
        let (image, report) = (&self.at.image, &self.session.report);
        let stopped = || self.session.is_interrupted();
        Tree::new(image, report).each(&self.top, &self.at.path, stopped, &mut |node, _| {
            progress.add(1, 0);
            let found = of(image.vfs.fs(), node.node()).map_err(dentree_vfs::Error::from)?;
            if !found.is_empty() {
                used.insert(node.ino(), found);
            }
            Ok(())
        });
        used
    }

    /// Repeats `change` until nothing changes: early files may point to blocks that later files
    /// leave.
    fn share<T: Eq>(&self, change: Uses<'_, T>) -> Used<T> {
        let mut before = self.pass(change);
        loop {
            let now = self.pass(change);
            if now == before || self.session.is_interrupted() {
                return now;
            }
            before = now;
        }
    }
}

/// The number of distinct items.
fn different<T: Eq + Hash>(used: &Used<T>) -> usize {
    used.values().flatten().collect::<HashSet<_>>().len()
}
