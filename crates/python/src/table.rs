//! What is below a directory as an Arrow table, one row a name, batch by batch.
//!
//! Consumers take it by the Arrow PyCapsule interface, without copying. Schema and columns are
//! those of `dentree-table`.

use crate::find::{Refusal, Search};
use crate::tree::{Entry, Noted, Tree};
use crate::walk::{Fs, walk};
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};
use dentree_find::Problems;
use dentree_table::{Columns, Reader, Row};
use dentree_vfs::Error;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use std::ffi::OsString;
use std::sync::Arc;

/// Rows of a batch.
const ROWS: usize = 16 << 10;

/// Bytes of rows in a batch, about: attributes and extents may be large.
const BYTES: usize = 16 << 20;

/// One pass over the tree.
struct Scan {
    fs: Fs,
    image: Arc<str>,
    tree: Tree,
    /// What is left of the directory that the last batch ended in.
    left: std::vec::IntoIter<Entry>,
    columns: Columns,
    reader: Reader,
    problems: Arc<Noted>,
}

impl Scan {
    fn row(&self, entry: Entry) -> Row {
        let Entry { path, ino, kind, attr } = entry;
        let mut row = Row::new(self.image.clone(), path, ino, kind, attr);
        let mut damaged = Vec::new();
        self.reader.read(&self.fs, &mut row, &mut |error| damaged.push(error));
        damaged.iter().for_each(|error| self.problems.problem(row.path(), error));
        row
    }

    fn entry(&mut self) -> Option<Entry> {
        loop {
            if let Some(entry) = self.left.next() {
                return Some(entry);
            }
            self.left = self.tree.next(&self.fs, &*self.problems)?.into_iter();
        }
    }
}

impl Iterator for Scan {
    type Item = std::result::Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let (mut rows, mut bytes) = (Vec::new(), 0);
        while rows.len() < ROWS
            && bytes < BYTES
            && let Some(entry) = self.entry()
        {
            let row = self.row(entry);
            bytes += row.bytes();
            rows.push(row);
        }
        (!rows.is_empty()).then(|| self.columns.batch(&rows))
    }
}

impl RecordBatchReader for Scan {
    fn schema(&self) -> SchemaRef {
        self.columns.schema()
    }
}

/// A table that is read anew by each consumer: `pyarrow.table(image.table())`.
#[pyclass(frozen, module = "dentree._dentree")]
pub(crate) struct Table {
    fs: Fs,
    image: Arc<str>,
    top: Vec<u8>,
    columns: Columns,
    /// The expression that names have to hold for.
    words: Vec<OsString>,
    problems: Arc<Noted>,
}

impl Table {
    pub(crate) fn new(
        fs: Fs,
        image: &str,
        top: Vec<u8>,
        columns: Option<Vec<String>>,
        words: Vec<OsString>,
    ) -> PyResult<Self> {
        let named = |names: Vec<String>| Columns::named(names.iter().map(String::as_str));
        let columns = columns.map_or_else(|| Ok(Columns::default()), named);
        let columns = columns.map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(Table { fs, image: image.into(), top, columns, words, problems: Arc::default() })
    }

    fn scan(&self) -> Result<Scan, Refusal> {
        let failed = |error| Refusal::File(self.top.clone(), error);
        let top = walk(&self.fs, &self.top, true).map_err(failed)?;
        if !top.is_dir() {
            return Err(failed(Error::NotADirectory));
        }
        let search = Search::compile(&self.fs, &self.words)?;
        Ok(Scan {
            fs: self.fs.clone(),
            image: self.image.clone(),
            tree: Tree::new(self.top.clone(), top.ino(), search, self.columns.need_inode()),
            left: Vec::new().into_iter(),
            columns: self.columns.clone(),
            reader: Reader::new(self.columns.clone()),
            problems: self.problems.clone(),
        })
    }
}

#[pymethods]
impl Table {
    /// What could not be read so far: `(path, reason)`. Rows of it are missing, or null.
    #[getter]
    fn problems(&self) -> Vec<(String, String)> {
        self.problems.list()
    }

    /// Names of the columns.
    #[getter]
    fn column_names(&self) -> Vec<&'static str> {
        self.columns.names()
    }

    /// The Arrow PyCapsule interface.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // As the interface allows: a consumer casts.
        drop(requested_schema);
        let scan = py.detach(|| self.scan())?;
        let stream = FFI_ArrowArrayStream::new(Box::new(scan));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }
}
