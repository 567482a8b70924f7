//! The actions of an expression.

mod bodyfile;
mod execute;
mod format;
mod local_copy;
mod long;

use super::candidate::Candidate;
use super::sink::{Found, LocalFile, Printed, Sink};
use crate::image::SUPERUSER;
use crate::output::{Names, json};
use dentree_find::Cost;
use dentree_vfs::FileType;
pub(super) use execute::Execute;
pub(super) use format::Format;
pub(super) use long::Long;
use std::sync::Arc;

pub(super) enum Action {
    Print(Line, Option<Arc<LocalFile>>),
    /// Adds to the table of `--format`.
    Row(Cost),
    Execute(Execute),
    Delete,
    Prune,
    Quit,
}

/// What is printed of a file.
pub(super) enum Line {
    /// Its path and this byte, or another [`Printed`] instead.
    Path(u8),
    Format(Format),
    Long(Long),
}

impl dentree_find::Action for Action {
    fn cost(&self) -> Cost {
        match self {
            Action::Print(Line::Path(_), _) | Action::Prune | Action::Quit => Cost::Name,
            Action::Print(Line::Format(format), _) => format.cost(),
            Action::Row(cost) => *cost,
            Action::Print(Line::Long(_), _) | Action::Delete | Action::Execute(_) => Cost::More,
        }
    }
}

impl Action {
    /// Whether files are taken one after the other, on one thread.
    pub(super) fn is_serial(&self) -> bool {
        matches!(self, Action::Execute(_) | Action::Delete | Action::Quit)
    }

    /// `None` where the file cannot be judged, or the search ends.
    pub(super) fn perform(&self, file: &Candidate<'_>, found: &mut Found, sink: &Sink) -> Option<bool> {
        match self {
            Action::Print(line, None) => line.print(file, sink.names, sink.printed, &mut found.text)?,
            Action::Print(line, Some(local)) => {
                let mut text = Vec::new();
                line.print(file, Names::RAW, sink.printed, &mut text)?;
                if let Err(problem) = local.write(&text) {
                    file.tree.report.problem(&problem);
                    sink.end();
                }
            }
            Action::Row(_) => {
                if let Some(table) = &sink.table {
                    table.read(file, &mut found.rows)?;
                }
            }
            Action::Execute(execute) => return execute.perform(file, found, sink),
            Action::Delete => return Some(delete(file)),
            Action::Prune => found.pruned = true,
            Action::Quit => {
                sink.end();
                return None;
            }
        }
        Some(true)
    }
}

impl Line {
    fn print(&self, file: &Candidate<'_>, names: Names, printed: Printed, text: &mut Vec<u8>) -> Option<()> {
        match self {
            Line::Path(_) if printed == Printed::Json => {
                let _ = json::line(text, &json::File::new(&file.shown(), file.attr()?, None));
            }
            Line::Path(_) if printed == Printed::Bodyfile => bodyfile::print(file, names, text)?,
            Line::Path(end) => {
                if *end == 0 || names.is_raw() {
                    file.push_shown(text);
                } else {
                    text.extend_from_slice(&names.show(&file.shown()));
                }
                text.push(*end);
            }
            Line::Format(format) => format.print(file, names, text)?,
            Line::Long(long) => long.print(file, text)?,
        }
        Some(())
    }
}

/// Removes the name itself, never what a link leads to.
fn delete(file: &Candidate<'_>) -> bool {
    if matches!(file.name(), b"/" | b"." | b"..") {
        file.refusal("the root, `.` and `..` are not removed");
        return false;
    }
    let remove = || {
        let (vfs, (dir, kind)) = (&file.tree.image.vfs, file.itself()?);
        match kind {
            FileType::Directory => vfs.rmdir(SUPERUSER, &dir, file.name()),
            _ => vfs.unlink(SUPERUSER, &dir, file.name()),
        }
    };
    remove().map_err(|error| file.problem(&error)).is_ok()
}
