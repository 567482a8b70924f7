//! `cargo bench -p dentree-lab --bench onedir`: threads that fill one directory, ours against the
//! kernel and fuse2fs, and the locks that ours waits for; rows in `target/bench/onedir.jsonl`.
//! Needs root, and reports its absence.

use dentree_lab::onedir_bench::{FULL, TINY, run};
use dentree_lab::outcome::finish;
use std::process::ExitCode;

fn main() -> ExitCode {
    let full = std::env::args().any(|argument| argument == "--bench");
    let measured = run(if full { FULL } else { TINY }, &|what| eprintln!("onedir: {what}"));
    let tables = measured.as_ref().map_or_else(|_| String::new(), |(_, tables)| tables.clone());
    let code = finish("onedir", measured.map(|(outcome, _)| outcome), full);
    print!("{tables}");
    code
}
