//! Times in a new image.

use crate::report::Problem;
use dentree_vfs::Timestamp;
use std::time::{SystemTime, UNIX_EPOCH};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Time {
    pub(super) now: Timestamp,
    /// Limit of the times of files, as `SOURCE_DATE_EPOCH` requires.
    pub(super) latest: Option<Timestamp>,
}

impl Time {
    pub(super) fn now() -> Time {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let seconds = i64::try_from(now.as_secs()).unwrap_or(0);
        Time { now: Timestamp { seconds, nanos: 0 }, latest: None }
    }

    /// `SOURCE_DATE_EPOCH`, else 1970.
    pub(super) fn fixed() -> Result<Time, Problem> {
        let Ok(text) = std::env::var("SOURCE_DATE_EPOCH") else {
            return Ok(Time { now: Timestamp::default(), latest: None });
        };
        let seconds = text.parse().map_err(|_| {
            Problem::usage("SOURCE_DATE_EPOCH", format!("{text:?} is no number of seconds since 1970"))
        })?;
        let now = Timestamp { seconds, nanos: 0 };
        Ok(Time { now, latest: Some(now) })
    }
}
