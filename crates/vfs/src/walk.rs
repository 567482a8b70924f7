//! The path walk.

use crate::dentry::Dentry;
use crate::limits::{PATH_MAX, SYMLINKS_MAX};
use crate::{Access, Attr, Error, FileSystem, Identity, Ino, Inode, Result, Vfs};
use dentree_dcache::{self as names, DentryId, Reason, Seen};
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A symbolic link as last component.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LastLink {
    /// Follow it: `stat(2)`.
    #[default]
    Follow,
    /// Return it: `lstat(2)`.
    Keep,
    /// Fail with [`Error::Loop`]: `O_NOFOLLOW`.
    Refuse,
}

/// Options of a walk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WalkOptions {
    /// A trailing slash always follows the link.
    pub last_link: LastLink,
    /// [`Error::Loop`] at any link, as `RESOLVE_NO_SYMLINKS`, except a last one with
    /// [`LastLink::Keep`].
    pub no_links: bool,
    /// [`Error::Escapes`] if the path or a link leads above the start or is absolute, as
    /// `RESOLVE_BENEATH`.
    pub beneath: bool,
    /// [`Error::NotADirectory`] unless the path ends at a directory.
    pub directory: bool,
}

impl WalkOptions {
    /// Follows all links: `stat(2)`.
    pub const FOLLOW: WalkOptions =
        WalkOptions { last_link: LastLink::Follow, no_links: false, beneath: false, directory: false };
    /// Returns a last link: `lstat(2)`.
    pub const KEEP_LINK: WalkOptions = WalkOptions { last_link: LastLink::Keep, ..WalkOptions::FOLLOW };
}

impl<F: FileSystem> Vfs<F> {
    /// The inode of a single name (also `.` and `..`) in `dir`.
    pub fn lookup(
        &self,
        caller: &Identity,
        dir: &Arc<Inode<F>>,
        name: &[u8],
    ) -> Result<Option<Arc<Inode<F>>>> {
        if !dir.is_dir() {
            return Err(Error::NotADirectory);
        }
        match name {
            b"." | b".." => {
                self.check(caller, dir, Access::SEARCH)?;
                if name == b"." { Ok(Some(dir.clone())) } else { self.parent(dir).map(Some) }
            }
            _ if name.is_empty() || name.contains(&b'/') => Err(Error::Invalid),
            _ => match self.walk(caller, dir, name, WalkOptions::KEEP_LINK) {
                Err(Error::NotFound) => Ok(None),
                found => found.map(Some),
            },
        }
    }

    /// Walks `path` from `start`; an absolute path starts at the root.
    ///
    /// # Errors
    /// - [`Error::NotFound`]: the path is empty or a name is missing.
    /// - [`Error::NotADirectory`]: a component before a slash is not a directory.
    /// - [`Error::AccessDenied`]: `caller` may not search a directory.
    /// - [`Error::Loop`]: more than [`SYMLINKS_MAX`] links.
    /// - [`Error::NameTooLong`]: a name exceeds [`NAME_MAX`](crate::NAME_MAX), or the path
    ///   [`PATH_MAX`].
    pub fn walk(
        &self,
        caller: &Identity,
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
        self.retry(|| {
            let start = self.dentry(start)?;
            let in_names = options.of_names(&start);
            let mut walk = Walk { vfs: self, caller, options, in_names, links: 0, denied: None };
            walk.run(start, path)
        })
    }

