//! What `lab mkfiles` takes.

use clap::{Args, ValueHint};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct MkfilesArgs {
    /// Directories
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) directories: u16,
    /// Names in each before anything is measured
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) files: u32,
    /// Files to make, each in a directory drawn at random
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) creates: u32,
    /// What a read takes, in milliseconds, each a case of its own; an image in a file is another
    #[arg(long, value_name = "MS,…", value_delimiter = ',', default_values_t = [0.1, 1.0, 8.0], value_parser = positive)]
    pub(crate) latency: Vec<f64>,
    /// Sizes of the buffer cache, as shares of all blocks of the directories, each a case of its own
    #[arg(long, value_name = "SHARE,…", value_delimiter = ',', default_values_t = [0.5, 1.0, 4.0], value_parser = positive)]
    pub(crate) cache: Vec<f64>,
    /// Reads that a slow device takes at a time
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) depth: u16,
    /// Lay the directories out for their names beforehand, each in a row, as `mkdir --expect` does
    #[arg(long)]
    pub(crate) laid_out: bool,
    /// Runs of each case, each on an image of its own
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) runs: u16,
    /// Write every figure as a JSON line to FILE
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) json: Option<PathBuf>,
}

fn positive(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.001..=1000.0).contains(&value) { Ok(value) } else { Err("not within 0.001 and 1000".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_latencies_are_numbers_that_can_be_measured() {
        assert_eq!(positive("0.1"), Ok(0.1));
        for wrong in ["", "0", "-1", "nan", "inf", "1e9", "x"] {
            assert!(positive(wrong).is_err(), "{wrong}");
        }
    }
}
