//! Errors of bytes that should be a structure.

/// The check that a structure failed. The caller knows where the bytes came from and adds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Problem {
    /// A wrong magic number.
    #[error("magic number is {found:#x}, not {expected:#x}")]
    Magic {
        /// The value on disk.
        found: u64,
        /// The value required.
        expected: u64,
    },
    /// The stored checksum differs from the computed one.
    #[error("checksum is {stored:#x}, its content gives {computed:#x}")]
    Checksum {
        /// As stored.
        stored: u32,
        /// As computed.
        computed: u32,
    },
    /// A field is out of its range.
    #[error("{field} is {value}, must be {min} to {max}")]
    Range {
        /// The field, under its kernel name.
        field: &'static str,
        /// Its value.
        value: u64,
        /// The lowest allowed value.
        min: u64,
        /// The highest allowed value.
        max: u64,
    },
    /// A field has a forbidden value.
    #[error("{field} is {value}, which {because}")]
    Value {
        /// The field, under its kernel name.
        field: &'static str,
        /// Its value.
        value: u64,
        /// The reason.
        because: &'static str,
    },
    /// Entries are not in ascending order.
    #[error("{field} {value} follows {previous}: entries must ascend without overlap")]
    Order {
        /// The field that must ascend.
        field: &'static str,
        /// The entry out of order.
        value: u64,
        /// The entry before it, or its end.
        previous: u64,
    },
    /// The structure exceeds the bytes that hold it.
    #[error("{what} needs {need} bytes, there are {have}")]
    Short {
        /// What does not fit.
        what: &'static str,
        /// Bytes needed.
        need: usize,
        /// Bytes available.
        have: usize,
    },
    /// A required part is missing.
    #[error("{what} is missing")]
    Missing {
        /// What is missing.
        what: &'static str,
    },
}

impl Problem {
    /// Checks that `value` is within `min..=max`.
    #[inline]
    pub fn check_range(field: &'static str, value: u64, min: u64, max: u64) -> Result<(), Problem> {
        if (min..=max).contains(&value) { Ok(()) } else { Err(Problem::Range { field, value, min, max }) }
    }

    /// Compares two checksums.
    pub fn check_sum(stored: u32, computed: u32) -> Result<(), Problem> {
        if stored == computed { Ok(()) } else { Err(Problem::Checksum { stored, computed }) }
    }
}
