//! `dentree rm`: removes names, and with the last name the inode.

use crate::args::RmArgs;
use crate::image::{Location, Node, SUPERUSER, Session};
use crate::path::join;
use crate::report::{Problem, Stop};
use crate::tree::{Listing, Tree};
use dentree_vfs::{Error, FileType, Ino, WalkOptions};

pub(crate) fn run(session: &Session, args: &RmArgs) -> Result<(), Stop> {
    session.change_each(&args.locations, |at| remove(session, args, at));
    Ok(())
}

fn remove(session: &Session, args: &RmArgs, at: &Location) -> Result<(), Problem> {
    let found = at.find(WalkOptions::KEEP_LINK)?;
    let node = match found {
        Some(node) => node,
        None if args.force => return Ok(()),
        None => return Err(at.problem(&Error::NotFound)),
    };
    let (dir, name) = at.last()?;
    if name == b"." || name == b".." {
        return Err(at.refusal("the root, `.` and `..` are not removed"));
    }
    let vfs = &at.image.vfs;
    if !node.is_dir() {
        return vfs.unlink(SUPERUSER, &dir, name).map_err(|error| at.problem(&error));
    }
    if !args.recursive {
        return Err(at.refusal("is a directory; -r removes it with its contents"));
    }
    let tree = Tree::new(&at.image, &session.report);
    Removal { session, tree: &tree }.directory(dir, name.to_vec(), node, at.path.clone());
    Ok(())
}

struct Removal<'a> {
    session: &'a Session,
    tree: &'a Tree<'a>,
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
    /// Removes `node`, `name` in `parent`, with its contents.
    fn directory(&self, parent: Node, name: Vec<u8>, node: Node, path: Vec<u8>) {
        let mut above = vec![self.emptied(parent, name, node, path)];
        while let Some(mut current) = above.pop() {
            if self.session.is_interrupted() {
                return;
            }
            if let Some((name, ino)) = current.directories.pop() {
                let path = join(&current.path, &name);
                match self.tree.inode(ino, &path) {
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
            let stays = current.stays || !self.done(&current.path, self.remove_empty(&current));
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
                Some(_) => {
                    let gone = self.tree.image.vfs.unlink(SUPERUSER, &emptied.node, entry.name);
                    emptied.stays |= !self.done(&path, gone);
                }
                None => emptied.stays = true,
            }
        }
        emptied
    }

    fn remove_empty(&self, emptied: &Emptied) -> Result<(), Error> {
        self.tree.image.vfs.rmdir(SUPERUSER, &emptied.parent, &emptied.name)
    }

    fn done(&self, path: &[u8], result: Result<(), Error>) -> bool {
        if let Err(error) = &result {
            self.tree.problem(path, error);
        }
        result.is_ok()
    }
}
