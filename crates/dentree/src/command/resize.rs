//! `dentree resize`: makes a file system larger or smaller.

use crate::args::ResizeArgs;
use crate::host::OsStrExt;
use crate::image::{Session, address, choice, open_file, open_part};
use crate::output::{Output, escape, human};
use crate::report::{Problem, Status, Stop};
use dentree_blockdev::{Access, BlockDevice, FileDevice, locate};
use dentree_ext4::{Ext4, InodeTime, Options, Size, Superblock, enlarged, grow, shrink, shrunk};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// No page crosses the end of a file system that fills its place.
const PAGE: u64 = 4096;

/// Bytes that are looked at together.
const CHUNK: u64 = 1 << 20;

pub(crate) fn run(session: &Session, args: &ResizeArgs) -> Result<(), Stop> {
    let inside =
        |error: dentree_ext4::Error| Problem::inside(escape::terminal(args.image.as_bytes()), &error.into());
    let access = if args.print_minimum { Access::ReadOnly } else { Access::ReadWrite };
    let (_, part) = open_part(&args.image, &session.options, access)?;
    if args.print_minimum {
        return print(args, "at least ", &shrunk(&part, None).map_err(inside)?);
    }
    let size =
        if args.minimum { None } else { Some(args.size.unwrap_or(Size::Bytes(part.size() / PAGE * PAGE))) };
    let options = Options { replay_journal: false, ..Options::default() };
    let now = Ext4::open(part.clone(), options).map_err(inside)?.superblock().clone();
    let sb = match size {
        Some(size) if size.in_blocks(&now) >= now.blocks_count => longer(session, args, part, size)?,
        _ => {
            let is_all = is_empty_behind(&*part, &now);
            let sb = shrink(&part, size, time()).map_err(inside)?;
            let has = part.size();
            drop(part);
            if is_all {
                shorten(session, args, has, sb.blocks_count << sb.block_size.log2())?;
            }
            sb
        }
    };
    print(args, "", &sb)
}

fn print(args: &ResizeArgs, prefix: &str, sb: &Superblock) -> Result<(), Stop> {
    let mut out = Output::new();
    out.write_all(&out.names().show(args.image.as_bytes()))?;
    let (blocks, bytes) = (sb.blocks_count, sb.block_size.bytes());
    let (all, inodes) = (human(blocks << sb.block_size.log2()), sb.inodes_count);
    writeln!(out, ": {prefix}{all} in {blocks} blocks of {bytes} bytes, {inodes} inodes")?;
    Ok(out.flush()?)
}

fn time() -> InodeTime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    InodeTime { seconds: i64::try_from(since.as_secs()).unwrap_or(0), nanos: 0 }
}

/// Makes a file system larger, and an image that ends with it longer.
fn longer(
    session: &Session,
    args: &ResizeArgs,
    mut part: Arc<dyn BlockDevice>,
    size: Size,
) -> Result<Superblock, Stop> {
    let inside =
        |error: dentree_ext4::Error| Problem::inside(escape::terminal(args.image.as_bytes()), &error.into());
    let planned = enlarged(&part, size).map_err(inside)?;
    let (has, needs) = (part.size(), planned.blocks_count << planned.block_size.log2());
    if needs > has {
        drop(part);
        lengthen(session, args, has, needs)?;
        (_, part) = open_part(&args.image, &session.options, Access::ReadWrite)?;
    }
    Ok(grow(&part, size, time()).map_err(inside)?)
}

/// Makes an image longer whose file system ends where it ends.
fn lengthen(session: &Session, args: &ResizeArgs, has: u64, needs: u64) -> Result<(), Problem> {
    let refused = || {
        let message = format!(
            "the file system needs {needs} bytes, and its place has {has}: make the partition, device or \
             disk larger first"
        );
        Problem::new(escape::terminal(args.image.as_bytes()), Status::Failed, message)
    };
    let (mut file, start) = end_of_file(session, args, has)?.ok_or_else(refused)?;
    let end = start.checked_add(needs).ok_or_else(refused)?;
    file.set_size(end).map_err(|error| Problem::local(args.image.as_bytes(), &error))
}

/// Whether nothing lies behind a file system but zeros, fewer than a group: a last group that was
/// left out.
fn is_empty_behind(part: &dyn BlockDevice, sb: &Superblock) -> bool {
    let end = sb.blocks_count << sb.block_size.log2();
    let most = u64::from(sb.blocks_per_group) << sb.block_size.log2();
    let left = part.size().saturating_sub(end);
    let is_zero = |at: u64| {
        let mut bytes = vec![0; usize::try_from((end + left - at).min(CHUNK)).unwrap_or(0)];
        part.read_at(at, &mut bytes).is_ok() && bytes.iter().all(|byte| *byte == 0)
    };
    left < most && (end..end + left).step_by(1 << 20).all(is_zero)
}

/// Cuts an image behind its file system, unless that lies in a partition or on a device.
fn shorten(session: &Session, args: &ResizeArgs, has: u64, needs: u64) -> Result<(), Problem> {
    match end_of_file(session, args, has)? {
        Some((mut file, start)) if needs < has => {
            file.set_size(start + needs).map_err(|error| Problem::local(args.image.as_bytes(), &error))
        }
        _ => Ok(()),
    }
}

/// The file of an image whose file system has all `has` bytes up to its end, and their start.
fn end_of_file(session: &Session, args: &ResizeArgs, has: u64) -> Result<Option<(FileDevice, u64)>, Problem> {
    let is_file = std::fs::metadata(&args.image).is_ok_and(|found| found.is_file());
    if address(&args.image).is_some() || session.options.partition.is_some() || !is_file {
        return Ok(None);
    }
    let name = || escape::terminal(args.image.as_bytes());
    let failed = |error: dentree_blockdev::Error| Problem::new(name(), Status::Failed, error.to_string());
    let file = Arc::new(open_file(Path::new(&args.image), Access::ReadWrite).map_err(failed)?);
    let whole: Arc<dyn BlockDevice> = file.clone();
    let start = match locate(whole, choice(&session.options)) {
        Ok(part) if part.start() == session.options.offset.unwrap_or(0) && part.size() == has => part.start(),
        _ => return Ok(None),
    };
    Ok(Arc::into_inner(file).map(|file| (file, start)))
}
