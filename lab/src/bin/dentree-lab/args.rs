//! The definitions of the command line and its help.

use clap::{Args, Parser, Subcommand, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;

/// Measure how name caches are locked: the schemes of the 2002 study, today's, and rival crates
#[derive(Debug, Parser)]
#[command(name = "dentree-lab", version, max_term_width = 100)]
pub(crate) struct Cli {
    /// Passed to the child processes, which measure one pass each
    #[arg(long, hide = true, global = true, value_name = "NUMBER")]
    pub(crate) pass: Option<usize>,
    #[command(subcommand)]
    pub(crate) study: Study,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Study {
    /// Everything in short, as a page with charts: under five minutes
    All(AllArgs),
    /// dbench's own loadfile, replayed as operations on names
    Dbench(DbenchArgs),
    /// A web server's requests as SPECweb99 draws them, or with --rate as httperf sends them
    Web(WebArgs),
    /// find through a hash table that is too small
    Find(FindArgs),
    /// A recorded build: include paths, and all the directories that lack a header
    Build(BuildArgs),
    /// Run a command and record its operations on names, for `dentree-lab build` (needs strace)
    Record(RecordArgs),
    /// Files created, renamed and deleted next to readers
    Churn(LoadArgs),
    /// Subtrees and unused entries freed next to readers
    Invalidate(LoadArgs),
    /// The placement of an entry's fields: one line or two, aligned or packed
    Layout(PlacementArgs),
    /// Chains walked with and without prefetch
    Prefetch(PlacementArgs),
    /// Acquisitions of each lock under dbench's load, in the sources' layout
    Locks(DbenchArgs),
    /// Attributes set by many clients: the metadata block cache of before 2016 and ours, the kernel
    /// and fuse2fs
    Xattr(XattrArgs),
    /// Replacement policies of a buffer cache: hit ratios of LRU, CLOCK, SIEVE and S3-FIFO on
    /// recorded traces
    Replacement(ReplacementArgs),
    /// Files made in many large directories on a slow device, with and without index read-ahead
    Mkfiles(MkfilesArgs),
    /// Compare two runs: whether chance explains the differences of their ratios
    Compare(CompareArgs),
    /// The program under valgrind
    #[command(hide = true)]
    Once { layout: String, chain: usize, lookups: usize },
    /// A client of `dentree-lab xattr`
    #[command(hide = true)]
    XattrClient { mount: PathBuf, client: usize, files: usize, values: usize, sets: usize, round: u64 },
}

#[derive(Debug, Args)]
pub(crate) struct AllArgs {
    /// The output directory, made if it is missing
    #[arg(long, value_name = "DIRECTORY", value_hint = ValueHint::DirPath, default_value = "report")]
    pub(crate) out: PathBuf,
    /// dbench's loadfile, if its package is not installed
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) loadfile: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct PlacementArgs {
    /// Write every figure as a JSON line to FILE
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) json: Option<PathBuf>,
    /// Entries of the tree
    #[arg(long, value_name = "N", default_value_t = 65_536, value_parser = clap::value_parser!(u32).range(128..=4_000_000))]
    pub(crate) entries: u32,
    /// Hash chains; instead of the lengths 1, 4, 16 and 64
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) dhash_entries: Option<u32>,
    /// Runs of each variant, each on newly built trees
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u16).range(2..))]
    pub(crate) runs: u16,
    /// Every alignment and inline length, too
    #[arg(long)]
    pub(crate) all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// The directory of a `dentree-lab all`, or the file of a --json
    #[arg(value_hint = ValueHint::AnyPath)]
    pub(crate) one: PathBuf,
    /// Another
    #[arg(value_hint = ValueHint::AnyPath)]
    pub(crate) other: PathBuf,
}

/// Options of every load.
#[derive(Clone, Debug, Args)]
pub(crate) struct LoadArgs {
    /// Write every figure as a JSON line to FILE
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) json: Option<PathBuf>,
    /// Only schemes whose name contains TEXT, and the first; may be given several times
    #[arg(long, value_name = "TEXT")]
    pub(crate) scheme: Vec<String>,
    /// Numbers of clients, each a case
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=128))]
    pub(crate) clients: Vec<u16>,
    /// Numbers of CPUs for all of these clients, each a case; by default all CPUs
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) cpus: Vec<u16>,
    /// Passes: each builds every scheme, and runs it for a slice with each number of clients
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) rounds: u16,
    /// The length of a slice
    #[arg(long, value_name = "MS", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) slice: u16,
    /// Hash chains, rounded up to a power of two; few chains are long
    #[arg(long, value_name = "N")]
    pub(crate) dhash_entries: Option<usize>,
}

