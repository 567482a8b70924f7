//! From a path to an inode.

use crate::{Error, FileSystem, FileType, Identity, Inode, Result, Vfs};
use std::sync::Arc;

/// The most symbolic links that one walk follows, as in the kernel (`MAXSYMLINKS`).
pub const SYMLINKS_MAX: usize = 40;
/// The longest component in bytes.
pub const NAME_MAX: usize = 255;
/// The longest path in bytes, as `PATH_MAX` less its NUL.
pub const PATH_MAX: usize = 4095;

/// What a walk does with a symbolic link that is the last component.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LastLink {
    /// Goes on to its target, as `stat(2)`.
    #[default]
    Follow,
    /// Answers the link itself, as `lstat(2)`.
    Keep,
    /// Fails with [`Error::Loop`], as `open(2)` with `O_NOFOLLOW`.
    Refuse,
}

/// How to walk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WalkOptions {
    /// What to do with a link at the end. A trailing slash always follows it.
    pub last_link: LastLink,
    /// Fail with [`Error::Loop`] at any link, as `RESOLVE_NO_SYMLINKS` of `openat2(2)`; a last link is still
    /// answered where `last_link` says `Keep`.
    pub no_links: bool,
    /// Fail with [`Error::Escapes`] where the path, or a link on it, leads above the start or is absolute, as
    /// `RESOLVE_BENEATH` of `openat2(2)`.
    pub beneath: bool,
    /// Fail with [`Error::NotADirectory`] unless the path ends at a directory.
    pub directory: bool,
}

impl WalkOptions {
    /// Follows links, the last one too: `stat(2)`.
    pub const FOLLOW: WalkOptions =
        WalkOptions { last_link: LastLink::Follow, no_links: false, beneath: false, directory: false };
    /// Answers a link at the end: `lstat(2)`.
    pub const KEEP_LINK: WalkOptions = WalkOptions { last_link: LastLink::Keep, ..WalkOptions::FOLLOW };
}

impl<F: FileSystem> Vfs<F> {
    /// Walks `path` from `start` for `who`. A path that begins with `/` starts at the root instead.
    ///
    /// Fails with [`Error::NotFound`] for an empty path or a missing name, [`Error::NotADirectory`] where a
    /// component before the last (or the last before a trailing slash) is none, [`Error::AccessDenied`] where a
    /// directory may not be searched, [`Error::Loop`] past [`SYMLINKS_MAX`] links, [`Error::NameTooLong`] past
    /// [`NAME_MAX`] or [`PATH_MAX`].
    pub fn walk(
        &self,
        who: &Identity,
        start: &Arc<Inode<F>>,
        path: &[u8],
        options: WalkOptions,
    ) -> Result<Arc<Inode<F>>> {
        if path.is_empty() {
            return Err(Error::NotFound);
        }
        if path.len() > PATH_MAX {
            return Err(Error::NameTooLong);
        }
        let mut rest = path.to_vec();
        let mut at = self.enter(start, &rest, options)?;
        let mut links = 0;
        while let Some((name, behind)) = split(&rest) {
            if name == b".." && options.beneath && at.ino() == start.ino() {
                return Err(Error::Escapes);
            }
            let next = self.lookup(who, &at, name)?.ok_or(Error::NotFound)?;
            let last = behind.is_empty();
            if next.attr().kind != FileType::Symlink || (last && options.last_link == LastLink::Keep) {
                (at, rest) = (next, behind.to_vec());
                continue;
            }
            if last && options.last_link == LastLink::Refuse && options.directory {
                return Err(Error::NotADirectory);
            }
            links += 1;
            if links > SYMLINKS_MAX || options.no_links || (last && options.last_link == LastLink::Refuse) {
                return Err(Error::Loop);
            }
            let mut target = self.readlink(&next)?;
            target.extend_from_slice(behind);
            at = self.enter(&at, &target, options)?;
            rest = target;
        }
        let must_be_directory = options.directory || rest.last() == Some(&b'/');
        if must_be_directory && !at.attr().is_dir() { Err(Error::NotADirectory) } else { Ok(at) }
    }

    /// Where a path, or a link's target, that was met in `dir` begins.
    fn enter(&self, dir: &Arc<Inode<F>>, path: &[u8], options: WalkOptions) -> Result<Arc<Inode<F>>> {
        match path.first() {
            Some(b'/') if options.beneath => Err(Error::Escapes),
            Some(b'/') => Ok(self.root().clone()),
            _ => Ok(dir.clone()),
        }
    }
}

/// The first component of `path` and what stands behind it; `None` where only slashes are left.
fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let from = path.iter().position(|&b| b != b'/')?;
    let len = path[from..].iter().position(|&b| b == b'/').unwrap_or(path.len() - from);
    Some((&path[from..from + len], &path[from + len..]))
}
