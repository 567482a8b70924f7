//! Rows as files, batch by batch.
//!
//! Formats encode into memory, and one place writes: an error is the one of the destination. A
//! batch has [`BATCH`] rows or [`BATCH_BYTES`]; Parquet holds a row group, encoded. Memory does not
//! grow with the rows, but for the index at the end of Parquet and Arrow files: some bytes a batch.

use crate::columns::{Columns, VERSION};
use crate::row::Row;
use arrow_array::{Array, ArrayRef, RecordBatch, StringArray, TimestampNanosecondArray};
use arrow_ipc::writer::{FileWriter, StreamWriter};
use arrow_json::LineDelimitedWriter;
use arrow_json::writer::{EncoderOptions, WriterBuilder, make_encoder};
use arrow_schema::{ArrowError, Field, Schema};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use std::io::{self, Write};
use std::mem::take;
use std::sync::Arc;

/// Rows that are encoded at once.
const BATCH: usize = 16 << 10;

/// Bytes of rows that are encoded at once, about: attributes may be large.
const BATCH_BYTES: usize = 16 << 20;

/// Rows of a row group: engines read groups in parallel, and skip them by their statistics.
const ROW_GROUP: usize = 128 << 10;

/// Bytes of a row group, where attributes are large.
const ROW_GROUP_BYTES: usize = 64 << 20;

/// What rows are written as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RowFormat {
    /// Parquet, compressed by Snappy.
    Parquet,
    /// Arrow's IPC file, also known as Feather 2: for files.
    Arrow,
    /// Arrow's IPC stream: for pipes.
    ArrowStream,
    /// Comma-separated values with a header, as of RFC 4180; null is empty, maps are JSON.
    Csv,
    /// An object a line; null is there.
    Json,
}

/// Writes rows to `W`.
pub struct Writer<W> {
    columns: Columns,
    encoder: Encoder,
    rows: Vec<Row>,
    /// Bytes that the rows take, about.
    bytes: usize,
    to: W,
}

/// A format's state. Those with a writer encode into its vector, which is taken each time.
enum Encoder {
    Parquet(Box<ArrowWriter<Vec<u8>>>),
    Arrow(FileWriter<Vec<u8>>),
    ArrowStream(StreamWriter<Vec<u8>>),
    Csv { has_header: bool },
    Json,
}

impl<W: Write> Writer<W> {
    /// Begins a file.
    pub fn new(format: RowFormat, columns: Columns, to: W) -> io::Result<Self> {
        let encoder = Encoder::new(format, &columns).map_err(io::Error::other)?;
        Ok(Writer { columns, encoder, rows: Vec::new(), bytes: 0, to })
    }

    /// Adds rows, and writes what makes a batch.
    pub fn push(&mut self, rows: Vec<Row>) -> io::Result<()> {
        self.bytes += rows.iter().map(Row::bytes).sum::<usize>();
        self.rows.extend(rows);
        if self.rows.len() < BATCH && self.bytes < BATCH_BYTES { Ok(()) } else { self.write() }
    }

    fn write(&mut self) -> io::Result<()> {
        self.bytes = 0;
        for rows in take(&mut self.rows).chunks(BATCH) {
            let text = self.encoder.encode(&self.columns, rows).map_err(io::Error::other)?;
            self.to.write_all(&text)?;
        }
        Ok(())
    }

    /// Writes what is left and the end of the file, and returns its destination.
    pub fn finish(mut self) -> io::Result<W> {
        self.write()?;
        let text = self.encoder.finish(&self.columns).map_err(io::Error::other)?;
        self.to.write_all(&text)?;
        self.to.flush()?;
        Ok(self.to)
    }
}

