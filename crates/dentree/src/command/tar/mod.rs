//! `dentree tar`: archives of trees in an image, in pax format as GNU tar writes it.
//!
//! - `create`: from an image to an archive. `extract`: from an archive into an image; `read` reads
//!   its members.
//! - `list`: the members of an archive.
//! - `layers`: archives that `mkfs --from` fills a new image from.
//! - `acl`, `sparse`: what pax headers say of access control lists and of holes.

mod acl;
pub(crate) mod create;
mod extract;
pub(crate) mod layers;
mod list;
mod read;
mod sparse;

use crate::args::{TarArgs, TarCommand};
use crate::image::Session;
use crate::report::Stop;

pub(crate) fn run(session: &Session, args: &TarArgs) -> Result<(), Stop> {
    match &args.command {
        TarCommand::Create(args) => create::run(session, args),
        TarCommand::Extract(args) => extract::run(session, args),
        TarCommand::List(args) => list::run(session, args),
    }
}

/// Attributes of a member in pax headers, by star's names that GNU tar and bsdtar share.
const XATTR: &str = "SCHILY.xattr.";
/// Lists in text form, and the attributes that hold them.
const ACLS: [(&str, &[u8]); 2] =
    [("SCHILY.acl.access", b"system.posix_acl_access"), ("SCHILY.acl.default", b"system.posix_acl_default")];
