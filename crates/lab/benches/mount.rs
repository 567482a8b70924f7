//! `cargo bench -p dentree-lab --bench mount`: `dentree mount` against fuse2fs, the kernel and what FUSE itself costs; rows in
//! `target/bench/mount.jsonl`. `-- "dbench 1"` does the cases of that name alone. Needs root, and the programs that `make bench` builds before it; says so where something is missing.

use std::process::ExitCode;

use dentree_lab::mount_bench::{FULL, TINY, run};
use dentree_lab::rows::{default_file, write_json_lines};

fn main() -> ExitCode {
    let full = std::env::args().any(|argument| argument == "--bench");
    let only = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    // TARGET/release/deps/PROGRAM: the programs lie two folders up.
    let folder = std::env::current_exe().ok().and_then(|path| Some(path.ancestors().nth(2)?.to_owned()));
    let Some(folder) = folder else { return ExitCode::FAILURE };
    let size = if full { FULL } else { TINY };
    let outcome = match run(folder, size, only.as_deref(), &|what| eprintln!("mount: {what}")) {
        Ok(outcome) => outcome,
        Err(why) => {
            println!("skipped: mount: {why}");
            return ExitCode::SUCCESS;
        }
    };
    println!("{}", outcome.text());
    let Some(json) = default_file("mount").filter(|_| full && only.is_none()) else {
        return ExitCode::SUCCESS;
    };
    match write_json_lines(&json, &outcome.rows) {
        Ok(()) => {
            println!("{} rows in {}", outcome.rows.len(), json.display());
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("mount: {}: {why}", json.display());
            ExitCode::FAILURE
        }
    }
}
