//! What is copied into an image: files of this machine, or of an image.

use crate::host::{self, OsStrExt, Xattr, os_str, read_xattrs};
use crate::image::{Image, Node, SUPERUSER};
use crate::output::escape;
use crate::path::join;
use crate::report::{Problem, Report};
use dentree_vfs::{Attr, DirEntry, Error, FileType, Ino, NewKind, WalkOptions};
use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

/// Where a file is.
#[derive(Clone)]
pub(super) enum Origin {
    Local(PathBuf),
    Image { image: Arc<Image>, node: Node, path: Vec<u8> },
}

/// Why a source cannot be read.
pub(super) enum Unreadable {
    Local(io::Error),
    Image(Error),
}

impl From<io::Error> for Unreadable {
    fn from(error: io::Error) -> Self {
        Unreadable::Local(error)
    }
}

impl From<Error> for Unreadable {
    fn from(error: Error) -> Self {
        Unreadable::Image(error)
    }
}

/// A file that is copied to `path`.
#[derive(Clone)]
pub(super) struct Found {
    pub(super) origin: Origin,
    pub(super) attr: Attr,
    /// With the inode number the identity of the file.
    pub(super) device: u64,
    pub(super) path: Vec<u8>,
    /// The user gave the name in the image.
    pub(super) named: bool,
    /// The directories that it is in, of those that are copied.
    pub(super) above: Option<Rc<Above>>,
}

/// A directory, and those above it.
pub(super) struct Above {
    pub(super) device: u64,
    ino: Ino,
    above: Option<Rc<Above>>,
}

impl Found {
    pub(super) fn new(origin: Origin, (attr, device): (Attr, u64), path: Vec<u8>, named: bool) -> Found {
        Found { origin, attr, device, path, named, above: None }
    }

    pub(super) fn is_dir(&self) -> bool {
        self.attr.is_dir()
    }

    /// Itself as the directory above its entries; `None` where it is above itself.
    pub(super) fn as_above(&self) -> Option<Rc<Above>> {
        let mut next = self.above.as_ref();
        while let Some(above) = next {
            if (above.device, above.ino) == (self.device, self.attr.ino) {
                return None;
            }
            next = above.above.as_ref();
        }
        Some(Rc::new(Above { device: self.device, ino: self.attr.ino, above: self.above.clone() }))
    }
}

impl Origin {
    /// Attributes, and the identity of the file system.
    pub(super) fn attr(&self, follows: bool) -> Result<(Attr, u64), Unreadable> {
        match self {
            Origin::Local(path) => {
                let found = host::stat(path, follows)?;
                Ok((found.attr, found.device))
            }
            Origin::Image { image, node, .. } => Ok((node.attr(), Arc::as_ptr(image) as u64)),
        }
    }

    /// The names in a directory, sorted. Damage is reported.
    pub(super) fn names(&self, report: &Report) -> Result<Vec<Vec<u8>>, Unreadable> {
        let mut names = Vec::new();
        match self {
            Origin::Local(path) => {
                for entry in fs::read_dir(path)? {
                    names.push(entry?.file_name().into_encoded_bytes());
                }
            }
            Origin::Image { image, node, path } => {
                let mut each = |entry: DirEntry<'_>| {
                    names.push(entry.name.to_vec());
                    ControlFlow::Continue(())
                };
                let mut damaged = |error| report.problem(&image.problem(path, &error));
                image.vfs.readdir_past_damage(SUPERUSER, node, &mut each, &mut damaged)?;
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// The entry `name` of a directory.
    pub(super) fn below(&self, name: &[u8], follows: bool) -> Result<Origin, Unreadable> {
        Ok(match self {
            Origin::Local(path) => Origin::Local(path.join(os_str(name))),
            Origin::Image { image, node, path } => {
                let options = if follows { WalkOptions::FOLLOW } else { WalkOptions::KEEP_LINK };
                let node = image.vfs.walk(SUPERUSER, node, name, options)?;
                Origin::Image { image: image.clone(), node, path: join(path, name) }
            }
        })
    }

    /// Where a symbolic link leads.
    pub(super) fn link_target(&self) -> Result<Vec<u8>, Unreadable> {
        Ok(match self {
            Origin::Local(path) => fs::read_link(path)?.into_os_string().into_encoded_bytes(),
            Origin::Image { image, node, .. } => image.vfs.readlink(node)?,
        })
    }

    pub(super) fn xattrs(&self) -> Result<Vec<Xattr>, Unreadable> {
        let Origin::Image { image, node, .. } = self else {
            let Origin::Local(path) = self else { return Ok(Vec::new()) };
            return Ok(read_xattrs(path)?);
        };
        let names = image.vfs.listxattr(node)?.into_iter();
        names
            .map(|name| image.vfs.getxattr(node, &name).map(|value| (name, value)).map_err(Into::into))
            .collect()
    }

    pub(super) fn label(&self) -> String {
        match self {
            Origin::Local(path) => escape::terminal(path.as_os_str().as_bytes()).into_owned(),
            Origin::Image { image, path, .. } => image.at(path),
        }
    }

    pub(super) fn problem(&self, why: &Unreadable) -> Problem {
        match (self, why) {
            (Origin::Image { image, path, .. }, Unreadable::Image(error)) => image.problem(path, error),
            (_, Unreadable::Image(error)) => Problem::inside(self.label(), error),
            (Origin::Local(path), Unreadable::Local(error)) => {
                Problem::local(path.as_os_str().as_bytes(), error)
            }
            (_, Unreadable::Local(error)) => Problem::local(self.label().as_bytes(), error),
        }
    }
}

/// The inode to make for a file; `target` is that of a symbolic link.
pub(super) fn new_kind<'t>(attr: &Attr, target: &'t [u8]) -> NewKind<'t> {
    let (major, minor) = (attr.rdev_major, attr.rdev_minor);
    match attr.kind {
        FileType::Symlink => NewKind::Symlink(target),
        FileType::CharDevice => NewKind::CharDevice { major, minor },
        FileType::BlockDevice => NewKind::BlockDevice { major, minor },
        FileType::Fifo => NewKind::Fifo,
        FileType::Socket => NewKind::Socket,
        FileType::Regular | FileType::Directory => NewKind::Regular,
    }
}
