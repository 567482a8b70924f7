//! Names in the quoting styles of coreutils.

use clap::ValueEnum;
use std::borrow::Cow;
use std::fmt::Write;

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Quoting {
    /// As it is.
    Literal,
    /// Quoted for a shell where needed.
    Shell,
    /// Quoted for a shell.
    ShellAlways,
    /// Quoted for a shell where needed, with `$'\n'` for what cannot be shown.
    ShellEscape,
    /// The same, always quoted.
    ShellEscapeAlways,
    /// As a string of C, in double quotes.
    #[value(alias = "c-maybe")]
    C,
    /// As in C, without quotes.
    Escape,
    /// As in C, in single quotes.
    #[value(alias = "clocale")]
    Locale,
}

impl Quoting {
    pub(crate) fn quote(self, name: &[u8]) -> Cow<'_, [u8]> {
        match self {
            Quoting::Literal => Cow::Borrowed(name),
            Quoting::C => Cow::Owned(escaped(name, Some(b'"'))),
            Quoting::Locale => Cow::Owned(escaped(name, Some(b'\''))),
            Quoting::Escape => Cow::Owned(escaped(name, None)),
            Quoting::Shell | Quoting::ShellEscape if !needs_quotes(name, self.escapes()) => {
                Cow::Borrowed(name)
            }
            _ => Cow::Owned(shell(name, self.escapes())),
        }
    }

    fn escapes(self) -> bool {
        matches!(self, Quoting::ShellEscape | Quoting::ShellEscapeAlways)
    }

    /// Whether only some names get quotes, so that others are indented by a column.
    pub(crate) fn varies(self) -> bool {
        matches!(self, Quoting::Shell | Quoting::ShellEscape)
    }
}

/// `?` for each character that cannot be shown.
pub(crate) fn hidden(name: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len());
    for piece in pieces(name) {
        match piece {
            Piece::Shown(text) => out.extend_from_slice(text.as_bytes()),
            Piece::Raw(_) => out.push(b'?'),
        }
    }
    out
}

/// A character that can be shown, or the bytes of one that cannot.
enum Piece<'a> {
    Shown(&'a str),
    Raw(&'a [u8]),
}

fn pieces(name: &[u8]) -> impl Iterator<Item = Piece<'_>> {
    name.utf8_chunks().flat_map(|chunk| {
        let (valid, invalid) = (chunk.valid(), chunk.invalid());
        let shown = valid.char_indices().map(move |(at, c)| {
            let text = &valid[at..at + c.len_utf8()];
            // `escape_debug` escapes characters that are not printable.
            let plain = matches!(c, '\\' | '"' | '\'') || c.escape_debug().len() == 1;
            if plain { Piece::Shown(text) } else { Piece::Raw(text.as_bytes()) }
        });
        shown.chain(invalid.chunks(1).map(Piece::Raw))
    })
}

fn push_escaped(out: &mut Vec<u8>, bytes: &[u8]) {
    for byte in bytes {
        match byte {
            7 => out.extend_from_slice(br"\a"),
            8 => out.extend_from_slice(br"\b"),
            9 => out.extend_from_slice(br"\t"),
            10 => out.extend_from_slice(br"\n"),
            11 => out.extend_from_slice(br"\v"),
            12 => out.extend_from_slice(br"\f"),
            13 => out.extend_from_slice(br"\r"),
            byte => {
                let mut text = String::new();
                let _ = write!(text, "\\{byte:03o}");
                out.extend_from_slice(text.as_bytes());
            }
        }
    }
}

/// With the escapes of C, in `quotes`; without quotes spaces are escaped.
fn escaped(name: &[u8], quotes: Option<u8>) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len() + 2);
    out.extend(quotes);
    for piece in pieces(name) {
        match piece {
            Piece::Raw(bytes) => push_escaped(&mut out, bytes),
            Piece::Shown(text) => {
                let byte = text.as_bytes()[0];
                if byte == b'\\' || Some(byte) == quotes || (byte == b' ' && quotes.is_none()) {
                    out.push(b'\\');
                }
                out.extend_from_slice(text.as_bytes());
            }
        }
    }
    out.extend(quotes);
    out
}

/// Whether a shell reads `name` as something other than itself.
fn needs_quotes(name: &[u8], escapes: bool) -> bool {
    let special = name.iter().any(|byte| b" \t\n!\"$&'()*;<=>?[\\^`|".contains(byte));
    let alone = matches!(name, b"{" | b"}" | b"");
    let first = matches!(name.first(), Some(b'#' | b'~'));
    special || alone || first || (escapes && pieces(name).any(|piece| matches!(piece, Piece::Raw(_))))
}

/// Quoted for a shell: in double quotes where an apostrophe is all that is special.
fn shell(name: &[u8], escapes: bool) -> Vec<u8> {
    let all_shown = pieces(name).all(|piece| matches!(piece, Piece::Shown(_)));
    let has = |bytes: &[u8]| name.iter().any(|byte| bytes.contains(byte));
    if has(b"'") && !has(b"\"$`\\!") && all_shown {
        return [b"\"", name, b"\""].concat();
    }
    let (mut out, mut in_escapes) = (vec![b'\''], false);
    for piece in pieces(name) {
        let wants_escapes = escapes && matches!(piece, Piece::Raw(_));
        if wants_escapes != in_escapes {
            out.extend_from_slice(if wants_escapes { b"'$'" } else { b"''" });
            in_escapes = wants_escapes;
        }
        match piece {
            Piece::Shown("'") => out.extend_from_slice(br"'\''"),
            Piece::Shown(text) => out.extend_from_slice(text.as_bytes()),
            Piece::Raw(bytes) if escapes => push_escaped(&mut out, bytes),
            Piece::Raw(bytes) => out.extend_from_slice(bytes),
        }
    }
    out.push(b'\'');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(style: Quoting, name: &[u8]) -> String {
        String::from_utf8_lossy(&style.quote(name)).into_owned()
    }

    #[test]
    fn shells_read_back_what_was_quoted() {
        let quoted = |name: &str| shown(Quoting::ShellEscape, name.as_bytes());
        assert_eq!([quoted("plain"), quoted("a b"), quoted("it's")], ["plain", "'a b'", "\"it's\""]);
        assert_eq!([quoted("it's $x"), quoted("a\nb")], [r"'it'\''s $x'", r"'a'$'\n''b'"]);
        assert_eq!([quoted("\n\n"), quoted("#a"), quoted("a#")], [r"''$'\n\n'", "'#a'", "a#"]);
        assert_eq!(shown(Quoting::ShellAlways, b"a"), "'a'");
    }

    #[test]
    fn c_escapes_what_cannot_be_shown() {
        assert_eq!(shown(Quoting::C, b"a\"\\\t\xff"), r#""a\"\\\t\377""#);
        assert_eq!(shown(Quoting::Escape, "é b\x1b".as_bytes()), r"é\ b\033");
        assert_eq!(hidden(b"a\n\xffb"), b"a??b");
    }
}
