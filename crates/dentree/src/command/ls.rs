//! `dentree ls`: listings as of ls(1). Owners are numbers: their names are in the image, not on
//! this machine.

use crate::args::LsArgs;
use crate::fanout::{self, Emit, Order};
use crate::image::{Image, Node, Session};
use crate::output::attributes::{Clock, mode};
use crate::output::{Names, Output};
use crate::path::join;
use crate::report::{Report, Stop};
use crate::tree::Tree;
use dentree_vfs::{FileType, Ino, WalkOptions};
use std::io::Write;
use std::ops::ControlFlow;

pub(crate) fn run(session: &Session, args: &LsArgs) -> Result<(), Stop> {
    let mut out = Output::new();
    let width = out.terminal_width().filter(|_| !args.long && !args.null);
    let style = Style {
        args,
        names: if args.null { Names::RAW } else { out.names() },
        end: if args.null { 0 } else { b'\n' },
        width,
        clock: Clock::local(),
    };
    let options = if args.long { WalkOptions::KEEP_LINK } else { WalkOptions::FOLLOW };
    let found = session.walk_each(&args.locations, options);
    let (directories, files): (Vec<_>, Vec<_>) =
        found.into_iter().partition(|(_, node)| node.attr().is_dir());

    for (at, node) in &files {
        let row =
            Row { name: at.path.clone(), ino: node.ino(), kind: node.attr().kind, node: Some(node.clone()) };
        out.write_all(&style.rows(&at.image, &session.report, &at.path, vec![row]))?;
    }
    let headed = args.locations.len() > 1 || args.recursive;
    let mut first = files.is_empty();
    for (at, node) in &directories {
        let listing = List { tree: Tree::new(&at.image, &session.report), style: &style, headed };
        let job = Job { path: at.path.clone(), ino: node.ino(), first };
        first = false;
        let mut written = Ok(());
        fanout::run(
            fanout::threads(),
            Order::Stable,
            vec![job],
            |job, emit| listing.work(&job, emit),
            |text: Vec<u8>| {
                written = out.write_all(&text);
                if written.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            },
        );
        written?;
    }
    Ok(out.flush()?)
}

struct Job {
    path: Vec<u8>,
    ino: Ino,
    /// Nothing was printed before.
    first: bool,
}

struct List<'a> {
    tree: Tree<'a>,
    style: &'a Style<'a>,
    headed: bool,
}

impl List<'_> {
    fn work(&self, job: &Job, emit: &mut Emit<'_, Job, Vec<u8>>) {
        let Some(node) = self.tree.inode(job.ino, &job.path) else { return };
        let mut text = Vec::new();
        if self.headed {
            text.extend_from_slice(if job.first { b"" } else { b"\n" });
            text.extend_from_slice(&self.style.names.show(&job.path));
            text.extend_from_slice(b":\n");
        }
        let rows = self.read(&node, &job.path);
        let below: Vec<Job> = rows
            .iter()
            .filter(|row| self.style.args.recursive && row.kind == FileType::Directory)
            .filter(|row| row.name != b"." && row.name != b"..")
            .map(|row| Job { path: join(&job.path, &row.name), ino: row.ino, first: false })
            .collect();
        text.extend(self.style.rows(self.tree.image, self.tree.report, &job.path, rows));
        emit.put(text);
        below.into_iter().for_each(|job| emit.spawn(job));
    }

    /// The rows of a directory, sorted.
    fn read(&self, dir: &Node, path: &[u8]) -> Vec<Row> {
        let style = self.style;
        let mut listing = self.tree.list(dir, path);
        if style.args.long {
            self.tree.expect(listing.iter());
        }
        listing.sort_by_name();
        let mut rows = Vec::new();
        if style.args.all {
            rows.push(Row {
                name: b".".into(),
                ino: dir.ino(),
                kind: FileType::Directory,
                node: Some(dir.clone()),
            });
            match self.tree.image.vfs.parent(dir) {
                Ok(up) => {
                    rows.push(Row {
                        name: b"..".into(),
                        ino: up.ino(),
                        kind: FileType::Directory,
                        node: Some(up),
                    });
                }
                Err(error) => self.tree.problem(&join(path, b".."), &error),
            }
        }
        for entry in listing.iter().filter(|entry| style.args.all || !entry.name.starts_with(b".")) {
            let path = || join(path, entry.name);
            let needed = style.args.long || (entry.kind.is_none() && style.args.recursive);
            let node = if needed { self.tree.inode(entry.ino, &path()) } else { None };
            let kind = node.as_ref().map(|node| node.attr().kind).or(entry.kind).unwrap_or(FileType::Regular);
            rows.push(Row { name: entry.name.into(), ino: entry.ino, kind, node });
        }
        rows
    }
}

