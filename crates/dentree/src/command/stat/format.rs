//! Formats of stat(1): text with `%` sequences.

use std::io::{self, Write};

/// A format: text and fields.
#[derive(Debug)]
pub(super) struct Format {
    pieces: Vec<Piece>,
}

#[derive(PartialEq, Eq, Debug)]
enum Piece {
    Text(Vec<u8>),
    Field(Spec, Sequence),
}

/// The letter of a sequence, with `H` or `L` before it for the parts of a device number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sequence {
    pub(super) part: Option<u8>,
    pub(super) letter: u8,
}

/// Flags, width and precision as of printf(3).
#[derive(Clone, Default, PartialEq, Eq, Debug)]
struct Spec {
    flags: Vec<u8>,
    width: usize,
    precision: Option<usize>,
}

/// The value of a sequence.
pub(super) enum Value {
    Text(Vec<u8>),
    Decimal(u64),
    Octal(u64),
    Hex(u64),
    /// Seconds, and the nanoseconds after them; shown with as many digits as the precision says.
    Seconds(i64, u32),
}

/// The widest field, so that a format cannot ask for all memory.
const MAX_WIDTH: usize = 1 << 16;

impl Format {
    /// Reads a format; with `escapes` as `--printf` has it, else with a newline at its end.
    pub(super) fn parse(text: &[u8], escapes: bool) -> Format {
        let mut pieces = Vec::new();
        let mut plain = Vec::new();
        let mut rest = text;
        while let Some((&byte, behind)) = rest.split_first() {
            rest = behind;
            match byte {
                b'%' => match field(rest) {
                    Some((_, Sequence { letter: b'%', .. }, behind)) => {
                        plain.push(b'%');
                        rest = behind;
                    }
                    Some((spec, sequence, behind)) => {
                        pieces.push(Piece::Text(std::mem::take(&mut plain)));
                        pieces.push(Piece::Field(spec, sequence));
                        rest = behind;
                    }
                    None => plain.push(b'%'),
                },
                b'\\' if escapes => rest = escape(rest, &mut plain),
                byte => plain.push(byte),
            }
        }
        if !escapes {
            plain.push(b'\n');
        }
        pieces.push(Piece::Text(plain));
        Format { pieces }
    }

    /// Writes it with the values of `value`; `?` for sequences that have none.
    pub(super) fn write(
        &self,
        out: &mut impl Write,
        mut value: impl FnMut(Sequence) -> Option<Value>,
    ) -> io::Result<()> {
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => out.write_all(text)?,
                Piece::Field(spec, sequence) => {
                    let value = value(*sequence).unwrap_or(Value::Text(b"?".to_vec()));
                    out.write_all(&spec.show(value))?;
                }
            }
        }
        Ok(())
    }
}

/// Flags, width, precision and letters, and what follows them.
fn field(text: &[u8]) -> Option<(Spec, Sequence, &[u8])> {
    let flags = text.iter().take_while(|byte| b"'-+ #0I".contains(byte)).count();
    let (flags, rest) = text.split_at(flags);
    let (width, mut rest) = number(rest);
    let mut precision = None;
    if let Some(behind) = rest.strip_prefix(b".") {
        let (digits, behind_digits) = number(behind);
        // Without digits a time has all nine of them.
        precision = Some(if behind_digits.len() == behind.len() { 9 } else { digits });
        rest = behind_digits;
    }
    let (&letter, behind) = rest.split_first()?;
    let (part, letter, behind) = match (letter, behind.split_first()) {
        (b'H' | b'L', Some((&next @ (b'd' | b'r'), behind))) => (Some(letter), next, behind),
        _ => (None, letter, behind),
    };
    Some((Spec { flags: flags.to_vec(), width, precision }, Sequence { part, letter }, behind))
}

fn number(text: &[u8]) -> (usize, &[u8]) {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let value = text[..digits]
        .iter()
        .fold(0_usize, |value, digit| (10 * value + usize::from(digit - b'0')).min(MAX_WIDTH));
    (value, &text[digits..])
}