    /// Walks to the directory of the last component, to create, remove or rename. Fails as
    /// [`walk`](Self::walk), also if that directory may not be searched.
    pub fn walk_parent<'p>(
        &self,
        caller: &Identity,
        start: &Arc<Inode<F>>,
        path: &'p [u8],
    ) -> Result<LastName<'p, F>> {
        if path.is_empty() {
            return Err(Error::NotFound);
        }
        let Some(end) = path.iter().rposition(|&byte| byte != b'/') else {
            return Ok(LastName { dir: self.root().clone(), name: b".", slash: true });
        };
        let (named, slash) = (&path[..=end], end + 1 < path.len());
        let (above, name) = match named.iter().rposition(|&byte| byte == b'/') {
            Some(at) => named.split_at(at + 1),
            None => (&b"."[..], named),
        };
        let to_directory = WalkOptions { directory: true, ..WalkOptions::FOLLOW };
        let dir = self.walk(caller, start, above, to_directory)?;
        self.check(caller, &dir, Access::SEARCH)?;
        Ok(LastName { dir, name, slash })
    }

    /// As [`walk`](Self::walk), without calling the file system or waiting for a device. `None`:
    /// that would be needed, or there is a symbolic link.
    pub fn walk_cached(
        &self,
        caller: &Identity,
        start: &Arc<Inode<F>>,
        path: &[u8],
        options: WalkOptions,
    ) -> Option<Result<Arc<Inode<F>>>> {
        if !self.is_plain(start, path, options) {
            return None;
        }
        let start = self.cached_dentry(start)?;
        // An ACL would have to be read.
        let may_search =
            |attr: &Attr| caller.may(attr, Access::SEARCH) && !(attr.has_acl && caller.is_bound());
        let searchable = |ino: &Ino| self.inodes.cached(*ino).is_some_and(|dir| may_search(&dir.attr()));
        match self.names.find(&start, path, options.of_names(&start), searchable) {
            names::Walk::Found(seen) => match options.accept(seen.kind, path) {
                // As in `inode_of`: the number may have been reused.
                Ok(()) => self.inodes.cached(seen.handle).filter(|_| self.names.is_linked(seen.id)).map(Ok),
                Err(error) => Some(Err(error)),
            },
            names::Walk::Negative { .. } => Some(Err(Error::NotFound)),
            names::Walk::Stopped(_) => None,
        }
    }

    /// Walks several paths with overlapping cache misses: several times as fast for names outside
    /// of the processor's caches.
    pub fn walk_many(
        &self,
        caller: &Identity,
        start: &Arc<Inode<F>>,
        paths: &[impl AsRef<[u8]>],
        options: WalkOptions,
    ) -> Vec<Result<Arc<Inode<F>>>> {
        let one_by_one = |path: &[u8]| self.walk(caller, start, path, options);
        let together = paths.iter().all(|path| self.is_plain(start, path.as_ref(), options));
        let Some(entry) = self.dentry(start).ok().filter(|_| together) else {
            return paths.iter().map(|path| one_by_one(path.as_ref())).collect();
        };
        let may_search = |ino: &Ino| matches!(self.may_search(caller, *ino), Ok(Some(true)));
        let cached = self.names.find_many(&entry, paths, options.of_names(&entry), may_search);
        let results = cached.into_iter().zip(paths).map(|(walk, path)| match walk {
            names::Walk::Found(seen) => {
                match options.accept(seen.kind, path.as_ref()).and_then(|()| self.inode_seen(&seen)) {
                    Err(Error::Stale) => one_by_one(path.as_ref()),
                    found => found,
                }
            }
            names::Walk::Negative { .. } => Err(Error::NotFound),
            names::Walk::Stopped(_) => one_by_one(path.as_ref()),
        });
        results.collect()
    }

    /// `None`: the inode has no dentry with a search permission.
    fn may_search(&self, caller: &Identity, ino: Ino) -> Result<Option<bool>> {
        let dir = self.inode(ino)?;
        // Relaxed: as in `cached_dentry`.
        let entry = DentryId::from_bits(dir.dentry.load(Ordering::Relaxed));
        if ino != self.root().ino() && !self.names.is_linked(entry) {
            return Ok(None);
        }
        self.may(caller, &dir, Access::SEARCH).map(Some)
    }

    /// Whether the path begins at `start` and has a valid length.
    fn is_plain(&self, start: &Inode<F>, path: &[u8], options: WalkOptions) -> bool {
        let begins_here = match path.first() {
            Some(b'/') => !options.beneath && start.ino() == self.root().ino(),
            first => first.is_some(),
        };
        begins_here && path.len() <= PATH_MAX
    }
}

impl WalkOptions {
    fn of_names(self, start: &Dentry<'_>) -> names::WalkOptions {
        names::WalkOptions {
            floor: self.beneath.then(|| start.id()),
            keep_last_link: self.last_link == LastLink::Keep,
        }
    }

    fn accept(self, kind: names::Kind, path: &[u8]) -> Result<()> {
        let must_be_directory = self.directory || path.last() == Some(&b'/');
        let is_directory = kind == names::Kind::Directory;
        if must_be_directory && !is_directory { Err(Error::NotADirectory) } else { Ok(()) }
    }
}

/// Handles stops of the name cache's walk.
struct Walk<'a, F: FileSystem> {
    vfs: &'a Vfs<F>,
    caller: &'a Identity,
    options: WalkOptions,
    in_names: names::WalkOptions,
    links: usize,
    /// Why search permission was denied last; `None`: the inode has no dentry.
    denied: Option<Error>,
}

