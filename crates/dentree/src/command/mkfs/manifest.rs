//! The manifest: entries and attributes of the image that the directory lacks or has otherwise.

use crate::report::{Problem, Status};
use dentree_vfs::FileType;
use std::collections::BTreeMap;

/// The format, for `--help`.
pub(crate) const FORMAT: &str = "\
A manifest has a line for each entry that the directory does not have, or has with another owner or mode:

  PATH TYPE MODE UID GID [MAJOR MINOR | TARGET]

PATH is absolute in the image; TYPE is f (regular file), d, l (symbolic link, with TARGET), c or b (device, with MAJOR \
and MINOR), p or s; MODE is octal; UID and GID are numbers. A - instead of TYPE, MODE, UID or GID keeps what the directory \
has. A line with the path * is for everything that no other line names: '* - - 0 0' gives it to root.

What is in the directory keeps its content; other files are empty. \\040 in a path or target is a space, as in fstab(5). \
Empty lines, and lines that begin with #, are passed over.";

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Line {
    pub(super) number: usize,
    pub(super) kind: Option<FileType>,
    pub(super) permissions: Option<u16>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) device: (u32, u32),
    pub(super) target: Vec<u8>,
}

/// All lines, by path.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Manifest {
    lines: BTreeMap<Vec<u8>, Line>,
    /// The `*` line, for all other paths.
    rest: Line,
}

impl Manifest {
    /// Reads a manifest; `name` is for messages.
    pub(super) fn parse(text: &[u8], name: &str) -> Result<Manifest, Problem> {
        let mut manifest = Manifest::default();
        for (number, text) in (1..).zip(text.split(|byte| *byte == b'\n')) {
            let words: Vec<&[u8]> =
                text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).collect();
            if words.first().is_none_or(|word| word.starts_with(b"#")) {
                continue;
            }
            let wrong = |why: &str| Problem::new(format!("{name}:{number}"), Status::Usage, why);
            let (path, line) = parse_line(&words, number).map_err(|why| wrong(&why))?;
            if path == b"*" {
                manifest.rest = line;
            } else if manifest.lines.insert(path, line).is_some() {
                return Err(wrong("names a path that has a line already"));
            }
        }
        Ok(manifest)
    }

    /// The line of `path`, which is absolute.
    pub(super) fn of(&self, path: &[u8]) -> &Line {
        self.lines.get(path).unwrap_or(&self.rest)
    }

    /// The names that lines have directly in directory `path`.
    pub(super) fn names_in(&self, path: &[u8]) -> impl Iterator<Item = &[u8]> {
        let prefix = if path == b"/" { b"/".to_vec() } else { [path, b"/"].concat() };
        let below = self.lines.range(prefix.clone()..).take_while({
            let prefix = prefix.clone();
            move |(path, _)| path.starts_with(&prefix)
        });
        below.filter_map(move |(path, _)| {
            path.get(prefix.len()..).filter(|name| !name.is_empty() && !name.contains(&b'/'))
        })
    }

    /// Every path with its line.
    pub(super) fn lines(&self) -> impl Iterator<Item = (&[u8], &Line)> {
        self.lines.iter().map(|(path, line)| (path.as_slice(), line))
    }
}

fn parse_line(words: &[&[u8]], number: usize) -> Result<(Vec<u8>, Line), String> {
    let [path, kind, mode, uid, gid, more @ ..] = words else {
        return Err("a line has PATH TYPE MODE UID GID, and more for links and devices".to_owned());
    };
    let path = parse_path(path)?;
    let kind = match *kind {
        b"-" => None,
        [letter] => Some(kind_of(*letter).ok_or("TYPE is one of f, d, l, c, b, p, s and -")?),
        _ => return Err("TYPE is one letter".to_owned()),
    };
    let mut line = Line {
        number,
        kind,
        permissions: optional(mode, 8)?
            .map(|mode| u16::try_from(mode).ok().filter(|mode| *mode <= 0o7777))
            .map(|mode| mode.ok_or("MODE is at most 7777"))
            .transpose()?,
        uid: optional(uid, 10)?,
        gid: optional(gid, 10)?,
        ..Line::default()
    };
    match (kind, more) {
        (Some(FileType::Symlink), [target]) => line.target = unescape(target)?,
        (Some(FileType::Symlink), _) => return Err("a symbolic link has one TARGET".to_owned()),
        (Some(FileType::CharDevice | FileType::BlockDevice), [major, minor]) => {
            line.device = (required(major)?, required(minor)?);
        }
        (Some(FileType::CharDevice | FileType::BlockDevice), _) => {
            return Err("a device has MAJOR and MINOR".to_owned());
        }
        (_, []) => {}
        _ => return Err("the line has too many words".to_owned()),
    }
    Ok((path, line))
}

