//! `dentree truncate`: shortens files, or extends them by holes.

use super::chmod::umask;
use super::touch::make;
use crate::args::TruncateArgs;
use crate::image::{SUPERUSER, Session};
use crate::report::Stop;
use dentree_vfs::{SetAttr, WalkOptions};

pub(crate) fn run(session: &Session, args: &TruncateArgs) -> Result<(), Stop> {
    let permissions = 0o666 & !umask();
    session.change_each(&args.locations, |at| {
        let node = match at.find(WalkOptions::FOLLOW)? {
            Some(node) => node,
            None if args.no_create => return Ok(()),
            None => make(at, permissions)?,
        };
        let size = args.size.of(node.attr().size);
        // As by truncate(2), also where the size does not change.
        let changes =
            SetAttr { size: Some(size), mtime: Some(dentree_vfs::SetTime::Now), ..SetAttr::default() };
        at.image.vfs.set_attr(SUPERUSER, &node, &changes).map_err(|error| at.problem(&error))
    });
    Ok(())
}
