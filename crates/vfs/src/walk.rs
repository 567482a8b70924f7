//! From a path to an inode.

use crate::dentry::Dentry;
use crate::limits::{PATH_MAX, SYMLINKS_MAX};
use crate::{Access, Attr, Error, FileSystem, Identity, Ino, Inode, Result, Vfs};
use dentree_dcache::{self as names, DentryId, Reason, Seen};
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

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
    /// What `dir` has under the single name `name` (`.` and `..` too), or `None`.
    pub fn lookup(&self, who: &Identity, dir: &Arc<Inode<F>>, name: &[u8]) -> Result<Option<Arc<Inode<F>>>> {
        if !dir.is_dir() {
            return Err(Error::NotADirectory);
        }
        match name {
            b"." | b".." => {
                self.check(who, dir, Access::SEARCH)?;
                if name == b"." { Ok(Some(dir.clone())) } else { self.parent(dir).map(Some) }
            }
            _ if name.is_empty() || name.contains(&b'/') => Err(Error::Invalid),
            _ => match self.walk(who, dir, name, WalkOptions::KEEP_LINK) {
                Err(Error::NotFound) => Ok(None),
                found => found.map(Some),
            },
        }
    }

    /// Walks `path` from `start` for `who`. A path that begins with `/` starts at the root instead.
    ///
    /// Fails with [`Error::NotFound`] for an empty path or a missing name, [`Error::NotADirectory`] where a
    /// component before the last (or the last before a trailing slash) is none, [`Error::AccessDenied`] where a
    /// directory may not be searched, [`Error::Loop`] past [`SYMLINKS_MAX`] links, [`Error::NameTooLong`] past
    /// [`NAME_MAX`](crate::NAME_MAX) or [`PATH_MAX`].
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
        self.retry(|| {
            let start = self.dentry(start)?;
            let in_names = options.of_names(&start);
            let mut walk = Walk { vfs: self, who, options, in_names, links: 0, denied: None };
            walk.run(start, path)
        })
    }

    /// Walks to the directory in which `path` has its last component: what makes, removes and renames needs.
    ///
    /// Fails as [`walk`](Self::walk) does for what stands before the last component, and with [`Error::AccessDenied`] where
    /// the directory may not be searched.
    pub fn walk_parent<'p>(
        &self,
        who: &Identity,
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
        let dir = self.walk(who, start, above, to_directory)?;
        self.check(who, &dir, Access::SEARCH)?;
        Ok(LastName { dir, name, slash })
    }

    /// Walks as [`walk`](Self::walk) does, in memory alone: never asks the file system, and so never waits for a device.
    /// `None` where it would have to, and at symbolic links.
    pub fn walk_cached(
        &self,
        who: &Identity,
        start: &Arc<Inode<F>>,
        path: &[u8],
        options: WalkOptions,
    ) -> Option<Result<Arc<Inode<F>>>> {
        if !self.is_plain(start, path, options) {
            return None;
        }
        let start = self.cached_dentry(start)?;
        // An access control list would have to be read.
        let may_search = |attr: &Attr| who.may(attr, Access::SEARCH) && !(attr.has_acl && who.is_bound());
        let searchable = |ino: &Ino| self.inodes.cached(*ino).is_some_and(|dir| may_search(&dir.attr()));
        match self.names.find(&start, path, options.of_names(&start), searchable) {
            names::Walk::Found(seen) => match options.accept(seen.kind, path) {
                // As in `inode_of`: the number may be another file's by now.
                Ok(()) => self.inodes.cached(seen.handle).filter(|_| self.names.is_linked(seen.id)).map(Ok),
                Err(error) => Some(Err(error)),
            },
            names::Walk::Negative { .. } => Some(Err(Error::NotFound)),
            names::Walk::Stopped(_) => None,
        }
    }

    /// Walks several paths as [`walk`](Self::walk) does, answers in their order. Where the names are cached the
    /// waits for memory overlap: for paths that the processor's caches do not hold several times as fast.
    pub fn walk_many(
        &self,
        who: &Identity,
        start: &Arc<Inode<F>>,
        paths: &[impl AsRef<[u8]>],
        options: WalkOptions,
    ) -> Vec<Result<Arc<Inode<F>>>> {
        let one_by_one = |path: &[u8]| self.walk(who, start, path, options);
        let together = paths.iter().all(|path| self.is_plain(start, path.as_ref(), options));
        let Some(entry) = self.dentry(start).ok().filter(|_| together) else {
            return paths.iter().map(|path| one_by_one(path.as_ref())).collect();
        };
        let may_search = |ino: &Ino| matches!(self.may_search(who, *ino), Ok(Some(true)));
        let cached = self.names.find_many(&entry, paths, options.of_names(&entry), may_search);
        let answers = cached.into_iter().zip(paths).map(|(walk, path)| match walk {
            names::Walk::Found(seen) => {
                match options.accept(seen.kind, path.as_ref()).and_then(|()| self.inode_seen(&seen)) {
                    Err(Error::Stale) => one_by_one(path.as_ref()),
                    found => found,
                }
            }
            names::Walk::Negative { .. } => Err(Error::NotFound),
            names::Walk::Stopped(_) => one_by_one(path.as_ref()),
        });
        answers.collect()
    }

    /// Whether `who` may search a directory; `None` where it does not know its entry, which so has not been told whether everybody may.
    fn may_search(&self, who: &Identity, ino: Ino) -> Result<Option<bool>> {
        let dir = self.inode(ino)?;
        // Relaxed: as in `cached_dentry`, but nobody need hold it.
        let entry = DentryId::from_bits(dir.dentry.load(Ordering::Relaxed));
        if ino != self.root().ino() && !self.names.is_linked(entry) {
            return Ok(None);
        }
        self.may(who, &dir, Access::SEARCH).map(Some)
    }

    /// Whether a walk of `path` from `start` begins there, as far as its first byte and its length tell.
    fn is_plain(&self, start: &Inode<F>, path: &[u8], options: WalkOptions) -> bool {
        let begins_here = match path.first() {
            Some(b'/') => !options.beneath && start.ino() == self.root().ino(),
            first => first.is_some(),
        };
        begins_here && path.len() <= PATH_MAX
    }
}

