//! The `Range` header of RFC 9110 §14.

use std::ops::Range;

/// Most ranges per request. RFC 9110 §14.2 lets a server ignore costly requests.
pub const RANGES_MAX: usize = 16;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Wanted {
    /// No ranges, or ranges that a server may ignore.
    Whole,
    /// In request order, none empty.
    Parts(Vec<Range<u64>>),
    /// All ranges lie past the end.
    Unsatisfiable,
}

pub(crate) fn wanted(header: &str, size: u64) -> Wanted {
    let Some((unit, set)) = header.split_once('=') else { return Wanted::Whole };
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return Wanted::Whole;
    }
    let mut parts = Vec::new();
    let mut asked = 0;
    for range in set.split(',').map(str::trim).filter(|range| !range.is_empty()) {
        asked += 1;
        match part(range, size) {
            _ if asked > RANGES_MAX => return Wanted::Whole,
            None => return Wanted::Whole,
            Some(part) if part.is_empty() => {}
            Some(part) => parts.push(part),
        }
    }
    let bytes = parts.iter().fold(0_u64, |sum, part| sum.saturating_add(part.end - part.start));
    match (asked, parts.len()) {
        (0, _) => Wanted::Whole,
        (_, 0) => Wanted::Unsatisfiable,
        // Overlap.
        _ if bytes > size => Wanted::Whole,
        _ => Wanted::Parts(parts),
    }
}

/// A range cut to the file: empty past the end, `None` if malformed.
fn part(range: &str, size: u64) -> Option<Range<u64>> {
    let (first, last) = range.split_once('-')?;
    match (number(first)?, number(last)?) {
        (None, None) => None,
        (None, Some(length)) => Some(size.saturating_sub(length)..size),
        (Some(first), None) => Some(first.min(size)..size),
        (Some(first), Some(last)) if first <= last => Some(first.min(size)..last.saturating_add(1).min(size)),
        (Some(_), Some(_)) => None,
    }
}

/// `Some(None)`: no digits. Numbers beyond 64 bits are past every end.
fn number(text: &str) -> Option<Option<u64>> {
    match text.trim() {
        "" => Some(None),
        digits if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            Some(Some(digits.parse().unwrap_or(u64::MAX)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(start: u64, end: u64) -> Wanted {
        Wanted::Parts(vec![Range { start, end }])
    }

    #[test]
    fn ranges_are_cut_to_the_file() {
        assert_eq!(wanted("bytes=0-0", 100), part(0, 1));
        assert_eq!(wanted("bytes=90-", 100), part(90, 100));
        assert_eq!(wanted("bytes=-10", 100), part(90, 100));
        assert_eq!(wanted("bytes=-1000", 100), part(0, 100));
        assert_eq!(wanted("bytes=50-99999999999999999999999", 100), part(50, 100));
        assert_eq!(wanted("Bytes= 0-1 , ,50-59,200-", 100), Wanted::Parts(vec![0..2, 50..60]));
    }

    #[test]
    fn what_lies_behind_the_end_cannot_be_had() {
        for header in ["bytes=100-", "bytes=-0", "bytes=100-200,300-", "bytes=18446744073709551615-"] {
            assert_eq!(wanted(header, 100), Wanted::Unsatisfiable, "{header}");
        }
        assert_eq!(wanted("bytes=0-", 0), Wanted::Unsatisfiable);
    }

    #[test]
    fn what_is_no_range_or_too_many_gets_the_whole_file() {
        let many = format!("bytes={}", "0-0,".repeat(RANGES_MAX + 1));
        let headers = [
            "bytes",
            "bytes=",
            "lines=0-1",
            "bytes=-",
            "bytes=5-4",
            "bytes=a-b",
            "bytes=+1-2",
            "bytes=0-60,40-99",
            &many,
        ];
        for header in headers {
            assert_eq!(wanted(header, 100), Wanted::Whole, "{header}");
        }
    }
}
