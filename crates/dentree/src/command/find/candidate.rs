//! A file that an expression is evaluated for. What a test needs of it is loaded when it is asked
//! for: first the directory entry, then the inode.

use crate::image::{Node, SUPERUSER};
use crate::path::join_into;
use crate::report::{Problem, Status};
use crate::tree::{Entry, Tree};
use dentree_vfs::{Attr, Error, FileType, Ino, WalkOptions};
use std::borrow::Cow;
use std::cell::OnceCell;

/// Where an entry was found.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) tree: &'a Tree<'a>,
    /// The path of the directory; of the start itself where there is no `parent`.
    pub(super) dir: &'a [u8],
    pub(super) parent: Option<Ino>,
    /// The path of the start.
    pub(super) start: &'a [u8],
    /// What is shown before paths: the image, where there are several.
    pub(super) prefix: &'a [u8],
    /// Levels below the start.
    pub(super) depth: u32,
    /// Symbolic links stand for what they lead to.
    pub(super) follows: bool,
}

/// `None` from its methods means that a load failed, which is reported, or that the candidate only
/// peeks.
pub(super) struct Candidate<'a> {
    pub(super) at: Place<'a>,
    entry: Entry<'a>,
    /// Loads nothing, to find out whether an inode is needed.
    peeks: bool,
    target: OnceCell<Option<(Ino, Option<FileType>)>>,
    attr: OnceCell<Option<Attr>>,
    path: OnceCell<Vec<u8>>,
}

impl<'a> Candidate<'a> {
    pub(super) fn new(at: Place<'a>, entry: Entry<'a>) -> Self {
        Candidate {
            at,
            entry,
            peeks: false,
            target: OnceCell::new(),
            attr: OnceCell::new(),
            path: OnceCell::new(),
        }
    }

    pub(super) fn peeking(at: Place<'a>, entry: Entry<'a>) -> Self {
        Candidate { peeks: true, ..Candidate::new(at, entry) }
    }

    pub(super) fn peeks(&self) -> bool {
        self.peeks
    }

    /// The directory that the name is in, and the type of the file itself, links not followed.
    pub(super) fn itself(&self) -> dentree_vfs::Result<(Node, FileType)> {
        let image = self.at.tree.image;
        let dir = match self.at.parent {
            Some(parent) => image.inode(parent)?,
            None => image.vfs.walk_parent(SUPERUSER, image.vfs.root(), self.at.dir)?.dir,
        };
        let kind = match self.entry.kind.filter(|_| self.at.parent.is_some()) {
            Some(kind) => kind,
            None => self.walk(WalkOptions::KEEP_LINK)?.kind(),
        };
        Ok((dir, kind))
    }

    pub(super) fn entry(&self) -> Entry<'a> {
        self.entry
    }

    pub(super) fn name(&self) -> &[u8] {
        self.entry.name
    }

    pub(super) fn path(&self) -> &[u8] {
        self.path.get_or_init(|| {
            let mut path = Vec::new();
            self.push_path(&mut path);
            path
        })
    }

    /// Appends the path as it is shown.
    pub(super) fn push_shown(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.at.prefix);
        self.push_path(out);
    }

    /// The path as it is shown.
    pub(super) fn shown(&self) -> Cow<'_, [u8]> {
        match self.at.prefix {
            b"" => Cow::Borrowed(self.path()),
            prefix => Cow::Owned([prefix, self.path()].concat()),
        }
    }

    /// Appends the path.
    pub(super) fn push_path(&self, out: &mut Vec<u8>) {
        match self.at.parent {
            Some(_) => join_into(out, self.at.dir, self.entry.name),
            None => out.extend_from_slice(self.at.dir),
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
            let kind = self.at.tree.kind(self.entry, self.path())?;
            match is_link(kind).then(|| self.walk(WalkOptions::FOLLOW)) {
                None => Some((self.entry.ino, Some(kind))),
                Some(Ok(node)) => Some((node.ino(), Some(node.kind()))),
                Some(Err(error)) => is_dangling(&error, || self.problem(&error))
                    .then_some((self.entry.ino, Some(FileType::Symlink))),
            }
        })
    }

    /// Follows the path anew.
    fn walk(&self, options: WalkOptions) -> dentree_vfs::Result<Node> {
        let image = self.at.tree.image;
        match self.at.parent {
            Some(parent) => image.vfs.walk(SUPERUSER, &image.inode(parent)?, self.entry.name, options),
            None => image.vfs.walk(SUPERUSER, image.vfs.root(), self.at.dir, options),
        }
    }

    pub(super) fn ino(&self) -> Option<Ino> {
        self.target().map(|(ino, _)| ino)
    }

    pub(super) fn kind(&self) -> Option<FileType> {
        let (_, kind) = self.target()?;
        kind.or_else(|| self.attr().map(|attr| attr.kind))
    }

    pub(super) fn attr(&self) -> Option<&Attr> {
        if self.peeks {
            return None;
        }
        let load = || self.at.tree.attr(self.ino()?, || self.path().to_vec());
        self.attr.get_or_init(load).as_ref()
    }

    pub(super) fn node(&self) -> Option<Node> {
        if self.peeks { None } else { self.at.tree.inode(self.ino()?, self.path()) }
    }

    /// The type on the other side of a link: where links are tested, of what they lead to; where
    /// they are followed, of the file itself. A dangling link is a link on both sides.
    pub(super) fn other_kind(&self) -> Option<dentree_vfs::Result<FileType>> {
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
    pub(super) fn link_target(&self) -> Option<Option<Attr>> {
        if self.peeks { None } else { Some(self.walk(WalkOptions::FOLLOW).ok().map(|node| node.attr())) }
    }

    /// The text of a link; nothing for other files.
    pub(super) fn link_text(&self) -> Option<Vec<u8>> {
        if self.kind()? != FileType::Symlink {
            return Some(Vec::new());
        }
        let text = self.at.tree.image.vfs.readlink(&*self.node()?);
        text.map_err(|error| self.problem(&error)).ok()
    }

    /// The SELinux context; empty where there is none.
    pub(super) fn context(&self) -> Option<Vec<u8>> {
        let mut context =
            self.at.tree.image.vfs.getxattr(&*self.node()?, b"security.selinux").unwrap_or_default();
        context.pop_if(|last| *last == 0);
        Some(context)
    }

    pub(super) fn problem(&self, error: &Error) {
        self.at.tree.problem(self.path(), error);
    }

    pub(super) fn refusal(&self, message: impl Into<String>) {
        let at = self.at.tree.image.at(self.path());
        self.at.tree.report.problem(&Problem::new(at, Status::Failed, message));
    }
}

/// Whether a link leads nowhere; calls `otherwise` for any other error.
pub(super) fn is_dangling(error: &Error, otherwise: impl FnOnce()) -> bool {
    let dangles = matches!(error, Error::NotFound | Error::NotADirectory);
    if !dangles {
        otherwise();
    }
    dangles
}
