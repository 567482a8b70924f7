//! `cargo bench -p dentree-lab --bench onedir`: threads that fill one directory, ours against the kernel and fuse2fs, and which locks
//! ours waits for; rows in `target/bench/onedir.jsonl`. Needs root; says so where it is missing.

use std::process::ExitCode;

use dentree_lab::onedir_bench::{FULL, TINY, run};
use dentree_lab::rows::{default_file, write_json_lines};

fn main() -> ExitCode {
    let full = std::env::args().any(|argument| argument == "--bench");
    let (outcome, tables) = match run(if full { FULL } else { TINY }, &|what| eprintln!("onedir: {what}")) {
        Ok(outcome) => outcome,
        Err(why) => {
            println!("skipped: onedir: {why}");
            return ExitCode::SUCCESS;
        }
    };
    println!("{}\n{tables}", outcome.text());
    let Some(json) = default_file("onedir").filter(|_| full) else { return ExitCode::SUCCESS };
    match write_json_lines(&json, &outcome.rows) {
        Ok(()) => {
            println!("{} rows in {}", outcome.rows.len(), json.display());
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("onedir: {}: {why}", json.display());
            ExitCode::FAILURE
        }
    }
}
