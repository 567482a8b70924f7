//! `dentree blocks`: the extents of files, as of filefrag -v.

use crate::args::BlocksArgs;
use crate::image::{Location, Session};
use crate::output::{Output, json};
use crate::report::Stop;
use dentree_ext4::FileExtent;
use dentree_vfs::WalkOptions;
use serde::Serialize;
use std::io::{self, Write};

pub(crate) fn run(session: &Session, args: &BlocksArgs) -> Result<(), Stop> {
    let mut out = Output::new();
    for (at, node) in session.walk_each(&args.locations, WalkOptions::KEEP_LINK) {
        let fs = at.image.vfs.fs();
        let extents = match fs.file_extents(node.node()) {
            Ok(extents) => extents,
            Err(error) => {
                session.report.problem(&at.problem(&error.into()));
                continue;
            }
        };
        let inline = fs.inline_place(node.node()).map_err(|error| at.problem(&error.into()))?;
        let is_merged = !fs.has_extents(node.node());
        let rows = Rows { at: &at, size: node.attr().size, extents, is_merged, inline };
        if args.json {
            rows.json(&mut out)?;
        } else {
            rows.print(&mut out)?;
        }
    }
    Ok(out.flush()?)
}

struct Rows<'a> {
    at: &'a Location,
    size: u64,
    extents: Vec<FileExtent>,
    /// Mapped by pointers, of which neighbours make one row.
    is_merged: bool,
    /// Where content in the inode begins, in bytes.
    inline: Option<u64>,
}

/// Positions are in blocks; in bytes for content in the inode.
#[derive(Serialize)]
struct Row<'a> {
    path: json::Path<'a>,
    logical: u64,
    physical: u64,
    length: u64,
    flags: Vec<&'static str>,
}

impl Rows<'_> {
    /// Logical and physical start, length and flags of each row.
    fn each(&self) -> Vec<(u64, u64, u64, Vec<&'static str>)> {
        if let Some(place) = self.inline {
            return vec![(0, place, self.size, vec!["last", "not_aligned", "inline", "eof"])];
        }
        let block = self.block_size();
        let last = self.extents.len();
        let rows = (1..).zip(&self.extents).map(|(number, extent)| {
            let mut flags = Vec::new();
            if number == last {
                flags.push("last");
            }
            if extent.is_unwritten {
                flags.push("unwritten");
            }
            // What pointers map has no extents of its own.
            if self.is_merged {
                flags.push("merged");
            }
            if (extent.logical + extent.len) * block >= self.size {
                flags.push("eof");
            }
            (extent.logical, extent.start.0, extent.len, flags)
        });
        rows.collect()
    }

    fn block_size(&self) -> u64 {
        u64::from(self.at.image.vfs.fs().superblock().block_size.bytes())
    }

    fn json(&self, out: &mut Output) -> io::Result<()> {
        for (logical, physical, length, flags) in self.each() {
            let path = json::Path::new(&self.at.path);
            json::line(out, &Row { path, logical, physical, length, flags })?;
        }
        Ok(())
    }

    fn print(&self, out: &mut Output) -> io::Result<()> {
        let name = self.at.image.at(&self.at.path);
        let block = self.block_size();
        let blocks = self.size.div_ceil(block);
        let plural = if blocks == 1 { "" } else { "s" };
        let size = self.size;
        writeln!(out, "File size of {name} is {size} ({blocks} block{plural} of {block} bytes)")?;
        let rows = self.each();
        if !rows.is_empty() {
            writeln!(out, " ext:     logical_offset:        physical_offset: length:   expected: flags:")?;
        }
        let width = blocks.to_string().len().max(8);
        let (mut expected, mut end, mut count) = (0, 0, usize::from(!rows.is_empty()));
        for (number, (logical, physical, length, flags)) in rows.iter().enumerate() {
            // Behind a hole in the file, a hole of the same length on the device is expected.
            let sparse = expected + (logical - end);
            let is_apart = number > 0 && *physical != expected && *physical != sparse;
            count += usize::from(is_apart);
            let shown = if is_apart { format!("{sparse}:") } else { String::new() };
            let flags = flags.join(",");
            let blank = if flags.is_empty() { "" } else { " " };
            let (last, physical_last) = (logical + length - 1, physical + length - 1);
            write!(out, "{number:4}: {logical:width$}..{last:width$}: {physical:10}..{physical_last:10}: ")?;
            writeln!(out, "{length:6}: {shown:>11}{blank}{flags}")?;
            (expected, end) = (physical + length, logical + length);
        }
        let plural = if count == 1 { "" } else { "s" };
        writeln!(out, "{name}: {count} extent{plural} found")
    }
}
