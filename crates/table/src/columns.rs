//! The columns of schema 2.

use crate::row::{Row, RowExtent, Stamp};
use arrow_array::builder::{BinaryBuilder, MapBuilder, MapFieldNames, StringBuilder};
use arrow_array::{
    Array, ArrayRef, BinaryArray, ListArray, RecordBatch, StringArray, StructArray, TimestampNanosecondArray,
    UInt32Array, UInt64Array,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Fields, Schema, SchemaRef, TimeUnit};
use dentree_vfs::Timestamp;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// The version of the schema, in its metadata as `dentree.schema`.
pub(crate) const VERSION: (&str, &str) = ("dentree.schema", "2");

struct Column {
    name: &'static str,
    kind: fn() -> DataType,
    from: Source,
    of: fn(&[Row]) -> ArrayRef,
}

/// What a column is read from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    /// The directory entry, always there.
    Entry,
    Inode,
    Target,
    Xattrs,
    Extents,
    Digest,
    /// A row of a timeline.
    Stamp,
}

impl Source {
    /// Whether its columns are there unless others are named.
    fn is_usual(self) -> bool {
        matches!(self, Source::Entry | Source::Inode | Source::Target)
    }
}

/// A column of numbers from attributes.
macro_rules! number {
    ($name:literal, $array:ident, $kind:ident, $attr:ident => $value:expr) => {
        Column {
            name: $name,
            kind: || DataType::$kind,
            from: Source::Inode,
            of: |rows| Arc::new(rows.iter().map(|row| row.attr.map(|$attr| $value)).collect::<$array>()),
        }
    };
}

/// A column of times from attributes.
macro_rules! time {
    ($name:literal, $attr:ident => $value:expr) => {
        Column {
            name: $name,
            kind: utc,
            from: Source::Inode,
            of: |rows| times(rows.iter().map(|row| row.attr.and_then(|$attr| $value))),
        }
    };
}

/// All columns, in their order.
const COLUMNS: &[Column] = &[
    Column { name: "time", kind: utc, from: Source::Stamp, of: |rows| times(rows.iter().map(Row::time)) },
    Column {
        name: "stamp",
        kind: || DataType::Utf8,
        from: Source::Stamp,
        of: |rows| Arc::new(rows.iter().map(|row| row.stamp.map(Stamp::letter)).collect::<StringArray>()),
    },
    Column {
        name: "image",
        kind: || DataType::Utf8,
        from: Source::Entry,
        of: |rows| Arc::new(StringArray::from_iter_values(rows.iter().map(|row| &row.image))),
    },
    Column {
        name: "path",
        kind: || DataType::Utf8,
        from: Source::Entry,
        of: |rows| Arc::new(strings(rows.iter().map(|row| &row.path[..]))),
    },
    // Where `path` is not exact, as the name is no UTF-8.
    Column {
        name: "path_bytes",
        kind: || DataType::Binary,
        from: Source::Entry,
        of: |rows| {
            let bytes = |row| is_inexact(row).then_some(&row.path);
            Arc::new(rows.iter().map(bytes).collect::<BinaryArray>())
        },
    },
    Column {
        name: "name",
        kind: || DataType::Utf8,
        from: Source::Entry,
        of: |rows| Arc::new(strings(rows.iter().map(Row::name))),
    },
    Column {
        name: "inode",
        kind: || DataType::UInt64,
        from: Source::Entry,
        of: |rows| Arc::new(UInt64Array::from_iter_values(rows.iter().map(|row| row.ino.0))),
    },
    Column {
        name: "type",
        kind: || DataType::Utf8,
        from: Source::Entry,
        of: |rows| {
            Arc::new(StringArray::from_iter_values(rows.iter().map(|row| row.kind.letter().to_string())))
        },
    },
    number!("mode", UInt32Array, UInt32, attr => attr.mode()),
    number!("uid", UInt32Array, UInt32, attr => attr.uid),
    number!("gid", UInt32Array, UInt32, attr => attr.gid),
    number!("size", UInt64Array, UInt64, attr => attr.size),
    // In units of 512 bytes.
    number!("blocks", UInt64Array, UInt64, attr => attr.blocks),
    number!("nlink", UInt32Array, UInt32, attr => attr.nlink),
    time!("atime", attr => Some(attr.atime)),
    time!("mtime", attr => Some(attr.mtime)),
    time!("ctime", attr => Some(attr.ctime)),
    time!("crtime", attr => attr.crtime),
    number!("rdev_major", UInt32Array, UInt32, attr => attr.rdev_major),
    number!("rdev_minor", UInt32Array, UInt32, attr => attr.rdev_minor),
    number!("flags", UInt32Array, UInt32, attr => attr.flags),
    number!("generation", UInt32Array, UInt32, attr => attr.generation),
    Column {
        name: "target",
        kind: || DataType::Utf8,
        from: Source::Target,
        of: |rows| {
            let target = |row: &Row| Some(String::from_utf8_lossy(row.target.as_ref()?).into_owned());
            Arc::new(rows.iter().map(target).collect::<StringArray>())
        },
    },
    Column { name: "xattrs", kind: map, from: Source::Xattrs, of: xattrs },
    // Of the struct's fields no value is null.
    Column { name: "extents", kind: list, from: Source::Extents, of: extents },
    Column {
        name: "sha256",
        kind: || DataType::Utf8,
        from: Source::Digest,
        of: |rows| Arc::new(rows.iter().map(|row| row.sha256.as_ref().map(hex)).collect::<StringArray>()),
    },
];

