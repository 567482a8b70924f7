//! Archives that fill a new image: a root file system, or the layers of a container image from the
//! lowest to the highest.
//!
//! Each is read twice: for the size of the image and the whiteouts, then for its members. A
//! whiteout (`.wh.NAME`, OCI image specification, "Layers") removes a name of the layers below, and
//! `.wh..wh..opq` all names of a directory; both come before the layer's own members, wherever they
//! are in the archive.

use super::extract::{Extractor, Interruptible, Place, archive_problem, unpacked};
use super::read::{Members, parts};
use crate::host::{self, OsStrExt};
use crate::image::{Node, SUPERUSER};
use crate::output::escape;
use crate::progress::Progress;
use crate::report::{Problem, Report, Status};
use dentree_ext4::Ext4;
use dentree_vfs::{DirEntry, Error, Vfs, WalkOptions};
use std::fs::File;
use std::io::{self, Seek};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..opq";

/// What goes into an image, for its size.
#[derive(Clone, Copy, Default)]
pub(crate) struct Amount {
    pub(crate) entries: u64,
    /// Bytes of content and of attributes beside the inode, in whole blocks.
    pub(crate) bytes: u64,
}

impl Amount {
    /// Counts a file of so many bytes.
    pub(crate) fn add(&mut self, bytes: u64) {
        self.entries += 1;
        self.bytes += bytes.div_ceil(4096) * 4096;
    }

    /// The size of an image with room for it, an eighth of that and a journal: enough inodes at
    /// mke2fs's ratio, one to 4 KiB below 512 MiB and one to 16 KiB above.
    pub(crate) fn image_size(self) -> u64 {
        const MIB: u64 = 1 << 20;
        let entries = self.entries + 64;
        let needed = self.bytes + self.bytes / 8 + entries * 512 + 24 * MIB;
        let with_inodes = needed.max(entries * 4096 + entries * 256);
        let size = if with_inodes < 512 * MIB { with_inodes } else { with_inodes.max(entries * 17 * 1024) };
        size.next_multiple_of(MIB)
    }
}

struct Layer {
    name: PathBuf,
    file: File,
    whiteouts: Vec<Whiteout>,
}

struct Whiteout {
    dir: Vec<u8>,
    /// `None`: all names.
    name: Option<Vec<u8>>,
}

pub(crate) struct Layers {
    layers: Vec<Layer>,
    pub(crate) amount: Amount,
}

impl Layers {
    /// Opens archives and reads them once. What cannot be read twice, as a pipe, is copied to a
    /// file without a name in the directory `spool`.
    pub(crate) fn open(paths: &[PathBuf], spool: &Path, interrupted: &AtomicBool) -> Result<Layers, Problem> {
        let mut all = Layers { layers: Vec::new(), amount: Amount::default() };
        for path in paths {
            let problem = |error: io::Error| problem(path, &error);
            let file = match path == Path::new("-") {
                true => host::stdin(),
                false => File::open(path),
            };
            let file = file.and_then(|file| seekable(file, spool, interrupted)).map_err(problem)?;
            let mut layer = Layer { name: path.clone(), file, whiteouts: Vec::new() };
            all.scan(&mut layer, interrupted).map_err(problem)?;
            all.layers.push(layer);
        }
        Ok(all)
    }

    fn scan(&mut self, layer: &mut Layer, interrupted: &AtomicBool) -> io::Result<()> {
        let mut members = Members::new(unpacked(layer.file.try_clone()?)?);
        while let Some(head) = members.next()? {
            if interrupted.load(Ordering::Relaxed) {
                break;
            }
            self.amount.add(head.stored.min(head.size()) + head.attribute_bytes());
            let parts = head.parts();
            let Some((name, above)) = parts.split_last() else { continue };
            if let Some(hidden) = name.strip_prefix(WHITEOUT) {
                let name = (hidden != OPAQUE).then(|| hidden.to_vec());
                let dir = [b"/", &above.join(&b'/')[..]].concat();
                layer.whiteouts.push(Whiteout { dir, name });
            }
        }
        Ok(())
    }

