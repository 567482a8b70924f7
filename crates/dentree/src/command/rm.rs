//! `dentree rm`: removes names, and with the last name the inode.

use crate::args::{Ask, RmArgs};
use crate::ask::confirms;
use crate::image::{Location, Node, SUPERUSER, Session};
use crate::output::attributes;
use crate::path::join;
use crate::progress::Progress;
use crate::report::{Problem, Stop};
use crate::tree::{Listing, Tree};
use dentree_vfs::{Error, FileType, Ino, WalkOptions};
use std::io::{self, Write};

pub(crate) fn run(session: &Session, args: &RmArgs) -> Result<(), Stop> {
    let asks_once = args.asks() == Ask::Once && (args.locations.len() > 3 || args.recursive);
    let recursively = if args.recursive { " recursively" } else { "" };
    if asks_once && !confirms(format_args!("remove {} arguments{recursively}", args.locations.len())) {
        return Ok(());
    }
    let progress = session.progress(None, args.verbose || args.asks() == Ask::Always);
    session.change_each(&args.locations, |at| remove((session, &progress), args, at));
    Ok(())
}

/// Removes `at`, with its contents if it is a directory.
pub(super) fn remove_all(session: &Session, at: &Location) -> Result<(), Problem> {
    let progress = session.progress(None, false);
    remove((session, &progress), &RmArgs::for_moving(), at)
}

fn remove((session, progress): (&Session, &Progress), args: &RmArgs, at: &Location) -> Result<(), Problem> {
    let found = at.find(WalkOptions::KEEP_LINK);
    let node = match found {
        Ok(Some(node)) => node,
        Ok(None) if args.force => return Ok(()),
        Ok(None) => return Err(at.problem(&Error::NotFound)),
        Err(problem) => return Err(problem),
    };
    let (dir, name) = at.last()?;
    if name == b"." || name == b".." {
        return Err(at.refusal("the root, `.` and `..` are not removed"));
    }
    if node.is_dir() && !args.recursive && !args.directories {
        return Err(at.refusal("is a directory; -r removes it with its contents"));
    }
    let tree = Tree::new(&at.image, &session.report);
    let removal = Removal { session, args, tree: &tree, progress };
    if node.is_dir() && args.recursive {
        removal.directory(dir, name.to_vec(), node, at.path.clone());
    } else {
        removal.single(&dir, name, &at.path, node.attr().kind);
    }
    Ok(())
}

struct Removal<'a> {
    session: &'a Session,
    args: &'a RmArgs,
    tree: &'a Tree<'a>,
    progress: &'a Progress,
}

/// A directory that is being emptied.
struct Emptied {
    parent: Node,
    name: Vec<u8>,
    node: Node,
    path: Vec<u8>,
    /// Its subdirectories that are left, the next one last: numbers, as held inodes cannot be
    /// evicted.
    directories: Vec<(Vec<u8>, Ino)>,
    /// An entry could not be removed, so the directory stays.
    stays: bool,
}

impl Removal<'_> {
    /// Removes a name that is no directory, or an empty one; returns whether it is gone.
    fn single(&self, dir: &Node, name: &[u8], path: &[u8], kind: FileType) -> bool {
        let is_dir = kind == FileType::Directory;
        if !self.allowed(if is_dir { "directory" } else { attributes::kind(kind) }, "remove", path) {
            return false;
        }
        let vfs = &self.tree.image.vfs;
        let gone = if is_dir { vfs.rmdir(SUPERUSER, dir, name) } else { vfs.unlink(SUPERUSER, dir, name) };
        self.done(path, gone, is_dir)
    }

    /// Whether no question is asked, or the answer is yes.
    fn allowed(&self, kind: &str, verb: &str, path: &[u8]) -> bool {
        self.args.asks() != Ask::Always || {
            let at = self.tree.image.at(path);
            confirms(format_args!("{verb} {kind} '{at}'"))
        }
    }

    /// Removes `node`, `name` in `parent`, with its contents.
    fn directory(&self, parent: Node, name: Vec<u8>, node: Node, path: Vec<u8>) {
        if !self.allowed("directory", "descend into", &path) {
            return;
        }
        let mut above = vec![self.emptied(parent, name, node, path)];
        while let Some(mut current) = above.pop() {
            if self.session.is_interrupted() {
                return;
            }
            if let Some((name, ino)) = current.directories.pop() {
                let path = join(&current.path, &name);
                let is_entered = self.allowed("directory", "descend into", &path);
                match self.tree.inode(ino, &path).filter(|_| is_entered) {
                    Some(node) => {
                        let next = self.emptied(current.node.clone(), name, node, path);
                        above.extend([current, next]);
                    }
                    None => {
                        current.stays = true;
                        above.push(current);
                    }
                }
                continue;
            }
            let stays = current.stays
                || !self.single(&current.parent, &current.name, &current.path, FileType::Directory);
            if let Some(parent) = above.last_mut() {
                parent.stays |= stays;
            }
        }
    }

    /// Removes all entries of a directory but its subdirectories.
    fn emptied(&self, parent: Node, name: Vec<u8>, node: Node, path: Vec<u8>) -> Emptied {
        let listing: Listing = self.tree.list(&node, &path);
        let mut emptied = Emptied { parent, name, node, path, directories: Vec::new(), stays: false };
        for entry in listing.iter() {
            if self.session.is_interrupted() {
                emptied.stays = true;
                break;
            }
            let path = join(&emptied.path, entry.name);
            match self.tree.kind(entry, &path) {
                Some(FileType::Directory) => emptied.directories.push((entry.name.to_vec(), entry.ino)),
                Some(kind) => emptied.stays |= !self.single(&emptied.node, entry.name, &path, kind),
                None => emptied.stays = true,
            }
        }
        emptied
    }

    /// Reports how a removal ended.
    fn done(&self, path: &[u8], result: Result<(), Error>, is_dir: bool) -> bool {
        match &result {
            Err(error) => self.tree.problem(path, error),
            Ok(()) if self.args.verbose => {
                let (kind, at) = (if is_dir { "directory " } else { "" }, self.tree.image.at(path));
                // A closed output is told by the next one that matters.
                let _ = writeln!(io::stdout(), "removed {kind}'{at}'");
            }
            Ok(()) => {}
        }
        self.progress.add(1, 0);
        result.is_ok()
    }
}
