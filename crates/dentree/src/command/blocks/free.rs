//! `dentree free`: unallocated blocks.

use crate::args::FreeArgs;
use crate::image::Session;
use crate::output::{Output, json};
use crate::report::Stop;
use dentree_ext4::BlockNumber;
use serde::Serialize;
use std::io::{self, Write};
use std::ops::{ControlFlow, Range};

/// Blocks in a row.
#[derive(Serialize)]
struct Run {
    first: u64,
    last: u64,
    blocks: u64,
}

pub(crate) fn run(session: &Session, args: &FreeArgs) -> Result<(), Stop> {
    let at = session.locate(&args.image)?;
    let fs = at.image.vfs.fs();
    let problem = |error: dentree_ext4::Error| at.problem(&error.into());
    let layout = fs.layout().map_err(problem)?;
    let mut out = Output::new();
    let (mut written, mut unread) = (Ok(()), None);
    let mut each = |run: Range<u64>| {
        written = if args.dump {
            run.into_iter().try_for_each(|block| match layout.read_at(BlockNumber(block)) {
                Ok(bytes) => out.write_all(&bytes),
                Err(error) => {
                    unread = Some(error);
                    Err(io::ErrorKind::Other.into())
                }
            })
        } else {
            let (first, last, blocks) = (run.start, run.end - 1, run.end - run.start);
            match args.json {
                true => json::line(&mut out, &Run { first, last, blocks }),
                false => writeln!(out, "{first}\t{last}\t{blocks}"),
            }
        };
        if written.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    layout.free_extents(&mut each).map_err(problem)?;
    if let Some(error) = unread {
        return Err(problem(error).into());
    }
    written?;
    Ok(out.flush()?)
}
