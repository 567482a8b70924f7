//! What the tab key completes: commands, paths of the image, and local paths where a command takes
//! them.

use super::words::{Quote, Words};
use crate::args::Line;
use crate::host::os_str;
use crate::image::{Image, SUPERUSER, from_directory};
use crate::output::escape;
use crate::path::join;
use dentree_vfs::{DirEntry, Error, FileType, WalkOptions};
use rustyline::completion::{Completer, Pair};
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::Validator;
use rustyline::{Context, Helper};
use std::borrow::Cow;
use std::fs;
use std::ops::ControlFlow;
use std::sync::Arc;

pub(super) struct Completion {
    image: Arc<Image>,
    /// Names of commands.
    commands: Vec<String>,
    /// The current directory of the image.
    pub(super) directory: Vec<u8>,
}

/// A name that a word may end with.
struct Name {
    bytes: Vec<u8>,
    is_dir: bool,
}

impl Completion {
    pub(super) fn new(image: Arc<Image>) -> Self {
        let commands = Line::commands();
        let shown = commands.get_subcommands().filter(|command| !command.is_hide_set());
        let commands =
            shown.map(|command| command.get_name().to_owned()).chain(["help".to_owned()]).collect();
        Completion { image, commands, directory: b"/".to_vec() }
    }

    fn pairs(&self, line: &str) -> Option<(usize, Vec<Pair>)> {
        let mut line = Words::of(line.as_bytes());
        let quote = line.open.unwrap_or(Quote::Bare);
        let last = if line.open.is_some() { line.words.pop() } else { None };
        let (at, text) = last.map_or((line.end, Vec::new()), |word| (word.at, word.text));
        let words: Vec<&[u8]> = line.words.iter().map(|word| &word.text[..]).collect();
        let (dir, start) =
            text.split_at(text.iter().rposition(|byte| *byte == b'/').map_or(0, |end| end + 1));
        let names = match words[..] {
            [] if dir.is_empty() => self.command_names(),
            [] => return None,
            [b"lcd" | b"put"] | [b"get", _] => local_names(dir).ok()?,
            _ => self.image_names(dir).ok()?,
        };
        let dirs_only = matches!(words[..], [b"cd" | b"lcd", ..]);
        let fits = |name: &Name| {
            let is_hidden = name.bytes.starts_with(b".") && !start.starts_with(b".");
            name.bytes.starts_with(start) && !is_hidden && (name.is_dir || !dirs_only)
        };
        let mut names: Vec<Name> = names.into_iter().filter(fits).collect();
        names.sort_unstable_by(|a, b| a.bytes.cmp(&b.bytes));
        let is_only = names.len() == 1;
        let pair = |name: Name| {
            // A name that cannot be shown as it is cannot be typed either.
            let Cow::Borrowed(shown) = escape::terminal(&name.bytes) else { return None };
            let slash = if name.is_dir { "/" } else { "" };
            let word = [std::str::from_utf8(dir).ok()?, shown, slash].concat();
            let replacement = quoted(&word, quote, is_only && !name.is_dir);
            Some(Pair { display: format!("{shown}{slash}"), replacement })
        };
        Some((at, names.into_iter().filter_map(pair).collect()))
    }

    fn command_names(&self) -> Vec<Name> {
        let name = |name: &String| Name { bytes: name.clone().into_bytes(), is_dir: false };
        self.commands.iter().map(name).collect()
    }

    fn image_names(&self, dir: &[u8]) -> Result<Vec<Name>, Error> {
        let vfs = &self.image.vfs;
        let path = from_directory(&self.directory, dir);
        let node = vfs.walk(SUPERUSER, vfs.root(), &path, WalkOptions::FOLLOW)?;
        let mut names = Vec::new();
        let mut each = |entry: DirEntry<'_>| {
            if entry.name != b"." && entry.name != b".." {
                names.push((entry.name.to_vec(), entry.kind));
            }
            ControlFlow::Continue(())
        };
        vfs.readdir_past_damage(SUPERUSER, &node, &mut each, &mut |_| ())?;
        let leads_to_dir = |name: &[u8]| {
            let node = vfs.walk(SUPERUSER, vfs.root(), &join(&path, name), WalkOptions::FOLLOW);
            node.is_ok_and(|node| node.is_dir())
        };
        let name = |(bytes, kind): (Vec<u8>, Option<FileType>)| {
            let is_dir = match kind {
                Some(FileType::Symlink) | None => leads_to_dir(&bytes),
                Some(kind) => kind == FileType::Directory,
            };
            Name { bytes, is_dir }
        };
        Ok(names.into_iter().map(name).collect())
    }
}

fn local_names(dir: &[u8]) -> std::io::Result<Vec<Name>> {
    let dir = os_str(if dir.is_empty() { b"." } else { dir });
    let name = |entry: fs::DirEntry| {
        let is_dir = entry.path().is_dir();
        Name { bytes: entry.file_name().into_encoded_bytes(), is_dir }
    };
    Ok(fs::read_dir(dir)?.filter_map(Result::ok).map(name).collect())
}

/// A word as it stands in a line, in the quotes that it begins with; `ends` closes it.
fn quoted(word: &str, quote: Quote, ends: bool) -> String {
    let (begin, special): (&str, &[char]) = match quote {
        Quote::Single if !word.contains('\'') => ("'", &[]),
        Quote::Double => ("\"", &['"', '\\']),
        _ => ("", &[' ', '\'', '"', '\\', '#']),
    };
    let mut text = begin.to_owned();
    for c in word.chars() {
        if special.contains(&c) {
            text.push('\\');
        }
        text.push(c);
    }
    if ends { text + begin + " " } else { text }
}

impl Completer for Completion {
    type Candidate = Pair;

    fn complete(&self, line: &str, at: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        Ok(line.get(..at).and_then(|line| self.pairs(line)).unwrap_or((at, Vec::new())))
    }
}

impl Hinter for Completion {
    type Hint = String;
}
impl Highlighter for Completion {}
impl Validator for Completion {}
impl Helper for Completion {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_completed_word_is_read_as_the_name() {
        for (quote, begin) in [(Quote::Bare, ""), (Quote::Single, "'"), (Quote::Double, "\"")] {
            for name in ["plain", "a b", "#x", "it's", "say \"a\\b\"", "/d/\u{e9}"] {
                for ends in [false, true] {
                    let text = quoted(name, quote, ends);
                    let line = Words::of(text.as_bytes());
                    assert_eq!(line.words[0].text, name.as_bytes(), "{begin}{text}");
                    assert_eq!(line.open.is_none(), ends, "{text}");
                }
            }
        }
    }
}