impl Encoder {
    fn new(format: RowFormat, columns: &Columns) -> Result<Self, ArrowError> {
        let schema = columns.schema();
        Ok(match format {
            RowFormat::Parquet => {
                let version = KeyValue::new(VERSION.0.to_owned(), VERSION.1.to_owned());
                let properties = WriterProperties::builder()
                    .set_compression(Compression::SNAPPY)
                    .set_max_row_group_row_count(Some(ROW_GROUP))
                    .set_max_row_group_bytes(Some(ROW_GROUP_BYTES))
                    .set_key_value_metadata(Some(vec![version]))
                    .build();
                Encoder::Parquet(Box::new(ArrowWriter::try_new(Vec::new(), schema, Some(properties))?))
            }
            RowFormat::Arrow => Encoder::Arrow(FileWriter::try_new(Vec::new(), &schema)?),
            RowFormat::ArrowStream => Encoder::ArrowStream(StreamWriter::try_new(Vec::new(), &schema)?),
            RowFormat::Csv => Encoder::Csv { has_header: false },
            RowFormat::Json => Encoder::Json,
        })
    }

    fn encode(&mut self, columns: &Columns, rows: &[Row]) -> Result<Vec<u8>, ArrowError> {
        let mut text = Vec::new();
        let batch = columns.batch(rows)?;
        match self {
            Encoder::Parquet(writer) => {
                writer.write(&batch)?;
                text = take(writer.inner_mut());
            }
            Encoder::Arrow(writer) => {
                writer.write(&batch)?;
                text = take(writer.get_mut());
            }
            Encoder::ArrowStream(writer) => {
                writer.write(&batch)?;
                text = take(writer.get_mut());
            }
            Encoder::Csv { has_header } => {
                let header = !std::mem::replace(has_header, true);
                let mut writer = arrow_csv::WriterBuilder::new().with_header(header).build(&mut text);
                writer.write(&as_text(&batch, true)?)?;
            }
            Encoder::Json => {
                let builder = WriterBuilder::new().with_explicit_nulls(true);
                let mut writer: LineDelimitedWriter<_> = builder.build(&mut text);
                writer.write(&as_text(&batch, false)?)?;
            }
        }
        Ok(text)
    }

    /// The end of the file.
    fn finish(&mut self, columns: &Columns) -> Result<Vec<u8>, ArrowError> {
        Ok(match self {
            Encoder::Parquet(writer) => {
                writer.finish()?;
                take(writer.inner_mut())
            }
            Encoder::Arrow(writer) => {
                writer.finish()?;
                take(writer.get_mut())
            }
            Encoder::ArrowStream(writer) => {
                writer.finish()?;
                take(writer.get_mut())
            }
            // No row is no reason for no header.
            Encoder::Csv { has_header: false } => self.encode(columns, &[])?,
            Encoder::Csv { .. } | Encoder::Json => Vec::new(),
        })
    }
}

/// The batch as text can have it: times with an offset instead of a zone's name, which needs a data
/// base of zones; and, `flat`, nested columns as JSON.
fn as_text(batch: &RecordBatch, flat: bool) -> Result<RecordBatch, ArrowError> {
    let columns = batch.schema_ref().fields().iter().zip(batch.columns()).map(|(field, array)| {
        let array = match array.as_any().downcast_ref::<TimestampNanosecondArray>() {
            Some(times) => Arc::new(times.clone().with_timezone("+00:00")),
            None if flat && field.data_type().is_nested() => json(field, array)?,
            None => array.clone(),
        };
        let field = Field::new(field.name(), array.data_type().clone(), field.is_nullable());
        Ok((field, array))
    });
    let (fields, arrays): (Vec<Field>, Vec<ArrayRef>) =
        columns.collect::<Result<Vec<_>, ArrowError>>()?.into_iter().unzip();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)
}

/// A column as JSON.
fn json(field: &Arc<Field>, array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let options = EncoderOptions::default();
    let mut encoder = make_encoder(field, array, &options)?;
    let texts = (0..array.len()).map(|row| {
        let mut text = Vec::new();
        (!encoder.is_null(row)).then(|| encoder.encode(row, &mut text))?;
        String::from_utf8(text).ok()
    });
    Ok(Arc::new(texts.collect::<StringArray>()))
}
