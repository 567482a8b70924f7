//! Rows of results: one figure each, as JSON lines for programs and as a text table for people.

use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Serialize, Serializer};

use crate::stats::{Ratio, Sample};

/// One figure: the operation (`case`), the `variant`, the number of threads, and the result.
///
/// For measured times `low` and `high` are the minimum and maximum of `n` runs. For the metric
/// `ratio` `median` is the geometric mean of `n` pairs, and they are its 95% interval. Counted
/// figures (bytes, instructions) have `n` = 1, and all three are equal.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The operation, as `walk-cold-uniform-negative`.
    pub case: String,
    /// The variant: `dentree`, `kernel-stat`, `dashmap`, …; for ratios `ours/theirs`.
    pub variant: String,
    /// The number of threads.
    pub threads: usize,
    /// The metric, as `ns/component`.
    pub metric: &'static str,
    /// Unit of the three figures; `1` for plain numbers.
    pub unit: &'static str,
    /// The median.
    #[serde(serialize_with = "seven_digits")]
    pub median: f64,
    /// The lower bound.
    #[serde(serialize_with = "seven_digits")]
    pub low: f64,
    /// The upper bound.
    #[serde(serialize_with = "seven_digits")]
    pub high: f64,
    /// The number of runs.
    pub n: usize,
}

/// Serializes seven digits: no figure is more precise.
pub(crate) fn seven_digits<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(format!("{value:.6e}").parse().unwrap_or(*value))
}

/// The four fields that identify a figure.
#[derive(Clone, Copy, Debug)]
pub struct Heading<'a> {
    /// See [`Row::case`].
    pub case: &'a str,
    /// See [`Row::variant`].
    pub variant: &'a str,
    /// See [`Row::threads`].
    pub threads: usize,
    /// See [`Row::metric`].
    pub metric: &'static str,
    /// See [`Row::unit`].
    pub unit: &'static str,
}

impl Heading<'_> {
    /// A row of repeated measurements.
    pub fn sampled(&self, sample: &Sample) -> Row {
        self.row(sample.median(), sample.low(), sample.high(), sample.n())
    }

    /// A row of a ratio with its interval.
    pub fn ratio(&self, ratio: &Ratio) -> Row {
        self.row(ratio.mean, ratio.low, ratio.high, ratio.n)
    }

    /// A row of a counted figure, without spread.
    pub fn counted(&self, value: f64) -> Row {
        self.row(value, value, value, 1)
    }

    fn row(&self, median: f64, low: f64, high: f64, n: usize) -> Row {
        Row {
            case: self.case.to_owned(),
            variant: self.variant.to_owned(),
            threads: self.threads,
            metric: self.metric,
            unit: self.unit,
            median,
            low,
            high,
            n,
        }
    }
}

/// The default file of a benchmark's rows: `bench/NAME.jsonl` in the target directory of the
/// running program.
pub fn default_file(name: &str) -> Option<PathBuf> {
    // TARGET/release/deps/PROGRAM
    let program = std::env::current_exe().ok()?;
    Some(program.ancestors().nth(3)?.join("bench").join(name).with_extension("jsonl"))
}

/// Writes rows as JSON lines to `path`, and makes its directory.
///
/// # Errors
/// Those of creating and writing the file.
pub fn write_json_lines(path: &Path, rows: &[Row]) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let mut out = std::io::BufWriter::new(std::fs::File::create(path)?);
    for row in rows {
        serde_json::to_writer(&mut out, row)?;
        out.write_all(b"\n")?;
    }
    out.flush()
}

/// The rows of one case, thread count and metric as a table, with ratios to `reference`.
pub fn table(rows: &[&Row], reference: &str) -> String {
    let Some(first) = rows.first() else { return String::new() };
    let base = rows.iter().find(|row| row.variant == reference).map(|row| row.median);
    let plural = if first.threads == 1 { "" } else { "s" };
    let mut text = format!("{}, {} thread{plural}, {}\n", first.case, first.threads, first.metric);
    for row in rows {
        let relative = match base {
            Some(base) if base > 0.0 => format!("{:8.2}x", row.median / base),
            _ => String::new(),
        };
        text.push_str(&format!(
            "  {:24} {:>10} {relative}   {}\n",
            row.variant,
            figure(row.median),
            if row.n > 1 {
                format!("[{} .. {}] n={}", figure(row.low), figure(row.high), row.n)
            } else {
                String::new()
            },
        ));
    }
    text
}

/// A number with as many digits as a reader needs.
pub fn figure(value: f64) -> String {
    match value.abs() {
        x if x >= 1000.0 => format!("{value:.0}"),
        x if x >= 100.0 => format!("{value:.1}"),
        x if x >= 0.1 || x == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADING: Heading<'_> = Heading {
        case: "walk-hot-uniform",
        variant: "dentree",
        threads: 2,
        metric: "ns/component",
        unit: "ns",
    };

    #[test]
    fn a_row_is_one_json_line_with_the_agreed_fields() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bench/walk.jsonl");
        let sample = Sample::new(vec![3.0, 1.0, 2.0]).unwrap();
        write_json_lines(&path, &[HEADING.sampled(&sample), HEADING.counted(4.5)]).unwrap();
        let text = std::fs::read_to_string(path).unwrap();
        assert_eq!(
            text.lines().next().unwrap(),
            r#"{"case":"walk-hot-uniform","variant":"dentree","threads":2,"metric":"ns/component","unit":"ns","median":2.0,"low":1.0,"high":3.0,"n":3}"#
        );
        assert_eq!(text.lines().count(), 2);
    }

    #[test]
    fn the_table_shows_each_variant_relative_to_the_reference() {
        let ours = HEADING.counted(10.0);
        let theirs = Heading { variant: "moka", ..HEADING }.counted(45.0);
        let text = table(&[&ours, &theirs], "dentree");
        assert!(text.contains("4.50x"), "{text}");
    }
}
