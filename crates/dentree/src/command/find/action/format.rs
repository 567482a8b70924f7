//! `-printf`: formats of directives and escapes.

use super::super::candidate::Candidate;
use crate::output::Names;
use crate::output::attributes::{Clock, epoch, mode};
use dentree_find::{Cost, FILE_SYSTEM, Owners, TimeField};
use dentree_vfs::{Error, FileType, Timestamp};
use std::sync::Arc;

/// The widest field, in bytes: what a format can ask for stays in memory.
const WIDEST: usize = 1 << 16;

pub(in super::super) struct Format {
    pieces: Vec<Piece>,
    owners: Arc<Owners>,
    clock: Clock,
}

enum Piece {
    Text(Vec<u8>),
    Field { what: What, layout: Layout },
}

/// Flags, width and precision of a directive.
#[derive(Clone, Copy, Default)]
struct Layout {
    left: bool,
    zero: bool,
    sign: Option<u8>,
    alternate: bool,
    width: usize,
    precision: Option<usize>,
}

enum What {
    Path,
    Name,
    Directory,
    Start,
    BelowStart,
    Depth,
    Size,
    Blocks512,
    Blocks1024,
    Inode,
    Octal,
    Mode,
    Links,
    User,
    Uid,
    Group,
    Gid,
    LinkText,
    Type,
    OtherType,
    FileSystem,
    Device,
    Sparseness,
    Context,
    Time(TimeField, TimeStyle),
}

/// How a time is shown.
enum TimeStyle {
    /// Seconds since 1970, with their fraction.
    Seconds,
    /// What comes before the fraction of a second, whether there is one, and what comes behind.
    Pattern(&'static str, bool, &'static str),
}

/// A field that numbers can be laid out in, or one of text.
enum Value {
    Text(Vec<u8>),
    Decimal(u64),
    Octal(u64),
}

impl Format {
    /// Reads a format; a `\c` ends it.
    pub(in super::super) fn parse(text: &[u8], owners: Arc<Owners>) -> Result<Format, String> {
        let mut pieces = Vec::new();
        let mut literal = Vec::new();
        let mut rest = text;
        while let Some((&byte, behind)) = rest.split_first() {
            rest = behind;
            match byte {
                b'\\' => match escape(behind, &mut literal) {
                    Some(behind) => rest = behind,
                    None => break,
                },
                b'%' if behind.first() == Some(&b'%') => {
                    literal.push(b'%');
                    rest = &behind[1..];
                }
                b'%' => {
                    let (piece, behind) = directive(behind)?;
                    pieces.extend([Piece::Text(std::mem::take(&mut literal)), piece]);
                    rest = behind;
                }
                _ => literal.push(byte),
            }
        }
        pieces.push(Piece::Text(literal));
        pieces.retain(|piece| !matches!(piece, Piece::Text(text) if text.is_empty()));
        Ok(Format { pieces, owners, clock: Clock::local() })
    }

    pub(super) fn cost(&self) -> Cost {
        let costs = self.pieces.iter().map(|piece| match piece {
            Piece::Text(_) => Cost::Name,
            Piece::Field { what, .. } => what.cost(),
        });
        costs.max().unwrap_or(Cost::Name)
    }

