//! `dentree diff`: what was added, removed, moved and changed between two trees.
//!
//! `compare` finds what differs, path by path; `moves` joins a removal and an addition of one inode
//! of one file system. Differences are held until the end, as a move is known by both of its paths.

mod compare;
mod difference;
mod moves;

use crate::any_tree::Source;
use crate::any_tree::image::InImage;
use crate::args::DiffArgs;
use crate::fanout::{self, Order};
use crate::host::Local;
use crate::image::{Location, Node, Session};
use crate::output::Output;
use crate::progress::Progress;
use crate::report::{Problem, Report, Status, Stop};
use compare::{Comparison, Job};
use dentree_vfs::WalkOptions;
use difference::Difference;
use std::ffi::OsStr;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::Path;

pub(crate) fn run(session: &Session, args: &DiffArgs) -> Result<(), Stop> {
    let differences = sides(session, args)?;
    if !differences.is_empty() {
        session.report.remember(Status::Differs);
    }
    print(args, &differences)
}

/// A side of the comparison.
enum Side<'a> {
    Local(&'a Path),
    Image(Box<Location>),
}

impl<'a> Side<'a> {
    fn open(session: &Session, argument: &'a OsStr) -> Result<Self, Problem> {
        match Path::new(argument) {
            path if path.is_dir() => Ok(Side::Local(path)),
            _ => Ok(Side::Image(Box::new(session.locate(argument)?))),
        }
    }
}

fn sides(session: &Session, args: &DiffArgs) -> Result<Vec<Difference>, Stop> {
    fanout::raise_file_limit();
    let report = &session.report;
    let progress = &session.progress(None, false);
    let local = |path| {
        let tree = Local::new(report, path, progress);
        tree.root().map(|root| (tree, root))
    };
    fn image<'a>(
        report: &'a Report,
        at: &'a Location,
        progress: &'a Progress,
    ) -> Result<(InImage<'a>, Node), Problem> {
        at.walk(WalkOptions::FOLLOW).map(|root| (InImage::new(report, at, progress), root))
    }
    match (Side::open(session, &args.old)?, Side::open(session, &args.new)?) {
        (Side::Image(old), Side::Image(new)) => {
            Ok(compare(image(report, &old, progress)?, image(report, &new, progress)?, args.quick))
        }
        (Side::Image(old), Side::Local(new)) => {
            Ok(compare(image(report, &old, progress)?, local(new)?, args.quick))
        }
        (Side::Local(old), Side::Image(new)) => {
            Ok(compare(local(old)?, image(report, &new, progress)?, args.quick))
        }
        (Side::Local(old), Side::Local(new)) => Ok(compare(local(old)?, local(new)?, args.quick)),
    }
}

/// All differences of two trees with their roots, sorted by path.
fn compare<A: Source, B: Source>(old: (A, A::File), new: (B, B::File), is_quick: bool) -> Vec<Difference> {
    let comparison = Comparison { old: &old.0, new: &new.0, is_quick };
    let mut differences = Vec::new();
    fanout::run(
        old.0.width().of_both(new.0.width()).threads,
        Order::AsReady,
        vec![Job::Files(old.1, new.1)],
        |job, emit| comparison.work(job, emit),
        |difference| {
            differences.push(difference);
            ControlFlow::Continue(())
        },
    );
    differences.sort_by(|a: &Difference, b| a.path.cmp(&b.path));
    comparison.find_moves(differences)
}

fn print(args: &DiffArgs, differences: &[Difference]) -> Result<(), Stop> {
    let mut out = Output::new();
    for difference in differences {
        if args.json { difference.print_json(&mut out)? } else { difference.print(&mut out)? }
    }
    Ok(out.flush()?)
}
