//! Ratios against the project's targets, in words.

use crate::rows::figure;
use crate::stats::Ratio;

/// The good side of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// At most the target.
    AtMost,
    /// At least the target.
    AtLeast,
}

/// A figure judged against its target.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The comparison, for people.
    pub what: String,
    /// The figure with its interval.
    pub figure: Ratio,
    /// The good side.
    pub bound: Bound,
    /// The target.
    pub target: f64,
}

impl Verdict {
    /// Whether the mean reaches the target.
    pub fn is_reached(&self) -> bool {
        self.reaches(self.figure.mean)
    }

    fn reaches(&self, value: f64) -> bool {
        match self.bound {
            Bound::AtMost => value <= self.target,
            Bound::AtLeast => value >= self.target,
        }
    }

    /// One line: `reached` or `missed`, and whether the target is inside the interval.
    pub fn line(&self) -> String {
        let word = if self.is_reached() { "reached" } else { "MISSED " };
        let certain = self.reaches(self.figure.low) == self.reaches(self.figure.high);
        let doubt = if certain { "" } else { ", the interval leaves it open" };
        let sign = if self.bound == Bound::AtMost { "<=" } else { ">=" };
        format!(
            "{word} {}: {} [{} .. {}], target {sign} {}{doubt}",
            self.what,
            figure(self.figure.mean),
            figure(self.figure.low),
            figure(self.figure.high),
            figure(self.target),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_miss_is_called_a_miss_and_doubt_is_said() {
        let figure = Ratio { mean: 0.52, low: 0.49, high: 0.55, n: 7 };
        let verdict = Verdict { what: "a / b".to_owned(), figure, bound: Bound::AtMost, target: 0.5 };
        assert!(!verdict.is_reached());
        assert!(verdict.line().starts_with("MISSED  a / b: 0.52 [0.49 .. 0.55], target <= 0.50"));
        assert!(verdict.line().ends_with("the interval leaves it open"));
        assert!(Verdict { bound: Bound::AtLeast, ..verdict }.is_reached());
    }
}