/// Takes one escape of printf(1); returns what follows it.
fn escape<'t>(text: &'t [u8], out: &mut Vec<u8>) -> &'t [u8] {
    let Some((&byte, behind)) = text.split_first() else {
        out.push(b'\\');
        return text;
    };
    let digits = |from: &[u8], most: usize, radix: u32| {
        let is_digit = |byte: &&u8| char::from(**byte).is_digit(radix);
        from.iter().take(most).take_while(is_digit).count()
    };
    let value = |digits: &[u8], radix: u32| {
        let digit = |byte: &u8| char::from(*byte).to_digit(radix).unwrap_or(0);
        digits.iter().fold(0_u32, |value, byte| value * radix + digit(byte)) as u8
    };
    match byte {
        b'0'..=b'7' => {
            let count = digits(text, 3, 8);
            out.push(value(&text[..count], 8));
            return &text[count..];
        }
        b'x' if digits(behind, 1, 16) > 0 => {
            let count = digits(behind, 2, 16);
            out.push(value(&behind[..count], 16));
            return &behind[count..];
        }
        b'a' => out.push(7),
        b'b' => out.push(8),
        b'e' => out.push(0x1b),
        b'f' => out.push(12),
        b'n' => out.push(b'\n'),
        b'r' => out.push(b'\r'),
        b't' => out.push(b'\t'),
        b'v' => out.push(11),
        other => out.push(other),
    }
    behind
}

impl Spec {
    fn has(&self, flag: u8) -> bool {
        self.flags.contains(&flag)
    }

    fn show(&self, value: Value) -> Vec<u8> {
        let number = |digits: String, prefix: &str| {
            let least = self.precision.unwrap_or(1);
            let prefix = if self.has(b'#') { prefix } else { "" };
            (prefix.to_owned(), format!("{digits:0>least$}"))
        };
        let (sign, digits) = match value {
            Value::Text(mut text) => {
                text.truncate(self.precision.unwrap_or(usize::MAX));
                return self.pad(text);
            }
            Value::Decimal(value) => number(value.to_string(), ""),
            Value::Octal(value) => number(format!("{value:o}"), if value == 0 { "" } else { "0" }),
            Value::Hex(value) => number(format!("{value:x}"), if value == 0 { "" } else { "0x" }),
            Value::Seconds(seconds, nanos) => self.seconds(seconds, nanos),
        };
        let is_filled = self.has(b'0') && !self.has(b'-');
        let width = if is_filled { self.width.saturating_sub(sign.len()) } else { 0 };
        self.pad(format!("{sign}{digits:0>width$}").into_bytes())
    }

    /// Sign and digits, with as many decimals as the precision says.
    fn seconds(&self, seconds: i64, nanos: u32) -> (String, String) {
        let decimals = self.precision.unwrap_or(0);
        let before = seconds < 0 && nanos > 0 && decimals > 0;
        let (whole, nanos) = if before { (seconds + 1, 1_000_000_000 - nanos) } else { (seconds, nanos) };
        let sign = match seconds {
            ..0 => "-",
            _ if self.has(b'+') => "+",
            _ if self.has(b' ') => " ",
            _ => "",
        };
        let mut digits = whole.unsigned_abs().to_string();
        if decimals > 0 {
            let mut fraction = format!("{nanos:09}");
            fraction.truncate(decimals);
            digits += &format!(".{fraction:0<decimals$}");
        }
        (sign.to_owned(), digits)
    }

    fn pad(&self, mut text: Vec<u8>) -> Vec<u8> {
        let missing = self.width.saturating_sub(text.len());
        if self.has(b'-') {
            text.resize(text.len() + missing, b' ');
        } else {
            text.splice(0..0, std::iter::repeat_n(b' ', missing));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(format: &str, escapes: bool) -> String {
        let mut out = Vec::new();
        let value = |sequence: Sequence| match (sequence.part, sequence.letter) {
            (Some(b'H'), b'r') => Some(Value::Decimal(8)),
            (None, b'a') => Some(Value::Octal(0o644)),
            (None, b'f') => Some(Value::Hex(0x81a4)),
            (None, b's') => Some(Value::Decimal(1234)),
            (None, b'n') => Some(Value::Text(b"name".to_vec())),
            (None, b'Y') => Some(Value::Seconds(-2, 500_000_000)),
            _ => None,
        };
        Format::parse(format.as_bytes(), escapes).write(&mut out, value).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn sequences_have_flags_width_and_precision() {
        assert_eq!(
            shown("%a|%04a|%#a|%#f|%-8s|%8s|%08s", false),
            "644|0644|0644|0x81a4|1234    |    1234|00001234\n"
        );
        assert_eq!(shown("%n|%6n|%-6n|%.2n|%Hr|%%|%q|%", false), "name|  name|name  |na|8|%|?|%\n");
        assert_eq!(shown("%Y|%.3Y|%.Y", false), "-2|-1.500|-1.500000000\n");
    }

    #[test]
    fn printf_has_escapes_and_no_newline() {
        assert_eq!(shown(r"%s\t\x41\101\n\\", true), "1234\tAA\n\\");
        assert_eq!(shown(r"%s\t", false), "1234\\t\n");
        assert_eq!(shown(r"\", true), "\\");
    }

    #[test]
    fn a_width_cannot_ask_for_all_memory() {
        assert_eq!(shown("%99999999999999999999s", true).len(), MAX_WIDTH);
    }
}
