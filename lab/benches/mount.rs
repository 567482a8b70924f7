//! `cargo bench -p dentree-lab --bench mount`: `dentree mount` against fuse2fs, the kernel and the
//! bare cost of FUSE; rows in `target/bench/mount.jsonl`. `-- "dbench 1"` runs only the cases of
//! that name. Needs root, and the programs that `make bench` builds; reports what is missing.

use dentree_lab::mount_bench::{FULL, TINY, run};
use dentree_lab::outcome::finish;
use std::process::ExitCode;

fn main() -> ExitCode {
    let full = std::env::args().any(|argument| argument == "--bench");
    let only = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let size = if full { FULL } else { TINY };
    let measured = run(size, only.as_deref(), &|what| eprintln!("mount: {what}"));
    finish("mount", measured, full && only.is_none())
}
