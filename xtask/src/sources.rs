//! Checks over the source files.

use crate::Findings;
use cargo_metadata::Metadata;
use std::fs;
use std::path::{Path, PathBuf};

/// Crates in which `unsafe` may stand; every other one forbids it by attribute.
const MAY_BE_UNSAFE: &[&str] = &[
    "dentree-c",
    "dentree-dcache",
    "dentree-fuse-uring",
    "dentree-lab",
    "dentree-lockmeter",
    "dentree-source-qcow2",
];

/// The most lines of a file, not counting its tests.
const LINES_MAX: usize = 800;

/// Crates that lack `#![forbid(unsafe_code)]` though they must have it.
pub(crate) fn unsafe_places(metadata: &Metadata) -> Findings {
    let mut findings = Findings::new();
    for package in metadata.workspace_packages() {
        if MAY_BE_UNSAFE.contains(&package.name.as_str()) {
            continue;
        }
        for target in &package.targets {
            let shipped = target.is_lib() || target.is_bin();
            if shipped && !read(target.src_path.as_std_path()).contains("#![forbid(unsafe_code)]") {
                findings.push(format!("{}: add #![forbid(unsafe_code)]", target.src_path));
            }
        }
    }
    findings
}

/// Files with more lines than one can keep in mind.
pub(crate) fn lengths(metadata: &Metadata) -> Findings {
    let mut findings = Findings::new();
    for file in source_files(metadata) {
        let text = read(&file);
        let lines = text.lines().take_while(|line| !line.starts_with("#[cfg(test)]")).count();
        if lines > LINES_MAX {
            findings.push(format!("{}: {lines} lines; split it below {LINES_MAX}", file.display()));
        }
    }
    findings
}

/// Files under `src` that no `mod` line reaches.
pub(crate) fn dead_files(metadata: &Metadata) -> Findings {
    let mut findings = Findings::new();
    for file in source_files(metadata) {
        if !file.components().any(|part| part.as_os_str() == "src") {
            continue;
        }
        let Some((name, parents)) = name_and_parents(&file) else { continue };
        if !parents.iter().any(|parent| declares(parent, name)) {
            findings.push(format!("{}: no module declares it; delete it", file.display()));
        }
    }
    findings
}

/// The name of a file's module, and the files that may declare it; `None` of a crate's root.
fn name_and_parents(file: &Path) -> Option<(&str, [PathBuf; 4])> {
    let (stem, folder) = (file.file_stem()?.to_str()?, file.parent()?);
    let (name, folder) = match (stem, folder.file_name().and_then(|s| s.to_str()), folder.parent()) {
        ("lib" | "main", ..) => return None,
        ("mod", Some(name), Some(above)) => (name, above),
        _ => (stem, folder),
    };
    let [within, lib, main] = ["mod.rs", "lib.rs", "main.rs"].map(|parent| folder.join(parent));
    Some((name, [within, lib, main, folder.with_extension("rs")]))
}

fn declares(parent: &Path, name: &str) -> bool {
    read(parent).lines().any(|line| {
        let line = line.trim();
        let line = line.strip_prefix("pub(crate) ").or(line.strip_prefix("pub ")).unwrap_or(line);
        line.strip_prefix("mod ").and_then(|rest| rest.strip_suffix(';')) == Some(name)
    })
}

/// Lines of the product that panic where standard output or standard error is gone.
pub(crate) fn prints(metadata: &Metadata) -> Findings {
    const MACROS: [&str; 5] = ["println!(", "print!(", "eprintln!(", "eprint!(", "dbg!("];
    let mut findings = Findings::new();
    for file in source_files(metadata) {
        let below = file.strip_prefix(&metadata.workspace_root).unwrap_or(&file);
        let is_product = below.iter().any(|part| part == "src")
            && !["crates/testing", "lab"].iter().any(|not| below.starts_with(not));
        if !is_product || below.starts_with("xtask") || is_test_module(&file) {
            continue;
        }
        for (line, number) in read(&file).lines().zip(1..).take_while(|(line, _)| *line != "#[cfg(test)]") {
            if !is_comment(line) && MACROS.iter().any(|name| line.contains(name)) {
                findings.push(format!(
                    "{}:{number}: it panics where no one reads; in dentree use report::print, elsewhere let the caller print",
                    file.display()
                ));
            }
        }
    }
    findings
}

/// Whether a file is declared as a module for tests.
fn is_test_module(file: &Path) -> bool {
    let Some((name, parents)) = name_and_parents(file) else { return false };
    let declaration = format!("mod {name};");
    parents.iter().any(|parent| {
        let text = read(parent);
        let mut above = text.lines().zip(text.lines().skip(1));
        let is_for_tests = |above: &str| above.starts_with("#[cfg(") && above.contains("test");
        above.any(|(above, line)| line == declaration && is_for_tests(above))
    })
}

/// Every Rust file of the workspace's crates.
pub(crate) fn source_files(metadata: &Metadata) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for package in metadata.workspace_packages() {
        if let Some(folder) = package.manifest_path.parent() {
            collect(folder.as_std_path(), &mut files);
        }
    }
    files.sort();
    files
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// Whether a line is nothing but a comment.
pub(crate) fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with("//")
}

/// The file's text; a file that is not there has none.
pub(crate) fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}
