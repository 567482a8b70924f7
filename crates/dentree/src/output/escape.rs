//! Escaping of names, which are arbitrary bytes.

use std::borrow::Cow;
use std::fmt::Write;

/// A name for a terminal: control, invisible and reordering characters as `\n`, `\x1b` or
/// `\u{202e}`, bytes that are not UTF-8 as `\xff`, a backslash doubled.
pub(crate) fn terminal(name: &[u8]) -> Cow<'_, str> {
    escape(name, |c| match c {
        '\\' => true,
        ' '..='~' => false,
        // `escape_debug` escapes characters that are not printable.
        _ => c.is_ascii() || c.escape_debug().len() != 1,
    })
}

/// A name for a field of `dentree checksum`: control bytes and bytes that are not UTF-8 as `\xff`,
/// a backslash doubled, the same on every machine.
pub(crate) fn field(name: &[u8]) -> Cow<'_, str> {
    escape(name, |c| c == '\\' || c.is_ascii_control())
}

fn escape(name: &[u8], must: impl Fn(char) -> bool) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(name)
        && !text.chars().any(&must)
    {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(name.len() + 16);
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                c if !must(c) => out.push(c),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\t' => out.push_str("\\t"),
                '\r' => out.push_str("\\r"),
                c if c.is_ascii() => push_hex(&mut out, c as u8),
                c => out.extend(c.escape_unicode()),
            }
        }
        chunk.invalid().iter().for_each(|&byte| push_hex(&mut out, byte));
    }
    Cow::Owned(out)
}

fn push_hex(out: &mut String, byte: u8) {
    let _ = write!(out, "\\x{byte:02x}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_names_are_shown_as_they_are() {
        for name in ["a file", "Ünïcödé", "日本"] {
            assert_eq!(terminal(name.as_bytes()), name);
            assert_eq!(field(name.as_bytes()), name);
        }
    }

    #[test]
    fn a_terminal_gets_no_control_character_and_no_reordering() {
        assert_eq!(terminal(b"a\x1b[2Jb\n\xff\\"), "a\\x1b[2Jb\\n\\xff\\\\");
        assert_eq!(terminal("x\u{202e}y\u{85}".as_bytes()), "x\\u{202e}y\\u{85}");
    }

    #[test]
    fn a_field_holds_no_tab_and_no_newline() {
        assert_eq!(field(b"a\tb\nc\x7f"), "a\\tb\\nc\\x7f");
    }

    #[test]
    fn escaped_names_differ_where_names_differ() {
        assert_ne!(field(b"a\\n"), field(b"a\n"));
        assert_ne!(field(b"\\xff"), field(b"\xff"));
    }
}
