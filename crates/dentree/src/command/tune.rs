//! `dentree label` and `dentree uuid`: parameters in the superblock.

use super::info;
use super::mkfs::identity::Identity;
use crate::args::{LabelArgs, UuidArg, UuidArgs};
use crate::image::{Session, open_part};
use crate::output::{Output, escape};
use crate::report::{Problem, Stop};
use dentree_blockdev::Access;
use dentree_ext4::{InodeTime, Tune, tune};
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::time::{SystemTime, UNIX_EPOCH};

pub(crate) fn label(session: &Session, args: &LabelArgs) -> Result<(), Stop> {
    if let Some(new) = &args.new {
        if new.len() > 16 {
            let message = format!("the label has {} bytes, at most 16 are allowed", new.len());
            return Err(Problem::usage(escape::terminal(args.image.as_bytes()), message).into());
        }
        return change(session, &args.image, &Tune::Label(new.as_bytes().to_vec()));
    }
    let image = session.locate(&args.image)?.image;
    let mut out = Output::new();
    out.write_all(&out.names().show(&image.vfs.fs().superblock().volume_name))?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}

pub(crate) fn uuid(session: &Session, args: &UuidArgs) -> Result<(), Stop> {
    let new = match args.new {
        Some(UuidArg::Given(uuid)) => uuid,
        Some(UuidArg::Random) => {
            let made = Identity::random();
            made.map_err(|error| Problem::local(args.image.as_bytes(), &error))?.uuid
        }
        None => {
            let image = session.locate(&args.image)?.image;
            let mut out = Output::new();
            writeln!(out, "{}", info::uuid(&image.vfs.fs().superblock().uuid))?;
            return Ok(out.flush()?);
        }
    };
    change(session, &args.image, &Tune::Uuid(new))
}

/// Changes an image that has no other user.
fn change(session: &Session, file: &OsStr, what: &Tune) -> Result<(), Stop> {
    let (_, part) = open_part(file, &session.options, Access::ReadWrite)?;
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = InodeTime { seconds: i64::try_from(since.as_secs()).unwrap_or(0), nanos: 0 };
    tune(&part, what, now)
        .map_err(|error| Problem::inside(escape::terminal(file.as_bytes()), &error.into()).into())
}
