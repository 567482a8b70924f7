//! Words of tests.

use super::super::action::FILE_SYSTEM;
use super::super::glob;
use super::super::number::{Age, AgeUnit, Number, Size, Used, nanos};
use super::super::permissions::Permissions;
use super::super::regex;
use super::super::test::{Test, TimeField};
use super::{Follow, Parser, is_newer, walk, wrong};
use crate::image::{Location, Node};
use crate::report::Problem;
use dentree_vfs::{FileType, Ino, Timestamp};
use jiff::tz::TimeZone;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

impl<'w> Parser<'w, '_> {
    pub(super) fn test(&mut self, name: &'w str) -> Result<Option<Test>, Problem> {
        if let Some(test) = self.name_test(name)? {
            return Ok(Some(test));
        }
        if let Some(test) = self.time_test(name)? {
            return Ok(Some(test));
        }
        Ok(Some(match name {
            "-true" => Test::Constant(true),
            "-readable" | "-writable" => Test::Accessible,
            "-false" => Test::Constant(false),
            "-type" => Test::Type(self.kinds(name)?),
            "-xtype" => Test::OtherType(self.kinds(name)?),
            "-empty" => Test::Empty,
            "-executable" => Test::Executable,
            "-fstype" => Test::Constant(self.text(name)? == FILE_SYSTEM),
            "-inum" => Test::Inode(self.number(name)?),
            "-links" => Test::Links(self.number(name)?),
            "-uid" => Test::Uid(self.number(name)?),
            "-gid" => Test::Gid(self.number(name)?),
            "-user" => Test::Uid(self.owner(name)?),
            "-group" => Test::Gid(self.owner(name)?),
            "-nouser" => Test::NoUser(self.context.owners.clone()),
            "-nogroup" => Test::NoGroup(self.context.owners.clone()),
            "-perm" => {
                let text = self.text(name)?;
                let permissions = Permissions::parse(text);
                Test::Permissions(permissions.ok_or_else(|| {
                    wrong(format!("'{text}' is no mode for -perm: 644, u=rw,go=r, or one after - or /"))
                })?)
            }
            "-samefile" => Test::SameFile(self.same_file(name)?),
            "-size" => {
                let text = self.text(name)?;
                let size = Size::parse(text);
                Test::Size(size.ok_or_else(|| {
                    wrong(format!("'{text}' is no size for -size: N, +N or -N, then c, w, b, k, M or G"))
                })?)
            }
            _ => return Ok(None),
        }))
    }

    fn name_test(&mut self, name: &'w str) -> Result<Option<Test>, Problem> {
        let (make, ignores_case): (fn(_) -> Test, _) = match name {
            "-name" => (Test::Name, false),
            "-iname" => (Test::Name, true),
            "-path" | "-wholename" => (Test::Path, false),
            "-ipath" | "-iwholename" => (Test::Path, true),
            "-lname" => (Test::LinkText, false),
            "-ilname" => (Test::LinkText, true),
            "-context" => (Test::Context, false),
            "-regex" | "-iregex" => {
                let pattern = self.argument(name)?.as_bytes();
                let regex = regex::compile(pattern, self.syntax, name == "-iregex").map_err(wrong)?;
                return Ok(Some(Test::Path(regex)));
            }
            _ => return Ok(None),
        };
        let pattern = self.argument(name)?.as_bytes();
        Ok(Some(make(glob::compile(pattern, ignores_case).map_err(wrong)?)))
    }

    fn time_test(&mut self, name: &'w str) -> Result<Option<Test>, Problem> {
        let (field, unit) = match name {
            "-amin" => (TimeField::Access, AgeUnit::Minutes),
            "-atime" => (TimeField::Access, AgeUnit::Days),
            "-cmin" => (TimeField::Change, AgeUnit::Minutes),
            "-ctime" => (TimeField::Change, AgeUnit::Days),
            "-mmin" => (TimeField::Modification, AgeUnit::Minutes),
            "-mtime" => (TimeField::Modification, AgeUnit::Days),
            "-used" => {
                let text = self.text(name)?;
                return Ok(Some(Test::Used(
                    Used::parse(text).ok_or_else(|| self.invalid(name, text.as_ref()))?,
                )));
            }
            "-newer" => return self.newer(name, b'm', b'm').map(Some),
            "-anewer" => return self.newer(name, b'a', b'm').map(Some),
            "-cnewer" => return self.newer(name, b'c', b'm').map(Some),
            _ if is_newer(name) => {
                let letters = &name.as_bytes()[name.len() - 2..];
                return self.newer(name, letters[0], letters[1]).map(Some);
            }
            _ => return Ok(None),
        };
        let text = self.text(name)?;
        let now = nanos(self.today.unwrap_or(self.context.now));
        let age = Age::parse(text, unit, now).ok_or_else(|| self.invalid(name, text.as_ref()))?;
        Ok(Some(Test::Age(field, age)))
    }

    /// Counts ages from the end of today.
    pub(super) fn start_of_day(&mut self) {
        let now = jiff::Timestamp::from_second(self.context.now.seconds).unwrap_or_default();
        let today = now.to_zoned(TimeZone::system()).start_of_day();
        let seconds = today.map_or(self.context.now.seconds, |today| today.timestamp().as_second());
        self.today = Some(Timestamp { seconds: seconds + 86_400, nanos: 0 });
    }

    fn number(&mut self, name: &str) -> Result<Number, Problem> {
        let text = self.text(name)?;
        Number::parse(text).ok_or_else(|| wrong(format!("'{text}' is no number N, +N or -N for {name}")))
    }

    fn kinds(&mut self, name: &str) -> Result<Vec<FileType>, Problem> {
        let text = self.text(name)?;
        let mut kinds = Vec::new();
        for letter in text.split(',') {
            let kind = match letter {
                "f" => FileType::Regular,
                "d" => FileType::Directory,
                "l" => FileType::Symlink,
                "b" => FileType::BlockDevice,
                "c" => FileType::CharDevice,
                "p" => FileType::Fifo,
                "s" => FileType::Socket,
                _ => {
                    let list = "f, d, l, b, c, p and s, with commas between";
                    return Err(wrong(format!("'{text}' is no list of types for {name}: {list}")));
                }
            };
            if kinds.contains(&kind) {
                return Err(wrong(format!("'{text}' names a type twice for {name}")));
            }
            kinds.push(kind);
        }
        Ok(kinds)
    }

    fn owner(&mut self, name: &str) -> Result<Number, Problem> {
        let text = self.text(name)?;
        let owners = &self.context.owners;
        let (id, file) = match name {
            "-user" => (owners.uid(text), "passwd"),
            _ => (owners.gid(text), "group"),
        };
        match id {
            Some(id) => Ok(Number::exactly(id.into())),
            None if self.context.image.is_none() => Ok(Number::exactly(0)),
            None => {
                Err(wrong(format!("'{text}' is not in the image's /etc/{file}; a number needs not to be")))
            }
        }
    }

    fn same_file(&mut self, name: &str) -> Result<Option<Ino>, Problem> {
        let argument = self.argument(name)?;
        let Some(image) = self.context.image else { return Ok(None) };
        if self.is_local(argument) {
            return Err(wrong(format!("'{}' is no IMAGE:PATH for {name}", super::shown(argument))));
        }
        let (at, node) = self.reference(argument)?;
        Ok(Arc::ptr_eq(&at.image, image).then(|| node.ino()))
    }

    /// Whether the reference is a file of this machine, and no part of an image.
    fn is_local(&self, argument: &OsStr) -> bool {
        !self.context.session.names_image(argument)
    }

    /// A file of an image to compare with.
    fn reference(&self, argument: &OsStr) -> Result<(Location, Node), Problem> {
        let at = self.context.session.locate(argument)?;
        let node = walk(&at, self.settings.follow != Follow::Never)?;
        Ok((at, node))
    }

    /// `-newerXY`: time X is later than time Y of a file, on this machine or in an image, or than
    /// the time `t` that the argument says.
    fn newer(&mut self, name: &str, x: u8, y: u8) -> Result<Test, Problem> {
        let unknown = || wrong(format!("{name} is no test: its letters are a, B, c and m, and t for a time"));
        let field = TimeField::parse(x).ok_or_else(unknown)?;
        let reference = if y == b't' { None } else { Some(TimeField::parse(y).ok_or_else(unknown)?) };
        let argument = self.argument(name)?;
        let limit = match reference {
            None => time(argument)?,
            Some(_) if self.context.image.is_none() => Timestamp::default(),
            Some(reference) if self.is_local(argument) => {
                local_time(argument, reference, self.settings.follow)?
            }
            Some(reference) => {
                let (_, node) = self.reference(argument)?;
                reference.of(&node.attr()).ok_or_else(|| no_birth(argument))?
            }
        };
        Ok(Test::After(field, limit))
    }
}

