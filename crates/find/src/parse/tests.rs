//! Words of tests.

use super::{Compile, Parser, Wrong, is_newer};
use crate::number::{Age, AgeUnit, Number, Size, Used, nanos};
use crate::owners::Owners;
use crate::permissions::Permissions;
use crate::test::{Test, TimeField};
use crate::{FILE_SYSTEM, glob, regex};
use dentree_vfs::{FileType, Ino, Timestamp};
use jiff::tz::TimeZone;
use std::ffi::OsStr;
use std::sync::Arc;

impl<C: Compile> Parser<'_, '_, C> {
    pub(super) fn test(&mut self, name: &str) -> Result<Option<Test>, C::Error> {
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
            "-fstype" => Test::Constant(self.words.text(name)? == FILE_SYSTEM),
            "-inum" => Test::Inode(self.number(name)?),
            "-links" => Test::Links(self.number(name)?),
            "-uid" => Test::Uid(self.number(name)?),
            "-gid" => Test::Gid(self.number(name)?),
            "-user" => Test::Uid(self.owner(name)?),
            "-group" => Test::Gid(self.owner(name)?),
            "-nouser" => Test::NoUser(self.owners()),
            "-nogroup" => Test::NoGroup(self.owners()),
            "-perm" => {
                let text = self.words.text(name)?;
                let permissions = Permissions::parse(text);
                Test::Permissions(permissions.ok_or_else(|| {
                    Wrong::new(format!("'{text}' is no mode for -perm: 644, u=rw,go=r, or one after - or /"))
                })?)
            }
            "-samefile" => Test::SameFile(self.same_file(name)?),
            "-size" => {
                let text = self.words.text(name)?;
                let size = Size::parse(text);
                Test::Size(size.ok_or_else(|| {
                    Wrong::new(format!("'{text}' is no size for -size: N, +N or -N, then c, w, b, k, M or G"))
                })?)
            }
            _ => return Ok(None),
        }))
    }

    fn name_test(&mut self, name: &str) -> Result<Option<Test>, C::Error> {
        let (make, ignores_case): (fn(_) -> Test, _) = match name {
            "-name" => (Test::Name, false),
            "-iname" => (Test::Name, true),
            "-path" | "-wholename" => (Test::Path, false),
            "-ipath" | "-iwholename" => (Test::Path, true),
            "-lname" => (Test::LinkText, false),
            "-ilname" => (Test::LinkText, true),
            "-context" => (Test::Context, false),
            "-regex" | "-iregex" => {
                let pattern = self.words.bytes(name)?;
                let regex = regex::compile(pattern, self.syntax, name == "-iregex").map_err(Wrong::new)?;
                return Ok(Some(Test::Path(regex)));
            }
            _ => return Ok(None),
        };
        let pattern = self.words.bytes(name)?;
        Ok(Some(make(glob::compile(pattern, ignores_case).map_err(Wrong::new)?)))
    }

    fn time_test(&mut self, name: &str) -> Result<Option<Test>, C::Error> {
        let (field, unit) = match name {
            "-amin" => (TimeField::Access, AgeUnit::Minutes),
            "-atime" => (TimeField::Access, AgeUnit::Days),
            "-cmin" => (TimeField::Change, AgeUnit::Minutes),
            "-ctime" => (TimeField::Change, AgeUnit::Days),
            "-mmin" => (TimeField::Modification, AgeUnit::Minutes),
            "-mtime" => (TimeField::Modification, AgeUnit::Days),
            "-used" => {
                let text = self.words.text(name)?;
                return Ok(Some(Test::Used(
                    Used::parse(text).ok_or_else(|| Wrong::argument(name, text.as_ref()))?,
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
        let text = self.words.text(name)?;
        let now = nanos(self.today.unwrap_or(self.now));
        let age = Age::parse(text, unit, now).ok_or_else(|| Wrong::argument(name, text.as_ref()))?;
        Ok(Some(Test::Age(field, age)))
    }

    /// Counts ages from the end of today.
    pub(super) fn start_of_day(&mut self) {
        let now = jiff::Timestamp::from_second(self.now.seconds).unwrap_or_default();
        let today = now.to_zoned(TimeZone::system()).start_of_day();
        let seconds = today.map_or(self.now.seconds, |today| today.timestamp().as_second());
        self.today = Some(Timestamp { seconds: seconds + 86_400, nanos: 0 });
    }

    fn number(&mut self, name: &str) -> Result<Number, Wrong> {
        let text = self.words.text(name)?;
        Number::parse(text).ok_or_else(|| Wrong::new(format!("'{text}' is no number N, +N or -N for {name}")))
    }

    fn kinds(&mut self, name: &str) -> Result<Vec<FileType>, Wrong> {
        let text = self.words.text(name)?;
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
                    return Err(Wrong::new(format!("'{text}' is no list of types for {name}: {list}")));
                }
            };
            if kinds.contains(&kind) {
                return Err(Wrong::new(format!("'{text}' names a type twice for {name}")));
            }
            kinds.push(kind);
        }
        Ok(kinds)
    }

    /// Without an image there are none.
    fn owners(&self) -> Arc<Owners> {
        self.compile.owners().unwrap_or_default()
    }

    fn owner(&mut self, name: &str) -> Result<Number, Wrong> {
        let text = self.words.text(name)?;
        let owners = self.compile.owners();
        let of = |owners: &Arc<Owners>| if name == "-user" { owners.uid(text) } else { owners.gid(text) };
        match owners.as_ref().map(of) {
            Some(Some(id)) => Ok(Number::exactly(id.into())),
            None => Ok(Number::exactly(0)),
            Some(None) => {
                let file = if name == "-user" { "passwd" } else { "group" };
                let why = format!("is not in the image's /etc/{file}; a number needs not to be");
                Err(Wrong::word(text.as_ref(), &why))
            }
        }
    }

    fn same_file(&mut self, name: &str) -> Result<Option<Ino>, C::Error> {
        let file = self.words.argument(name)?;
        self.compile.inode_of(file, self.settings.follow)
    }

    /// `-newerXY`: time X is later than time Y of a file, or than the time `t` that the argument
    /// says.
    fn newer(&mut self, name: &str, x: u8, y: u8) -> Result<Test, C::Error> {
        let unknown =
            || Wrong::new(format!("{name} is no test: its letters are a, B, c and m, and t for a time"));
        let field = TimeField::parse(x).ok_or_else(unknown)?;
        let reference = if y == b't' { None } else { Some(TimeField::parse(y).ok_or_else(unknown)?) };
        let argument = self.words.argument(name)?;
        let limit = match reference {
            None => time(argument)?,
            Some(reference) => self.compile.time_of(argument, reference, self.settings.follow)?,
        };
        Ok(Test::After(field, limit))
    }
}

/// A time in words, as date(1) reads it.
fn time(argument: &OsStr) -> Result<Timestamp, Wrong> {
    let parsed = argument.to_str().and_then(|text| parse_datetime::parse_datetime(text).ok());
    let time = parsed.ok_or_else(|| Wrong::word(argument, "is no date or time"))?;
    let nanos = u32::try_from(time.subsec_nanosecond()).unwrap_or(0);
    Ok(Timestamp { seconds: time.unix_epoch_second(), nanos })
}