    pub(super) fn print(&self, file: &Candidate<'_>, names: Names, out: &mut Vec<u8>) -> Option<()> {
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => out.extend_from_slice(text),
                Piece::Field { what, layout } => layout.print(self.value(what, file, names)?, out),
            }
        }
        Some(())
    }

    fn value(&self, what: &What, file: &Candidate<'_>, names: Names) -> Option<Value> {
        let text = |text: &[u8]| Value::Text(names.show(text).into_owned());
        let number = |number: u64| Value::Text(number.to_string().into_bytes());
        Some(match what {
            What::Path => text(&file.shown()),
            What::Name => text(file.name()),
            What::Directory => text(directory(&file.shown())),
            What::Start => text(&[file.prefix, file.at.start].concat()),
            What::BelowStart => {
                let below = file.path().strip_prefix(file.at.start).unwrap_or_default();
                text(below.strip_prefix(b"/").unwrap_or(below))
            }
            What::Depth => Value::Decimal(file.at.depth.into()),
            What::Inode => number(file.ino()?.0),
            What::LinkText => text(&file.link_text()?),
            What::Type => Value::Text(vec![file.kind()?.letter() as u8]),
            What::OtherType => Value::Text(vec![other_type(file)?]),
            What::FileSystem => Value::Text(FILE_SYSTEM.into()),
            What::Device => number(0),
            What::Context => text(&file.context()?),
            _ => self.of_inode(what, file)?,
        })
    }

    fn of_inode(&self, what: &What, file: &Candidate<'_>) -> Option<Value> {
        let attr = file.attr()?;
        let owner = |name: Option<&str>, id: u32| name.map_or_else(|| id.to_string(), str::to_owned);
        let text = match what {
            What::Octal => return Some(Value::Octal(attr.permissions.into())),
            What::Size => attr.size.to_string(),
            What::Blocks512 => attr.blocks.to_string(),
            What::Blocks1024 => attr.blocks.div_ceil(2).to_string(),
            What::Mode => mode(attr).chars().take(10).collect(),
            What::Links => attr.nlink.to_string(),
            What::User => owner(self.owners.user(attr.uid), attr.uid),
            What::Uid => attr.uid.to_string(),
            What::Group => owner(self.owners.group(attr.gid), attr.gid),
            What::Gid => attr.gid.to_string(),
            What::Sparseness => sparseness(attr.blocks, attr.size),
            What::Time(field, style) => field.of(attr).map_or(String::new(), |time| self.time(time, style)),
            _ => String::new(),
        };
        Some(Value::Text(text.into_bytes()))
    }

    fn time(&self, time: Timestamp, style: &TimeStyle) -> String {
        match style {
            TimeStyle::Seconds => epoch(time) + "0",
            TimeStyle::Pattern(before, fraction, behind) => {
                let fraction = if *fraction { format!(".{:09}0", time.nanos) } else { String::new() };
                let mut shown = self.clock.format(time, before) + &fraction;
                if !behind.is_empty() {
                    shown += &self.clock.format(time, behind);
                }
                shown
            }
        }
    }
}

/// What comes before the last slash.
fn directory(path: &[u8]) -> &[u8] {
    path.iter().rposition(|byte| *byte == b'/').map_or(b".", |slash| &path[..slash])
}

/// As C's `%g` of the quotient.
fn sparseness(blocks: u64, size: u64) -> String {
    let value = match size {
        0 if blocks == 0 => 1.0,
        0 => return "inf".to_owned(),
        size => blocks as f64 * 512.0 / size as f64,
    };
    let trimmed = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    let scientific = format!("{value:.5e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    match usize::try_from(5 - exponent) {
        Ok(decimals) if exponent >= -4 => trimmed(&format!("{value:.decimals$}")),
        _ => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{}e{sign}{:02}", trimmed(digits), exponent.unsigned_abs())
        }
    }
}

/// `N` for a link to nothing, `L` for one in a loop, `?` for other errors.
fn other_type(file: &Candidate<'_>) -> Option<u8> {
    if file.kind()? != FileType::Symlink {
        return Some(file.kind()?.letter() as u8);
    }
    Some(match file.other_kind()? {
        Ok(_) if file.at.follows => b'N',
        Ok(kind) => kind.letter() as u8,
        Err(Error::NotFound | Error::NotADirectory) => b'N',
        Err(Error::Loop) => b'L',
        Err(_) => b'?',
    })
}

impl What {
    fn cost(&self) -> Cost {
        match self {
            What::Path
            | What::Name
            | What::Directory
            | What::Start
            | What::BelowStart
            | What::Depth
            | What::FileSystem
            | What::Device => Cost::Name,
            What::Inode | What::Type => Cost::Entry,
            What::LinkText | What::OtherType | What::Context => Cost::More,
            _ => Cost::Inode,
        }
    }