impl<'a, F: FileSystem> Walk<'a, F> {
    fn run(&mut self, start: Dentry<'a>, path: &[u8]) -> Result<Arc<Inode<F>>> {
        let mut rest = Cow::Borrowed(path);
        let mut at = self.start_of(start, &rest)?;
        loop {
            let (next, used) = match self.as_far_as_cached(&at, &rest) {
                names::Walk::Found(seen) => {
                    self.options.accept(seen.kind, &rest)?;
                    // `at` pins what was filled.
                    return self.vfs.inode_seen(&seen);
                }
                names::Walk::Negative { .. } => return Err(Error::NotFound),
                names::Walk::Stopped(stopped) => self.resume(stopped, &rest)?,
            };
            let after = &rest[used..];
            let last = after.is_empty();
            if next.kind() == names::Kind::Symlink && !(last && self.options.last_link == LastLink::Keep) {
                let target = self.follow(&next, last)?;
                let dir = next.parent();
                rest = Cow::Owned([&target, after].concat());
                at = self.start_of(dir, &rest)?;
            } else {
                rest = Cow::Owned(after.to_vec());
                at = next;
            }
        }
    }

    fn as_far_as_cached(&mut self, at: &Dentry<'a>, rest: &[u8]) -> names::Walk<'a, Ino, Seen<Ino>> {
        let Walk { vfs, caller, in_names, denied, .. } = self;
        vfs.names.find(at, rest, *in_names, |ino| match vfs.may_search(caller, *ino) {
            Ok(None) => {
                *denied = None;
                false
            }
            Ok(Some(may_search)) => {
                *denied = Some(Error::AccessDenied);
                may_search
            }
            Err(error) => {
                *denied = Some(error);
                false
            }
        })
    }

    /// Returns the next dentry and the consumed length of path.
    fn resume(&mut self, stopped: names::Stopped<'a, Ino>, rest: &[u8]) -> Result<(Dentry<'a>, usize)> {
        let names::Stopped { dir, link, rest: at, why } = stopped;
        match why {
            Reason::Symlink => Ok((link.expect("a walk that stops at a link returns it"), at)),
            Reason::NotADirectory => Err(Error::NotADirectory),
            Reason::Denied => match self.denied.take() {
                Some(error) => Err(error),
                // `inode_of` stores search permission.
                None => self.vfs.inode_of(&dir).map(|_| (dir, at)),
            },
            Reason::NameTooLong => Err(Error::NameTooLong),
            Reason::Floor if self.options.beneath => Err(Error::Escapes),
            Reason::Floor | Reason::Miss | Reason::Detached | Reason::Busy => {
                let (name, after) = split(&rest[at..]).ok_or(Error::NotFound)?;
                let used = rest.len() - after.len();
                match name {
                    b"." => Ok((dir, used)),
                    b".." => Ok((dir.parent(), used)),
                    _ => Ok((self.vfs.step(self.caller, &dir, name)?.ok_or(Error::NotFound)?, used)),
                }
            }
        }
    }

    fn follow(&mut self, link: &Dentry<'a>, last: bool) -> Result<Vec<u8>> {
        let refused = last && self.options.last_link == LastLink::Refuse;
        if refused && self.options.directory {
            return Err(Error::NotADirectory);
        }
        self.links += 1;
        if refused || self.options.no_links || self.links > SYMLINKS_MAX {
            return Err(Error::Loop);
        }
        self.vfs.readlink(&*self.vfs.inode_of(link)?)
    }

    /// The start of a path or link target in `dir`.
    fn start_of(&self, dir: Dentry<'a>, path: &[u8]) -> Result<Dentry<'a>> {
        match path.first() {
            Some(b'/') if self.options.beneath => Err(Error::Escapes),
            Some(b'/') => Ok(self.vfs.names.root()),
            _ => Ok(dir),
        }
    }
}

/// A name in a directory, which need not exist.
pub struct LastName<'p, F: FileSystem> {
    /// Directory.
    pub dir: Arc<Inode<F>>,
    /// Last component, also `.` or `..`; `.` for the root.
    pub name: &'p [u8],
    /// A slash follows: the name is a directory's.
    pub slash: bool,
}

/// The first component and the rest.
fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let from = path.iter().position(|&b| b != b'/')?;
    let len = path[from..].iter().position(|&b| b == b'/').unwrap_or(path.len() - from);
    Some((&path[from..from + len], &path[from + len..]))
}
