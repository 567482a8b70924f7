//! A file that an expression is evaluated for. What a test needs of it is loaded when it is asked
//! for: first the directory entry, then the inode.

use dentree_vfs::{Attr, Error, FileSystem, FileType, Identity, Ino, Inode, Result, Vfs, WalkOptions};
use std::cell::OnceCell;
use std::sync::Arc;

/// No permissions are checked: a process that can read an image can read all of it.
const CALLER: &Identity = &Identity::Superuser;

/// Takes what cannot be read, with its path.
pub trait Problems {
    /// Takes one.
    fn problem(&self, path: &[u8], error: &Error);
}

/// A name with what its directory says of it.
#[derive(Clone, Copy, Debug)]
pub struct Named<'a> {
    /// The name itself; of the root, `/`.
    pub name: &'a [u8],
    /// The inode that it links to.
    pub ino: Ino,
    /// The type, if the directory entry has it.
    pub kind: Option<FileType>,
}

/// Where an entry was found.
pub struct FoundAt<'a, F: FileSystem> {
    /// The file system.
    pub vfs: &'a Vfs<F>,
    /// Takes what cannot be read.
    pub problems: &'a dyn Problems,
    /// The path of the directory; of the start itself where there is no `parent`.
    pub dir: &'a [u8],
    /// The directory; `None` for the start of a search.
    pub parent: Option<Ino>,
    /// The path of the start.
    pub start: &'a [u8],
    /// Levels below the start.
    pub depth: u32,
    /// Symbolic links stand for what they lead to.
    pub follows: bool,
}

// Derived, these would ask the same of `F`.
impl<F: FileSystem> Clone for FoundAt<'_, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: FileSystem> Copy for FoundAt<'_, F> {}

/// `None` from its methods means that a load failed, which [`Problems`] has, or that the candidate
/// only peeks.
pub struct Candidate<'a, F: FileSystem> {
    /// Where it was found.
    pub at: FoundAt<'a, F>,
    entry: Named<'a>,
    /// Loads nothing, to find out whether an inode is needed.
    peeks: bool,
    target: OnceCell<Option<(Ino, Option<FileType>)>>,
    attr: OnceCell<Option<Attr>>,
    path: OnceCell<Vec<u8>>,
}

impl<'a, F: FileSystem> Candidate<'a, F> {
    /// The entry at a place.
    pub fn new(at: FoundAt<'a, F>, entry: Named<'a>) -> Self {
        Candidate {
            at,
            entry,
            peeks: false,
            target: OnceCell::new(),
            attr: OnceCell::new(),
            path: OnceCell::new(),
        }
    }

    pub(crate) fn peeking(at: FoundAt<'a, F>, entry: Named<'a>) -> Self {
        Candidate { peeks: true, ..Candidate::new(at, entry) }
    }

    pub(crate) fn peeks(&self) -> bool {
        self.peeks
    }

    /// The directory that the name is in, and the type of the file itself, links not followed.
    pub fn itself(&self) -> Result<(Arc<Inode<F>>, FileType)> {
        let vfs = self.at.vfs;
        let dir = match self.at.parent {
            Some(parent) => vfs.inode(parent)?,
            None => vfs.walk_parent(CALLER, vfs.root(), self.at.dir)?.dir,
        };
        let kind = match self.entry.kind.filter(|_| self.at.parent.is_some()) {
            Some(kind) => kind,
            None => self.walk(WalkOptions::KEEP_LINK)?.kind(),
        };
        Ok((dir, kind))
    }

