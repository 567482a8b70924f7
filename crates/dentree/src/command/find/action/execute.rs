//! `-exec` and its like: commands for files of the image, which get them as copies in a temporary
//! directory.

use super::super::candidate::Candidate;
use super::super::sink::{Found, Sink};
use super::local_copy;
use crate::host::{OsStrExt, os_string};
use crate::report::{self, Problem, Report, Status};
use dentree_sync::Mutex;
use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// Bytes of arguments per command.
const ARGUMENTS: usize = 128 << 10;
/// Bytes of content per command, about: what lies in the temporary directory at a time.
const CONTENT: u64 = 256 << 20;

pub(in super::super) struct Execute {
    /// The command; `{}` stands for the path.
    pub(in super::super) words: Vec<OsString>,
    /// Run it in the directory of the copy (`-execdir`).
    pub(in super::super) in_directory: bool,
    /// Ask before (`-ok`).
    pub(in super::super) asks: bool,
    /// Files gathered for one command (`+`).
    pub(in super::super) batch: Option<Mutex<Batch>>,
}

#[derive(Default)]
pub(in super::super) struct Batch {
    copies: Vec<PathBuf>,
    /// Where they are: each in a directory of its own, or all in one with `in_directory`.
    dirs: Vec<TempDir>,
    /// The directory of the image that they are from.
    from: Vec<u8>,
    arguments: usize,
    content: u64,
}

impl Execute {
    pub(super) fn perform(&self, file: &Candidate<'_>, found: &mut Found, sink: &Sink) -> Option<bool> {
        sink.flush(found);
        if self.asks && !confirmed(&self.words, file.path()) {
            return Some(false);
        }
        let done = match &self.batch {
            Some(batch) => self.gather(file, &mut batch.lock()),
            None => self.run_for(file),
        };
        Some(done.unwrap_or(false))
    }

    fn run_for(&self, file: &Candidate<'_>) -> Option<bool> {
        let dir = temp_dir(file.tree.report)?;
        let copy = local_copy::make(file, dir.path(), self.in_directory)?;
        let words = self.words.iter().map(|word| replaced(word, &self.argument(&copy))).collect();
        // As with find(1), a command that cannot be run is told, and changes no exit status.
        self.run(words, &copy).map_err(|problem| report::print_problem(&problem)).ok()
    }

    fn gather(&self, file: &Candidate<'_>, batch: &mut Batch) -> Option<bool> {
        let report = file.tree.report;
        if self.in_directory && batch.from != file.at.dir {
            self.run_batch(batch, report);
            batch.from = file.at.dir.to_vec();
        }
        if !self.in_directory || batch.dirs.is_empty() {
            batch.dirs.push(temp_dir(report)?);
        }
        let copy = local_copy::make(file, batch.dirs.last()?.path(), self.in_directory)?;
        batch.arguments += copy.as_os_str().len() + 1;
        batch.content = batch.content.saturating_add(file.attr()?.blocks.saturating_mul(512));
        batch.copies.push(copy);
        if batch.arguments >= ARGUMENTS || batch.content >= CONTENT {
            self.run_batch(batch, report);
        }
        Some(true)
    }

    /// Runs the command for what is gathered.
    pub(in super::super) fn finish(&self, report: &Report) {
        if let Some(batch) = &self.batch {
            self.run_batch(&mut batch.lock(), report);
        }
    }

    fn run_batch(&self, batch: &mut Batch, report: &Report) {
        // The directories are removed when this returns.
        let Batch { copies, dirs: _dirs, .. } = std::mem::take(batch);
        let Some(first) = copies.first() else { return };
        let mut words = Vec::new();
        for word in &self.words {
            match word.as_bytes() {
                b"{}" => words.extend(copies.iter().map(|copy| self.argument(copy))),
                _ => words.push(word.clone()),
            }
        }
        match self.run(words, first) {
            Ok(true) => {}
            Ok(false) => report.remember(Status::Failed),
            Err(problem) => report.problem(&problem),
        }
    }

    /// The path of a copy, as the command gets it.
    fn argument(&self, copy: &Path) -> OsString {
        match copy.file_name() {
            Some(name) if self.in_directory => os_string([b"./", name.as_bytes()].concat()),
            _ => copy.as_os_str().to_owned(),
        }
    }

    /// Whether the command ended well.
    fn run(&self, words: Vec<OsString>, copy: &Path) -> Result<bool, Problem> {
        let mut words = words.into_iter();
        let program = words.next().unwrap_or_default();
        let mut command = Command::new(&program);
        command.args(words);
        if self.in_directory
            && let Some(dir) = copy.parent()
        {
            command.current_dir(dir);
        }
        if self.asks {
            command.stdin(Stdio::null());
        }
        let status = command.status().map_err(|error| Problem::local(program.as_bytes(), &error))?;
        Ok(status.success())
    }
}

fn temp_dir(report: &Report) -> Option<TempDir> {
    let made = tempfile::Builder::new().prefix("dentree-find-").tempdir();
    let label = std::env::temp_dir();
    made.map_err(|error| report.problem(&Problem::local(label.as_os_str().as_bytes(), &error))).ok()
}

/// The word with every `{}` replaced.
fn replaced(word: &OsStr, path: &OsStr) -> OsString {
    let mut out = Vec::new();
    let mut rest = word.as_bytes();
    while let Some(at) = rest.windows(2).position(|two| two == b"{}") {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(path.as_bytes());
        rest = &rest[at + 2..];
    }
    out.extend_from_slice(rest);
    os_string(out)
}

/// Asks on standard error, and reads the answer from standard input.
fn confirmed(words: &[OsString], path: &[u8]) -> bool {
    let program = words.first().map_or("".into(), |word| word.to_string_lossy());
    let path = crate::output::escape::terminal(path);
    let _ = io::stderr().write_all(format!("< {program} ... {path} > ? ").as_bytes());
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).is_ok() && answer.starts_with(['y', 'Y'])
}