#[derive(Debug, Args)]
pub(crate) struct DbenchArgs {
    /// The loadfile, if dbench's package is not installed
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) loadfile: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) load: LoadArgs,
}

#[derive(Debug, Args)]
pub(crate) struct WebArgs {
    /// Simultaneous connections; they determine the size of the file set
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) connections: u16,
    /// Requests per second, instead of as many as possible
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(10..))]
    pub(crate) rate: Option<u32>,
    /// Over real sockets: `dentree serve` next to nginx, driven by wrk and httperf (at --rate, or
    /// 2000)
    #[arg(long)]
    pub(crate) sockets: bool,
    /// With --sockets, the length of each of the --rounds
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) seconds: u16,
    #[command(flatten)]
    pub(crate) load: LoadArgs,
}

#[derive(Debug, Args)]
pub(crate) struct FindArgs {
    /// Mean length of a hash chain
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) chain: u16,
    /// Single passes of each scheme next to find(1) on the same tree (needs root)
    #[arg(long)]
    pub(crate) kernel: bool,
    #[command(flatten)]
    pub(crate) load: LoadArgs,
}

#[derive(Debug, Args)]
pub(crate) struct BuildArgs {
    /// A recording of `dentree-lab record`, instead of the built-in one
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) recording: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) load: LoadArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ReplacementArgs {
    /// Directories of the loads' image
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub(crate) directories: u32,
    /// Files per directory in the end
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(2..=65536))]
    pub(crate) files: u32,
    /// Write the rows as JSON lines
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) json: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct RecordArgs {
    /// The file of the recording
    #[arg(long, value_name = "FILE", default_value = "recorded.names", value_hint = ValueHint::FilePath)]
    pub(crate) out: PathBuf,
    /// The command; it runs in this directory, whose files count as the project's, not the system's
    #[arg(last = true, required = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct XattrArgs {
    /// Clients: P of the tables
    #[arg(long, value_name = "P,…", value_delimiter = ',', default_values_t = [1, 2, 4, 8, 16, 32, 64])]
    pub(crate) clients: Vec<u16>,
    /// Files per client: F of the tables
    #[arg(long, value_name = "F,…", value_delimiter = ',', default_values_t = [10, 100, 1000])]
    pub(crate) files: Vec<u16>,
    /// Values to draw from: V of the tables
    #[arg(long, value_name = "V,…", value_delimiter = ',', default_values_t = [10, 100, 1000, 10_000, 100_000])]
    pub(crate) values: Vec<u32>,
    /// Sets per client and run
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) sets: u32,
    /// Sets per client and run over blocks in memory
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) sets_in_memory: u32,
    /// The most sets of all clients together in a run through FUSE: such runs' times are scaled up
    #[arg(long, value_name = "N", default_value_t = 8000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) sets_in_all: u32,
    /// Runs of each cell
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) runs: u16,
    /// Only the two caches, over blocks in memory
    #[arg(long)]
    pub(crate) caches_alone: bool,
    /// Write every figure as a JSON line to FILE
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) json: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct MkfilesArgs {
    /// Directories
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) directories: u16,
    /// Names per directory before the measurement
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) files: u32,
    /// Files to make, each in a random directory
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) creates: u32,
    /// Latencies of a read in milliseconds, each a case; an image in a file is another
    #[arg(long, value_name = "MS,…", value_delimiter = ',', default_values_t = [0.1, 1.0, 8.0], value_parser = positive)]
    pub(crate) latency: Vec<f64>,
    /// Sizes of the buffer cache, as shares of all blocks of the directories, each a case
    #[arg(long, value_name = "SHARE,…", value_delimiter = ',', default_values_t = [0.5, 1.0, 4.0], value_parser = positive)]
    pub(crate) cache: Vec<f64>,
    /// Reads that a slow device serves at a time
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) depth: u16,
    /// Lay the directories out for their names in advance, each contiguously, as `mkdir --expect`
    /// does
    #[arg(long)]
    pub(crate) laid_out: bool,
    /// Runs of each case, each on its own image
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