    fn parse(letter: u8) -> Option<What> {
        Some(match letter {
            b'p' => What::Path,
            b'f' => What::Name,
            b'h' => What::Directory,
            b'H' => What::Start,
            b'P' => What::BelowStart,
            b'd' => What::Depth,
            b's' => What::Size,
            b'b' => What::Blocks512,
            b'k' => What::Blocks1024,
            b'i' => What::Inode,
            b'm' => What::Octal,
            b'M' => What::Mode,
            b'n' => What::Links,
            b'u' => What::User,
            b'U' => What::Uid,
            b'g' => What::Group,
            b'G' => What::Gid,
            b'l' => What::LinkText,
            b'y' => What::Type,
            b'Y' => What::OtherType,
            b'F' => What::FileSystem,
            b'D' => What::Device,
            b'S' => What::Sparseness,
            b'Z' => What::Context,
            b'a' => What::Time(TimeField::Access, TimeStyle::CTIME),
            b'c' => What::Time(TimeField::Change, TimeStyle::CTIME),
            b't' => What::Time(TimeField::Modification, TimeStyle::CTIME),
            _ => return None,
        })
    }
}

impl TimeStyle {
    const CTIME: TimeStyle = TimeStyle::Pattern("%a %b %e %H:%M:%S", true, " %Y");

    /// The letter of `%Tk`.
    fn parse(letter: u8) -> Option<TimeStyle> {
        let (before, fraction, behind) = match letter {
            b'@' => return Some(TimeStyle::Seconds),
            b'c' => ("%a %b %e %H:%M:%S %Y", false, ""),
            b'+' => ("%Y-%m-%d+%H:%M:%S", true, ""),
            b'S' => ("%S", true, ""),
            b'T' | b'X' => ("%H:%M:%S", true, ""),
            b'r' => ("%I:%M:%S %p", false, ""),
            b'x' | b'D' => ("%m/%d/%y", false, ""),
            b'F' => ("%Y-%m-%d", false, ""),
            b'R' => ("%H:%M", false, ""),
            _ => (Self::same(letter)?, false, ""),
        };
        Some(TimeStyle::Pattern(before, fraction, behind))
    }

    /// The letters that strftime(3) knows by the same meaning.
    fn same(letter: u8) -> Option<&'static str> {
        const SAME: [&str; 29] = [
            "%a", "%A", "%b", "%B", "%C", "%d", "%e", "%g", "%G", "%h", "%H", "%I", "%j", "%k", "%l", "%m",
            "%M", "%p", "%P", "%s", "%u", "%U", "%V", "%w", "%W", "%y", "%Y", "%z", "%Z",
        ];
        SAME.into_iter().find(|pattern| pattern.as_bytes()[1] == letter)
    }
}

impl Layout {
    fn print(&self, value: Value, out: &mut Vec<u8>) {
        let (text, is_number) = match value {
            Value::Text(mut text) => {
                text.truncate(self.precision.unwrap_or(usize::MAX));
                (text, false)
            }
            Value::Decimal(number) => {
                let digits = format!("{number:0>0$}", self.precision.unwrap_or(1));
                let sign = self.sign.map_or(String::new(), |sign| char::from(sign).to_string());
                ((sign + &digits).into_bytes(), true)
            }
            Value::Octal(number) => {
                let digits = format!("{:0>1$}", format!("{number:o}"), self.precision.unwrap_or(1));
                let zero = if self.alternate && !digits.starts_with('0') { "0" } else { "" };
                ((zero.to_owned() + &digits).into_bytes(), true)
            }
        };
        let pad = self.width.saturating_sub(text.len());
        if self.left {
            out.extend(text);
            out.extend(std::iter::repeat_n(b' ', pad));
        } else if self.zero && is_number && self.precision.is_none() {
            let signs = text.iter().take_while(|byte| !byte.is_ascii_digit()).count();
            out.extend(&text[..signs]);
            out.extend(std::iter::repeat_n(b'0', pad));
            out.extend(&text[signs..]);
        } else {
            out.extend(std::iter::repeat_n(b' ', pad));
            out.extend(text);
        }
    }
}

