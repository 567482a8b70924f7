//! The tests of an expression: what they ask of a file, and what they cost.

use crate::candidate::{Candidate, is_dangling};
use crate::number::{Age, Number, Size, Used};
use crate::owners::Owners;
use crate::permissions::Permissions;
use dentree_vfs::{Attr, FileSystem, FileType, Identity, Ino, ReaddirStart, Timestamp};
use regex::bytes::Regex;
use std::ops::ControlFlow;
use std::sync::Arc;

/// What an evaluation reads, the cheapest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Cost {
    /// The name alone.
    Name,
    /// The directory entry's number and type, where it has them.
    Entry,
    /// The inode.
    Inode,
    /// More than the inode: a directory, a link's text, another path.
    More,
}

/// A time of an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimeField {
    /// Last access to the content.
    Access,
    /// Creation.
    Birth,
    /// Last change of the inode.
    Change,
    /// Last change of the content.
    Modification,
}

impl TimeField {
    /// A letter of `-newerXY`.
    pub(crate) fn parse(letter: u8) -> Option<TimeField> {
        Some(match letter {
            b'a' => TimeField::Access,
            b'B' => TimeField::Birth,
            b'c' => TimeField::Change,
            b'm' => TimeField::Modification,
            _ => return None,
        })
    }

    /// The time; inodes of 128 bytes have no time of birth.
    pub fn of(self, attr: &Attr) -> Option<Timestamp> {
        match self {
            TimeField::Access => Some(attr.atime),
            TimeField::Birth => attr.crtime,
            TimeField::Change => Some(attr.ctime),
            TimeField::Modification => Some(attr.mtime),
        }
    }
}

pub(crate) enum Test {
    Constant(bool),
    Name(Regex),
    Path(Regex),
    LinkText(Regex),
    Context(Regex),
    Type(Vec<FileType>),
    /// `-xtype`.
    OtherType(Vec<FileType>),
    Inode(Number),
    /// The file with this inode number, if it is in this image.
    SameFile(Option<Ino>),
    Links(Number),
    Uid(Number),
    Gid(Number),
    NoUser(Arc<Owners>),
    NoGroup(Arc<Owners>),
    Size(Size),
    Permissions(Permissions),
    /// For root, as access(2) says: of what a link leads to, and not where it leads nowhere.
    Accessible,
    Executable,
    Empty,
    Age(TimeField, Age),
    After(TimeField, Timestamp),
    Used(Used),
}

impl Test {
    pub(crate) fn cost(&self) -> Cost {
        match self {
            Test::Constant(_) | Test::Name(_) | Test::Path(_) => Cost::Name,
            Test::Type(_) | Test::Inode(_) | Test::SameFile(_) => Cost::Entry,
            Test::LinkText(_)
            | Test::Context(_)
            | Test::OtherType(_)
            | Test::Accessible
            | Test::Executable
            | Test::Empty => Cost::More,
            _ => Cost::Inode,
        }
    }

    /// `None` where the file cannot be judged: see [`Candidate`].
    pub(crate) fn holds<F: FileSystem>(&self, file: &Candidate<'_, F>) -> Option<bool> {
        Some(match self {
            Test::Constant(value) => *value,
            Test::Name(pattern) => pattern.is_match(file.name()),
            Test::Path(pattern) => pattern.is_match(file.path()),
            Test::LinkText(pattern) => {
                file.kind()? == FileType::Symlink && pattern.is_match(&file.link_text()?)
            }
            Test::Context(pattern) => pattern.is_match(&file.context()?),
            Test::Type(kinds) => kinds.contains(&file.kind()?),
            Test::OtherType(kinds) => match file.other_kind()? {
                Ok(kind) => kinds.contains(&kind),
                Err(error) => {
                    is_dangling(&error, || file.problem(&error)) && kinds.contains(&FileType::Symlink)
                }
            },
            Test::Inode(number) => number.holds(file.ino()?.0),
            Test::SameFile(ino) => Some(file.ino()?) == *ino,
            Test::Accessible => file.kind()? != FileType::Symlink || file.link_target()?.is_some(),
            Test::Executable => {
                let end =
                    if file.kind()? == FileType::Symlink { file.link_target()? } else { Some(*file.attr()?) };
                end.is_some_and(|attr| attr.is_dir() || attr.permissions & 0o111 != 0)
            }
            Test::Empty => match file.kind()? {
                FileType::Regular => file.attr()?.size == 0,
                FileType::Directory => is_empty(file)?,
                _ => false,
            },
            _ => self.holds_for_inode(file.attr()?),
        })
    }

    fn holds_for_inode(&self, attr: &Attr) -> bool {
        match self {
            Test::Links(number) => number.holds(attr.nlink.into()),
            Test::Uid(number) => number.holds(attr.uid.into()),
            Test::Gid(number) => number.holds(attr.gid.into()),
            Test::NoUser(owners) => owners.user(attr.uid).is_none(),
            Test::NoGroup(owners) => owners.group(attr.gid).is_none(),
            Test::Size(size) => size.holds(attr.size),
            Test::Permissions(permissions) => permissions.holds(attr),
            Test::Age(field, age) => field.of(attr).is_some_and(|time| age.holds(time)),
            Test::After(field, limit) => field.of(attr).is_some_and(|time| time > *limit),
            Test::Used(used) => used.holds(attr.atime, attr.ctime),
            _ => false,
        }
    }
}

fn is_empty<F: FileSystem>(dir: &Candidate<'_, F>) -> Option<bool> {
    let mut is_empty = true;
    let mut each = |_: dentree_vfs::DirEntry<'_>| {
        is_empty = false;
        ControlFlow::Break(())
    };
    let caller = &Identity::Superuser;
    let listed = dir.at.vfs.readdir(caller, &*dir.node()?, ReaddirStart::First, &mut each);
    listed.map_err(|error| dir.problem(&error)).ok()?;
    Some(is_empty)
}
