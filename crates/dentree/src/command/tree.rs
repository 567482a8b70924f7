//! `dentree tree`: draws a directory with its contents.

use crate::args::TreeArgs;
use crate::fanout::{self, Emit, Order};
use crate::image::Session;
use crate::output::{Names, Output};
use crate::path::join;
use crate::report::Stop;
use crate::tree::Tree;
use dentree_vfs::{FileType, Ino, WalkOptions};
use std::io::Write;
use std::ops::ControlFlow;

pub(crate) fn run(session: &Session, args: &TreeArgs) -> Result<(), Stop> {
    let mut out = Output::new();
    let at = session.locate(&args.location)?;
    let node = at.walk(WalkOptions { directory: true, ..WalkOptions::FOLLOW })?;
    let draw = Draw { tree: Tree::new(&at.image, &session.report), args, names: out.names() };
    out.write_all(&draw.names.show(&at.path))?;
    out.write_all(b"\n")?;

    let job = Job { path: at.path, ino: node.ino(), indent: String::new(), depth: 1 };
    let (mut directories, mut files) = (0_u64, 0_u64);
    let mut written = Ok(());
    fanout::run(
        fanout::threads(),
        Order::Stable,
        vec![job],
        |job, emit| draw.work(&job, emit),
        |part: Part| {
            directories += part.directories;
            files += part.files;
            written = out.write_all(&part.text);
            if written.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        },
    );
    written?;
    if args.directories {
        writeln!(out, "\n{directories} directories")?;
    } else {
        writeln!(out, "\n{directories} directories, {files} files")?;
    }
    Ok(out.flush()?)
}

struct Job {
    path: Vec<u8>,
    ino: Ino,
    /// Text to the left of this directory's entries.
    indent: String,
    depth: u32,
}

#[derive(Default)]
struct Part {
    text: Vec<u8>,
    directories: u64,
    files: u64,
}

struct Draw<'a> {
    tree: Tree<'a>,
    args: &'a TreeArgs,
    names: Names,
}

impl Draw<'_> {
    fn work(&self, job: &Job, emit: &mut Emit<'_, Job, Part>) {
        let Some(node) = self.tree.inode(job.ino, &job.path) else { return };
        let mut listing = self.tree.list(&node, &job.path);
        listing.sort_by_name();
        let entries: Vec<_> = listing
            .iter()
            .filter(|entry| self.args.all || !entry.name.starts_with(b"."))
            .map(|entry| (entry, self.tree.kind(entry, &join(&job.path, entry.name))))
            .filter(|(_, kind)| !self.args.directories || *kind == Some(FileType::Directory))
            .collect();
        let mut part = Part::default();
        for (index, (entry, kind)) in entries.iter().enumerate() {
            let last = index + 1 == entries.len();
            part.text.extend_from_slice(job.indent.as_bytes());
            part.text.extend_from_slice(if last { "└── " } else { "├── " }.as_bytes());
            part.text.extend_from_slice(&self.names.show(entry.name));
            match kind {
                Some(FileType::Symlink) => {
                    part.files += 1;
                    self.target(&mut part.text, entry.ino, &join(&job.path, entry.name));
                    part.text.push(b'\n');
                }
                Some(FileType::Directory) => {
                    part.directories += 1;
                    part.text.push(b'\n');
                    if self.args.level.is_none_or(|level| job.depth < level) {
                        emit.put(std::mem::take(&mut part));
                        let indent = format!("{}{}", job.indent, if last { "    " } else { "│   " });
                        let path = join(&job.path, entry.name);
                        emit.spawn(Job { path, ino: entry.ino, indent, depth: job.depth + 1 });
                    }
                }
                _ => {
                    part.files += 1;
                    part.text.push(b'\n');
                }
            }
        }
        emit.put(part);
    }

    fn target(&self, text: &mut Vec<u8>, ino: Ino, path: &[u8]) {
        let Some(node) = self.tree.inode(ino, path) else { return };
        match self.tree.image.vfs.readlink(&node) {
            Ok(target) => {
                text.extend_from_slice(b" -> ");
                text.extend_from_slice(&self.names.show(&target));
            }
            Err(error) => self.tree.problem(path, &error),
        }
    }
}
