//! Checks over the documents.

use crate::Findings;
use cargo_metadata::Metadata;
use pulldown_cmark::{Event, Parser, Tag};
use std::fs;
use std::path::PathBuf;

/// Links to files that are not there.
pub(crate) fn links(metadata: &Metadata) -> Findings {
    let root = metadata.workspace_root.as_std_path();
    let mut findings = Findings::new();
    for document in files(metadata) {
        let text = fs::read_to_string(&document).unwrap_or_default();
        let folder = document.parent().unwrap_or(root);
        for event in Parser::new(&text) {
            let (Event::Start(Tag::Link { dest_url, .. }) | Event::Start(Tag::Image { dest_url, .. })) =
                event
            else {
                continue;
            };
            let target = dest_url.split('#').next().unwrap_or_default();
            let elsewhere = target.is_empty() || target.contains("://");
            if !elsewhere && !folder.join(target).exists() {
                findings.push(format!("{}: nothing at {target}", document.display()));
            }
        }
    }
    findings
}

/// Promises of docs/SEMANTICS.md whose test is gone.
pub(crate) fn promises(metadata: &Metadata) -> Findings {
    let root = metadata.workspace_root.as_std_path();
    let text = fs::read_to_string(root.join("docs/SEMANTICS.md")).unwrap_or_default();
    let mut findings = Findings::new();
    for event in Parser::new(&text) {
        let Event::Code(code) = event else { continue };
        let Some((file, test)) = code.split_once(".rs::") else { continue };
        let source =
            fs::read_to_string(root.join("crates").join(file).with_extension("rs")).unwrap_or_default();
        // A test is a function, or a case of a table of them.
        let is_there = source.contains(&format!("fn {test}()")) || source.contains(&format!("    {test}: "));
        if !is_there {
            findings.push(format!("docs/SEMANTICS.md: no test {code}"));
        }
    }
    findings
}

/// The documents of the workspace and the pages of its crates.
pub(crate) fn files(metadata: &Metadata) -> Vec<PathBuf> {
    let root = metadata.workspace_root.as_std_path();
    let crates =
        metadata.workspace_packages().into_iter().filter_map(|package| package.manifest_path.parent());
    let mut folders: Vec<_> = crates.map(|folder| folder.as_std_path().to_path_buf()).collect();
    folders.extend([root.to_path_buf(), root.join("docs"), root.join("docs/internals")]);
    let entries = folders.iter().flat_map(fs::read_dir).flatten().flatten();
    let mut found: Vec<_> = entries.map(|entry| entry.path()).collect();
    found.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    found.sort();
    found
}
