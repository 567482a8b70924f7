//! `dentree label`, `uuid` and `tune`: parameters in the superblock.

use super::info;
use super::mkfs::identity::Identity;
use crate::args::{LabelArgs, TuneArgs, UuidArg, UuidArgs};
use crate::host::OsStrExt;
use crate::image::{Session, open_part};
use crate::output::{Output, escape};
use crate::report::{Problem, Status, Stop};
use dentree_blockdev::Access;
use dentree_ext4::{InodeTime, Tune, tune};
use std::ffi::OsStr;
use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

pub(crate) fn label(session: &Session, args: &LabelArgs) -> Result<(), Stop> {
    if let Some(new) = &args.new {
        check_label(&args.image, new)?;
        return change(session, &args.image, &[Tune::Label(new.as_bytes().to_vec())]);
    }
    let image = session.locate(&args.image)?.image;
    let mut out = Output::new();
    out.write_all(&out.names().show(&image.vfs.fs().superblock().volume_name))?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}

pub(crate) fn uuid(session: &Session, args: &UuidArgs) -> Result<(), Stop> {
    if let Some(new) = args.new {
        return change(session, &args.image, &[Tune::Uuid(new_uuid(&args.image, new)?)]);
    }
    let image = session.locate(&args.image)?.image;
    let mut out = Output::new();
    writeln!(out, "{}", info::uuid(&image.vfs.fs().superblock().uuid))?;
    Ok(out.flush()?)
}

pub(crate) fn run(session: &Session, args: &TuneArgs) -> Result<(), Stop> {
    let mut changes = args.changes();
    if let Some(label) = &args.label {
        check_label(&args.image, label)?;
        changes.push(Tune::Label(label.as_bytes().to_vec()));
    }
    if let Some(uuid) = args.uuid {
        changes.push(Tune::Uuid(new_uuid(&args.image, uuid)?));
    }
    change(session, &args.image, &changes)
}

fn check_label(image: &OsStr, label: &OsStr) -> Result<(), Problem> {
    if label.len() > 16 {
        let message = format!("the label has {} bytes, at most 16 are allowed", label.len());
        return Err(Problem::usage(escape::terminal(image.as_bytes()), message));
    }
    Ok(())
}

fn new_uuid(image: &OsStr, new: UuidArg) -> Result<[u8; 16], Problem> {
    match new {
        UuidArg::Given(uuid) => Ok(uuid),
        UuidArg::Random => {
            Ok(Identity::random().map_err(|error| Problem::local(image.as_bytes(), &error))?.uuid)
        }
    }
}

/// Changes an image that has no other user.
fn change(session: &Session, file: &OsStr, what: &[Tune]) -> Result<(), Stop> {
    if session.holds(file) {
        let message = "is open, which this change does not work on; make it outside of this shell";
        return Err(Problem::new(escape::terminal(file.as_bytes()), Status::Failed, message).into());
    }
    let (_, part) = open_part(file, &session.options, Access::ReadWrite)?;
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = InodeTime { seconds: i64::try_from(since.as_secs()).unwrap_or(0), nanos: 0 };
    tune(&part, what, now)
        .map_err(|error| Problem::inside(escape::terminal(file.as_bytes()), &error.into()).into())
}
