//! Modes and times as text.

use dentree_vfs::{Attr, FileType, Timestamp};
use jiff::fmt::strtime::BrokenDownTime;
use jiff::tz::TimeZone;
use std::fmt::Write;
use std::sync::{Arc, LazyLock};

/// `drwxr-xr-x`, followed by `+` where there is an ACL.
pub(crate) fn mode(attr: &Attr) -> String {
    let kind = match attr.kind {
        FileType::Regular => '-',
        other => other.letter(),
    };
    let mut text = format!("{kind}{}", permissions(attr.permissions));
    if attr.has_acl {
        text.push('+');
    }
    text
}

/// `rwxr-xr-x`.
pub(crate) fn permissions(bits: u16) -> String {
    let mut text = String::new();
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let class = bits >> shift;
        text.push(if class & 4 == 0 { '-' } else { 'r' });
        text.push(if class & 2 == 0 { '-' } else { 'w' });
        text.push(match (bits & special != 0, class & 1 != 0) {
            (false, false) => '-',
            (false, true) => 'x',
            (true, false) => letter.to_ascii_uppercase(),
            (true, true) => letter,
        });
    }
    text
}

/// The name of a file type.
pub(crate) fn kind(kind: FileType) -> &'static str {
    match kind {
        FileType::Regular => "regular file",
        FileType::Directory => "directory",
        FileType::Symlink => "symbolic link",
        FileType::CharDevice => "character device",
        FileType::BlockDevice => "block device",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
    }
}

/// Formats times in the local time zone.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    /// Read from the system when the first time is shown: that takes longer than most commands.
    zone: Arc<LazyLock<TimeZone>>,
}

impl Clock {
    pub(crate) fn local() -> Self {
        Clock { zone: Arc::new(LazyLock::new(TimeZone::system)) }
    }

    /// Minutes: `2026-11-21 09:34`.
    pub(crate) fn minute(&self, time: Timestamp) -> String {
        self.format(time, "%Y-%m-%d %H:%M")
    }

    /// Nanoseconds: `2026-11-21 09:34:43.123456789 +0100`.
    pub(crate) fn exact(&self, time: Timestamp) -> String {
        self.format(time, "%Y-%m-%d %H:%M:%S.%9f %z")
    }

    /// A pattern of date(1) that is checked: see [`is_pattern`](Self::is_pattern).
    pub(crate) fn format(&self, time: Timestamp, pattern: &str) -> String {
        let shown = instant(time).and_then(|instant| {
            BrokenDownTime::from(&instant.to_zoned((**self.zone).clone())).to_string(pattern).ok()
        });
        shown.unwrap_or_else(|| format!("@{}", time.seconds))
    }

    /// Whether times can be formatted by this pattern.
    pub(crate) fn is_pattern(pattern: &str) -> bool {
        BrokenDownTime::from(&jiff::Timestamp::UNIX_EPOCH.to_zoned(TimeZone::UTC)).to_string(pattern).is_ok()
    }
}

fn instant(time: Timestamp) -> Option<jiff::Timestamp> {
    let seconds = jiff::Timestamp::from_second(time.seconds).ok()?;
    seconds.checked_add(jiff::SignedDuration::from_nanos(i64::from(time.nanos))).ok()
}

/// `seconds.nanoseconds` since 1970 as of `find -printf %T@`: `-1.500000000` is 1.5 s before.
pub(crate) fn epoch(time: Timestamp) -> String {
    let mut text = String::new();
    if time.seconds < 0 && time.nanos > 0 {
        let _ = write!(text, "-{}.{:09}", (time.seconds + 1).unsigned_abs(), 1_000_000_000 - time.nanos);
    } else {
        let _ = write!(text, "{}.{:09}", time.seconds, time.nanos);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_count_backwards() {
        let shown = |seconds, nanos| epoch(Timestamp { seconds, nanos });
        assert_eq!(shown(1, 5), "1.000000005");
        assert_eq!(shown(-2, 500_000_000), "-1.500000000");
        assert_eq!(shown(-1, 1), "-0.999999999");
        assert_eq!(shown(-3, 0), "-3.000000000");
    }

    #[test]
    fn a_time_that_no_calendar_holds_is_shown_as_seconds() {
        let clock = Clock { zone: Arc::new(LazyLock::new(|| TimeZone::UTC)) };
        assert_eq!(clock.minute(Timestamp { seconds: i64::MAX, nanos: 0 }), format!("@{}", i64::MAX));
        assert_eq!(clock.exact(Timestamp { seconds: -1, nanos: 1 }), "1969-12-31 23:59:59.000000001 +0000");
    }
}
