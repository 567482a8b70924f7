//! `cargo bench -p dentree-lab --bench find`: `dentree find` against find(1) on a loop mount; rows in
//! `target/bench/find.jsonl`. Needs root, and `cargo build --release --bin dentree` before it; says so where either is missing.

use std::path::PathBuf;
use std::process::ExitCode;

use dentree_lab::find_bench::{Failure, run};
use dentree_lab::rows::{default_file, write_json_lines};
use dentree_lab::tree::{FIND, TINY};

fn main() -> ExitCode {
    let full = std::env::args().any(|argument| argument == "--bench");
    // TARGET/release/deps/PROGRAM: the tool lies two folders up.
    let program =
        std::env::current_exe().ok().and_then(|path| Some(path.ancestors().nth(2)?.join("dentree")));
    let Some(dentree) = program.filter(|path: &PathBuf| path.exists()) else {
        println!("skipped: find: no dentree program; `cargo build --release --bin dentree` makes it");
        return ExitCode::SUCCESS;
    };
    let outcome = match run(&dentree, if full { FIND } else { TINY }, &|what| eprintln!("find: {what}")) {
        Ok(outcome) => outcome,
        Err(Failure::Unavailable(why)) => {
            println!("skipped: find: {why}");
            return ExitCode::SUCCESS;
        }
        Err(why) => {
            eprintln!("find: {why}");
            return ExitCode::FAILURE;
        }
    };
    println!("{}", outcome.text());
    let Some(json) = default_file("find").filter(|_| full) else { return ExitCode::SUCCESS };
    match write_json_lines(&json, &outcome.rows) {
        Ok(()) => {
            println!("{} rows in {}", outcome.rows.len(), json.display());
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("find: {}: {why}", json.display());
            ExitCode::FAILURE
        }
    }
}
