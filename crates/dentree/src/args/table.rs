//! The table of `dentree find --format`.

use clap::{Args, ValueEnum, ValueHint};
use std::ffi::OsString;

#[derive(Debug, Args)]
pub(crate) struct TableArgs {
    /// Write what the expression finds as a table, a row a name, instead of printing paths
    #[arg(long, value_enum, value_name = "FORMAT", conflicts_with = "json")]
    pub(crate) format: Option<TableFormat>,
    /// The file of the table, which gets its name when it is complete; `-` is standard output. -o
    /// comes right behind --format FORMAT, as elsewhere it means or
    #[arg(short, long, value_name = "FILE", requires = "format", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<OsString>,
    /// The columns of the table, in this order; xattrs and sha256 are there only if named
    #[arg(long, value_name = "NAME", requires = "format", value_delimiter = ',')]
    pub(crate) columns: Option<Vec<String>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum TableFormat {
    /// Parquet
    Parquet,
    /// Arrow's IPC file; on standard output its stream
    Arrow,
    /// Comma-separated values with a header
    Csv,
    /// A JSON object a line
    Json,
}
