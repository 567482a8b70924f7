//! The members of an archive, as `tar -t` of GNU lists them; with `-v`, as with `--numeric-owner`.

use super::extract::{Interruptible, archive_file, archive_problem, unpacked};
use super::read::{Head, Members};
use crate::args::TarList;
use crate::host::OsStrExt;
use crate::image::Session;
use crate::output::attributes::{Clock, permissions};
use crate::output::{Output, escape};
use crate::report::Stop;
use dentree_vfs::FileType;
use std::ffi::OsStr;
use std::io::{self, Write};
use tar::EntryType;

/// GNU's first width of owner, group and size, with the space between them.
const OWNER_AND_SIZE: usize = 19;

pub(super) fn run(session: &Session, args: &TarList) -> Result<(), Stop> {
    let file = archive_file(args.file.as_deref())?;
    let interrupted = session.catch_interrupts()?;
    let from = Interruptible { file, flag: &interrupted };
    let (mut out, clock) = (Output::new(), Clock::local());
    let mut width = OWNER_AND_SIZE;
    let name = args.file.as_deref().map_or(b"-".as_slice(), OsStr::as_bytes);
    let failed = |error: io::Error| Stop::from(archive_problem(&escape::terminal(name), &error));
    let mut members = Members::new(unpacked(from).map_err(failed)?);
    while let Some(head) = members.next().map_err(failed)? {
        if args.verbose {
            write!(out, "{} ", details(&head, &mut width, &clock))?;
        }
        let names = out.names();
        out.write_all(&names.show(&head.path))?;
        if head.kind == EntryType::Directory && !head.path.ends_with(b"/") {
            out.write_all(b"/")?;
        }
        let arrow = match head.kind {
            EntryType::Symlink => " -> ",
            EntryType::Link => " link to ",
            _ => "",
        };
        if args.verbose && !arrow.is_empty() {
            out.write_all(arrow.as_bytes())?;
            out.write_all(&names.show(&head.link))?;
        }
        out.write_all(b"\n")?;
    }
    Ok(out.flush()?)
}

/// `-rw-r--r-- 0/0             5 2026-11-21 09:34`.
fn details(head: &Head, width: &mut usize, clock: &Clock) -> String {
    let size = match head.kind {
        EntryType::Char | EntryType::Block => format!("{},{}", head.device.0, head.device.1),
        EntryType::Link | EntryType::Symlink | EntryType::Directory | EntryType::Fifo => "0".to_owned(),
        _ => head.size().to_string(),
    };
    let owners = format!("{}/{}", head.uid, head.gid);
    let used = owners.len() + 1 + size.len();
    *width = used.max(*width);
    let room = *width - used + size.len();
    format!("{} {owners} {size:>room$} {}", mode(head), clock.minute(head.mtime))
}

fn mode(head: &Head) -> String {
    let kind = match head.kind {
        EntryType::Directory => FileType::Directory.letter(),
        EntryType::Symlink => FileType::Symlink.letter(),
        EntryType::Char => FileType::CharDevice.letter(),
        EntryType::Block => FileType::BlockDevice.letter(),
        EntryType::Fifo => FileType::Fifo.letter(),
        EntryType::Link => 'h',
        _ => '-',
    };
    format!("{kind}{}", permissions(head.permissions))
}