fn utc() -> DataType {
    DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()))
}

fn times(times: impl Iterator<Item = Option<Timestamp>>) -> ArrayRef {
    let times = times.map(|time| nanos(time?)).collect::<TimestampNanosecondArray>();
    Arc::new(times.with_timezone("UTC"))
}

/// Since 1970; `None` where 64 bits cannot hold it: before 1677, after 2262.
fn nanos(time: Timestamp) -> Option<i64> {
    let nanos = i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanos);
    i64::try_from(nanos).ok()
}

fn strings<'a>(bytes: impl Iterator<Item = &'a [u8]>) -> StringArray {
    StringArray::from_iter_values(bytes.map(String::from_utf8_lossy))
}

fn is_inexact(row: &Row) -> bool {
    std::str::from_utf8(&row.path).is_err()
}

fn map() -> DataType {
    map_builder().finish().data_type().clone()
}

fn map_builder() -> MapBuilder<StringBuilder, BinaryBuilder> {
    let names = MapFieldNames { entry: "entries".into(), key: "key".into(), value: "value".into() };
    MapBuilder::new(Some(names), StringBuilder::new(), BinaryBuilder::new())
}

fn xattrs(rows: &[Row]) -> ArrayRef {
    let mut maps = map_builder();
    for row in rows {
        for (name, value) in row.xattrs.iter().flatten() {
            maps.keys().append_value(String::from_utf8_lossy(name));
            maps.values().append_value(value);
        }
        // Keys and values have the same length.
        let _ = maps.append(row.xattrs.is_some());
    }
    Arc::new(maps.finish())
}

/// Fields of an extent.
fn extent_fields() -> Fields {
    let field = |name, kind| Field::new(name, kind, false);
    Fields::from(vec![
        field("logical", DataType::UInt64),
        field("physical", DataType::UInt64),
        field("length", DataType::UInt64),
        field("flags", DataType::UInt32),
    ])
}

fn list() -> DataType {
    DataType::List(item())
}

fn item() -> FieldRef {
    Arc::new(Field::new("item", DataType::Struct(extent_fields()), false))
}

