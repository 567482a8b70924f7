//! The files of a listing, and their order.

use super::style::Style;
use crate::args::ls::Sort;
use crate::image::{Node, SUPERUSER};
use crate::output::quote::Quoting;
use crate::path::join;
use crate::tree::{Entry, Tree};
use dentree_find::Owners;
use dentree_vfs::{Attr, FileType, Ino, WalkOptions};
use std::cmp::Ordering;

/// A file as it is listed.
pub(super) struct Row {
    /// As it is shown: a name in a directory, or the path of an argument.
    pub(super) name: Vec<u8>,
    pub(super) path: Vec<u8>,
    pub(super) ino: Ino,
    pub(super) kind: FileType,
    /// Loaded where attributes are shown or sorted by.
    pub(super) attr: Option<Attr>,
    /// Of a symbolic link, with what is at its end.
    pub(super) target: Option<(Vec<u8>, Option<Attr>)>,
    pub(super) has_acl: bool,
    /// It is shown instead of a link in a directory.
    pub(super) is_followed: bool,
    pub(super) context: Option<Vec<u8>>,
    /// Names of owner and group, where they are shown and known.
    pub(super) owner: Option<Box<str>>,
    pub(super) group: Option<Box<str>>,
}

impl Row {
    /// A row without attributes.
    pub(super) fn bare(name: Vec<u8>, path: Vec<u8>, ino: Ino, kind: FileType) -> Row {
        Row {
            name,
            path,
            ino,
            kind,
            attr: None,
            target: None,
            has_acl: false,
            is_followed: false,
            context: None,
            owner: None,
            group: None,
        }
    }

    fn extension(&self) -> &[u8] {
        let dot = self.name.iter().rposition(|byte| *byte == b'.');
        dot.map_or(b"", |dot| &self.name[dot..])
    }
}

/// Makes the rows of one image.
pub(super) struct Maker<'a> {
    pub(super) tree: Tree<'a>,
    pub(super) style: &'a Style<'a>,
    pub(super) owners: &'a Owners,
}

impl Maker<'_> {
    /// The row of `node`; `end` leads to the end of a link.
    pub(super) fn row(
        &self,
        (name, path): (Vec<u8>, Vec<u8>),
        node: &Node,
        end: impl FnOnce() -> Option<Node>,
    ) -> Row {
        let (attr, style) = (node.attr(), self.style);
        let mut row = Row::bare(name, path, attr.ino, attr.kind);
        let vfs = &self.tree.image.vfs;
        if attr.kind == FileType::Symlink && style.needs_attributes() {
            row.target = match vfs.readlink(node) {
                Ok(text) => Some((text, end().map(|node| node.attr()))),
                Err(error) => {
                    self.tree.problem(&row.path, &error);
                    None
                }
            };
        }
        row.has_acl = attr.has_acl
            || (style.is_long() && attr.is_dir() && vfs.getxattr(node, b"system.posix_acl_default").is_ok());
        if style.args.columns.context {
            row.context = vfs.getxattr(node, b"security.selinux").ok();
        }
        if style.is_long() && !style.args.columns.numeric {
            row.owner = self.owners.user(attr.uid).map(Into::into);
            row.group = self.owners.group(attr.gid).map(Into::into);
        }
        row.attr = Some(attr);
        row
    }

    /// The rows of a directory, sorted.
    pub(super) fn read(&self, dir: &Node, path: &[u8]) -> Vec<Row> {
        let Maker { tree, style, .. } = self;
        let listing = tree.list(dir, path);
        if style.needs_attributes() {
            tree.prefetch_inodes(listing.iter());
        }
        let mut rows = Vec::new();
        if style.shows_dots() {
            rows.push(self.row((b".".into(), path.to_vec()), dir, || None));
            let above = join(path, b"..");
            match tree.image.vfs.parent(dir) {
                Ok(up) => rows.push(self.row((b"..".into(), above), &up, || None)),
                Err(error) => tree.problem(&above, &error),
            }
        }
        for entry in listing.iter().filter(|entry| style.lists(entry.name)) {
            rows.push(self.entry(dir, entry, join(path, entry.name)));
        }
        sort(style, &mut rows, |row| row);
        rows
    }

    fn entry(&self, dir: &Node, entry: Entry<'_>, path: Vec<u8>) -> Row {
        let Maker { tree, style, .. } = self;
        let name = entry.name.to_vec();
        let is_needed = style.needs_attributes() || entry.kind.is_none();
        let mut node = if is_needed { tree.inode(entry.ino, &path) } else { None };
        let follow = || tree.image.vfs.walk(SUPERUSER, dir, entry.name, WalkOptions::FOLLOW);
        let is_link = node.as_ref().is_some_and(|node| node.kind() == FileType::Symlink);
        if is_link && style.args.select.dereference {
            node = follow().map_err(|error| tree.problem(&path, &error)).ok();
        }
        match node {
            Some(node) => Row {
                is_followed: is_link && style.args.select.dereference,
                ..self.row((name, path), &node, || follow().ok())
            },
            None => Row::bare(name, path, entry.ino, entry.kind.unwrap_or(FileType::Regular)),
        }
    }
}

