//! `dentree cat`: prints the content of files.

use crate::args::CatArgs;
use crate::image::{Location, Node, Session};
use crate::listed;
use crate::report::Stop;
use dentree_vfs::WalkOptions;
use std::io::{self, Write};

const CHUNK: usize = 1 << 20;

pub(crate) fn run(session: &Session, args: &CatArgs) -> Result<(), Stop> {
    let mut buf = vec![0; CHUNK];
    listed::walk(session, &args.locations, &args.listed, WalkOptions::FOLLOW, |at, node| {
        Ok(copy(session, &at, &node, &mut buf)?)
    })
}

fn copy(session: &Session, at: &Location, node: &Node, buf: &mut [u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    let mut offset = 0;
    loop {
        match at.image.vfs.read(node, offset, buf) {
            Ok(0) => return stdout.flush(),
            Ok(len) => {
                stdout.write_all(&buf[..len])?;
                offset += len as u64;
            }
            Err(error) => {
                session.report.problem(&at.image.problem(&at.path, &error));
                return stdout.flush();
            }
        }
    }
}
