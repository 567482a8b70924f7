//! Times in the styles of ls(1).

use crate::output::attributes::Clock;
use dentree_vfs::Timestamp;
use std::time::{SystemTime, UNIX_EPOCH};

/// Patterns of times: one for the last six months, one for others.
pub(crate) struct Dates {
    clock: Clock,
    old: String,
    recent: String,
    now: i64,
}

impl Dates {
    /// A style of ls(1): `full-iso`, `long-iso`, `iso`, `locale`, `+FORMAT`.
    pub(crate) fn new(style: &str) -> Result<Dates, &'static str> {
        let (old, recent) = match style.strip_prefix("posix-").unwrap_or(style) {
            "full-iso" => ("%Y-%m-%d %H:%M:%S.%9f %z", None),
            "long-iso" => ("%Y-%m-%d %H:%M", None),
            "iso" => ("%Y-%m-%d ", Some("%m-%d %H:%M")),
            "locale" => ("%b %e  %Y", Some("%b %e %H:%M")),
            other => match other.strip_prefix('+') {
                Some(own) => own.split_once('\n').map_or((own, None), |(old, recent)| (old, Some(recent))),
                None => return Err("not a style of times: full-iso, long-iso, iso, locale or +FORMAT"),
            },
        };
        let recent = recent.unwrap_or(old);
        if ![old, recent].into_iter().all(Clock::is_pattern) {
            return Err("not a format of date(1)");
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        Ok(Dates { clock: Clock::local(), old: old.to_owned(), recent: recent.to_owned(), now })
    }

    pub(crate) fn show(&self, time: Timestamp) -> String {
        /// Half of a Gregorian year.
        const RECENT: i64 = 31_556_952 / 2;
        let is_recent = time.seconds > self.now.saturating_sub(RECENT) && time.seconds <= self.now;
        self.clock.format(time, if is_recent { &self.recent } else { &self.old })
    }
}
