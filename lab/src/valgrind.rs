//! Instructions and cache lines counted by valgrind's cachegrind: figures that do not depend on the
//! machine's other load.
//!
//! The program runs twice, with N and 2N walks after the same preparation; the difference is the
//! cost of N walks. The simulated last-level cache is scaled down with the tree: a tree thirty
//! times smaller than the cold one is as cold. Cachegrind does not simulate prefetch instructions:
//! a line counts where it is used, and a useless prefetch does not count.

use std::ffi::OsStr;
use std::process::{Command, Stdio};

use crate::unavailable::Unavailable;

/// Size of the simulated last-level cache, in bytes.
pub const LAST_LEVEL_BYTES: usize = 1 << 20;

/// What cachegrind counted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    /// Instructions executed.
    pub instructions: f64,
    /// Data accesses that missed the first-level cache, in lines.
    pub first_level_misses: f64,
    /// Data accesses that missed the last-level cache, in lines.
    pub last_level_misses: f64,
}

impl Counts {
    /// `(self - other) / by`, field by field.
    pub fn minus(self, other: Self, by: f64) -> Self {
        Self {
            instructions: (self.instructions - other.instructions) / by,
            first_level_misses: (self.first_level_misses - other.first_level_misses) / by,
            last_level_misses: (self.last_level_misses - other.last_level_misses) / by,
        }
    }

    fn parse(report: &str) -> Option<Self> {
        let field = |title: &[&str]| {
            report.lines().find_map(|line| {
                let mut words = line.split_whitespace().skip(1);
                title.iter().all(|&word| words.next() == Some(word)).then_some(())?;
                words.next()?.replace(',', "").parse().ok()
            })
        };
        Some(Self {
            instructions: field(&["I", "refs:"])?,
            first_level_misses: field(&["D1", "misses:"])?,
            last_level_misses: field(&["LLd", "misses:"])?,
        })
    }
}

/// Runs `program` twice in parallel, with `arguments` and the number of walks, and returns the cost
/// of one walk.
///
/// # Errors
/// If valgrind is not installed or fails.
pub fn count_per_walk<S: AsRef<OsStr>>(
    program: &OsStr,
    arguments: &[S],
    walks: usize,
) -> Result<Counts, Unavailable> {
    let start = |walks: usize| {
        Command::new("valgrind")
            .args(["--tool=cachegrind", "--cache-sim=yes", "--cachegrind-out-file=/dev/null"])
            .args(["--I1=32768,8,64", "--D1=32768,8,64"])
            .arg(format!("--LL={LAST_LEVEL_BYTES},16,64"))
            .arg(program)
            .args(arguments)
            .arg(walks.to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|why| Unavailable::because("valgrind", why))
    };
    let (once, twice) = (start(walks)?, start(2 * walks)?);
    let finish = |child: std::process::Child| {
        let output = child.wait_with_output().map_err(|why| Unavailable::because("valgrind", why))?;
        let report = String::from_utf8_lossy(&output.stderr);
        let counts = Counts::parse(&report).filter(|_| output.status.success());
        counts.ok_or_else(|| Unavailable::because("valgrind", report.lines().last().unwrap_or("no report")))
    };
    let (once, twice) = (finish(once), finish(twice));
    Ok(twice?.minus(once?, walks as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_from_cachegrinds_summary() {
        let report = "==7== I   refs:      1,234,567\n==7== I1  misses:        9\n==7== \n\
                      ==7== D   refs:      5,000  (3,000 rd   + 2,000 wr)\n\
                      ==7== D1  misses:      400  (  300 rd   +   100 wr)\n\
                      ==7== LLd misses:       20  (   10 rd   +    10 wr)\n";
        let counts = Counts { instructions: 1_234_567.0, first_level_misses: 400.0, last_level_misses: 20.0 };
        assert_eq!(Counts::parse(report), Some(counts));
        assert_eq!(Counts::parse("valgrind: command not found"), None);
    }
}
