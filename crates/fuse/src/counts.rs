//! How many requests have come, by operation.

use crate::abi;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// One for each opcode; those of a newer protocol share the first, which no opcode has.
const SLOTS: usize = 64;

/// Counts requests as they come.
pub(crate) struct Counters([AtomicU64; SLOTS]);

impl Counters {
    pub(crate) fn new() -> Self {
        Counters(std::array::from_fn(|_| AtomicU64::new(0)))
    }

    pub(crate) fn count(&self, opcode: u32) {
        let slot = opcode as usize;
        self.0[if slot < SLOTS { slot } else { 0 }].fetch_add(1, Relaxed);
    }

    pub(crate) fn so_far(&self) -> Requests {
        Requests(std::array::from_fn(|slot| self.0[slot].load(Relaxed)))
    }
}

/// Numbers of requests by operation. Shown as `2 LOOKUP, 1 GETATTR`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Requests([u64; SLOTS]);

impl Requests {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The operations that were requested, under the kernel's names, and how often; what this
    /// server does not know is `UNKNOWN`.
    pub fn by_operation(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let named = abi::OPCODES.iter().map(|(opcode, name)| (*name, self.0[*opcode as usize]));
        let unknown = self.total() - named.clone().map(|(_, count)| count).sum::<u64>();
        named.chain([("UNKNOWN", unknown)]).filter(|(_, count)| *count > 0)
    }

    /// Those that came after `earlier`.
    pub fn since(&self, earlier: &Requests) -> Requests {
        Requests(std::array::from_fn(|slot| self.0[slot] - earlier.0[slot]))
    }
}

impl fmt::Display for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (name, count)) in self.by_operation().enumerate() {
            let comma = if number == 0 { "" } else { ", " };
            write!(f, "{comma}{count} {name}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_operation_and_unknown_ones_together() {
        let counters = Counters::new();
        counters.count(abi::LOOKUP);
        let before = counters.so_far();
        for opcode in [abi::GETATTR, abi::LOOKUP, abi::LOOKUP, 60, 4711] {
            counters.count(opcode);
        }
        let after = counters.so_far().since(&before);
        assert_eq!(after.to_string(), "2 LOOKUP, 1 GETATTR, 2 UNKNOWN");
        assert_eq!(after.total(), 5);
    }
}
