//! Whether two runs agree: ratios of the same case within their intervals.

use std::path::Path;

use serde::Deserialize;

use crate::rows::figure;

/// A row as it is read back.
#[derive(Clone, Debug, Deserialize)]
struct Read {
    case: String,
    variant: String,
    threads: usize,
    metric: String,
    median: f64,
    low: f64,
    high: f64,
}

/// How two runs compare.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Agreement {
    /// Ratios that both have.
    pub compared: usize,
    /// Those whose intervals do not meet, in words.
    pub apart: Vec<String>,
}

impl Agreement {
    /// The most ratios whose intervals may miss each other. Two exact 95% intervals of one truth do so once in two hundred times;
    /// those of seven runs are too narrow, and a machine is not the same twice: one in ten.
    pub fn allowed(&self) -> usize {
        self.compared / 10
    }

    /// Whether the runs tell the same story.
    pub fn is_good(&self) -> bool {
        self.compared > 0 && self.apart.len() <= self.allowed()
    }

    /// In words.
    pub fn text(&self) -> String {
        let mut text = String::new();
        self.apart.iter().for_each(|line| text.push_str(&format!("apart: {line}\n")));
        let met = self.compared - self.apart.len();
        let word = if self.is_good() { "agree" } else { "DO NOT AGREE" };
        text.push_str(&format!(
            "{met} of {} ratios meet within their intervals, {} may not: the runs {word}\n",
            self.compared,
            self.allowed()
        ));
        text
    }
}

/// Compares two files of JSON lines, or two folders that `dentree lab all` wrote.
///
/// # Errors
/// Where one cannot be read, or is no such file.
pub fn agreement(one: &Path, other: &Path) -> Result<Agreement, String> {
    let (one, other) = (read(one)?, read(other)?);
    let mut agreement = Agreement::default();
    for row in one.iter().filter(|row| row.metric == "ratio") {
        let same = |found: &&Read| {
            (&found.case, &found.variant, found.threads, &found.metric)
                == (&row.case, &row.variant, row.threads, &row.metric)
        };
        let Some(found) = other.iter().find(same) else { continue };
        agreement.compared += 1;
        if row.low > found.high || found.low > row.high {
            let text =
                |row: &Read| format!("{} [{} .. {}]", figure(row.median), figure(row.low), figure(row.high));
            let (a, b) = (text(row), text(found));
            agreement
                .apart
                .push(format!("{}, {} threads, {}: {a} and {b}", row.case, row.threads, row.variant));
        }
    }
    Ok(agreement)
}

fn read(path: &Path) -> Result<Vec<Read>, String> {
    let file = if path.is_dir() { path.join("rows.jsonl") } else { path.to_owned() };
    let told = |why: &dyn std::fmt::Display| format!("{}: {why}", file.display());
    let text = std::fs::read_to_string(&file).map_err(|why| told(&why))?;
    text.lines().map(|line| serde_json::from_str(line).map_err(|why| told(&why))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(rows: &[(&str, f64, f64, f64)]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        let line = |(case, low, median, high): &(&str, f64, f64, f64)| {
            format!(
                r#"{{"case":"{case}","variant":"a/b","threads":2,"metric":"ratio","unit":"1","median":{median},"low":{low},"high":{high},"n":7}}"#
            )
        };
        std::fs::write(file.path(), rows.iter().map(line).collect::<Vec<_>>().join("\n")).unwrap();
        file
    }

    #[test]
    fn intervals_that_meet_agree_and_others_are_named() {
        let one = file(&[("x", 0.9, 1.0, 1.1), ("y", 1.9, 2.0, 2.1)]);
        let other = file(&[("x", 1.05, 1.2, 1.3), ("y", 1.0, 1.1, 1.2), ("z", 1.0, 1.0, 1.0)]);
        let found = agreement(one.path(), other.path()).unwrap();
        assert_eq!((found.compared, found.apart.len()), (2, 1));
        assert!(
            found.apart[0].starts_with("y, 2 threads, a/b: 2.00 [1.90 .. 2.10] and 1.10"),
            "{:?}",
            found.apart
        );
        assert!(!found.is_good());
        assert!(agreement(one.path(), one.path()).unwrap().is_good());
    }

    #[test]
    fn nothing_in_common_is_no_agreement() {
        let (one, other) = (file(&[("x", 1.0, 1.0, 1.0)]), file(&[("y", 1.0, 1.0, 1.0)]));
        assert!(!agreement(one.path(), other.path()).unwrap().is_good());
        assert!(agreement(Path::new("/none"), one.path()).is_err());
    }
}