fn extents(rows: &[Row]) -> ArrayRef {
    let all = || rows.iter().flat_map(|row| row.extents.iter().flatten());
    let number =
        |of: fn(&RowExtent) -> u64| -> ArrayRef { Arc::new(UInt64Array::from_iter_values(all().map(of))) };
    let fields: Vec<ArrayRef> = vec![
        number(|extent| extent.logical),
        number(|extent| extent.physical),
        number(|extent| extent.length),
        Arc::new(UInt32Array::from_iter_values(all().map(|extent| extent.flags))),
    ];
    let lengths = rows.iter().map(|row| row.extents.as_ref().map_or(0, Vec::len));
    let nulls = NullBuffer::from_iter(rows.iter().map(|row| row.extents.is_some()));
    let structs = StructArray::new(extent_fields(), fields, None);
    Arc::new(ListArray::new(item(), OffsetBuffer::from_lengths(lengths), Arc::new(structs), Some(nulls)))
}

fn hex(digest: &[u8; 32]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The columns that are wanted, in their order.
#[derive(Clone)]
pub struct Columns {
    columns: Arc<[&'static Column]>,
    schema: SchemaRef,
}

impl Default for Columns {
    /// All but those that are read on request only: `xattrs`, `extents`, `sha256`, and those of a
    /// timeline.
    fn default() -> Self {
        Columns::of(COLUMNS.iter().filter(|column| column.from.is_usual()))
    }
}

impl Columns {
    /// Columns by their names.
    pub fn named<'n>(names: impl IntoIterator<Item = &'n str>) -> Result<Self, UnknownColumn> {
        let wanted = names.into_iter().map(|name| {
            let found = COLUMNS.iter().find(|column| column.name == name && column.from != Source::Stamp);
            found.ok_or_else(|| UnknownColumn(name.to_owned()))
        });
        Ok(Columns::of(wanted.collect::<Result<Vec<_>, _>>()?.into_iter()))
    }

    /// These behind `time` and `stamp`: rows are those of [`Row::stamps`].
    #[must_use]
    pub fn with_stamps(&self) -> Self {
        let stamps = COLUMNS.iter().filter(|column| column.from == Source::Stamp);
        Columns::of(stamps.chain(self.columns.iter().copied()))
    }

    fn of(columns: impl Iterator<Item = &'static Column>) -> Self {
        let columns: Arc<[_]> = columns.collect();
        let nullable = |column: &Column| column.from != Source::Entry || column.name == "path_bytes";
        let field = |column: &&'static Column| Field::new(column.name, (column.kind)(), nullable(column));
        let version = HashMap::from([(VERSION.0.to_owned(), VERSION.1.to_owned())]);
        let fields = columns.iter().map(field).collect::<Vec<_>>();
        Columns { columns, schema: Arc::new(Schema::new_with_metadata(fields, version)) }
    }

    /// Their names.
    pub fn names(&self) -> Vec<&'static str> {
        self.columns.iter().map(|column| column.name).collect()
    }

    /// Whether a row needs the attributes of its inode.
    pub fn need_inode(&self) -> bool {
        // A digest asks them for the number of links.
        [Source::Inode, Source::Digest, Source::Stamp].into_iter().any(|from| self.needs(from))
    }

    /// Whether a row needs more of some files than a directory entry has.
    pub fn need_more(&self) -> bool {
        self.columns.iter().any(|column| column.from != Source::Entry)
    }

    pub(crate) fn needs(&self, from: Source) -> bool {
        self.columns.iter().any(|column| column.from == from)
    }

    /// The schema of their batches.
    pub fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    /// A batch of rows, which a [`Reader`](crate::Reader) of these columns has read.
    pub fn batch(&self, rows: &[Row]) -> Result<RecordBatch, ArrowError> {
        let arrays = self.columns.iter().map(|column| (column.of)(rows)).collect();
        RecordBatch::try_new(self.schema.clone(), arrays)
    }
}

/// A name that no column has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownColumn(String);

impl fmt::Display for UnknownColumn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = COLUMNS.iter().filter(|column| column.from != Source::Stamp).map(|column| column.name);
        write!(f, "no column {:?}; there are {}", self.0, names.collect::<Vec<_>>().join(", "))
    }
}

impl std::error::Error for UnknownColumn {}