impl WalkOptions {
    /// The part of the options that the name cache knows, for a walk that begins at `start`.
    fn of_names(self, start: &Dentry<'_>) -> names::WalkOptions {
        names::WalkOptions {
            floor: self.beneath.then(|| start.id()),
            keep_last_link: self.last_link == LastLink::Keep,
        }
    }

    /// Whether a walk of `path` may end at what is of this kind.
    fn accept(self, kind: names::Kind, path: &[u8]) -> Result<()> {
        let must_be_directory = self.directory || path.last() == Some(&b'/');
        let is_directory = kind == names::Kind::Directory;
        if must_be_directory && !is_directory { Err(Error::NotADirectory) } else { Ok(()) }
    }
}

/// A walk under way: the cache goes as far as it can by itself, and this does what it stopped for.
struct Walk<'a, F: FileSystem> {
    vfs: &'a Vfs<F>,
    who: &'a Identity,
    options: WalkOptions,
    /// What of the options the name cache knows.
    in_names: names::WalkOptions,
    /// Links followed so far.
    links: usize,
    /// Why the last question for search permission was answered with no; `None` where the directory has to be met first.
    denied: Option<Error>,
}

impl<'a, F: FileSystem> Walk<'a, F> {
    fn run(&mut self, start: Dentry<'a>, path: &[u8]) -> Result<Arc<Inode<F>>> {
        let mut rest = Cow::Borrowed(path);
        let mut at = self.enter(start, &rest)?;
        loop {
            let (next, used) = match self.as_far_as_cached(&at, &rest) {
                names::Walk::Found(seen) => {
                    self.options.accept(seen.kind, &rest)?;
                    // What had to be asked for is held as `at`, so that it is not evicted before it is used.
                    return self.vfs.inode_seen(&seen);
                }
                names::Walk::Negative { .. } => return Err(Error::NotFound),
                names::Walk::Stopped(stopped) => self.resume(stopped, &rest)?,
            };
            let behind = &rest[used..];
            let last = behind.is_empty();
            if next.kind() == names::Kind::Symlink && !(last && self.options.last_link == LastLink::Keep) {
                let target = self.follow(&next, last)?;
                let dir = next.parent();
                rest = Cow::Owned([&target, behind].concat());
                at = self.enter(dir, &rest)?;
            } else {
                rest = Cow::Owned(behind.to_vec());
                at = next;
            }
        }
    }

    fn as_far_as_cached(&mut self, at: &Dentry<'a>, rest: &[u8]) -> names::Walk<'a, Ino, Seen<Ino>> {
        let Walk { vfs, who, in_names, denied, .. } = self;
        vfs.names.find(at, rest, *in_names, |ino| match vfs.may_search(who, *ino) {
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

    /// Does what the cache stopped for. Answers the entry that is next, and how much of the path it used up.
    fn resume(&mut self, stopped: names::Stopped<'a, Ino>, rest: &[u8]) -> Result<(Dentry<'a>, usize)> {
        let names::Stopped { dir, link, rest: at, why } = stopped;
        match why {
            Reason::Symlink => Ok((link.expect("a walk that stops at a link answers it"), at)),
            Reason::NotADirectory => Err(Error::NotADirectory),
            Reason::Denied => match self.denied.take() {
                Some(error) => Err(error),
                // From now on it is known whether everybody may search it.
                None => self.vfs.inode_of(&dir).map(|_| (dir, at)),
            },
            Reason::NameTooLong => Err(Error::NameTooLong),
            Reason::Floor if self.options.beneath => Err(Error::Escapes),
            Reason::Floor | Reason::Miss | Reason::Expired | Reason::Busy => {
                let (name, behind) = split(&rest[at..]).ok_or(Error::NotFound)?;
                let used = rest.len() - behind.len();
                match name {
                    b"." => Ok((dir, used)),
                    b".." => Ok((dir.parent(), used)),
                    _ => Ok((self.vfs.step(self.who, &dir, name)?.ok_or(Error::NotFound)?, used)),
                }
            }
        }
    }

    /// The target of a link that is to be followed.
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

    /// Where a path, or a link's target, that was met in `dir` begins.
    fn enter(&self, dir: Dentry<'a>, path: &[u8]) -> Result<Dentry<'a>> {
        match path.first() {
            Some(b'/') if self.options.beneath => Err(Error::Escapes),
            Some(b'/') => Ok(self.vfs.names.root()),
            _ => Ok(dir),
        }
    }
}

/// Where a path ends: a name in a directory, whether or not there is such a name.
pub struct LastName<'p, F: FileSystem> {
    /// The directory.
    pub dir: Arc<Inode<F>>,
    /// The last component, which may be `.` or `..`; `.` for the root.
    pub name: &'p [u8],
    /// A slash stands behind it: only a directory can be meant.
    pub slash: bool,
}

/// The first component of `path` and what stands behind it; `None` where only slashes are left.
fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let from = path.iter().position(|&b| b != b'/')?;
    let len = path[from..].iter().position(|&b| b == b'/').unwrap_or(path.len() - from);
    Some((&path[from..from + len], &path[from + len..]))
}
