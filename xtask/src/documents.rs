//! Checks over the documents.

use crate::Findings;
use crate::sources::{is_comment, read, source_files};
use cargo_metadata::Metadata;
use pulldown_cmark::{Event, Parser, Tag};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Links to files that are not there.
pub(crate) fn links(metadata: &Metadata) -> Findings {
    let root = metadata.workspace_root.as_std_path();
    let mut findings = Findings::new();
    for document in files(metadata) {
        let text = read(&document);
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

/// Files, directories, tests, types and methods of ours that documents and comments name but that
/// are gone. The changelog may name what was.
pub(crate) fn names(metadata: &Metadata) -> Findings {
    let code = Code::read(metadata);
    let mut findings = Findings::new();
    for document in files(metadata).iter().filter(|path| !path.ends_with("CHANGELOG.md")) {
        for event in Parser::new(&read(document)) {
            if let Event::Code(span) = event
                && let Some(wrong) = code.lacks(&span)
            {
                findings.push(format!("{}: {wrong}", document.display()));
            }
        }
    }
    for (file, text) in &code.files {
        for (line, number) in text.lines().zip(1..).filter(|(line, _)| is_comment(line)) {
            let wrong = line.split('`').skip(1).step_by(2).filter_map(|span| code.lacks(span));
            findings.extend(wrong.map(|wrong| format!("{}:{number}: {wrong}", file.display())));
        }
    }
    findings
}

/// The source files by their path in the workspace, and the words in them outside comments.
#[derive(Default)]
struct Code {
    files: Vec<(PathBuf, String)>,
    words: BTreeSet<String>,
}

impl Code {
    fn read(metadata: &Metadata) -> Code {
        let root = &metadata.workspace_root;
        let mut code = Code::default();
        for file in source_files(metadata) {
            code.add(file.strip_prefix(root).unwrap_or(&file), read(&file));
        }
        code
    }

    fn add(&mut self, file: &Path, text: String) {
        let lines = text.lines().filter(|line| !is_comment(line));
        self.words.extend(lines.flat_map(|line| line.split(is_no_name)).map(str::to_owned));
        self.files.push((file.to_owned(), text));
    }

    /// What a code span names that is not there; `None` also of a span that names nothing of ours.
    fn lacks(&self, span: &str) -> Option<String> {
        let (path, item) = match span.split_once(".rs") {
            Some((path, rest)) if rest.is_empty() || rest.starts_with("::") => {
                (format!("{path}.rs"), rest.strip_prefix("::"))
            }
            _ => (span.to_owned(), None),
        };
        if path.contains(|c| is_no_name(c) && !"/.:-()".contains(c)) || path.starts_with(['/', '.']) {
            return None;
        }
        if path.ends_with(".rs") {
            let mut files = self.files.iter().filter(|(file, _)| file.ends_with(&path)).peekable();
            if files.peek().is_none() {
                return Some(format!("no file {path}"));
            }
            // A test is a function, or a case of a table of them.
            let has = |text: &str, item: &str| {
                text.contains(&format!("fn {item}(")) || text.contains(&format!("    {item}: "))
            };
            let item = item?;
            return (!files.any(|(_, text)| has(text, item))).then(|| format!("no {item} in {path}"));
        }
        let mut segments = path.trim_end_matches("()").rsplit("::").take(2);
        let is_type = path.starts_with(char::is_uppercase) && path.contains(char::is_lowercase);
        if (!path.contains("::") && !is_type) || path.contains(['/', '.', '-', '(']) {
            return None;
        }
        segments.find(|name| !self.words.contains(*name)).map(|name| format!("no {name} in the code"))
    }
}

/// Whether a character stands in no Rust identifier.
fn is_no_name(character: char) -> bool {
    !character.is_alphanumeric() && character != '_'
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_that_names_what_is_gone_is_found() {
        let mut code = Code::default();
        let text = "// Gone\nimpl Walk {\n    fn step() {}\n}\nfn it_works() {}".to_owned();
        code.add(Path::new("crates/x/src/walk.rs"), text);
        for right in [
            "src/walk.rs",
            "walk.rs::it_works",
            "Walk",
            "Walk::step()",
            "d_move",
            "/etc/x.rs",
            "x.rst",
            "a b",
        ] {
            assert_eq!(code.lacks(right), None);
        }
        assert_eq!(code.lacks("src/alk.rs").as_deref(), Some("no file src/alk.rs"));
        assert_eq!(code.lacks("walk.rs::it_fails").as_deref(), Some("no it_fails in walk.rs"));
        assert_eq!(code.lacks("Walk::walk").as_deref(), Some("no walk in the code"));
        assert_eq!(code.lacks("Gone").as_deref(), Some("no Gone in the code"));
    }
}
