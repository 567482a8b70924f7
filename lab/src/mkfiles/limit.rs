//! The limits of read-ahead's gain, with the arithmetic.

use std::fmt;

use crate::rows::figure;

/// The counts of one create, and the parameters of a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Arithmetic {
    /// The latency of a read.
    pub(super) latency_ms: f64,
    /// Reads that the device serves at a time.
    pub(super) depth: usize,
    /// Reads waited for without read-ahead, one after the other.
    pub(super) waits_off: f64,
    /// Requests with it, and those of them that were waited for.
    pub(super) requests: f64,
    pub(super) waits: f64,
    /// Directories.
    pub(super) directories: f64,
    /// The time of a create that waits for nothing.
    pub(super) processor_ms: f64,
}

/// The limit of a gain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    Directories,
    Queue,
    Processor,
}

impl Arithmetic {
    fn off_ms(&self) -> f64 {
        self.waits_off * self.latency_ms + self.processor_ms
    }

    fn queue_ms(&self) -> f64 {
        self.requests * self.latency_ms / self.depth as f64
    }

    fn directories_ms(&self) -> f64 {
        self.directories * self.latency_ms
    }

    /// The largest possible gain, and its limit.
    pub(super) fn bound(&self) -> (f64, Limit) {
        let least = [
            (self.directories_ms(), Limit::Directories),
            (self.queue_ms(), Limit::Queue),
            (self.processor_ms, Limit::Processor),
        ];
        let (ms, limit) = least
            .into_iter()
            .fold((0.0, Limit::Processor), |most, next| if next.0 > most.0 { next } else { most });
        (self.off_ms() / ms.max(f64::MIN_POSITIVE), limit)
    }
}

impl fmt::Display for Arithmetic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Arithmetic { latency_ms, depth, waits_off, requests, waits, directories, processor_ms } = *self;
        let (bound, limit) = self.bound();
        let by = match limit {
            Limit::Directories => "one wait for each directory",
            Limit::Queue => "its queue",
            Limit::Processor => "its processor",
        };
        write!(
            f,
            "off {} waits × {latency_ms} ms = {} ms; here {} waits = {} ms, and at least {} requests / {depth} at a time = {} ms, {} first \
             waits = {} ms, processor {} ms: at most ×{} by {by}",
            figure(waits_off),
            figure(self.off_ms()),
            figure(waits),
            figure(waits * latency_ms),
            figure(requests),
            figure(self.queue_ms()),
            figure(directories),
            figure(self.directories_ms()),
            figure(processor_ms),
            figure(bound)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_of_the_times_that_remain_is_the_limit() {
        let of = |requests, directories, processor_ms| Arithmetic {
            latency_ms: 8.0,
            depth: 32,
            waits_off: 0.75,
            requests,
            waits: 0.0,
            directories,
            processor_ms,
        };
        let (bound, limit) = of(1.0, 0.01, 0.1).bound();
        assert!((bound - 6.1 / 0.25).abs() < 1e-9 && limit == Limit::Queue, "{bound}");
        assert_eq!(of(0.1, 0.01, 0.01).bound().1, Limit::Directories);
        assert_eq!(of(0.1, 0.001, 0.1).bound().1, Limit::Processor);
        assert!(of(1.0, 0.01, 0.1).to_string().ends_with("by its queue"));
    }
}
