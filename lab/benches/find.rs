//! `cargo bench -p dentree-lab --bench find`: `dentree find` against find(1) on a loop mount; rows
//! in `target/bench/find.jsonl`. Needs root, and `cargo build --release --bin dentree`; reports
//! what is missing.

use dentree_lab::find_bench::{Failure, run};
use dentree_lab::outcome::finish;
use dentree_lab::programs::Programs;
use dentree_lab::tree::{FIND, TINY};
use std::process::ExitCode;

fn main() -> ExitCode {
    let full = std::env::args().any(|argument| argument == "--bench");
    let shape = if full { FIND } else { TINY };
    let dentree = Programs::beside_this().and_then(|programs| programs.dentree());
    let measured = dentree
        .map_err(Failure::from)
        .and_then(|dentree| run(&dentree, shape, &|what| eprintln!("find: {what}")));
    match measured {
        Ok(outcome) => finish("find", Ok(outcome), full),
        Err(Failure::Unavailable(why)) => finish("find", Err(why), full),
        Err(why) => {
            eprintln!("find: {why}");
            ExitCode::FAILURE
        }
    }
}
