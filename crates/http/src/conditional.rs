//! Validators, and the conditional headers of RFC 9110 §13.

use dentree_vfs::{Attr, Ino, Timestamp};
use httpdate::fmt_http_date;
use hyper::header::{
    HeaderMap, HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE,
};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Year 10000: no HTTP date expresses it.
const DATES_END: u64 = 253_402_300_800;

/// Distinguishes states of a file within a file system.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct State {
    ino: Ino,
    generation: u32,
    size: u64,
    mtime: Timestamp,
}

impl State {
    pub(crate) fn of(attr: &Attr) -> Self {
        State { ino: attr.ino, generation: attr.generation, size: attr.size, mtime: attr.mtime }
    }
}

/// Distinguishes states of a file for clients.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Validators {
    /// Strong entity tag with its quotes.
    pub(crate) tag: String,
    /// Time of change in whole seconds. `None`: no HTTP date expresses it, or it is in the future,
    /// which RFC 9110 §8.8.2.1 forbids to send.
    pub(crate) modified: Option<SystemTime>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// Respond as without conditions.
    Proceed,
    /// 304.
    NotModified,
    /// 412.
    Failed,
}

impl Validators {
    pub(crate) fn new(fsid: u64, state: &State, now: SystemTime) -> Self {
        let State { ino: Ino(ino), generation, size, mtime } = *state;
        let Timestamp { seconds, nanos } = mtime;
        let tag = format!("\"{fsid:x}-{ino:x}-{generation:x}-{size:x}-{seconds:x}.{nanos:x}\"");
        let modified = date_of(mtime).filter(|&modified| modified <= now);
        Validators { tag, modified }
    }

    pub(crate) fn last_modified(&self) -> Option<String> {
        self.modified.map(fmt_http_date)
    }

    /// Evaluates a GET or HEAD request in the order of RFC 9110 §13.2.2.
    pub(crate) fn judge(&self, headers: &HeaderMap) -> Verdict {
        if headers.contains_key(IF_MATCH) {
            if !self.listed(headers, IF_MATCH, Comparison::Strong) {
                return Verdict::Failed;
            }
        } else if let (Some(date), Some(modified)) = (date(headers, IF_UNMODIFIED_SINCE), self.modified)
            && modified > date
        {
            return Verdict::Failed;
        }
        let had = if headers.contains_key(IF_NONE_MATCH) {
            self.listed(headers, IF_NONE_MATCH, Comparison::Weak)
        } else {
            date(headers, IF_MODIFIED_SINCE)
                .zip(self.modified)
                .is_some_and(|(date, modified)| modified <= date)
        };
        if had { Verdict::NotModified } else { Verdict::Proceed }
    }

    /// Whether ranges may be sent: no `If-Range`, or one with this state. A date must be at least a
    /// second old, so that no later change shares it (RFC 9110 §8.8.2.2).
    pub(crate) fn allow_ranges(&self, headers: &HeaderMap, now: SystemTime) -> bool {
        let Some(value) = headers.get(IF_RANGE) else { return true };
        if value.as_bytes() == self.tag.as_bytes() {
            return true;
        }
        let settled = |modified: &SystemTime| *modified + Duration::from_secs(1) <= now;
        self.modified.is_some() && date(headers, IF_RANGE) == self.modified.filter(settled)
    }

    /// Whether a header lists this tag or `*`.
    fn listed(&self, headers: &HeaderMap, name: HeaderName, comparison: Comparison) -> bool {
        headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).any(|mut list| {
            if list.trim() == "*" {
                return true;
            }
            while let Some((weak, tag, behind)) = next_tag(list) {
                if tag == self.tag && !(weak && comparison == Comparison::Strong) {
                    return true;
                }
                list = behind;
            }
            false
        })
    }
}

/// `None`: no HTTP date expresses it.
fn date_of(time: Timestamp) -> Option<SystemTime> {
    let seconds = u64::try_from(time.seconds).ok().filter(|&seconds| seconds < DATES_END)?;
    Some(UNIX_EPOCH + Duration::from_secs(seconds))
}

pub(crate) fn http_date(time: Timestamp) -> Option<String> {
    date_of(time).map(fmt_http_date)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Strong,
    Weak,
}