    /// Extracts all layers into the root. Fails where an archive cannot be read to its end;
    /// problems with single members are reported.
    pub(crate) fn extract(
        &mut self,
        vfs: &Vfs<Ext4>,
        name: &dyn Fn(&[u8]) -> String,
        (report, progress): (&Report, &Progress),
        interrupted: &AtomicBool,
    ) -> Result<(), Problem> {
        for layer in &mut self.layers {
            for whiteout in &layer.whiteouts {
                whiteout.apply(vfs).map_err(|error| Problem::inside(name(&whiteout.dir), &error))?;
            }
            let place = Place { vfs, top: vfs.root().clone(), name, report, progress };
            let mut extractor = Extractor::new(place, false, Some(WHITEOUT));
            let done = layer.file.rewind().and_then(|()| {
                let archive = unpacked(layer.file.try_clone()?)?;
                extractor.archive(archive, &|| interrupted.load(Ordering::Relaxed))
            });
            extractor.finish();
            done.map_err(|error| problem(&layer.name, &error))?;
            if extractor.is_full() {
                let message = "the image is too small for the archive; a larger --size makes room";
                return Err(Problem::new(name(b"/"), Status::Failed, message));
            }
        }
        Ok(())
    }
}

impl Whiteout {
    /// Removes what the layers below have there.
    fn apply(&self, vfs: &Vfs<Ext4>) -> Result<(), Error> {
        let dir = match vfs.walk(SUPERUSER, vfs.root(), &self.dir, WalkOptions::FOLLOW) {
            Ok(dir) if dir.is_dir() => dir,
            Ok(_) | Err(Error::NotFound | Error::NotADirectory) => return Ok(()),
            Err(error) => return Err(error),
        };
        match &self.name {
            Some(name) => remove(vfs, &dir, name),
            None => names(vfs, &dir)?.iter().try_for_each(|name| remove(vfs, &dir, name)),
        }
    }
}

/// Removes a name and all below it, the lowest first, without recursion.
fn remove(vfs: &Vfs<Ext4>, dir: &Node, name: &[u8]) -> Result<(), Error> {
    let mut left = vec![(dir.clone(), name.to_vec(), false)];
    while let Some((dir, name, is_emptied)) = left.pop() {
        match vfs.lookup(SUPERUSER, &dir, &name)? {
            None => {}
            Some(node) if node.is_dir() && !is_emptied => {
                left.push((dir, name, true));
                left.extend(names(vfs, &node)?.into_iter().map(|name| (node.clone(), name, false)));
            }
            Some(node) if node.is_dir() => vfs.rmdir(SUPERUSER, &dir, &name)?,
            Some(_) => vfs.unlink(SUPERUSER, &dir, &name)?,
        }
    }
    Ok(())
}

fn names(vfs: &Vfs<Ext4>, dir: &Node) -> Result<Vec<Vec<u8>>, Error> {
    let mut names = Vec::new();
    vfs.readdir(SUPERUSER, dir, dentree_vfs::ReaddirStart::First, &mut |entry: DirEntry<'_>| {
        if !parts(entry.name).is_empty() && entry.name != b".." {
            names.push(entry.name.to_vec());
        }
        ControlFlow::Continue(())
    })?;
    Ok(names)
}

/// The rest of a file as one that can be read twice.
fn seekable(mut from: File, spool: &Path, interrupted: &AtomicBool) -> io::Result<File> {
    if from.stream_position().is_ok_and(|at| at == 0) && from.metadata()?.is_file() {
        return Ok(from);
    }
    let mut file = tempfile::tempfile_in(spool)?;
    io::copy(&mut Interruptible { file: from, flag: interrupted }, &mut file)?;
    file.rewind()?;
    Ok(file)
}

fn problem(path: &Path, error: &io::Error) -> Problem {
    archive_problem(&escape::terminal(path.as_os_str().as_bytes()), error)
}
