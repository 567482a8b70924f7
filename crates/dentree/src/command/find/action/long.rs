//! `-ls`: a line as of `ls -dils`.

use super::super::candidate::Candidate;
use crate::output::attributes::{Clock, mode};
use dentree_find::Owners;
use dentree_vfs::{FileType, Timestamp};
use std::io::Write;
use std::sync::Arc;

/// Half a year, in seconds: older times are shown with their year.
const RECENT: i64 = 31_556_952 / 2;

pub(in super::super) struct Long {
    pub(in super::super) owners: Arc<Owners>,
    pub(in super::super) clock: Clock,
    pub(in super::super) now: Timestamp,
}

impl Long {
    pub(super) fn print(&self, file: &Candidate<'_>, out: &mut Vec<u8>) -> Option<()> {
        let attr = file.attr()?;
        let owner = |name: Option<&str>, id: u32| name.map_or_else(|| id.to_string(), str::to_owned);
        let user = owner(self.owners.user(attr.uid), attr.uid);
        let group = owner(self.owners.group(attr.gid), attr.gid);
        let size = match attr.kind {
            FileType::BlockDevice | FileType::CharDevice => {
                format!("{:>3}, {:>3}", attr.rdev_major, attr.rdev_minor)
            }
            _ => format!("{:>8}", attr.size),
        };
        let age = self.now.seconds.saturating_sub(attr.mtime.seconds);
        let is_recent = (0..=RECENT).contains(&age);
        let time = self.clock.format(attr.mtime, if is_recent { "%b %e %H:%M" } else { "%b %e  %Y" });
        let (blocks, mode) = (attr.blocks.div_ceil(2), mode(attr).chars().take(10).collect::<String>());
        // Writing to a vector cannot fail.
        let _ = write!(
            out,
            "{:>9} {blocks:>6} {mode} {:>3} {user:<8} {group:<8} {size} {time} ",
            attr.ino.0, attr.nlink
        );
        escape(&file.shown(), out);
        if attr.kind == FileType::Symlink {
            out.extend_from_slice(b" -> ");
            escape(&file.link_text()?, out);
        }
        out.push(b'\n');
        Some(())
    }
}

/// Names as `ls -b` shows them in the C locale.
fn escape(name: &[u8], out: &mut Vec<u8>) {
    for &byte in name {
        match byte {
            b' ' | b'\\' | b'"' => out.extend([b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\t' => out.extend_from_slice(b"\\t"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'!'..=b'~' => out.push(byte),
            _ => {
                let _ = write!(out, "\\{byte:03o}");
            }
        }
    }
}