/// First tag of a list: whether it is weak, the quoted tag, the rest.
fn next_tag(list: &str) -> Option<(bool, &str, &str)> {
    let list = list.trim_start_matches([' ', '\t', ',']);
    let (weak, list) = list.strip_prefix("W/").map_or((false, list), |list| (true, list));
    let end = list.strip_prefix('"')?.find('"')? + 2;
    Some((weak, &list[..end], &list[end..]))
}

fn date(headers: &HeaderMap, name: HeaderName) -> Option<SystemTime> {
    httpdate::parse_http_date(headers.get(name)?.to_str().ok()?).ok()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    const TAG: &str = "\"a-1\"";
    const DATE: &str = "Sun, 09 Sep 2001 01:46:40 GMT";
    const LATER: &str = "Sun, 09 Sep 2001 01:46:41 GMT";
    const EARLIER: &str = "Sun, 09 Sep 2001 01:46:39 GMT";

    /// File of five bytes, changed at this second.
    pub(crate) fn state(ino: u64, seconds: i64) -> State {
        State { ino: Ino(ino), generation: 0, size: 5, mtime: Timestamp { seconds, nanos: 0 } }
    }

    fn validators() -> Validators {
        Validators { tag: TAG.into(), modified: Some(UNIX_EPOCH + Duration::from_secs(1_000_000_000)) }
    }

    fn headers(pairs: &[(HeaderName, &str)]) -> HeaderMap {
        let pair = |(name, value): &(HeaderName, &str)| (name.clone(), HeaderValue::from_str(value).unwrap());
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn a_client_that_has_it_is_told_so() {
        for list in [TAG, "W/\"a-1\"", "\"x\", \"a-1\"", "\"x,y\",W/\"z\" , \"a-1\"", "*"] {
            assert_eq!(
                validators().judge(&headers(&[(IF_NONE_MATCH, list)])),
                Verdict::NotModified,
                "{list}"
            );
        }
        for date in [DATE, LATER] {
            assert_eq!(validators().judge(&headers(&[(IF_MODIFIED_SINCE, date)])), Verdict::NotModified);
        }
    }

    #[test]
    fn a_client_that_has_something_else_gets_it() {
        for list in ["\"a-2\"", "a-1", "\"a-1", "", "\"*\""] {
            assert_eq!(validators().judge(&headers(&[(IF_NONE_MATCH, list)])), Verdict::Proceed, "{list}");
        }
        for date in [EARLIER, "yesterday"] {
            assert_eq!(validators().judge(&headers(&[(IF_MODIFIED_SINCE, date)])), Verdict::Proceed);
        }
    }

    #[test]
    fn a_tag_counts_for_more_than_a_date() {
        let both = headers(&[(IF_NONE_MATCH, "\"other\""), (IF_MODIFIED_SINCE, LATER)]);
        assert_eq!(validators().judge(&both), Verdict::Proceed);
        let both = headers(&[(IF_MATCH, TAG), (IF_UNMODIFIED_SINCE, EARLIER)]);
        assert_eq!(validators().judge(&both), Verdict::Proceed);
    }

    #[test]
    fn a_wrong_precondition_fails() {
        for pair in [(IF_MATCH, "\"b\""), (IF_MATCH, "W/\"a-1\""), (IF_UNMODIFIED_SINCE, EARLIER)] {
            assert_eq!(
                validators().judge(&headers(std::slice::from_ref(&pair))),
                Verdict::Failed,
                "{pair:?}"
            );
        }
    }

    #[test]
    fn ranges_of_another_state_are_not_mixed() {
        let now = UNIX_EPOCH + Duration::from_secs(2_000_000_000);
        let allows = |value| validators().allow_ranges(&headers(&[(IF_RANGE, value)]), now);
        assert!(validators().allow_ranges(&HeaderMap::new(), now) && allows(TAG) && allows(DATE));
        for value in ["W/\"a-1\"", "\"b\"", LATER, EARLIER, "x"] {
            assert!(!allows(value), "{value}");
        }
        let soon = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        assert!(!validators().allow_ranges(&headers(&[(IF_RANGE, DATE)]), soon), "it may still change");
    }
}
