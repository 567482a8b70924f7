//! Checks over the language: width of comments, words that are not to come back, one meaning per
//! name of a public type.

use crate::Findings;
use crate::sources::{read, source_files};
use cargo_metadata::Metadata;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Columns of a comment, and of a document's line outside of tables and code.
const WIDTH: usize = 100;

/// Words for which the field has others, in comments, documents and identifiers.
const WORDS: &[&str] = &[
    "aftermath",
    "bury",
    "buried",
    "climbs",
    "crowd",
    "glide",
    "laps",
    "leap",
    "leaps",
    "seat",
    "seated",
    "seats",
];

/// Phrases of the same kind, in comments and documents.
const PHRASES: &[&str] = &["in vain", "look-up", "nobody", "somebody", "who ", "whoever", "whom"];

/// Public types that have one name in several crates on purpose.
const SAME_NAME: &[&str] = &[
    "Access",
    "Error",
    "Extent",
    "Handle",
    "Inode",
    "Kind",
    "Options",
    "Result",
    "Stats",
    "Step",
    "WalkOptions",
];

/// Comments and documents that are too wide.
pub(crate) fn width(metadata: &Metadata) -> Findings {
    findings(metadata, |line| {
        // A test's path has no place to break.
        let prose = line.prose.filter(|text| !text.contains(".rs::"));
        let columns = prose.map_or(0, |_| line.whole.chars().count());
        (columns > WIDTH).then(|| format!("{columns} columns; {WIDTH} at most"))
    })
}

/// Words that are not to come back.
pub(crate) fn words(metadata: &Metadata) -> Findings {
    findings(metadata, |line| {
        let word = parts(line.whole).find(|part| WORDS.contains(&part.as_str()));
        let prose = line.prose.unwrap_or_default().to_lowercase();
        let phrase = PHRASES.iter().find(|phrase| has_phrase(&prose, phrase));
        let found = word.or(phrase.map(|phrase| phrase.trim().to_owned()));
        found.map(|found| format!("\"{found}\": use the field's term, or a noun"))
    })
}

/// Public types of different crates of the product that share a name.
pub(crate) fn types(metadata: &Metadata) -> Findings {
    let mut places: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for path in source_files(metadata) {
        let file = path.strip_prefix(&metadata.workspace_root).unwrap_or(&path);
        let Some(name) = product_crate(file) else { continue };
        for line in read(&path).lines() {
            if let Some(public) = public_type(line) {
                places.entry(public.to_owned()).or_default().insert(name.to_owned());
            }
        }
    }
    let repeated =
        places.into_iter().filter(|(name, crates)| crates.len() > 1 && !SAME_NAME.contains(&name.as_str()));
    repeated
        .map(|(name, crates)| {
            format!("{name}: in {}; one name, one meaning", Vec::from_iter(crates).join(", "))
        })
        .collect()
}

/// A line of a source file or document, and what of it is comment or text.
struct Line<'a> {
    whole: &'a str,
    prose: Option<&'a str>,
}

/// Findings of `check` in all lines.
fn findings(metadata: &Metadata, check: impl Fn(&Line<'_>) -> Option<String>) -> Findings {
    let root = metadata.workspace_root.as_std_path();
    let mut findings = Findings::new();
    let documents = crate::documents::files(metadata);
    for path in source_files(metadata).into_iter().chain(documents) {
        let file = path.strip_prefix(root).unwrap_or(&path);
        if file.starts_with("xtask/src/words.rs") {
            continue;
        }
        let text = read(&path);
        for (number, line) in (1..).zip(lines(file, &text)) {
            let finding = check(&line).map(|finding| format!("{}:{number}: {finding}", file.display()));
            findings.extend(finding);
        }
    }
    findings
}

/// The lines of a file. Tables, diagrams and code in documents are no prose.
fn lines<'a>(file: &Path, text: &'a str) -> Vec<Line<'a>> {
    let is_document = file.extension().is_some_and(|kind| kind == "md");
    let mut is_code = false;
    let line = |whole: &'a str| {
        let trimmed = whole.trim_start();
        let prose = if is_document {
            let is_fence = trimmed.starts_with("```");
            is_code ^= is_fence;
            (!is_fence && !is_code).then_some(trimmed)
        } else {
            let comment = trimmed.strip_prefix("//").map(|text| text.trim_start_matches(['/', '!']));
            is_code = comment.is_some_and(|text| is_code ^ text.trim_start().starts_with("```"));
            comment.filter(|_| !is_code)
        };
        let is_table = |text: &&str| text.trim_start().starts_with(['|', '│', '├', '└', '┌']);
        Line { whole, prose: prose.filter(|text| !is_table(text)) }
    };
    text.lines().map(line).collect()
}