    /// The name and what its directory says of it.
    pub fn entry(&self) -> Named<'a> {
        self.entry
    }

    /// The last name of the path.
    pub fn name(&self) -> &[u8] {
        self.entry.name
    }

    /// The path.
    pub fn path(&self) -> &[u8] {
        self.path.get_or_init(|| {
            let mut path = Vec::new();
            self.push_path(&mut path);
            path
        })
    }

    /// The path, when nothing more is asked.
    pub fn into_path(self) -> Vec<u8> {
        self.path();
        self.path.into_inner().unwrap_or_default()
    }

    /// Appends the path.
    pub fn push_path(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.at.dir);
        if self.at.parent.is_some() {
            if self.at.dir != b"/" {
                out.push(b'/');
            }
            out.extend_from_slice(self.entry.name);
        }
    }

    /// Inode number, and type where the directory entry has it, of the file that is tested.
    fn target(&self) -> Option<(Ino, Option<FileType>)> {
        let is_link = |kind| kind == FileType::Symlink;
        // The start was resolved by its argument.
        if !self.at.follows || self.at.parent.is_none() || !self.entry.kind.is_none_or(is_link) {
            return Some((self.entry.ino, self.entry.kind));
        }
        if self.peeks {
            return None;
        }
        *self.target.get_or_init(|| {
            let kind = match self.entry.kind {
                Some(kind) => kind,
                None => self.load_attr(self.entry.ino)?.kind,
            };
            match is_link(kind).then(|| self.walk(WalkOptions::FOLLOW)) {
                None => Some((self.entry.ino, Some(kind))),
                Some(Ok(node)) => Some((node.ino(), Some(node.kind()))),
                Some(Err(error)) => is_dangling(&error, || self.problem(&error))
                    .then_some((self.entry.ino, Some(FileType::Symlink))),
            }
        })
    }

    /// Follows the path anew.
    fn walk(&self, options: WalkOptions) -> Result<Arc<Inode<F>>> {
        let vfs = self.at.vfs;
        match self.at.parent {
            Some(parent) => vfs.walk(CALLER, &vfs.inode(parent)?, self.entry.name, options),
            None => vfs.walk(CALLER, vfs.root(), self.at.dir, options),
        }
    }

    /// The inode number.
    pub fn ino(&self) -> Option<Ino> {
        self.target().map(|(ino, _)| ino)
    }

    /// The type.
    pub fn kind(&self) -> Option<FileType> {
        let (_, kind) = self.target()?;
        kind.or_else(|| self.attr().map(|attr| attr.kind))
    }

    /// The attributes.
    pub fn attr(&self) -> Option<&Attr> {
        if self.peeks {
            return None;
        }
        self.attr.get_or_init(|| self.load_attr(self.ino()?)).as_ref()
    }

    fn load_attr(&self, ino: Ino) -> Option<Attr> {
        self.at.vfs.attr(ino).map_err(|error| self.problem(&error)).ok()
    }

    /// The inode.
    pub fn node(&self) -> Option<Arc<Inode<F>>> {
        if self.peeks {
            return None;
        }
        self.at.vfs.inode(self.ino()?).map_err(|error| self.problem(&error)).ok()
    }

    /// The type on the other side of a link: where links are tested, of what they lead to; where
    /// they are followed, of the file itself. A dangling link is a link on both sides.
    pub fn other_kind(&self) -> Option<Result<FileType>> {
        if self.peeks {
            return None;
        }
        if self.at.follows {
            return Some(self.walk(WalkOptions::KEEP_LINK).map(|node| node.kind()));
        }
        let kind = self.kind()?;
        let is_link = kind == FileType::Symlink;
        Some(if is_link { self.walk(WalkOptions::FOLLOW).map(|node| node.kind()) } else { Ok(kind) })
    }

    /// The attributes of what a link leads to, if it leads anywhere.
    pub(crate) fn link_target(&self) -> Option<Option<Attr>> {
        if self.peeks { None } else { Some(self.walk(WalkOptions::FOLLOW).ok().map(|node| node.attr())) }
    }

    /// The text of a link; nothing for other files.
    pub fn link_text(&self) -> Option<Vec<u8>> {
        if self.kind()? != FileType::Symlink {
            return Some(Vec::new());
        }
        let text = self.at.vfs.readlink(&*self.node()?);
        text.map_err(|error| self.problem(&error)).ok()
    }

    /// The SELinux context; empty where there is none.
    pub fn context(&self) -> Option<Vec<u8>> {
        let mut context = self.at.vfs.getxattr(&*self.node()?, b"security.selinux").unwrap_or_default();
        context.pop_if(|last| *last == 0);
        Some(context)
    }

    /// Hands an error to the place's [`Problems`].
    pub fn problem(&self, error: &Error) {
        self.at.problems.problem(self.path(), error);
    }
}

/// Whether a link leads nowhere; calls `otherwise` for any other error.
pub(crate) fn is_dangling(error: &Error, otherwise: impl FnOnce()) -> bool {
    let dangles = matches!(error, Error::NotFound | Error::NotADirectory);
    if !dangles {
        otherwise();
    }
    dangles
}
