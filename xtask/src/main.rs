//! `cargo xtask tidy`: checks what people forget and compilers do not see.
#![forbid(unsafe_code)]

mod arrows;
mod circles;
mod dependencies;
mod documents;
mod habits;
mod sources;
mod words;

use cargo_metadata::{Metadata, MetadataCommand};
use std::process::ExitCode;

/// What a check found wrong, one line each: where, what, what to do.
type Findings = Vec<String>;

/// A check of the whole workspace.
type Check = fn(&Metadata) -> Findings;

const CHECKS: &[(&str, Check)] = &[
    ("crates use only what the architecture lets them use", arrows::check),
    ("the program has nothing of the lab", arrows::product),
    ("no file of a crate uses one that uses it", circles::check),
    ("unsafe code stands only where it may", sources::unsafe_places),
    ("files are short enough to read", sources::lengths),
    ("every source file is part of a crate", sources::dead_files),
    ("programs print by no means that ends them when no one reads", sources::prints),
    ("tests do by themselves nothing that fails on a busy machine", habits::alone),
    ("comments and documents are narrow enough to read", words::width),
    ("private words stay away", words::words),
    ("a public type's name has one meaning", words::types),
    ("links in documents lead somewhere", documents::links),
    ("documents and comments name what exists", documents::names),
    ("every dependency has its reason", dependencies::reasons),
    ("every licence is one that we may ship", dependencies::licences),
];

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() != Some("tidy") {
        eprintln!("usage: cargo xtask tidy");
        return ExitCode::from(2);
    }
    let metadata = match MetadataCommand::new().exec() {
        Ok(metadata) => metadata,
        Err(error) => {
            eprintln!("tidy: cargo metadata: {error}");
            return ExitCode::FAILURE;
        }
    };
    let mut failed = 0;
    for (claim, check) in CHECKS {
        let findings = check(&metadata);
        println!("tidy: {} {claim}", if findings.is_empty() { "ok    " } else { "FAILED" });
        for finding in &findings {
            println!("    {finding}");
        }
        failed += usize::from(!findings.is_empty());
    }
    println!("tidy: {} passed, {failed} failed", CHECKS.len() - failed);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