fn kind_of(letter: u8) -> Option<FileType> {
    use FileType::{BlockDevice, CharDevice, Directory, Fifo, Regular, Socket, Symlink};
    let kinds = [Regular, Directory, Symlink, CharDevice, BlockDevice, Fifo, Socket];
    kinds.into_iter().find(|kind| kind.letter() == char::from(letter))
}

/// An absolute, normalised path, or `*`.
fn parse_path(word: &[u8]) -> Result<Vec<u8>, String> {
    let path = unescape(word)?;
    if path == b"*" || path == b"/" {
        return Ok(path);
    }
    let names = path.strip_prefix(b"/").ok_or("PATH begins with a slash")?;
    let plain = |name: &[u8]| !matches!(name, b"" | b"." | b"..") && name.len() <= 255 && !name.contains(&0);
    if names.split(|byte| *byte == b'/').all(plain) {
        Ok(path)
    } else {
        Err("PATH has an invalid name".to_owned())
    }
}

fn number_of(word: &[u8], radix: u32) -> Result<u32, String> {
    let text = str::from_utf8(word).unwrap_or("");
    u32::from_str_radix(text, radix).map_err(|_| format!("{} is no number", String::from_utf8_lossy(word)))
}

fn optional(word: &[u8], radix: u32) -> Result<Option<u32>, String> {
    if word == b"-" { Ok(None) } else { number_of(word, radix).map(Some) }
}

fn required(word: &[u8]) -> Result<u32, String> {
    number_of(word, 10)
}

/// Decodes `\040` and other octal escapes.
fn unescape(word: &[u8]) -> Result<Vec<u8>, String> {
    let mut parts = word.split(|byte| *byte == b'\\');
    let mut out = parts.next().unwrap_or_default().to_vec();
    for part in parts {
        let digits = part.get(..3).ok_or("a \\ is followed by three octal digits")?;
        let byte = number_of(digits, 8)?;
        out.push(u8::try_from(byte).map_err(|_| "a \\ is followed by at most 377")?);
        out.extend_from_slice(&part[3..]);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Manifest {
        Manifest::parse(text.as_bytes(), "m").unwrap_or_else(|problem| panic!("{problem:?}"))
    }

    #[test]
    fn lines_describe_entries_and_a_star_all_others() {
        let manifest = parse("# what\n\n/dev/tty c 620 0 5 5 0\n/a\\040b l - - - /x\n* - - 0 0\n");
        let tty = manifest.of(b"/dev/tty");
        assert_eq!((tty.kind, tty.permissions, tty.gid), (Some(FileType::CharDevice), Some(0o620), Some(5)));
        assert_eq!((tty.device, tty.number), ((5, 0), 3));
        assert_eq!(manifest.of(b"/a b").target, b"/x");
        let other = manifest.of(b"/other");
        assert_eq!((other.kind, other.permissions, other.uid), (None, None, Some(0)));
    }

    #[test]
    fn names_are_listed_by_directory() {
        let manifest = parse("/a d 755 0 0\n/a/b f 644 0 0\n/a/b/c p 644 0 0\n/ab s 600 0 0\n");
        let names = |path: &str| manifest.names_in(path.as_bytes()).map(<[u8]>::to_vec).collect::<Vec<_>>();
        assert_eq!(names("/"), [b"a".to_vec(), b"ab".to_vec()]);
        assert_eq!(names("/a"), [b"b"]);
        assert_eq!(names("/a/b"), [b"c"]);
        assert_eq!(manifest.lines().count(), 4);
    }

    #[test]
    fn malformed_lines_are_refused_by_number() {
        for wrong in [
            "x",
            "a f 644 0 0",
            "/a x 644 0 0",
            "/a f 9 0 0",
            "/a f 17777 0 0",
            "/a f 644 root 0",
            "/a f 644 0 0 1",
            "/a l 777 0 0",
            "/a c 600 0 0 5",
            "/../a f 644 0 0",
            "/a//b f 644 0 0",
            "/a\\9 f 644 0 0",
            "/a\\777 f 644 0 0",
            "/a f 644 0 0\n/a f 644 0 0",
        ] {
            assert!(Manifest::parse(wrong.as_bytes(), "m").is_err(), "{wrong}");
        }
    }
}
