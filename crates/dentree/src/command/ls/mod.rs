//! `dentree ls`: listings as of ls(1) in the C locale.

mod deleted;
mod layout;
mod rows;
mod style;

use crate::args::LsArgs;
use crate::args::ls::{Format, Indicator};
use crate::fanout::{self, Emit, Order};
use crate::image::{Location, Node, Session};
use crate::output::Output;
use crate::owners::OwnersByImage;
use crate::report::{Problem, Stop};
use crate::tree::Tree;
use dentree_find::Owners;
use dentree_vfs::{FileType, Ino, WalkOptions};
use rows::{Maker, Row};
use std::io::Write;
use std::ops::ControlFlow;
use std::rc::Rc;
use style::Style;

pub(crate) fn run(session: &Session, args: &LsArgs) -> Result<(), Stop> {
    if args.select.deleted {
        return deleted::run(session, args);
    }
    let mut out = Output::new();
    let style = Style::new(args, &out)?;
    let read = OwnersByImage::default();
    let owners = |at: &Location| {
        if style.is_long() && !args.columns.numeric { read.of(&at.image) } else { Rc::default() }
    };
    let mut operands = operands(session, &style, owners);
    rows::sort(&style, &mut operands, |operand| &operand.row);
    let headed = operands.len() > 1 || args.locations.len() > 1 || args.select.recursive;
    let is_listed = |operand: &Operand| operand.row.kind == FileType::Directory && !args.select.directory;
    let (directories, files): (Vec<_>, Vec<_>) = operands.into_iter().partition(is_listed);
    let mut first = files.is_empty();
    let files: Vec<Row> = files.into_iter().map(|operand| operand.row).collect();
    out.write_all(&layout::text(&style, &files, false))?;
    for Operand { at, row } in directories {
        let tree = Tree::new(&at.image, &session.report);
        let maker = Maker { tree, style: &style, owners: &owners(&at) };
        let list = List { maker, headed, prefix: at.prefix() };
        let job = Job { path: at.path.clone(), ino: row.ino, first };
        first = false;
        let mut written = Ok(());
        fanout::run(
            fanout::threads(),
            Order::Stable,
            vec![job],
            |job, emit| list.work(&job, emit),
            |text: Vec<u8>| {
                written = out.write_all(&text);
                if written.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            },
        );
        written?;
    }
    Ok(out.flush()?)
}

struct Operand {
    at: Location,
    row: Row,
}

/// The arguments that exist; the others are reported.
fn operands(session: &Session, style: &Style<'_>, owners: impl Fn(&Location) -> Rc<Owners>) -> Vec<Operand> {
    let select = &style.args.select;
    let keeps = style.is_long() || select.directory || style.indicator == Indicator::Classify;
    let follows_all = select.dereference || select.dereference_command_line;
    let follows_dirs = select.dereference_command_line_symlink_to_dir || !keeps;
    let find = |at: &Location| -> Result<Node, Problem> {
        if follows_all {
            return at.walk(WalkOptions::FOLLOW);
        }
        let node = at.walk(WalkOptions::KEEP_LINK)?;
        let is_link = follows_dirs && node.kind() == FileType::Symlink;
        let end = if is_link { at.walk(WalkOptions::FOLLOW).ok() } else { None };
        Ok(end.filter(|end| end.is_dir()).unwrap_or(node))
    };
    let mut operands = Vec::new();
    for at in session.expand(&style.args.locations) {
        match find(&at) {
            Ok(node) => {
                let tree = Tree::new(&at.image, &session.report);
                let shown = [at.prefix(), at.path.clone()].concat();
                let maker = Maker { tree, style, owners: &owners(&at) };
                let end = || at.walk(WalkOptions::FOLLOW).ok();
                let row = maker.row((shown.clone(), shown), &node, end);
                operands.push(Operand { at, row });
            }
            Err(problem) => session.report.problem(&problem),
        }
    }
    operands
}

struct Job {
    path: Vec<u8>,
    ino: Ino,
    /// Nothing was printed before.
    first: bool,
}

struct List<'a> {
    maker: Maker<'a>,
    headed: bool,
    /// Shown before paths.
    prefix: Vec<u8>,
}

impl List<'_> {
    fn work(&self, job: &Job, emit: &mut Emit<'_, Job, Vec<u8>>) {
        let Maker { tree, style, .. } = &self.maker;
        let Some(node) = tree.inode(job.ino, &job.path) else { return };
        let mut text = Vec::new();
        if self.headed && style.format != Format::Json {
            text.extend_from_slice(if job.first { b"" } else { b"\n" });
            text.extend_from_slice(&layout::shown(style, &[&self.prefix[..], &job.path].concat()));
            text.extend_from_slice(b":\n");
        }
        let mut rows = self.maker.read(&node, &job.path);
        let below: Vec<Job> = rows
            .iter()
            .filter(|row| style.args.select.recursive && row.kind == FileType::Directory)
            .filter(|row| row.name != b"." && row.name != b"..")
            // A link that is shown as its target is not entered: links may lead in circles.
            .filter(|row| !row.is_followed)
            .map(|row| Job { path: row.path.clone(), ino: row.ino, first: false })
            .collect();
        if !self.prefix.is_empty() {
            rows.iter_mut().for_each(|row| row.path = [&self.prefix[..], &row.path].concat());
        }
        text.extend(layout::text(style, &rows, true));
        emit.put(text);
        below.into_iter().for_each(|job| emit.spawn(job));
    }
}