pub(super) fn sort<T>(style: &Style<'_>, items: &mut [T], row: impl Fn(&T) -> &Row) {
    if style.sort == Sort::None {
        return;
    }
    let (reverse, grouped) = (style.args.order.reverse, style.args.order.group_directories_first);
    items.sort_by(|a, b| {
        let (a, b) = (row(a), row(b));
        let is_dir = |row: &Row| {
            let leads_to = row.target.as_ref().and_then(|(_, end)| *end);
            row.kind == FileType::Directory || leads_to.is_some_and(|end| end.is_dir())
        };
        let groups = if grouped { is_dir(b).cmp(&is_dir(a)) } else { Ordering::Equal };
        let order = compare(style, a, b);
        groups.then(if reverse { order.reverse() } else { order })
    });
}

fn compare(style: &Style<'_>, a: &Row, b: &Row) -> Ordering {
    let time = |row: &Row| row.attr.and_then(|attr| style.time_of(&attr));
    let size = |row: &Row| row.attr.map_or(0, |attr| attr.size);
    let width = |row: &Row| {
        let quoted = style.quoting.unwrap_or(Quoting::Literal).quote(&row.name).into_owned();
        String::from_utf8_lossy(&quoted).chars().count()
    };
    let first = match style.sort {
        Sort::None | Sort::Name => Ordering::Equal,
        Sort::Size => size(b).cmp(&size(a)),
        Sort::Time => time(b).cmp(&time(a)),
        Sort::Extension => a.extension().cmp(b.extension()),
        Sort::Version => by_version(&a.name, &b.name),
        Sort::Width => width(a).cmp(&width(b)),
    };
    first.then_with(|| a.name.cmp(&b.name))
}

/// The order of Debian's versions: numbers by their value, letters before other bytes, `~` before
/// the end. Names come before their suffixes (`a.tar` before `a-1.tar`), and `.`, `..` and hidden
/// names first.
fn by_version(a: &[u8], b: &[u8]) -> Ordering {
    let rank = |name: &[u8]| match name {
        b"." => 0,
        b".." => 1,
        name if name.starts_with(b".") => 2,
        _ => 3,
    };
    let (short_a, short_b) = (without_suffix(a), without_suffix(b));
    rank(a).cmp(&rank(b)).then_with(|| versions(short_a, short_b)).then_with(|| versions(a, b))
}

/// A name without suffixes of a dot, a letter and letters or digits.
fn without_suffix(name: &[u8]) -> &[u8] {
    let mut end = name.len();
    while let Some(dot) = name[..end].iter().rposition(|byte| *byte == b'.').filter(|dot| *dot > 0) {
        let suffix = &name[dot + 1..end];
        let is_suffix = matches!(suffix.first(), Some(b'A'..=b'Z' | b'a'..=b'z' | b'~'))
            && suffix.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'~');
        if !is_suffix {
            break;
        }
        end = dot;
    }
    &name[..end]
}

fn versions(mut a: &[u8], mut b: &[u8]) -> Ordering {
    let weight = |byte: Option<&u8>| match byte {
        Some(b'~') => -1,
        None | Some(b'0'..=b'9') => 0,
        Some(letter) if letter.is_ascii_alphabetic() => i32::from(*letter),
        Some(other) => i32::from(*other) + 256,
    };
    let is_text = |bytes: &[u8]| bytes.first().is_some_and(|byte| !byte.is_ascii_digit());
    while !a.is_empty() || !b.is_empty() {
        while is_text(a) || is_text(b) {
            let order = weight(a.first()).cmp(&weight(b.first()));
            if order != Ordering::Equal {
                return order;
            }
            (a, b) = (a.get(1..).unwrap_or(b""), b.get(1..).unwrap_or(b""));
        }
        let (number_a, rest_a) = number(a);
        let (number_b, rest_b) = number(b);
        let order = number_a.len().cmp(&number_b.len()).then_with(|| number_a.cmp(number_b));
        if order != Ordering::Equal {
            return order;
        }
        (a, b) = (rest_a, rest_b);
    }
    Ordering::Equal
}

/// The digits that `bytes` begin with, without leading zeros, and what follows.
fn number(bytes: &[u8]) -> (&[u8], &[u8]) {
    let end = bytes.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(bytes.len());
    let start = bytes[..end].iter().position(|byte| *byte != b'0').unwrap_or(end);
    (&bytes[start..end], &bytes[end..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_names_sort_by_value() {
        let mut names = ["a10", "a9", "a09", "a1.tar", "a.tar", "a~", "a", ".x", "a-1"].map(str::as_bytes);
        names.sort_by(|a, b| by_version(a, b).then(a.cmp(b)));
        let expected = [".x", "a~", "a", "a.tar", "a1.tar", "a09", "a9", "a10", "a-1"];
        assert_eq!(names, expected.map(str::as_bytes));
    }
}
