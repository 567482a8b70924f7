//! The conditions of `dentree find`, with the meaning of find(1).

use super::glob;
use crate::args::FindArgs;
use dentree_vfs::{Attr, FileType, Timestamp};
use regex::bytes::Regex;
use std::cmp::Ordering;
use std::os::unix::ffi::OsStrExt;

pub(crate) struct Filter {
    names: Vec<Regex>,
    kinds: Option<Vec<FileType>>,
    sizes: Vec<Size>,
    newer: Option<Timestamp>,
    ages: Vec<Number>,
    now: Timestamp,
}

impl Filter {
    pub(crate) fn new(args: &FindArgs, newer: Option<Timestamp>, now: Timestamp) -> Result<Self, String> {
        let exact = args.name.iter().map(|pattern| glob::compile(pattern.as_bytes(), false));
        let folded = args.iname.iter().map(|pattern| glob::compile(pattern.as_bytes(), true));
        Ok(Filter {
            names: exact.chain(folded).collect::<Result<_, _>>()?,
            kinds: args.kinds.as_deref().map(kinds).transpose()?,
            sizes: args.size.iter().map(|text| Size::parse(text)).collect::<Result<_, _>>()?,
            newer,
            ages: args.mtime.iter().map(|text| Number::parse(text)).collect::<Result<_, _>>()?,
            now,
        })
    }

    pub(crate) fn entry(&self, name: &[u8]) -> bool {
        self.names.iter().all(|regex| regex.is_match(name))
    }

    pub(crate) fn needs_kind(&self) -> bool {
        self.kinds.is_some()
    }

    pub(crate) fn kind(&self, kind: FileType) -> bool {
        self.kinds.as_ref().is_none_or(|kinds| kinds.contains(&kind))
    }

    /// Whether any condition needs [`attributes`](Filter::attributes).
    pub(crate) fn needs_attributes(&self) -> bool {
        !self.sizes.is_empty() || self.newer.is_some() || !self.ages.is_empty()
    }

    pub(crate) fn attributes(&self, attr: &Attr) -> bool {
        self.sizes.iter().all(|size| size.holds(attr.size))
            && self.newer.is_none_or(|newer| attr.mtime > newer)
            && self.ages.iter().all(|age| age.holds(days_between(attr.mtime, self.now)))
    }
}

/// `+N`, `-N` or `N`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Number {
    /// The required order of the value relative to N.
    is: Ordering,
    n: i64,
}

impl Number {
    fn parse(text: &str) -> Result<Self, String> {
        let (is, digits) = match text.as_bytes().first() {
            Some(b'+') => (Ordering::Greater, &text[1..]),
            Some(b'-') => (Ordering::Less, &text[1..]),
            _ => (Ordering::Equal, text),
        };
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(format!("'{text}' is not a number N, +N or -N"));
        }
        let n = digits.parse().map_err(|_| format!("{digits} is too large"))?;
        Ok(Number { is, n })
    }

    fn holds(self, value: i64) -> bool {
        value.cmp(&self.n) == self.is
    }
}

/// A number of units; sizes are rounded up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Size {
    number: Number,
    unit: u64,
}

impl Size {
    fn parse(text: &str) -> Result<Self, String> {
        let (number, unit) = match text.as_bytes().last() {
            Some(b'c') => (&text[..text.len() - 1], 1),
            Some(b'w') => (&text[..text.len() - 1], 2),
            Some(b'b') => (&text[..text.len() - 1], 512),
            Some(b'k') => (&text[..text.len() - 1], 1 << 10),
            Some(b'M') => (&text[..text.len() - 1], 1 << 20),
            Some(b'G') => (&text[..text.len() - 1], 1 << 30),
            _ => (text, 512),
        };
        let number = Number::parse(number)
            .map_err(|_| format!("'{text}' is not a size: N, +N or -N, then c w b k M or G"))?;
        Ok(Size { number, unit })
    }

    fn holds(self, bytes: u64) -> bool {
        i64::try_from(bytes.div_ceil(self.unit)).is_ok_and(|units| self.number.holds(units))
    }
}

fn kinds(letters: &str) -> Result<Vec<FileType>, String> {
    let kind = |letter: &str| {
        Ok(match letter {
            "f" => FileType::Regular,
            "d" => FileType::Directory,
            "l" => FileType::Symlink,
            "b" => FileType::BlockDevice,
            "c" => FileType::CharDevice,
            "p" => FileType::Fifo,
            "s" => FileType::Socket,
            _ => return Err(format!("'{letter}' is not a type: one of f d l b c p s")),
        })
    };
    letters.split(',').map(kind).collect()
}

/// Whole days from `then` to `now`, rounded down; the future is negative.
fn days_between(then: Timestamp, now: Timestamp) -> i64 {
    let nanos = |time: Timestamp| i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanos);
    let days = (nanos(now) - nanos(then)).div_euclid(86_400 * 1_000_000_000);
    // Seconds of 64 bits are fewer days.
    i64::try_from(days).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded_up_to_units() {
        let holds = |text, bytes| Size::parse(text).unwrap().holds(bytes);
        assert!(holds("1", 1) && holds("1", 512) && !holds("1", 513));
        assert!(holds("+1M", (1 << 20) + 1) && !holds("+1M", 1 << 20));
        assert!(holds("-1M", 0) && !holds("-1M", 1));
        assert!(holds("5c", 5) && holds("0", 0));
    }

    #[test]
    fn ages_are_whole_days() {
        let now = Timestamp { seconds: 10 * 86_400, nanos: 0 };
        let age = |seconds, nanos| days_between(Timestamp { seconds, nanos }, now);
        assert_eq!(age(10 * 86_400, 0), 0);
        assert_eq!(age(9 * 86_400, 1), 0);
        assert_eq!(age(9 * 86_400, 0), 1);
        assert_eq!(age(10 * 86_400, 1), -1);
        assert_eq!(age(i64::MIN, 0), i64::MAX / 86_400 + 10);
    }

    #[test]
    fn invalid_conditions_are_refused() {
        for text in ["", "+", "k", "1K", "--1", "99999999999999999999"] {
            assert!(Size::parse(text).is_err(), "{text}");
        }
        assert!(kinds("x").is_err() && kinds("f,").is_err());
        assert_eq!(kinds("d,l").unwrap(), [FileType::Directory, FileType::Symlink]);
    }
}
