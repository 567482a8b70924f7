//! Where a search's output goes, and what ends it.

use crate::output::{Names, Output};
use crate::report::Problem;
use dentree_sync::Mutex;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What is shared by all threads of a search.
pub(super) struct Sink {
    out: Mutex<Output>,
    failed: Mutex<Option<io::Error>>,
    ended: AtomicBool,
    pub(super) names: Names,
    /// Print JSON objects instead of paths.
    pub(super) json: bool,
}

/// What one job has found and not yet written.
#[derive(Default)]
pub(super) struct Found {
    pub(super) text: Vec<u8>,
    /// The directory just evaluated is not entered.
    pub(super) pruned: bool,
}

impl Sink {
    pub(super) fn new(json: bool) -> Self {
        let out = Output::new();
        let names = out.names();
        Sink { out: Mutex::new(out), failed: Mutex::default(), ended: AtomicBool::new(false), names, json }
    }

    /// Writes to standard output. The first error ends the search.
    pub(super) fn write(&self, text: &[u8]) -> ControlFlow<()> {
        self.attempt(|out| out.write_all(text))
    }

    /// Brings everything written so far to standard output, before another program writes there.
    pub(super) fn flush(&self, found: &mut Found) {
        let text = std::mem::take(&mut found.text);
        let _ = self.attempt(|out| out.write_all(&text).and_then(|()| out.flush()));
    }

    fn attempt(&self, write: impl FnOnce(&mut Output) -> io::Result<()>) -> ControlFlow<()> {
        if let Err(error) = write(&mut self.out.lock()) {
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

    pub(super) fn finish(self) -> io::Result<()> {
        match self.failed.into_inner() {
            Some(error) => Err(error),
            None => self.out.into_inner().flush(),
        }
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
