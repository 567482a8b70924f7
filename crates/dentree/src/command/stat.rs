//! `dentree stat`: the attributes of inodes.

use crate::args::StatArgs;
use crate::image::{Location, Node, Session};
use crate::listed;
use crate::output::attributes::{Clock, kind, mode};
use crate::output::{Output, json};
use crate::report::Stop;
use dentree_vfs::{FileType, WalkOptions};
use std::io::{self, Write};

pub(crate) fn run(session: &Session, args: &StatArgs) -> Result<(), Stop> {
    let mut out = Output::new();
    let clock = Clock::local();
    listed::walk(session, &args.locations, &args.listed, WalkOptions::KEEP_LINK, |at, node| {
        let target = target(session, &at, &node);
        if args.json {
            json::line(&mut out, &json::File::new(&at.path, &node.attr(), target.as_deref()))?;
        } else {
            describe(&mut out, &clock, &at, &node, target.as_deref())?;
        }
        Ok(())
    })?;
    Ok(out.flush()?)
}

fn target(session: &Session, at: &Location, node: &Node) -> Option<Vec<u8>> {
    if node.attr().kind != FileType::Symlink {
        return None;
    }
    match at.image.vfs.readlink(node) {
        Ok(target) => Some(target),
        Err(error) => {
            session.report.problem(&at.image.problem(&at.path, &error));
            None
        }
    }
}

fn describe(
    out: &mut Output,
    clock: &Clock,
    at: &Location,
    node: &Node,
    target: Option<&[u8]>,
) -> io::Result<()> {
    let attr = node.attr();
    let names = out.names();
    out.write_all(b"  File: ")?;
    out.write_all(&names.show(&at.path))?;
    if let Some(target) = target {
        out.write_all(b" -> ")?;
        out.write_all(&names.show(target))?;
    }
    writeln!(out, "\n  Type: {}", kind(attr.kind))?;
    write!(out, "  Size: {:<15} Blocks: {:<10} IO block: {}", attr.size, attr.blocks, attr.block_size)?;
    writeln!(out, "\n Inode: {:<16} Links: {:<8} Generation: {}", attr.ino, attr.nlink, attr.generation)?;
    writeln!(out, "Access: {:04o} {}  Uid: {}  Gid: {}", attr.permissions, mode(&attr), attr.uid, attr.gid)?;
    if matches!(attr.kind, FileType::BlockDevice | FileType::CharDevice) {
        writeln!(out, "Device: {}:{}", attr.rdev_major, attr.rdev_minor)?;
    }
    writeln!(out, " Flags: {}", flags(attr.flags))?;
    writeln!(out, "Access: {}", clock.exact(attr.atime))?;
    writeln!(out, "Modify: {}", clock.exact(attr.mtime))?;
    writeln!(out, "Change: {}", clock.exact(attr.ctime))?;
    writeln!(out, " Birth: {}", attr.crtime.map_or("-".into(), |time| clock.exact(time)))
}

/// `FS_*_FL` under the names of chattr(1) and the kernel.
fn flags(flags: u32) -> String {
    const NAMES: [(u32, &str); 17] = [
        (0x8, "sync"),
        (0x10, "immutable"),
        (0x20, "append-only"),
        (0x40, "no-dump"),
        (0x80, "no-atime"),
        (0x800, "encrypted"),
        (0x1000, "indexed-directory"),
        (0x4000, "journalled-data"),
        (0x8000, "no-tail"),
        (0x1_0000, "synchronous-directory"),
        (0x2_0000, "top-of-directory-hierarchy"),
        (0x4_0000, "huge-file"),
        (0x8_0000, "extents"),
        (0x10_0000, "verity"),
        (0x20_0000, "attribute-value"),
        (0x1000_0000, "inline-data"),
        (0x4000_0000, "casefold"),
    ];
    let known = NAMES.iter().filter(|(bit, _)| flags & bit != 0);
    let names: Vec<&str> = known.map(|(_, name)| *name).collect();
    if names.is_empty() { format!("{flags:#x}") } else { format!("{flags:#x} ({})", names.join(", ")) }
}
