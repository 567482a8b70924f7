//! `cargo bench -p dentree-lab --bench sources`: tasks with an image behind a slow HTTP or NBD
//! server, ours against the download and against mounts on nbdfuse; rows in
//! `target/bench/sources.jsonl`. Needs root, FUSE, nginx, nbdkit, nbdfuse, and
//! `cargo build --release --bin dentree`; reports what is missing.

use dentree_lab::outcome::finish;
use dentree_lab::programs::Programs;
use dentree_lab::sources_bench::{FULL, TINY, run};
use std::process::ExitCode;

fn main() -> ExitCode {
    let full = std::env::args().any(|argument| argument == "--bench");
    let size = if full { FULL } else { TINY };
    let dentree = Programs::beside_this().and_then(|programs| programs.dentree());
    let measured = dentree.and_then(|dentree| run(&dentree, size, &|what| eprintln!("sources: {what}")));
    finish("sources", measured, full)
}