/// The directive after a `%`, and what is behind it.
fn directive(text: &[u8]) -> Result<(Piece, &[u8]), String> {
    let mut layout = Layout::default();
    let mut rest = text;
    while let Some((flag, behind)) = rest.split_first() {
        match flag {
            b'-' => layout.left = true,
            b'0' => layout.zero = true,
            b'#' => layout.alternate = true,
            b'+' => layout.sign = Some(b'+'),
            b' ' => layout.sign = layout.sign.or(Some(b' ')),
            _ => break,
        }
        rest = behind;
    }
    let width = number(&mut rest)?;
    layout.width = width.unwrap_or(0);
    if let Some(behind) = rest.strip_prefix(b".") {
        rest = behind;
        layout.precision = Some(number(&mut rest)?.unwrap_or(0));
    }
    let Some((&letter, behind)) = rest.split_first() else {
        return Err("a format of -printf ends in the middle of a directive".to_owned());
    };
    let field = match letter {
        b'A' => Some(TimeField::Access),
        b'B' => Some(TimeField::Birth),
        b'C' => Some(TimeField::Change),
        b'T' => Some(TimeField::Modification),
        _ => None,
    };
    let (what, behind) = match (field, behind.split_first()) {
        (Some(field), Some((&letter, behind))) => {
            (TimeStyle::parse(letter).map(|style| What::Time(field, style)), behind)
        }
        _ => (What::parse(letter), behind),
    };
    let unknown = || {
        let shown = String::from_utf8_lossy(&text[..text.len() - behind.len()]);
        format!("'%{shown}' is no directive of -printf")
    };
    Ok((Piece::Field { what: what.ok_or_else(unknown)?, layout }, behind))
}

/// The decimal number at the beginning, which is taken away.
fn number(rest: &mut &[u8]) -> Result<Option<usize>, String> {
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (text, behind) = rest.split_at(digits);
    *rest = behind;
    if digits == 0 {
        return Ok(None);
    }
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    match number.filter(|number| *number <= WIDEST) {
        Some(number) => Ok(Some(number)),
        None => Err(format!("a field of -printf is wider than {WIDEST}")),
    }
}

/// Pushes what the escape after a `\` means, and returns what is behind it; `None` for `\c`.
fn escape<'t>(text: &'t [u8], out: &mut Vec<u8>) -> Option<&'t [u8]> {
    let Some((&letter, behind)) = text.split_first() else {
        out.push(b'\\');
        return Some(text);
    };
    let byte = match letter {
        b'a' => 7,
        b'b' => 8,
        b'c' => return None,
        b'f' => 12,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'v' => 11,
        b'\\' => b'\\',
        b'0'..=b'7' => {
            let digits = text.iter().take(3).take_while(|byte| (b'0'..=b'7').contains(byte)).count();
            let value = text[..digits].iter().fold(0_u32, |value, digit| value * 8 + u32::from(digit - b'0'));
            out.push(value as u8);
            return Some(&text[digits..]);
        }
        _ => {
            out.push(b'\\');
            letter
        }
    };
    out.push(byte);
    Some(behind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sparseness_is_printed_like_a_double_of_c() {
        let shown = |blocks, size| sparseness(blocks, size);
        assert_eq!([shown(8, 4096), shown(8, 20), shown(0, 9), shown(0, 0)], ["1", "204.8", "0", "1"]);
        assert_eq!(
            [shown(8, 1 << 40), shown(8, 3), shown(80_000_000, 1)],
            ["3.72529e-09", "1365.33", "4.096e+10"]
        );
    }

    #[test]
    fn escapes_are_those_of_find() {
        let mut out = Vec::new();
        let mut rest = &b"n\\t\\101\\0\\\\"[..];
        rest = escape(rest, &mut out).unwrap();
        while let Some(behind) = rest.strip_prefix(b"\\") {
            rest = escape(behind, &mut out).unwrap();
        }
        assert_eq!(out, b"\n\tA\0\\");
        assert!(escape(b"cx", &mut out).is_none());
    }

    #[test]
    fn numbers_take_flags_and_text_takes_a_width() {
        let laid_out = |format: &[u8], value| {
            let (Piece::Field { layout, .. }, _) = directive(format).unwrap() else { panic!() };
            let mut out = Vec::new();
            layout.print(value, &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(laid_out(b"05d", Value::Decimal(2)), "00002");
        assert_eq!(laid_out(b"+d", Value::Decimal(2)), "+2");
        assert_eq!(laid_out(b".3d", Value::Decimal(2)), "002");
        assert_eq!(laid_out(b"-5d", Value::Decimal(2)), "2    ");
        assert_eq!(laid_out(b"#m", Value::Octal(0o755)), "0755");
        assert_eq!(laid_out(b"06s", Value::Text(b"0".to_vec())), "     0");
        assert_eq!(laid_out(b".2p", Value::Text(b"abc".to_vec())), "ab");
        assert!(directive(b"99999999s").is_err() && directive(b"5").is_err());
    }
}
