//! `cargo bench -p dentree-lab --bench tools`: whole tasks with an image, ours against fuse2fs,
//! debugfs, e2tools, mke2fs and the kernel's mount; rows in `target/bench/tools.jsonl`. Needs root,
//! FUSE, and `cargo build --release --bin dentree`; reports what is missing.

use dentree_lab::outcome::finish;
use dentree_lab::programs::Programs;
use dentree_lab::tools_bench::{FULL, TINY, run};
use std::process::ExitCode;

fn main() -> ExitCode {
    let full = std::env::args().any(|argument| argument == "--bench");
    let size = if full { FULL } else { TINY };
    let dentree = Programs::beside_this().and_then(|programs| programs.dentree());
    let measured = dentree.and_then(|dentree| run(&dentree, size, &|what| eprintln!("tools: {what}")));
    finish("tools", measured, full)
}
