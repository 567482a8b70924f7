//! A benchmark's result: figures, judgements, and what was not measured.

use crate::harness::Timing;
use crate::rows::{Heading, Row, default_file, table, write_json_lines};
use crate::stats::{Ratio, paired_ratio};
use crate::targets::{Bound, Verdict};
use crate::unavailable::Unavailable;
use std::path::Path;
use std::process::ExitCode;

/// The variant that is judged; ratios in tables refer to it.
pub const OURS: &str = "dentree";

/// The result.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// All figures.
    pub rows: Vec<Row>,
    /// The judged targets.
    pub verdicts: Vec<Verdict>,
    /// What was not measured, and why.
    pub skipped: Vec<String>,
}

impl Outcome {
    /// Tables of all figures, then the targets, then what was not measured.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let tables =
            self.rows.chunk_by(|a, b| (&a.case, a.threads, a.metric) == (&b.case, b.threads, b.metric));
        for rows in tables.filter(|rows| rows[0].metric != "ratio") {
            text.push_str(&table(&rows.iter().collect::<Vec<_>>(), OURS));
            text.push('\n');
        }
        text.push_str("Targets\n");
        for verdict in &self.verdicts {
            text.push_str(&format!("  {}\n", verdict.line()));
        }
        for skipped in &self.skipped {
            text.push_str(&format!("not measured: {skipped}\n"));
        }
        text
    }

    /// Prints the tables, and writes the rows to `file`.
    ///
    /// # Errors
    /// Those of the file, with its name.
    pub fn keep(&self, file: Option<&Path>) -> Result<(), String> {
        println!("{}", self.text());
        let Some(file) = file else { return Ok(()) };
        write_json_lines(file, &self.rows).map_err(|why| format!("{}: {why}", file.display()))?;
        println!("{} rows in {}", self.rows.len(), file.display());
        Ok(())
    }

    /// Adds a counted figure.
    pub(crate) fn count(&mut self, heading: Heading<'_>, value: f64) {
        self.rows.push(heading.counted(value));
    }

    /// Judges a counted figure of ours against a target.
    pub(crate) fn judge(&mut self, what: String, value: f64, at_most: f64) {
        let figure = Ratio { mean: value, low: value, high: value, n: 1 };
        self.verdicts.push(Verdict { what, figure, bound: Bound::AtMost, target: at_most });
    }

    /// Adds a ratio of ours to theirs as a row, and as a verdict if there is a target.
    pub(crate) fn compare(
        &mut self,
        case: &str,
        threads: usize,
        ours: &Timing,
        theirs: &Timing,
        target: Option<f64>,
    ) {
        let Some(figure) = paired_ratio(&ours.rounds, &theirs.rounds) else { return };
        let variant = format!("{}/{}", ours.name, theirs.name);
        let heading = Heading { case, variant: &variant, threads, metric: "ratio", unit: "1" };
        self.rows.push(heading.ratio(&figure));
        if let Some(target) = target {
            let what = format!("{case}, {threads} thread(s), {variant}");
            self.verdicts.push(Verdict { what, figure, bound: Bound::AtMost, target });
        }
    }
}

/// Ends the benchmark `name`, which is skipped if a prerequisite is missing. `keep`: write its
/// rows.
pub fn finish(name: &str, measured: Result<Outcome, Unavailable>, keep: bool) -> ExitCode {
    let outcome = match measured {
        Ok(outcome) => outcome,
        Err(why) => {
            println!("skipped: {name}: {why}");
            return ExitCode::SUCCESS;
        }
    };
    match outcome.keep(default_file(name).filter(|_| keep).as_deref()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{name}: {why}");
            ExitCode::FAILURE
        }
    }
}
