//! Where a search's output goes, and what ends it.

use super::table::{Row, Table};
use crate::host::OsStrExt;
use crate::output::{Names, Output};
use crate::report::{Problem, Stop};
use dentree_sync::Mutex;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::mem::take;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes of output per buffer, about.
const BATCH: usize = 32 << 10;

/// Rows per buffer.
const ROWS: usize = 512;

/// What is shared by all threads of a search.
pub(super) struct Sink {
    out: Mutex<Output>,
    failed: Mutex<Option<Stop>>,
    ended: AtomicBool,
    pub(super) names: Names,
    /// What is printed where find(1) prints a path.
    pub(super) printed: Printed,
    /// The table of `--format`.
    pub(super) table: Option<Table>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Printed {
    Path,
    /// An object of `--json`.
    Json,
    /// A line of `--timeline`.
    Bodyfile,
}

/// What one job has found and not yet written.
#[derive(Default)]
pub(super) struct Found {
    pub(super) text: Vec<u8>,
    /// Of the table.
    pub(super) rows: Vec<Row>,
    /// The directory just evaluated is not entered.
    pub(super) pruned: bool,
}

impl Sink {
    pub(super) fn new(printed: Printed, table: Option<Table>) -> Self {
        let out = Output::new();
        let names = out.names();
        let (out, failed, ended) = (Mutex::new(out), Mutex::default(), AtomicBool::new(false));
        Sink { out, failed, ended, names, printed, table }
    }

    /// Writes to standard output and to the table. The first error ends the search.
    pub(super) fn write(&self, found: Found) -> ControlFlow<()> {
        self.attempt(|| {
            self.out.lock().write_all(&found.text)?;
            self.table.as_ref().map_or(Ok(()), |table| table.push(found.rows))
        })
    }

    /// Brings everything written so far to standard output, before another program writes there.
    pub(super) fn flush(&self, found: &mut Found) {
        let text = take(&mut found.text);
        let _ = self.attempt(|| {
            let mut out = self.out.lock();
            Ok(out.write_all(&text).and_then(|()| out.flush())?)
        });
    }

    fn attempt(&self, write: impl FnOnce() -> Result<(), Stop>) -> ControlFlow<()> {
        if let Err(error) = write() {
            self.failed.lock().get_or_insert(error);
            self.end();
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    /// Lets every thread stop soon.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    pub(super) fn finish(self) -> Result<(), Stop> {
        if let Some(stop) = self.failed.into_inner() {
            return Err(stop);
        }
        self.out.into_inner().flush()?;
        self.table.map_or(Ok(()), Table::finish)
    }
}

impl Found {
    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty() && self.rows.is_empty()
    }

    /// Whether it is worth writing already.
    pub(super) fn is_large(&self) -> bool {
        self.text.len() >= BATCH
            || self.rows.len() >= ROWS
            || self.rows.last().is_some_and(|row| row.bytes() >= BATCH)
    }

    /// Takes what is to be written.
    pub(super) fn take(&mut self) -> Found {
        Found { text: take(&mut self.text), rows: take(&mut self.rows), pruned: false }
    }
}

/// A local file of `-fprint` and its like. Each is opened once, however many actions name it.
#[derive(Default)]
pub(super) struct LocalFiles(Vec<Arc<LocalFile>>);

pub(super) struct LocalFile {
    name: OsString,
    file: Mutex<BufWriter<File>>,
}

impl LocalFiles {
    /// `None` is standard output.
    pub(super) fn open(&mut self, name: &OsStr) -> Result<Option<Arc<LocalFile>>, Problem> {
        if name == "/dev/stdout" {
            return Ok(None);
        }
        if let Some(file) = self.0.iter().find(|file| file.name == name) {
            return Ok(Some(file.clone()));
        }
        let file = File::create(name).map_err(|error| Problem::local(name.as_bytes(), &error))?;
        let file = Arc::new(LocalFile { name: name.to_owned(), file: Mutex::new(BufWriter::new(file)) });
        self.0.push(file.clone());
        Ok(Some(file))
    }

    /// Writes out what is left, and returns what went wrong.
    pub(super) fn finish(&self) -> Vec<Problem> {
        let flush =
            |file: &Arc<LocalFile>| file.file.lock().flush().map_err(|error| file.problem(&error)).err();
        self.0.iter().filter_map(flush).collect()
    }
}

impl LocalFile {
    pub(super) fn write(&self, text: &[u8]) -> Result<(), Problem> {
        self.file.lock().write_all(text).map_err(|error| self.problem(&error))
    }

    fn problem(&self, error: &io::Error) -> Problem {
        Problem::local(self.name.as_bytes(), error)
    }
}
