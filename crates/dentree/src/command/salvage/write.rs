//! Writing what is salvaged, directory by directory.
//!
//! A directory gets its attributes after its entries. No entry leads out of the target: each is
//! made by one name in an open directory.

use super::{List, State};
use crate::command::cp::attributes::{AttributeCopier, Loss};
use crate::command::cp::local_problem;
use crate::command::cp::options::Keep;
use crate::fanout;
use crate::host::{self, Existing, Target, TargetDir, TempEntry, is_plain_name};
use crate::image::Session;
use crate::path::join;
use crate::progress::Progress;
use crate::report::{Problem, Stop};
use dentree_blockdev::FileExt;
use dentree_ext4::{InodeNumber, Missing, Salvage, SalvagedEntry, SalvagedInode};
use dentree_vfs::{Attr, FileType};
use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::vec;

/// Where things without a name go.
const LOST_AND_FOUND: &[u8] = b"lost+found";

pub(super) struct Writer<'a> {
    session: &'a Session,
    salvage: &'a Salvage,
    copier: AttributeCopier,
    top: TargetDir,
    progress: &'a Progress,
    /// The first copied name of each inode with several.
    links: HashMap<InodeNumber, Vec<Vec<u8>>>,
}

/// A directory that is being filled.
struct Filling {
    dir: TargetDir,
    /// `None` where its inode is gone.
    inode: Option<SalvagedInode>,
    ino: InodeNumber,
    path: Vec<u8>,
    is_whole: bool,
    below: vec::IntoIter<SalvagedEntry>,
}

/// Why a file was not written.
enum Failure {
    /// The image has no more of it.
    Lost(String),
    Local(io::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure::Local(error)
    }
}

impl<'a> Writer<'a> {
    pub(super) fn new(
        session: &'a Session,
        salvage: &'a Salvage,
        top: &Path,
        progress: &'a Progress,
    ) -> Result<Self, Problem> {
        fanout::raise_file_limit();
        let keep = Keep { owner: host::is_superuser(), ..Keep::ALL };
        let copier = AttributeCopier::keeping(keep);
        let top = TargetDir::top(top).map_err(|error| local_problem(top, &error))?;
        Ok(Writer { session, salvage, copier, top, progress, links: HashMap::new() })
    }

    pub(super) fn report_losses(&self) {
        self.copier.report_losses(&self.session.report);
    }

    /// Writes the tree, and what has no place in it.
    pub(super) fn everything(&mut self, list: &mut List) -> Result<(), Stop> {
        let root = self.salvage.root();
        let top = TargetDir::top(&self.top.label(b"")).map_err(|error| self.local(b"", &error))?;
        let inode = self.salvage.inode(&root);
        let root = self.fill(top, inode, &root, b"/".to_vec());
        self.tree(root, list)?;
        let mut unplaced = self.salvage.unplaced().peekable();
        if unplaced.peek().is_none() || self.session.is_interrupted() {
            return Ok(());
        }
        let path = join(b"/", LOST_AND_FOUND);
        let (dir, _) =
            self.top.directory(LOST_AND_FOUND).map_err(|error| self.local(LOST_AND_FOUND, &error))?;
        for entry in unplaced {
            let path = join(&path, &entry.name);
            if let Some(filling) = self.entry(&dir, &entry, &path, list)? {
                self.tree(filling, list)?;
            }
            if self.session.is_interrupted() {
                break;
            }
        }
        Ok(())
    }

    fn local(&self, name: &[u8], error: &io::Error) -> Problem {
        local_problem(&self.top.label(name), error)
    }

