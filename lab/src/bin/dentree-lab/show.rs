//! Progress on the terminal, tables on standard output, rows in a file.

use crate::stop::{Stop, failed};
use dentree_lab::rows::{Row, table, write_json_lines};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{self, Write};
use std::path::Path;

pub(crate) fn bar(steps: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {percent:>3}%  {eta} left  {msg}");
    ProgressBar::new(steps).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

pub(crate) fn tell(bar: &ProgressBar, what: &str) {
    bar.set_message(what.to_owned());
    bar.inc(1);
}

/// Prints a study's text, and writes its rows.
pub(crate) fn print(text: &str, rows: &[Row], file: Option<&Path>) -> Result<(), Stop> {
    io::stdout().write_all(text.as_bytes())?;
    keep(file, rows)
}

/// Prints a table per case and metric, and writes the rows.
pub(crate) fn print_tables(rows: &[Row], file: Option<&Path>) -> Result<(), Stop> {
    let mut headings: Vec<(&str, &str)> = Vec::new();
    for row in rows {
        let heading = (row.case.as_str(), row.metric);
        if headings.contains(&heading) {
            continue;
        }
        headings.push(heading);
        let same: Vec<_> =
            rows.iter().filter(|other| (other.case.as_str(), other.metric) == heading).collect();
        writeln!(io::stdout(), "{}", table(&same, &same[0].variant))?;
    }
    keep(file, rows)
}

pub(crate) fn keep(file: Option<&Path>, rows: &[Row]) -> Result<(), Stop> {
    let Some(file) = file else { return Ok(()) };
    write_json_lines(file, rows).map_err(|why| failed(format!("{}: {why}", file.display())))
}
