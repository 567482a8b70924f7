//! Whether two runs agree.
//!
//! Each ratio of one run is tested against the same ratio of the other, for their difference at 95%
//! ([`differ`]). If the truth is the same and the intervals are right, one ratio in twenty differs
//! by chance. Ratios of a case share their reference, so differences come in groups, and their
//! number scatters more than that of independent ones: one in ten is tolerated. A weaker test, that
//! of a table's readers, is counted, too: whether the intervals overlap. For the same truth one in
//! about two hundred does not.

use std::path::Path;

use serde::Deserialize;

use crate::rows::figure;
use crate::stats::{Ratio, differ};

/// A row, parsed.
#[derive(Clone, Debug, Deserialize)]
struct Read {
    case: String,
    variant: String,
    threads: usize,
    metric: String,
    median: f64,
    low: f64,
    high: f64,
    n: usize,
}

impl Read {
    fn ratio(&self) -> Ratio {
        Ratio { mean: self.median, low: self.low, high: self.high, n: self.n }
    }

    fn is_same(&self, other: &Self) -> bool {
        let name = |row: &Self| (row.case.clone(), row.variant.clone(), row.threads, row.metric.clone());
        name(self) == name(other)
    }
}

/// The comparison of two runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Agreement {
    /// Ratios in both runs.
    pub compared: usize,
    /// Ratios that differ by more than their intervals explain, in words.
    pub apart: Vec<String>,
    /// Ratios whose intervals do not overlap.
    pub disjoint: usize,
    /// Ratios compared and ratios apart, by case and threads.
    pub cases: Vec<(String, usize, usize)>,
}

impl Agreement {
    /// The most ratios that may differ: one in ten; chance explains one in twenty.
    pub fn allowed(&self) -> usize {
        self.compared / 10
    }

    /// Whether the runs agree.
    pub fn is_good(&self) -> bool {
        self.compared > 0 && self.apart.len() <= self.allowed()
    }

    /// The comparison in words.
    pub fn text(&self) -> String {
        let mut text = String::new();
        self.apart.iter().for_each(|line| text.push_str(&format!("apart: {line}\n")));
        for (case, compared, apart) in self.cases.iter().filter(|(_, _, apart)| *apart > 0) {
            text.push_str(&format!("{case}: {apart} of {compared} apart\n"));
        }
        let agree = self.compared - self.apart.len();
        let word = if self.is_good() { "agree" } else { "DO NOT AGREE" };
        text.push_str(&format!(
            "{agree} of {} ratios agree; chance sets about {} apart, {} may be: the runs {word}\n",
            self.compared,
            self.compared / 20,
            self.allowed()
        ));
        text.push_str(&format!("the intervals of {} do not meet\n", self.disjoint));
        text
    }

    fn note(&mut self, one: &Read, other: &Read) {
        let (a, b) = (one.ratio(), other.ratio());
        let is_apart = differ(&a, &b);
        self.compared += 1;
        self.disjoint += usize::from(a.low > b.high || b.low > a.high);
        let case = format!("{}, {} threads", one.case, one.threads);
        if is_apart {
            let text =
                |row: &Read| format!("{} [{} .. {}]", figure(row.median), figure(row.low), figure(row.high));
            self.apart.push(format!("{case}, {}: {} and {}", one.variant, text(one), text(other)));
        }
        match self.cases.iter_mut().find(|(known, ..)| *known == case) {
            Some((_, compared, apart)) => {
                *compared += 1;
                *apart += usize::from(is_apart);
            }
            None => self.cases.push((case, 1, usize::from(is_apart))),
        }
    }
}

/// Compares two files of JSON lines, or two directories of `dentree-lab all`.
///
/// # Errors
/// If one is unreadable, or has another format.
pub fn agreement(one: &Path, other: &Path) -> Result<Agreement, String> {
    let (one, other) = (read(one)?, read(other)?);
    let mut agreement = Agreement::default();
    for row in one.iter().filter(|row| row.metric == "ratio") {
        if let Some(found) = other.iter().find(|found| found.is_same(row)) {
            agreement.note(row, found);
        }
    }
    Ok(agreement)
}

fn read(path: &Path) -> Result<Vec<Read>, String> {
    let file = if path.is_dir() { path.join("rows.jsonl") } else { path.to_owned() };
    let failed = |why: &dyn std::fmt::Display| format!("{}: {why}", file.display());
    let text = std::fs::read_to_string(&file).map_err(|why| failed(&why))?;
    text.lines().map(|line| serde_json::from_str(line).map_err(|why| failed(&why))).collect()
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
    fn ratios_that_chance_explains_agree_and_others_are_named() {
        let one = file(&[("x", 0.9, 1.0, 1.1), ("y", 1.9, 2.0, 2.1)]);
        let other = file(&[("x", 1.0, 1.1, 1.2), ("y", 1.0, 1.1, 1.2), ("z", 1.0, 1.0, 1.0)]);
        let found = agreement(one.path(), other.path()).unwrap();
        assert_eq!((found.compared, found.apart.len(), found.disjoint), (2, 1, 1));
        assert_eq!(found.cases, [("x, 2 threads".into(), 1, 0), ("y, 2 threads".into(), 1, 1)]);
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
