//! Inode times. Source: kernel document `inodes.rst`, "Inode Timestamps".

use crate::raw::split;
use zerocopy::little_endian as le;

/// Time since 1970-01-01 UTC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct InodeTime {
    /// Seconds, negative before 1970.
    pub seconds: i64,
    /// Nanoseconds, below 10^9.
    pub nanos: u32,
}

impl InodeTime {
    /// The `_extra` field has two more bits of seconds, up to the year 2446, and 30 bits of
    /// nanoseconds.
    pub(crate) fn decode(seconds: le::U32, extra: Option<le::U32>) -> InodeTime {
        let low = i64::from(seconds.get().cast_signed());
        let extra = extra.map_or(0, le::U32::get);
        InodeTime { seconds: low + (i64::from(extra & 3) << 32), nanos: (extra >> 2).min(999_999_999) }
    }

    /// The nearest time in range: 1901 to 2446 with nanoseconds, or without `_extra` 1901 to 2038.
    /// As in the kernel, the limits have no nanoseconds.
    #[must_use]
    pub fn clamped(self, has_extra: bool) -> InodeTime {
        let min = i64::from(i32::MIN);
        let max = i64::from(i32::MAX) + if has_extra { 3 << 32 } else { 0 };
        let is_within = min < self.seconds && self.seconds < max;
        let nanos = if has_extra && is_within { self.nanos.min(999_999_999) } else { 0 };
        InodeTime { seconds: self.seconds.clamp(min, max), nanos }
    }

    /// For a [clamped](InodeTime::clamped) time: the 32-bit field and `_extra`.
    pub(crate) fn encode(self) -> (le::U32, le::U32) {
        let low = split(self.seconds.cast_unsigned()).1;
        let epoch = split((self.seconds - i64::from(low.cast_signed())).cast_unsigned()).0;
        (le::U32::new(low), le::U32::new(epoch & 3 | self.nanos << 2))
    }
}