/// One line of a listing.
struct Row {
    name: Vec<u8>,
    ino: Ino,
    kind: FileType,
    /// Loaded where attributes are printed.
    node: Option<Node>,
}

struct Style<'a> {
    args: &'a LsArgs,
    names: Names,
    end: u8,
    /// Width of the terminal where names are printed in columns.
    width: Option<usize>,
    clock: Clock,
}

impl Style<'_> {
    /// The text of the rows of directory `dir`.
    fn rows(&self, image: &Image, report: &Report, dir: &[u8], rows: Vec<Row>) -> Vec<u8> {
        if self.args.long {
            return self.table(image, report, dir, &rows);
        }
        let cells: Vec<Vec<u8>> = rows
            .iter()
            .map(|row| {
                let mut cell =
                    if self.args.inode { format!("{} ", row.ino).into_bytes() } else { Vec::new() };
                cell.extend_from_slice(&self.names.show(&row.name));
                cell
            })
            .collect();
        match self.width {
            Some(width) => columns(&cells, width),
            None => cells.into_iter().flat_map(|cell| cell.into_iter().chain([self.end])).collect(),
        }
    }

    fn table(&self, image: &Image, report: &Report, dir: &[u8], rows: &[Row]) -> Vec<u8> {
        let cells: Vec<[String; 7]> = rows.iter().map(|row| self.cells(row)).collect();
        let widths: Vec<usize> =
            (0..7).map(|i| cells.iter().map(|cells| cells[i].len()).max().unwrap_or(0)).collect();
        let mut text = Vec::new();
        for (row, cells) in rows.iter().zip(&cells) {
            for (i, (cell, &width)) in
                cells.iter().zip(&widths).enumerate().skip(usize::from(!self.args.inode))
            {
                // Mode and time are left-aligned, numbers right-aligned.
                let padded = if i == 1 { format!("{cell:<width$} ") } else { format!("{cell:>width$} ") };
                text.extend_from_slice(padded.as_bytes());
            }
            text.extend_from_slice(&self.names.show(&row.name));
            if let Some(node) = row.node.as_ref().filter(|_| row.kind == FileType::Symlink) {
                match image.vfs.readlink(node) {
                    Ok(target) => {
                        text.extend_from_slice(b" -> ");
                        text.extend_from_slice(&self.names.show(&target));
                    }
                    Err(error) => report.problem(&image.problem(&join(dir, &row.name), &error)),
                }
            }
            text.push(self.end);
        }
        text
    }

    fn cells(&self, row: &Row) -> [String; 7] {
        let Some(attr) = row.node.as_ref().map(|node| node.attr()) else {
            let unknown = || "?".to_owned();
            let mode = match row.kind {
                FileType::Regular => '-',
                kind => kind.letter(),
            };
            let mode = format!("{mode}?????????");
            return [row.ino.to_string(), mode, unknown(), unknown(), unknown(), unknown(), unknown()];
        };
        let size = match attr.kind {
            FileType::BlockDevice | FileType::CharDevice => {
                format!("{}, {}", attr.rdev_major, attr.rdev_minor)
            }
            _ => attr.size.to_string(),
        };
        [
            attr.ino.to_string(),
            mode(&attr),
            attr.nlink.to_string(),
            attr.uid.to_string(),
            attr.gid.to_string(),
            size,
            self.clock.minute(attr.mtime),
        ]
    }
}

/// Cells in columns, filled column by column.
fn columns(cells: &[Vec<u8>], width: usize) -> Vec<u8> {
    let len = |cell: &Vec<u8>| String::from_utf8_lossy(cell).chars().count();
    let widest = cells.iter().map(len).max().unwrap_or(0) + 2;
    let across = (width / widest).max(1);
    let down = cells.len().div_ceil(across);
    let mut text = Vec::new();
    for line in 0..down {
        let mut gap = 0;
        for cell in cells.iter().skip(line).step_by(down) {
            text.extend(std::iter::repeat_n(b' ', gap));
            text.extend_from_slice(cell);
            gap = widest - len(cell);
        }
        text.push(b'\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_filled_downwards_and_fit() {
        let cells: Vec<Vec<u8>> = ["a", "bb", "c", "d", "é"].map(|name| name.as_bytes().to_vec()).to_vec();
        assert_eq!(columns(&cells, 8), "a   d\nbb  é\nc\n".as_bytes());
        assert_eq!(columns(&cells, 1), "a\nbb\nc\nd\né\n".as_bytes());
        assert_eq!(columns(&[], 80), b"");
    }
}
