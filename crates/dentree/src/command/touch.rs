//! `dentree touch`: sets times, and makes empty files.

use crate::args::{TouchArgs, WhichTime};
use crate::host::{self, OsStrExt, umask};
use crate::image::{Location, Node, SUPERUSER, Session};
use crate::report::{Problem, Stop};
use dentree_vfs::{Error, NewKind, SetAttr, SetTime, Timestamp, WalkOptions};
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use std::ffi::OsStr;
use std::path::Path;

/// Access and modification time.
type Times = (SetTime, SetTime);

pub(crate) fn run(session: &Session, args: &TouchArgs) -> Result<(), Stop> {
    // The reference may be in an image that is changed: that one is opened for writing first.
    for argument in &args.locations {
        let _ = session.locate_for_writing(argument);
    }
    let (access, modification) = times(session, args)?;
    let is_access = args.access || args.time == Some(WhichTime::Access);
    let is_modification = args.modification || args.time == Some(WhichTime::Modify);
    let both = is_access == is_modification;
    let changes = SetAttr {
        atime: (is_access || both).then_some(access),
        mtime: (is_modification || both).then_some(modification),
        ..SetAttr::default()
    };
    let last_link = if args.no_dereference { WalkOptions::KEEP_LINK } else { WalkOptions::FOLLOW };
    let permissions = 0o666 & !umask();
    session.change_each(&args.locations, |at| {
        let node = match at.find(last_link)? {
            Some(node) => node,
            None if args.no_create => return Ok(()),
            None => make(at, permissions)?,
        };
        at.image.vfs.set_attr(SUPERUSER, &node, &changes).map_err(|error| at.problem(&error))
    });
    Ok(())
}

pub(super) fn make(at: &Location, permissions: u16) -> Result<Node, Problem> {
    if at.requires_directory() {
        return Err(at.problem(&Error::NotFound));
    }
    let (dir, name) = at.last()?;
    let made = at.image.vfs.create(SUPERUSER, &dir, name, NewKind::Regular, permissions);
    made.map_err(|error| match error {
        // A dangling link.
        Error::Exists => at.refusal("is a dangling symbolic link"),
        error => at.problem(&error),
    })
}

fn times(session: &Session, args: &TouchArgs) -> Result<Times, Problem> {
    let one = |text: &str, time: Option<jiff::Timestamp>| {
        let time = time.ok_or_else(|| Problem::usage(format!("{text:?}"), "not a time; see --help"))?;
        let time = SetTime::At(timestamp(time));
        Ok((time, time))
    };
    let zone = TimeZone::system();
    match (&args.date, &args.stamp, &args.reference) {
        (Some(text), ..) => one(text, parse_date(text, &zone)),
        (_, Some(text), _) => one(text, parse_stamp(text, &zone)),
        (.., Some(file)) => of_file(session, file),
        _ => Ok((SetTime::Now, SetTime::Now)),
    }
}

fn of_file(session: &Session, file: &OsStr) -> Result<Times, Problem> {
    if session.names_image(file) {
        let attr = session.locate(file)?.walk(WalkOptions::FOLLOW)?.attr();
        return Ok((SetTime::At(attr.atime), SetTime::At(attr.mtime)));
    }
    let found = host::stat(Path::new(file), true).map_err(|error| Problem::local(file.as_bytes(), &error))?;
    Ok((SetTime::At(found.attr.atime), SetTime::At(found.attr.mtime)))
}

/// Seconds rounded down, and nanoseconds.
fn timestamp(time: jiff::Timestamp) -> Timestamp {
    let (seconds, nanos) = (time.as_second(), time.subsec_nanosecond());
    match u32::try_from(nanos) {
        Ok(nanos) => Timestamp { seconds, nanos },
        // Before 1970 both parts are negative.
        Err(_) => {
            Timestamp { seconds: seconds - 1, nanos: u32::try_from(1_000_000_000 + nanos).unwrap_or(0) }
        }
    }
}

pub(crate) fn parse_date(text: &str, zone: &TimeZone) -> Option<jiff::Timestamp> {
    if let Some(seconds) = text.strip_prefix('@') {
        let (whole, fraction) = seconds.split_once('.').unwrap_or((seconds, ""));
        let is_number = fraction.len() <= 9 && fraction.bytes().all(|byte| byte.is_ascii_digit());
        let nanos: i32 = format!("{fraction:0<9}").parse().ok().filter(|_| is_number)?;
        let sign = if whole.starts_with('-') { -1 } else { 1 };
        return jiff::Timestamp::new(whole.parse().ok()?, sign * nanos).ok();
    }
    if let Ok(time) = text.parse::<jiff::Timestamp>() {
        return Some(time);
    }
    let civil = text.parse::<DateTime>().ok().or_else(|| text.parse::<Date>().ok().map(DateTime::from))?;
    Some(civil.to_zoned(zone.clone()).ok()?.timestamp())
}

/// `[[CC]YY]MMDDhhmm[.ss]`.
fn parse_stamp(text: &str, zone: &TimeZone) -> Option<jiff::Timestamp> {
    let (digits, seconds) = text.split_once('.').unwrap_or((text, "00"));
    let is_number = seconds.len() == 2
        && [digits, seconds].iter().all(|part| part.bytes().all(|byte| byte.is_ascii_digit()));
    if !is_number {
        return None;
    }
    let year: i16 = match digits.len() {
        8 => jiff::Timestamp::now().to_zoned(zone.clone()).year(),
        // POSIX: 69 to 99 are 1969 to 1999.
        10 => match digits[..2].parse().ok()? {
            year @ 69.. => 1900 + year,
            year => 2000 + year,
        },
        12 => digits[..4].parse().ok()?,
        _ => return None,
    };
    let rest = &digits[digits.len() - 8..];
    let part = |at: usize| rest.get(at..at + 2).and_then(|part| part.parse::<i8>().ok());
    let civil = DateTime::new(year, part(0)?, part(2)?, part(4)?, part(6)?, seconds.parse().ok()?, 0).ok()?;
    Some(civil.to_zoned(zone.clone()).ok()?.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_read_in_the_local_zone_unless_they_say_otherwise() {
        let date = |text: &str| {
            parse_date(text, &TimeZone::UTC).map(timestamp).map(|time| (time.seconds, time.nanos))
        };
        assert_eq!(date("@1700000000.25"), Some((1_700_000_000, 250_000_000)));
        assert_eq!(date("@-1.5"), Some((-2, 500_000_000)));
        assert_eq!(date("2023-11-14T22:13:20Z"), Some((1_700_000_000, 0)));
        assert_eq!(date("2023-11-14 23:13:20+01:00"), Some((1_700_000_000, 0)));
        assert_eq!(date("2023-11-14 22:13:20.5"), Some((1_700_000_000, 500_000_000)));
        assert_eq!(date("1969-12-31"), Some((-86_400, 0)));
        for wrong in ["", "@", "@x", "yesterday", "2023-13-01", "@1.1234567890"] {
            assert_eq!(date(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn stamps_are_those_of_posix() {
        let stamp = |text: &str| parse_stamp(text, &TimeZone::UTC).map(jiff::Timestamp::as_second);
        assert_eq!(stamp("202311142213.20"), Some(1_700_000_000));
        assert_eq!(stamp("2311142213.20"), Some(1_700_000_000));
        assert_eq!(stamp("7001010000"), Some(0));
        assert!(stamp("01010000").is_some());
        for wrong in ["", "1", "202313142213", "202311142213.", "202311142213.2", "20231114221é"] {
            assert_eq!(stamp(wrong), None, "{wrong}");
        }
    }
}
