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
    for document in documents(&[root.to_path_buf(), root.join("docs"), root.join("docs/internals")]) {
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

fn documents(folders: &[PathBuf]) -> Vec<PathBuf> {
    let entries = folders.iter().flat_map(fs::read_dir).flatten().flatten();
    let mut found: Vec<_> = entries.map(|entry| entry.path()).collect();
    found.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    found.sort();
    found
}
