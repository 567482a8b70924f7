//! `dentree dedup`: files with the same extended attributes come to share the blocks that these are in.

use crate::args::DedupArgs;
use crate::image::Session;
use crate::output::Output;
use crate::report::{Problem, Stop};
use crate::tree::Tree;
use dentree_vfs::WalkOptions;
use std::collections::{HashMap, HashSet};
use std::io::Write;

pub(crate) fn run(session: &Session, args: &DedupArgs) -> Result<(), Stop> {
    let mut out = Output::new();
    for image in &args.images {
        match dedup(session, image) {
            Ok(told) => writeln!(out, "{told}")?,
            Err(problem) => session.report.problem(&problem),
        }
    }
    Ok(out.flush()?)
}

fn dedup(session: &Session, image: &std::ffi::OsStr) -> Result<String, Problem> {
    let at = session.locate_to_change(image)?;
    let node = at.walk(WalkOptions::FOLLOW)?;
    let fs = at.image.vfs.fs();
    // All blocks have to be known before the first is left: else some would be left for one that is left later.
    let mut before = HashMap::new();
    let stopped = || session.is_interrupted();
    Tree::new(&at.image, &session.report).each(&node, &at.path, stopped, &mut |node, _| {
        let block = fs.attribute_block(node.node()).map_err(dentree_vfs::Error::from)?;
        before.extend(block.map(|block| (node.ino(), block)));
        Ok(())
    });
    let mut after = before.clone();
    Tree::new(&at.image, &session.report).each(&node, &at.path, stopped, &mut |node, _| {
        let block = fs.share_attribute_block(node.node()).map_err(dentree_vfs::Error::from)?;
        after.extend(block.map(|block| (node.ino(), block)));
        Ok(())
    });
    let blocks = |of: &HashMap<_, _>| of.values().copied().collect::<HashSet<_>>().len();
    let (was, is) = (blocks(&before), blocks(&after));
    let saved = u64::try_from(was.saturating_sub(is)).unwrap_or(u64::MAX);
    let bytes = saved * u64::from(fs.superblock().block_size.bytes());
    let name = at.image.name().display();
    Ok(format!(
        "{name}: {} files have attributes in blocks: {was} blocks before, {is} now, {bytes} bytes saved",
        before.len()
    ))
}
