//! `dentree cat`: prints the content of files.

use crate::args::CatArgs;
use crate::image::{Location, Node, Session};
use crate::interrupt;
use crate::listed;
use crate::report::Stop;
use dentree_vfs::WalkOptions;
use std::ffi::OsString;
use std::io::{self, Write};
use std::slice;

const CHUNK: usize = 1 << 20;

pub(crate) fn run(session: &Session, args: &CatArgs) -> Result<(), Stop> {
    let mut buf = vec![0; CHUNK];
    let mut each = |locations: &[OsString]| {
        listed::walk(session, locations, &args.listed, WalkOptions::FOLLOW, |at, node| {
            Ok(copy(session, &at, &node, &mut buf)?)
        })
    };
    if !args.locations.iter().any(|location| location == "-") {
        return each(&args.locations);
    }
    for location in &args.locations {
        if location == "-" {
            io::copy(&mut io::stdin().lock(), &mut io::stdout().lock())?;
        } else {
            each(slice::from_ref(location))?;
        }
    }
    Ok(())
}

fn copy(session: &Session, at: &Location, node: &Node, buf: &mut [u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    let mut offset = 0;
    loop {
        match at.image.vfs.read(node, offset, buf) {
            Ok(0) => return stdout.flush(),
            _ if interrupt::has_come() => return stdout.flush(),
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
