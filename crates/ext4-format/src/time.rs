//! Times of inodes: kernel document `inodes.rst`, "Inode Timestamps".

use crate::raw::split;
use zerocopy::little_endian as le;

/// Seconds since 1970-01-01 UTC and nanoseconds (0 to 999,999,999) after that second.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct InodeTime {
    /// Whole seconds, negative before 1970.
    pub seconds: i64,
    /// Nanoseconds within the second.
    pub nanos: u32,
}

impl InodeTime {
    /// Decodes the 32-bit field and, if the inode has it, its `_extra` field: two bits that extend
    /// the seconds to the year 2446, and 30 bits of nanoseconds.
    pub(crate) fn decode(seconds: le::U32, extra: Option<le::U32>) -> InodeTime {
        let low = i64::from(seconds.get().cast_signed());
        let extra = extra.map_or(0, le::U32::get);
        InodeTime { seconds: low + (i64::from(extra & 3) << 32), nanos: (extra >> 2).min(999_999_999) }
    }

    /// The nearest time that the fields can hold: 1901 to 2446 with nanoseconds with an `_extra`
    /// field, 1901 to 2038 in whole seconds without. The first and the last second have no
    /// nanoseconds, as in the kernel.
    #[must_use]
    pub fn clamped(self, has_extra: bool) -> InodeTime {
        let min = i64::from(i32::MIN);
        let max = i64::from(i32::MAX) + if has_extra { 3 << 32 } else { 0 };
        let is_within = min < self.seconds && self.seconds < max;
        let nanos = if has_extra && is_within { self.nanos.min(999_999_999) } else { 0 };
        InodeTime { seconds: self.seconds.clamp(min, max), nanos }
    }

    /// The 32-bit field and its `_extra` field, for a time that [they can
    /// hold](InodeTime::clamped).
    pub(crate) fn encode(self) -> (le::U32, le::U32) {
        let low = split(self.seconds.cast_unsigned()).1;
        let epoch = split((self.seconds - i64::from(low.cast_signed())).cast_unsigned()).0;
        (le::U32::new(low), le::U32::new(epoch & 3 | self.nanos << 2))
    }
}
