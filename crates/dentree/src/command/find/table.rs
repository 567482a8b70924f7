//! `--format`: what is found as a table.
//!
//! Each thread reads the rows of its files; one at a time encodes and writes them. A file gets its
//! name when the table is complete: a search that fails or is interrupted leaves nothing.

use super::candidate::Candidate;
use crate::args::{FindArgs, TableArgs, TableFormat};
use crate::host::{self, Existing, OsStrExt, Parent};
use crate::image::Session;
use crate::output::{Names, Output};
use crate::report::{Problem, Status, Stop};
use dentree_find::Cost;
use dentree_sync::Mutex;
pub(super) use dentree_table::Row;
use dentree_table::{Columns, Reader, RowFormat, Writer};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

pub(super) struct Table {
    columns: Columns,
    reader: Reader,
    /// Rows are the time stamps of a file.
    timeline: bool,
    /// `None` is standard output.
    file: Option<OsString>,
    writer: Mutex<Writer<Box<dyn Write + Send>>>,
}

/// Runs `search` with the table that is asked for, if one is, and gives its file the name.
pub(super) fn write(
    session: &Session,
    args: &FindArgs,
    search: impl FnOnce(Option<Table>) -> Result<(), Stop>,
) -> Result<(), Stop> {
    let TableArgs { format: Some(format), output, .. } = &args.table else { return search(None) };
    let Some(file) = output.as_deref().filter(|file| *file != "-") else {
        return search(Some(Table::new(args, None, on_output(*format)?)?));
    };
    let (local, path) = (|error: &io::Error| Problem::local(file.as_bytes(), error), Path::new(file));
    // A pipe or a device is written to.
    if fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir()) {
        let to = File::options().write(true).open(path).map_err(|error| local(&error))?;
        return search(Some(Table::new(args, Some(file), (file_format(*format), Box::new(to)))?));
    }
    session.catch_interrupts()?;
    // A link stays one: the file behind it is replaced.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let Some(name) = path.file_name().filter(|_| !path.is_dir()) else {
        return Err(local(&io::ErrorKind::IsADirectory.into()).into());
    };
    let dir = path.parent().filter(|dir| *dir != Path::new("")).unwrap_or(Path::new("."));
    let dir = Parent::open(dir).map_err(|error| local(&error))?;
    let new = dir.file().map_err(|error| local(&error))?;
    let to = new.open().map_or_else(|| Err(io::ErrorKind::Unsupported.into()), File::try_clone);
    let to = Box::new(to.map_err(|error| local(&error))?);
    search(Some(Table::new(args, Some(file), (file_format(*format), to))?))?;
    if session.is_interrupted() {
        return Ok(());
    }
    let replaced = host::stat(&path, true).map(|found| found.identity());
    if replaced.is_ok_and(|file| session.images().iter().any(|image| image.is_file(file))) {
        return Err(local(&io::Error::other("is the image that was searched; name another file")).into());
    }
    Ok(new.publish(name.as_bytes(), Existing::Replace).map_err(|error| local(&error))?)
}

type Destination = (RowFormat, Box<dyn Write + Send>);

fn file_format(format: TableFormat) -> RowFormat {
    match format {
        TableFormat::Parquet => RowFormat::Parquet,
        TableFormat::Arrow => RowFormat::Arrow,
        TableFormat::Csv => RowFormat::Csv,
        TableFormat::Json => RowFormat::Json,
    }
}

fn on_output(format: TableFormat) -> Result<Destination, Problem> {
    let (out, format) = (Output::new(), file_format(format));
    let names = out.names();
    match format {
        RowFormat::Csv | RowFormat::Json if !names.is_raw() => {
            Ok((format, Box::new(Terminal { out, names })))
        }
        RowFormat::Csv | RowFormat::Json => Ok((format, Box::new(out))),
        _ if !names.is_raw() => {
            let why = "a terminal cannot show this format; name a file by -o behind it";
            Err(Problem::new("find", Status::Failed, why))
        }
        // A pipe has no end to read first.
        RowFormat::Arrow => Ok((RowFormat::ArrowStream, Box::new(out))),
        _ => Ok((format, Box::new(out))),
    }
}

/// Lines for a terminal, which gets no control characters of names. Each write ends with a line.
struct Terminal {
    out: Output,
    names: Names,
}

impl Write for Terminal {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            self.out.write_all(&self.names.show(line.strip_suffix(b"\n").unwrap_or(line)))?;
            self.out.write_all(b"\n")?;
        }
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl Table {
    fn new(args: &FindArgs, file: Option<&OsStr>, (format, to): Destination) -> Result<Self, Problem> {
        let named = |names: &Vec<String>| Columns::named(names.iter().map(String::as_str));
        let columns = args.table.columns.as_ref().map_or_else(|| Ok(Columns::default()), named);
        let columns = columns.map_err(|error| Problem::new("find", Status::Failed, error.to_string()))?;
        let columns = if args.timeline { columns.with_stamps() } else { columns };
        let writer = Writer::new(format, columns.clone(), to);
        let writer = Mutex::new(writer.map_err(|error| Problem::local(b"find", &error))?);
        let reader = Reader::new(columns.clone());
        Ok(Table { columns, reader, timeline: args.timeline, file: file.map(OsStr::to_owned), writer })
    }

    pub(super) fn is_standard_output(&self) -> bool {
        self.file.is_none()
    }

    pub(super) fn cost(&self) -> Cost {
        if self.columns.need_more() { Cost::Inode } else { Cost::Entry }
    }

    /// Reads the rows of a file. One whose inode is damaged has its name.
    pub(super) fn read(&self, file: &Candidate<'_>, rows: &mut Vec<Row>) -> Option<()> {
        let image = file.tree.image;
        let attr = if self.columns.need_inode() { file.attr().copied() } else { None };
        let name = image.name().to_string_lossy().into();
        let mut row = Row::new(name, file.path().to_vec(), file.ino()?, file.kind()?, attr);
        self.reader.read(&image.vfs, &mut row, &mut |error| file.problem(&error));
        if self.timeline {
            rows.extend(row.stamps())
        } else {
            rows.push(row)
        }
        Some(())
    }

    pub(super) fn push(&self, rows: Vec<Row>) -> Result<(), Stop> {
        self.writer.lock().push(rows).map_err(|error| failed(self.file.as_deref(), error))
    }

    pub(super) fn finish(self) -> Result<(), Stop> {
        let file = self.file.as_deref();
        self.writer.into_inner().finish().map(drop).map_err(|error| failed(file, error))
    }
}

fn failed(file: Option<&OsStr>, error: io::Error) -> Stop {
    match file {
        Some(file) => Problem::local(file.as_bytes(), &error).into(),
        None => error.into(),
    }
}
