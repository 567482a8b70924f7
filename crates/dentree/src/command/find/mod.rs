//! `dentree find`: searches directories by expressions of find(1).

mod action;
mod actions;
mod candidate;
mod compile;
pub(crate) mod help;
#[cfg(not(feature = "formats"))]
mod no_table;
mod search;
mod sink;
#[cfg(test)]
mod slow_device;
#[cfg(feature = "formats")]
mod table;
pub(crate) mod words;

use crate::args::FindArgs;
use crate::host::{OsStrExt, os_string};
use crate::image::{Image, Location, Node, Session};
use crate::report::{Problem, Status, Stop};
use crate::tree::Tree;
use action::Action;
use compile::{Context, Plan, Split};
use dentree_find::{Cost, Follow};
use dentree_vfs::Timestamp;
#[cfg(not(feature = "formats"))]
use no_table as table;
use search::Search;
use sink::{LocalFiles, Printed, Sink};
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::UNIX_EPOCH;
use table::Table;

pub(crate) fn run(session: &Session, args: &FindArgs) -> Result<(), Stop> {
    table::write(session, args, |table| search(session, args, table))
}

fn search(session: &Session, args: &FindArgs, table: Option<Table>) -> Result<(), Stop> {
    let split = compile::split(&args.words)?;
    let row = table.as_ref().map(Table::cost);
    let mut find = Find { session, split: &split, now: now(), files: LocalFiles::default(), row };
    let checked = find.plan(None)?;
    if table.as_ref().is_some_and(Table::is_standard_output) && prints(&checked) {
        let why =
            "standard output has the table of --format, and no other action prints there; name a file by -o";
        return Err(Problem::new("find", Status::Failed, why).into());
    }
    let starts = starts(session, &split, &checked)?;
    let interrupted =
        if acts(&checked) { session.catch_interrupts()? } else { Arc::new(AtomicBool::new(false)) };
    let sink = Sink::new(printed(args), table);
    let mut plans: Vec<(Arc<Image>, Plan)> = Vec::new();
    let has_several = session.names_several_images(&starts);
    for start in &starts {
        if sink.has_ended() || interrupted.load(Ordering::Relaxed) {
            break;
        }
        let (mut at, node) = match locate(session, start, &checked) {
            Ok(found) => found,
            Err(problem) => {
                session.report.problem(&problem);
                continue;
            }
        };
        if has_several {
            at.name_image();
        }
        if !plans.iter().any(|(image, _)| Arc::ptr_eq(image, &at.image)) {
            plans.push((at.image.clone(), find.plan(Some(&at.image))?));
        }
        for (_, plan) in plans.iter().filter(|(image, _)| Arc::ptr_eq(image, &at.image)) {
            let tree = Tree::new(&at.image, &session.report);
            let paths = (at.path.clone(), at.prefix());
            Search::new(tree, paths, plan, &sink, args.sort, &interrupted).run(&node);
        }
    }
    for (_, plan) in &plans {
        plan.expression.each_action(&mut |action| {
            if let Action::Execute(execute) = action {
                execute.finish(&session.report);
            }
        });
    }
    find.files.finish().iter().for_each(|problem| session.report.problem(problem));
    sink.finish()
}

struct Find<'a> {
    session: &'a Session,
    split: &'a Split<'a>,
    now: Timestamp,
    files: LocalFiles,
    row: Option<Cost>,
}

impl Find<'_> {
    /// Compiles the expression for an image; without one, only checks it.
    fn plan(&mut self, image: Option<&Arc<Image>>) -> Result<Plan, Problem> {
        let (session, now, files, row) = (self.session, self.now, &mut self.files, self.row);
        compile::plan(self.split, Context { session, image, now, files, row })
    }
}

fn printed(args: &FindArgs) -> Printed {
    match (args.json, args.timeline) {
        (true, _) => Printed::Json,
        (_, true) => Printed::Bodyfile,
        _ => Printed::Path,
    }
}

/// Whether an action prints on standard output.
fn prints(plan: &Plan) -> bool {
    let mut prints = false;
    plan.expression.each_action(&mut |action| prints |= matches!(action, Action::Print(_, None)));
    prints
}

/// Whether the search leaves traces that an interruption must not leave half done.
fn acts(plan: &Plan) -> bool {
    let mut acts = false;
    plan.expression.each_action(&mut |action| acts |= matches!(action, Action::Execute(_) | Action::Delete));
    acts
}

fn starts(session: &Session, split: &Split<'_>, plan: &Plan) -> Result<Vec<OsString>, Problem> {
    let wrong = |message: &str| Problem::new("find", Status::Failed, message);
    let Some(list) = &plan.starts_from else {
        return match split.starts {
            [] if session.names_image(OsStr::new(".")) => Ok(vec![".".into()]),
            [] => Err(wrong("no IMAGE:PATH says where to search; it comes before the expression")),
            starts => Ok(starts.to_vec()),
        };
    };
    if !split.starts.is_empty() {
        return Err(wrong("-files0-from says where to search, so no IMAGE:PATH may"));
    }
    let text = read(list).map_err(|error| Problem::local(list.as_bytes(), &error))?;
    let names = text.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    Ok(names.map(|name| os_string(name.to_vec())).collect())
}

/// Reads a file, or standard input for `-`.
fn read(file: &OsStr) -> std::io::Result<Vec<u8>> {
    let mut text = Vec::new();
    if file == "-" {
        std::io::stdin().lock().read_to_end(&mut text)?;
        return Ok(text);
    }
    std::fs::read(file)
}

fn locate(session: &Session, start: &OsStr, plan: &Plan) -> Result<(Location, Node), Problem> {
    let at = if plan.deletes { session.locate_for_writing(start)? } else { session.locate(start)? };
    let node = compile::walk(&at, plan.settings.follow != Follow::Never)?;
    Ok((at, node))
}

fn now() -> Timestamp {
    let now = UNIX_EPOCH.elapsed().unwrap_or_default();
    Timestamp { seconds: now.as_secs().cast_signed(), nanos: now.subsec_nanos() }
}
