//! Validation errors.

/// A failed check of a structure. The caller adds its location.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Problem {
    /// Wrong magic number.
    #[error("magic number is {found:#x}, not {expected:#x}")]
    Magic {
        /// Found.
        found: u64,
        /// Required.
        expected: u64,
    },
    /// Wrong checksum.
    #[error("checksum is {stored:#x}, not {computed:#x}")]
    Checksum {
        /// Stored.
        stored: u32,
        /// Computed.
        computed: u32,
    },
    /// A field is out of range.
    #[error("{field} is {value}, must be {min} to {max}")]
    Range {
        /// Kernel name.
        field: &'static str,
        /// Value.
        value: u64,
        /// Minimum.
        min: u64,
        /// Maximum.
        max: u64,
    },
    /// A field has a forbidden value.
    #[error("{field} is {value}, which {because}")]
    Value {
        /// Kernel name.
        field: &'static str,
        /// Value.
        value: u64,
        /// Reason.
        because: &'static str,
    },
    /// Entries do not ascend.
    #[error("{field} {value} follows {previous}: entries must ascend without overlap")]
    Order {
        /// The ascending field.
        field: &'static str,
        /// Value out of order.
        value: u64,
        /// Value before.
        previous: u64,
    },
    /// Too few bytes.
    #[error("{what} needs {need} bytes, but there are {have}")]
    Short {
        /// The structure.
        what: &'static str,
        /// Required bytes.
        need: usize,
        /// Available bytes.
        have: usize,
    },
    /// A part is missing.
    #[error("{what} is missing")]
    Missing {
        /// The part.
        what: &'static str,
    },
}

impl Problem {
    /// Checks that `value` is in `min..=max`.
    #[inline]
    pub fn check_range(field: &'static str, value: u64, min: u64, max: u64) -> Result<(), Problem> {
        if (min..=max).contains(&value) { Ok(()) } else { Err(Problem::Range { field, value, min, max }) }
    }

    /// Checks that both are equal.
    pub fn check_sum(stored: u32, computed: u32) -> Result<(), Problem> {
        if stored == computed { Ok(()) } else { Err(Problem::Checksum { stored, computed }) }
    }
}