/// The words of a text in lower case, identifiers split at underscores and capitals.
fn parts(text: &str) -> impl Iterator<Item = String> {
    let words = text.split(|letter: char| !letter.is_alphanumeric());
    words.flat_map(|word| {
        let capitals = word.match_indices(char::is_uppercase).map(|(at, _)| at).filter(|&at| at > 0);
        let ends: Vec<usize> = capitals.chain([word.len()]).collect();
        let starts = std::iter::once(0).chain(ends.clone());
        let parts = starts.zip(ends).map(|(start, end)| word[start..end].to_lowercase());
        parts.collect::<Vec<_>>()
    })
}

/// Whether a phrase stands in a text as whole words. The table of locks has a heading of its own.
fn has_phrase(text: &str, phrase: &str) -> bool {
    let text = text.replace("who protects what", "");
    text.match_indices(phrase).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        before.is_none_or(|letter| !letter.is_alphanumeric())
    })
}

/// The name of a crate of the product that a file in `src` belongs to.
fn product_crate(file: &Path) -> Option<&str> {
    let mut parts = file.iter().filter_map(|part| part.to_str());
    let name = (parts.next()? == "crates").then(|| parts.next())??;
    (parts.next()? == "src" && !["lockmeter", "testing"].contains(&name)).then_some(name)
}

/// The public type that a line declares.
fn public_type(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("pub ")?;
    let kinds = ["struct ", "enum ", "trait ", "type ", "union "];
    let name = kinds.iter().find_map(|kind| rest.strip_prefix(kind))?;
    name.split(|letter: char| !letter.is_alphanumeric()).next().filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts<'a>(file: &str, text: &'a str) -> Vec<&'a str> {
        lines(Path::new(file), text).into_iter().filter_map(|line| Some(line.prose?.trim())).collect()
    }

    #[test]
    fn code_and_tables_are_no_prose() {
        let source = "let x; // y\n/// one\n//! | two |\n  // three\n/// ```\n/// four\n/// ```\n/// five";
        assert_eq!(texts("a.rs", source), ["one", "three", "```", "five"]);
        assert_eq!(texts("a.md", "one\n| two |\n```\nthree\n```\nfour"), ["one", "four"]);
    }

    #[test]
    fn words_are_found_whole_and_within_identifiers() {
        let all: Vec<_> = parts("reader_seat of ACrowd, leapfrog").collect();
        assert_eq!(all, ["reader", "seat", "of", "a", "crowd", "", "leapfrog"].map(str::to_owned));
        assert!(has_phrase("those who wait", "who ") && !has_phrase("the whole", "who "));
    }

    #[test]
    fn public_types_are_told_from_others() {
        assert_eq!(public_type("pub struct Walk<'a> {"), Some("Walk"));
        assert_eq!(public_type("pub(crate) enum Walk {"), None);
        assert_eq!(public_type("pub fn walk() {"), None);
        assert_eq!(product_crate(Path::new("crates/vfs/src/walk.rs")), Some("vfs"));
        assert_eq!(product_crate(Path::new("crates/vfs/tests/walk.rs")), None);
    }
}
