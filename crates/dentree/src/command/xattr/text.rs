//! The text form of attributes: that of getfattr(1) and setfattr(1).
//!
//! ```text
//! # file: etc/motd
//! user.comment="plain text"
//! user.raw=0sAP8=
//! ```
//!
//! A value is text in quotes, hexadecimal after `0x`, or Base64 after `0s`. In names, paths and
//! text a byte may be a backslash and three octal digits. An empty line ends a file.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use std::fmt::Write as _;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// The file of the following attributes.
    File(Vec<u8>),
    Attribute(Vec<u8>, Vec<u8>),
    Nothing,
}

/// A value as quoted text, or else in Base64.
pub(super) fn show_value(value: &[u8]) -> String {
    let text = std::str::from_utf8(value).ok().filter(|text| !text.chars().any(char::is_control));
    match text {
        Some(text) => format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")),
        None => format!("0s{}", BASE64.encode(value)),
    }
}

pub(super) fn show_name(name: &[u8], special: &[u8]) -> Vec<u8> {
    let mut shown = Vec::new();
    for &byte in name {
        if special.contains(&byte) || b"\\\n\r".contains(&byte) {
            let mut octal = String::new();
            let _ = write!(octal, "\\{byte:03o}");
            shown.extend_from_slice(octal.as_bytes());
        } else {
            shown.push(byte);
        }
    }
    shown
}

/// Parses a value; `None` where it is malformed.
pub(super) fn parse_value(text: &[u8]) -> Option<Vec<u8>> {
    match text {
        [b'0', b'x' | b'X', digits @ ..] => parse_hex(digits),
        [b'0', b's' | b'S', digits @ ..] => BASE64.decode(digits).ok(),
        [b'"', quoted @ .., b'"'] => Some(unescape(quoted)),
        _ => Some(unescape(text)),
    }
}

fn parse_hex(digits: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let digits = digits.iter().filter(|byte| **byte != b' ').map(digit).collect::<Option<Vec<u8>>>()?;
    let (pairs, rest) = digits.as_chunks::<2>();
    rest.is_empty().then(|| pairs.iter().map(|[high, low]| high << 4 | low).collect())
}

/// Decodes octal escapes; a backslash before anything else is dropped.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        match *rest {
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..] => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = &rest[3..];
            }
            [escaped, ..] => {
                bytes.push(escaped);
                rest = &rest[1..];
            }
            [] => bytes.push(b'\\'),
        }
    }
    bytes
}

/// Parses a line without its end; `None` where it is malformed.
pub(super) fn parse_line(line: &[u8]) -> Option<Line> {
    if let Some(path) = line.strip_prefix(b"# file: ") {
        return Some(Line::File(unescape(path)));
    }
    if line.is_empty() || line.starts_with(b"#") {
        return Some(Line::Nothing);
    }
    let equals = line.iter().position(|&byte| byte == b'=');
    let (name, value) = match equals {
        Some(at) => (&line[..at], parse_value(&line[at + 1..])?),
        None => (line, Vec::new()),
    };
    Some(Line::Attribute(unescape(name), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_quoted_and_bytes_are_base64() {
        assert_eq!(show_value(b"a \"b\\\""), r#""a \"b\\\"""#);
        assert_eq!(show_value(b"\x00\xff"), "0sAP8=");
        assert_eq!(show_value(b""), "\"\"");
    }

    #[test]
    fn values_are_read_in_each_of_their_forms() {
        for (text, value) in [
            (r#""a \"b\\\"""#, &b"a \"b\\\""[..]),
            ("0sAP8=", b"\x00\xff"),
            ("0x00fF", b"\x00\xff"),
            ("plain", b"plain"),
            (r#""\303\274""#, "ü".as_bytes()),
            ("\"\"", b""),
            ("", b""),
        ] {
            assert_eq!(parse_value(text.as_bytes()).as_deref(), Some(value), "{text}");
        }
        for wrong in ["0xabc", "0x0g", "0s!"] {
            assert_eq!(parse_value(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn every_value_and_name_comes_back() {
        for value in [&b"text"[..], b"\"", b"\\012", b"\n", b"\xff", b"0x12", b""] {
            assert_eq!(parse_value(show_value(value).as_bytes()).as_deref(), Some(value));
            let mut line = show_name(b"user.a=b\\\n", b"=");
            line.push(b'=');
            line.extend_from_slice(show_value(value).as_bytes());
            let read = Line::Attribute(b"user.a=b\\\n".to_vec(), value.to_vec());
            assert_eq!(parse_line(&line), Some(read));
        }
        let mut line = b"# file: ".to_vec();
        line.extend(show_name(b"a b\r\\=", b""));
        assert_eq!(parse_line(&line), Some(Line::File(b"a b\r\\=".to_vec())));
        assert_eq!(parse_line(b"# comment"), Some(Line::Nothing));
    }
}
