//! `dentree resize`: makes a file system larger.

use crate::args::ResizeArgs;
use crate::image::{Session, address, choice, open_file, open_part};
use crate::output::{Output, escape, human};
use crate::report::{Problem, Status, Stop};
use dentree_blockdev::{Access, BlockDevice, locate};
use dentree_ext4::{InodeTime, Size, enlarged, grow};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// No page crosses the end of a file system that fills its place.
const PAGE: u64 = 4096;

pub(crate) fn run(session: &Session, args: &ResizeArgs) -> Result<(), Stop> {
    let inside =
        |error: dentree_ext4::Error| Problem::inside(escape::terminal(args.image.as_bytes()), &error.into());
    let open = || open_part(&args.image, &session.options, Access::ReadWrite);
    let (_, mut part) = open()?;
    let size = args.size.unwrap_or(Size::Bytes(part.size() / PAGE * PAGE));
    let planned = enlarged(&part, size).map_err(inside)?;
    let (has, needs) = (part.size(), planned.blocks_count << planned.block_size.log2());
    if needs > has {
        drop(part);
        lengthen(session, args, has, needs)?;
        part = open()?.1;
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = InodeTime { seconds: i64::try_from(since.as_secs()).unwrap_or(0), nanos: 0 };
    let sb = grow(&part, size, now).map_err(inside)?;
    let mut out = Output::new();
    out.write_all(&out.names().show(args.image.as_bytes()))?;
    let (blocks, bytes) = (sb.blocks_count, sb.block_size.bytes());
    let (all, inodes) = (human(blocks << sb.block_size.log2()), sb.inodes_count);
    writeln!(out, ": {all} in {blocks} blocks of {bytes} bytes, {inodes} inodes")?;
    Ok(out.flush()?)
}

/// Makes an image longer whose file system ends where it ends.
fn lengthen(session: &Session, args: &ResizeArgs, has: u64, needs: u64) -> Result<(), Problem> {
    let name = || escape::terminal(args.image.as_bytes());
    let refused = || {
        let message = format!(
            "the file system needs {needs} bytes, and its place has {has}: make the partition, device or \
             disk larger first"
        );
        Problem::new(name(), Status::Failed, message)
    };
    let is_file = std::fs::metadata(&args.image).is_ok_and(|found| found.is_file());
    if address(&args.image).is_some() || session.options.partition.is_some() || !is_file {
        return Err(refused());
    }
    let failed = |error: dentree_blockdev::Error| Problem::new(name(), Status::Failed, error.to_string());
    let file = Arc::new(open_file(Path::new(&args.image), Access::ReadWrite).map_err(failed)?);
    let whole: Arc<dyn BlockDevice> = file.clone();
    let start = match locate(whole, choice(&session.options)) {
        Ok(part) if part.start() == session.options.offset.unwrap_or(0) && part.size() == has => part.start(),
        _ => return Err(refused()),
    };
    let end = start.checked_add(needs).ok_or_else(refused)?;
    let mut file = Arc::into_inner(file).ok_or_else(refused)?;
    file.set_size(end).map_err(|error| Problem::local(args.image.as_bytes(), &error))
}
