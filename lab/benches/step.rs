//! `cargo bench -p dentree-lab --bench step`: single names entered, looked up, renamed and removed,
//! Dentree's cache against the maps of crates; rows in `target/bench/step.jsonl`. Ten minutes.

use dentree_lab::outcome::finish;
use dentree_lab::step_bench::{FULL, SMALL, run};
use std::process::ExitCode;

fn main() -> ExitCode {
    let full = std::env::args().any(|argument| argument == "--bench");
    let outcome = run(if full { FULL } else { SMALL }, &|what| eprintln!("step: {what}"));
    finish("step", Ok(outcome), full)
}