    /// Writes all below a directory.
    fn tree(&mut self, top: Filling, list: &mut List) -> Result<(), Stop> {
        let mut open = vec![top];
        while let Some(filling) = open.last_mut() {
            match filling.below.next().filter(|_| !self.session.is_interrupted()) {
                Some(entry) => {
                    let path = join(&filling.path, &entry.name);
                    if let Some(below) = self.entry(&filling.dir, &entry, &path, list)? {
                        open.push(below);
                    }
                }
                None => {
                    if let Some(done) = open.pop() {
                        self.finish(&done, list)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Opens a directory that is to be filled.
    fn fill(
        &self,
        dir: TargetDir,
        inode: Option<SalvagedInode>,
        entry: &SalvagedEntry,
        path: Vec<u8>,
    ) -> Filling {
        let (entries, is_whole) = self.salvage.entries(entry.ino);
        Filling { dir, inode, ino: entry.ino, path, is_whole, below: entries.into_iter() }
    }

    /// Sets the attributes of a directory that is filled.
    fn finish(&self, done: &Filling, list: &mut List) -> Result<(), Stop> {
        if let Some(inode) = &done.inode {
            self.apply(inode, (&Target::directory(&done.dir), true), &done.dir.label(b""));
        }
        let is_whole = done.is_whole && done.inode.as_ref().is_some_and(|inode| !inode.is_doubtful());
        let state = if is_whole { State::Whole } else { State::Partial(Missing::default()) };
        list.add(&done.path, done.ino.0, true, &state)?;
        self.progress.add(1, 0);
        Ok(())
    }

    /// Writes an entry; a directory is returned to be filled.
    fn entry(
        &mut self,
        into: &TargetDir,
        entry: &SalvagedEntry,
        path: &[u8],
        list: &mut List,
    ) -> Result<Option<Filling>, Stop> {
        if !is_plain_name(&entry.name) {
            let because = "its name is none".to_owned();
            list.add(path, entry.ino.0, false, &State::Lost(because))?;
            return Ok(None);
        }
        let inode = self.salvage.inode(entry);
        let is_dir = match &inode {
            Some(inode) => inode.kind() == FileType::Directory,
            None => self.salvage.is_directory_gone(entry.ino),
        };
        let name = free_name(into, &entry.name);
        if is_dir {
            return match into.directory(&name) {
                Ok((dir, _)) => Ok(Some(self.fill(dir, inode, entry, path.to_vec()))),
                Err(error) => {
                    self.session.report.problem(&local_problem(&into.label(&name), &error));
                    list.add(path, entry.ino.0, true, &State::Lost("it could not be written".to_owned()))?;
                    Ok(None)
                }
            };
        }
        let state = match inode.map(|inode| self.file(into, &name, &inode)) {
            None => State::Lost(format!("inode {} is gone", entry.ino)),
            Some(Ok(missing)) if missing.is_nothing() => State::Whole,
            Some(Ok(missing)) => State::Partial(missing),
            Some(Err(Failure::Lost(because))) => State::Lost(because),
            Some(Err(Failure::Local(error))) => {
                let problem = local_problem(&into.label(&name), &error);
                if error.kind() == io::ErrorKind::StorageFull {
                    return Err(problem.into());
                }
                self.session.report.problem(&problem);
                State::Lost("it could not be written".to_owned())
            }
        };
        list.add(path, entry.ino.0, false, &state)?;
        self.progress.add(1, 0);
        Ok(None)
    }

    /// Writes what is no directory.
    fn file(&mut self, into: &TargetDir, name: &[u8], inode: &SalvagedInode) -> Result<Missing, Failure> {
        let attr = self.salvage.attr(inode);
        if let Some(first) = self.links.get(&inode.ino()) {
            let link = into.link(&self.top, first).and_then(|temp| temp.publish(name, Existing::Keep));
            if self.copier.check(Loss::HardLink, &into.label(name), link) {
                return Ok(Missing::default());
            }
        }
        let mut missing = Missing::default();
        let temp = match attr.kind {
            FileType::Symlink => {
                let target = self.salvage.target(inode).map_err(|error| Failure::Lost(error.to_string()))?;
                into.symlink(&target)?
            }
            FileType::Regular => {
                let temp = into.file()?;
                missing = self.content(inode, &attr, &temp)?;
                temp
            }
            kind => match into.node(kind, (attr.rdev_major, attr.rdev_minor)) {
                Ok(temp) => temp,
                Err(error) => {
                    self.copier.check(Loss::Node, &into.label(name), Err(error));
                    return Ok(missing);
                }
            },
        };
        self.apply(inode, (&Target::temp(&temp), true), &into.label(name));
        temp.publish(name, Existing::Keep)?;
        if attr.nlink > 1 {
            self.links.insert(inode.ino(), into.below(name));
        }
        missing.is_doubtful |= inode.is_doubtful();
        Ok(missing)
    }

    /// Writes the content of a file. What is missing becomes holes.
    fn content(&self, inode: &SalvagedInode, attr: &Attr, temp: &TempEntry<'_>) -> Result<Missing, Failure> {
        let Some(file) = temp.open() else { return Ok(Missing::default()) };
        file.set_len(attr.size)?;
        self.salvage.content(inode, |offset, bytes| {
            file.write_all_at(bytes, offset)?;
            self.progress.add(0, bytes.len() as u64);
            Ok(())
        })
    }

    fn apply(&self, inode: &SalvagedInode, target: (&Target<'_>, bool), label: &Path) {
        let attr = self.salvage.attr(inode);
        let copy_xattrs = || {
            let found = self.salvage.xattrs(inode);
            if let Some(error) = found.error {
                self.copier.check(Loss::Xattr, label, Err(io::Error::other(error.to_string())));
            }
            for (name, value) in found.values {
                self.copier.check(Loss::Xattr, label, target.0.set_xattr(&name, &value));
            }
        };
        self.copier.set(&attr, &copy_xattrs, target, (None, None), label);
    }
}

/// The name, or with a number behind it where a damaged directory has it twice.
fn free_name(into: &TargetDir, name: &[u8]) -> Vec<u8> {
    let is_free = |name: &[u8]| !into.is_there(name);
    if is_free(name) {
        return name.to_vec();
    }
    let numbered = |number: u32| [name, format!(".~{number}~").as_bytes()].concat();
    (1..u32::MAX).map(numbered).find(|name| is_free(name)).unwrap_or_default()
}
