//! Numbers of tests: `N`, `+N` for more, `-N` for less.

use dentree_vfs::Timestamp;
use std::cmp::Ordering;

/// Nanoseconds of a second.
const SECOND: i128 = 1_000_000_000;
/// Nanoseconds of 24 hours.
const DAY: i128 = 86_400 * SECOND;

/// The required order of a value relative to the number after it.
fn order(text: &str) -> (Ordering, &str) {
    match text.as_bytes().first() {
        Some(b'+') => (Ordering::Greater, &text[1..]),
        Some(b'-') => (Ordering::Less, &text[1..]),
        _ => (Ordering::Equal, text),
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Number {
    is: Ordering,
    n: u64,
}

impl Number {
    pub(crate) fn exactly(n: u64) -> Self {
        Number { is: Ordering::Equal, n }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (is, digits) = order(text);
        let digits = Some(digits).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
        Some(Number { is, n: digits.parse().ok()? })
    }

    pub(crate) fn holds(self, value: u64) -> bool {
        value.cmp(&self.n) == self.is
    }
}

/// A number of units; sizes are rounded up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Size {
    number: Number,
    unit: u64,
}

impl Size {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (number, unit) = match text.as_bytes().last()? {
            b'c' => (&text[..text.len() - 1], 1),
            b'w' => (&text[..text.len() - 1], 2),
            b'b' => (&text[..text.len() - 1], 512),
            b'k' => (&text[..text.len() - 1], 1 << 10),
            b'M' => (&text[..text.len() - 1], 1 << 20),
            b'G' => (&text[..text.len() - 1], 1 << 30),
            _ => (text, 512),
        };
        Some(Size { number: Number::parse(number)?, unit })
    }

    pub(crate) fn holds(self, bytes: u64) -> bool {
        self.number.holds(bytes.div_ceil(self.unit))
    }
}

pub(crate) fn nanos(time: Timestamp) -> i128 {
    i128::from(time.seconds) * SECOND + i128::from(time.nanos)
}

/// The unit of an [`Age`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AgeUnit {
    /// Ages are rounded down to whole days.
    Days,
    /// Ages are rounded up to whole minutes.
    Minutes,
}

/// How long ago something happened, in nanoseconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Age {
    Before(i128),
    After(i128),
    /// After the first time, and not after the second.
    Within(i128, i128),
}

impl Age {
    /// `now` is what the age is counted from; the number may have a fraction.
    pub(crate) fn parse(text: &str, unit: AgeUnit, now: i128) -> Option<Self> {
        let (is, digits) = order(text);
        let length = if unit == AgeUnit::Days { DAY } else { 60 * SECOND };
        let back = (fraction(digits)? * length as f64) as i128;
        Some(match (unit, is) {
            (AgeUnit::Days, Ordering::Greater) => Age::Before(now.checked_sub(DAY)?.checked_sub(back)?),
            // find(1) allows a second more.
            (AgeUnit::Days, Ordering::Less) => Age::After(now.checked_sub(SECOND)?.checked_sub(back)?),
            (AgeUnit::Days, Ordering::Equal) => {
                let end = now.checked_sub(back)?;
                Age::Within(end.checked_sub(DAY)?, end)
            }
            (AgeUnit::Minutes, Ordering::Greater) => Age::Before(now.checked_sub(back)?),
            (AgeUnit::Minutes, Ordering::Less) => Age::After(now.checked_sub(back)?),
            (AgeUnit::Minutes, Ordering::Equal) => {
                let start = now.checked_sub(back)?;
                Age::Within(start, start.checked_add(length)?)
            }
        })
    }

    pub(crate) fn holds(self, time: Timestamp) -> bool {
        let time = nanos(time);
        match self {
            Age::Before(limit) => time < limit,
            Age::After(limit) => time > limit,
            Age::Within(start, end) => start < time && time <= end,
        }
    }
}

/// Days between the last change of an inode and the last access to its content, rounded up.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Used {
    is: Ordering,
    days: f64,
}

impl Used {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (is, digits) = order(text);
        Some(Used { is, days: fraction(digits)? })
    }

    pub(crate) fn holds(self, atime: Timestamp, ctime: Timestamp) -> bool {
        let later = nanos(atime) - nanos(ctime);
        let (days, limit) = (later as f64 / DAY as f64, self.days);
        later >= 0
            && match self.is {
                Ordering::Less => days < limit,
                Ordering::Equal => limit - 1.0 <= days && days < limit,
                Ordering::Greater => days > limit,
            }
    }
}

fn fraction(digits: &str) -> Option<f64> {
    let number = digits.trim_start_matches(['+', '-']);
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    digits.parse().ok().filter(|_| is_number)
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
        for text in ["", "+", "k", "1K", "--1", "99999999999999999999"] {
            assert!(Size::parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn days_are_rounded_down_and_minutes_up() {
        let now = 10 * DAY;
        let holds = |text, unit, ago: i128| {
            let nanos = now - ago;
            let time = Timestamp {
                seconds: nanos.div_euclid(SECOND) as i64,
                nanos: nanos.rem_euclid(SECOND) as u32,
            };
            Age::parse(text, unit, now).unwrap().holds(time)
        };
        assert!(holds("0", AgeUnit::Days, DAY - 1) && !holds("0", AgeUnit::Days, DAY));
        assert!(holds("+0", AgeUnit::Days, DAY + 1) && !holds("+0", AgeUnit::Days, DAY - 1));
        assert!(holds("-1", AgeUnit::Days, DAY / 2) && !holds("-1", AgeUnit::Days, DAY + 2 * SECOND));
        assert!(holds("1", AgeUnit::Minutes, 1) && !holds("1", AgeUnit::Minutes, 60 * SECOND));
        assert!(holds("+1", AgeUnit::Minutes, 61 * SECOND) && holds("-1", AgeUnit::Minutes, 59 * SECOND));
        assert!(holds("0.5", AgeUnit::Days, DAY));
        for text in ["", "+", "x", "1x", "nan", "1e5", "."] {
            assert!(Age::parse(text, AgeUnit::Days, now).is_none(), "{text}");
        }
    }
}
