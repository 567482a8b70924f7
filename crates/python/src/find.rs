//! Expressions of `dentree find` for searches in Python: tests, options and `-prune`.

use crate::errors::at;
use crate::walk::{Fs, walk};
use dentree_find::{Compile, Cost, Expression, Follow, Owners, TimeField, Words, Wrong, parse};
use dentree_vfs::{Error, Ino, Timestamp};
use pyo3::PyErr;
use pyo3::exceptions::PyValueError;
use std::cell::OnceCell;
use std::ffi::{OsStr, OsString};
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// What is looked for.
pub(crate) struct Search {
    pub(crate) expression: Expression<Prune>,
    /// Levels below the top.
    pub(crate) depth: RangeInclusive<u32>,
}

/// The one action that searches without output have: a directory is not entered.
pub(crate) struct Prune;

impl dentree_find::Action for Prune {
    fn cost(&self) -> Cost {
        Cost::Name
    }
}

impl Search {
    /// All names, so many levels of them.
    pub(crate) fn levels(count: u32) -> Search {
        Search { expression: Expression::all(), depth: 0..=count }
    }

    pub(crate) fn compile(fs: &Fs, words: &[OsString]) -> Result<Search, Refusal> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = Timestamp { seconds: since.as_secs().cast_signed(), nanos: since.subsec_nanos() };
        let mut compiler = Compiler { fs, owners: OnceCell::new() };
        let parsed = parse(words, Follow::Never, now, &mut compiler)?;
        if parsed.settings.follow != Follow::Never {
            return Err(Wrong::new("links are not followed here: leave out -follow").into());
        }
        if parsed.settings.contents_first {
            return Err(Wrong::new("-depth changes nothing here: leave it out").into());
        }
        Ok(Search { expression: parsed.expression, depth: parsed.settings.depth })
    }
}

/// Why words are no search.
pub(crate) enum Refusal {
    Wrong(Wrong),
    /// A file to compare with cannot be read.
    File(Vec<u8>, Error),
}

impl From<Wrong> for Refusal {
    fn from(wrong: Wrong) -> Self {
        Refusal::Wrong(wrong)
    }
}

impl From<Refusal> for PyErr {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Wrong(wrong) => PyValueError::new_err(wrong.to_string()),
            Refusal::File(path, error) => at(&path, &error),
        }
    }
}

/// Actions of the command.
const DONE_ELSEWHERE: [&str; 14] = [
    "-delete", "-exec", "-execdir", "-fls", "-fprint", "-fprint0", "-fprintf", "-ls", "-ok", "-okdir",
    "-print", "-print0", "-printf", "-quit",
];

struct Compiler<'a> {
    fs: &'a Fs,
    /// Read when a test names one.
    owners: OnceCell<Arc<Owners>>,
}

impl Compile for Compiler<'_> {
    type Action = Prune;
    type Error = Refusal;

    fn action(&mut self, name: &str, _: &mut Words<'_>) -> Result<Option<Prune>, Refusal> {
        if DONE_ELSEWHERE.contains(&name) {
            let why = "is an action, and a search here has tests and -prune alone: leave it out";
            return Err(Wrong::word(name.as_ref(), why).into());
        }
        Ok((name == "-prune").then_some(Prune))
    }

    fn option(&mut self, _: &str, _: &mut Words<'_>) -> Result<bool, Refusal> {
        Ok(false)
    }

    fn owners(&self) -> Option<Arc<Owners>> {
        Some(self.owners.get_or_init(|| Arc::new(Owners::of(self.fs))).clone())
    }

    fn time_of(&self, file: &OsStr, field: TimeField, _: Follow) -> Result<Timestamp, Refusal> {
        let path = file.as_bytes();
        let node = walk(self.fs, path, true).map_err(|error| Refusal::File(path.to_vec(), error))?;
        field.of(&node.attr()).ok_or_else(|| Wrong::word(file, "has no time of birth").into())
    }

    fn inode_of(&self, file: &OsStr, _: Follow) -> Result<Option<Ino>, Refusal> {
        let path = file.as_bytes();
        let node = walk(self.fs, path, false).map_err(|error| Refusal::File(path.to_vec(), error))?;
        Ok(Some(node.ino()))
    }
}