fn no_birth(argument: &OsStr) -> Problem {
    wrong(format!("'{}' has no time of birth", super::shown(argument)))
}

fn local_time(argument: &OsStr, field: TimeField, follow: Follow) -> Result<Timestamp, Problem> {
    let path = Path::new(argument);
    let metadata = if follow == Follow::Never { path.symlink_metadata() } else { path.metadata() };
    let metadata = metadata.map_err(|error| Problem::local(argument.as_bytes(), &error))?;
    let at = |seconds, nanos: i64| Timestamp { seconds, nanos: nanos as u32 };
    Ok(match field {
        TimeField::Access => at(metadata.atime(), metadata.atime_nsec()),
        TimeField::Change => at(metadata.ctime(), metadata.ctime_nsec()),
        TimeField::Modification => at(metadata.mtime(), metadata.mtime_nsec()),
        TimeField::Birth => {
            let born = metadata.created().map_err(|_| no_birth(argument))?;
            let since = born.duration_since(std::time::UNIX_EPOCH).map_err(|_| no_birth(argument))?;
            at(since.as_secs().cast_signed(), since.subsec_nanos().into())
        }
    })
}

/// A time in words, as date(1) reads it.
fn time(argument: &OsStr) -> Result<Timestamp, Problem> {
    let parsed = argument.to_str().and_then(|text| parse_datetime::parse_datetime(text).ok());
    let time = parsed.ok_or_else(|| wrong(format!("'{}' is no date or time", super::shown(argument))))?;
    let nanos = u32::try_from(time.subsec_nanosecond()).unwrap_or(0);
    Ok(Timestamp { seconds: time.unix_epoch_second(), nanos })
}
