//! A difference, and how it is printed.

use crate::any_tree::Version;
use crate::output::{escape, json};
use serde::Serialize;
use std::io::{self, Write};

#[derive(Debug)]
pub(super) struct Difference {
    /// Relative to both trees, which are `.`; of what was moved, the new path.
    pub(super) path: Vec<u8>,
    pub(super) change: Change,
    /// Of what only one tree has.
    pub(super) version: Option<Version>,
}

#[derive(Debug)]
pub(super) enum Change {
    Added,
    Removed,
    /// What differs.
    Changed(Vec<&'static str>),
    /// From where, and what differs besides.
    Moved(Vec<u8>, Vec<&'static str>),
}

impl Difference {
    pub(super) fn new(path: Vec<u8>, change: Change) -> Self {
        Difference { path, change, version: None }
    }

    pub(super) fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let path = escape::field(&self.path);
        match &self.change {
            Change::Added => writeln!(out, "A\t{path}"),
            Change::Removed => writeln!(out, "D\t{path}"),
            Change::Changed(what) => writeln!(out, "M\t{path}\t{}", what.join(",")),
            Change::Moved(from, what) if what.is_empty() => {
                writeln!(out, "R\t{}\t{path}", escape::field(from))
            }
            Change::Moved(from, what) => {
                writeln!(out, "R\t{}\t{path}\t{}", escape::field(from), what.join(","))
            }
        }
    }

    pub(super) fn print_json(&self, out: &mut impl Write) -> io::Result<()> {
        let (change, from, what) = match &self.change {
            Change::Added => ("added", None, &[][..]),
            Change::Removed => ("removed", None, &[][..]),
            Change::Changed(what) => ("changed", None, &what[..]),
            Change::Moved(from, what) => ("moved", Some(json::Path::new(from)), &what[..]),
        };
        json::line(out, &Line { change, path: json::Path::new(&self.path), from, what })
    }
}

#[derive(Serialize)]
struct Line<'a> {
    change: &'static str,
    #[serde(flatten)]
    path: json::Path<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<json::Path<'a>>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    what: &'a [&'static str],
}
