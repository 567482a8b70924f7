//! Configuration of a cache.

use crate::core::{Config, Core};
use crate::{Child, Dcache, Handle, PrefetchMode};
use std::hash::{BuildHasher, RandomState};
use std::marker::PhantomData;
use std::time::{Duration, Instant};

const MEBIBYTE: usize = 1 << 20;
/// Bytes per entry assumed by the default quota of negative entries.
const TYPICAL_ENTRY: usize = 124;

impl<H: Handle> Dcache<H> {
    /// A builder with the default settings.
    pub fn builder() -> Builder<H> {
        Builder::new()
    }
}

/// Builder of a [`Dcache`].
pub struct Builder<H> {
    memory: usize,
    negatives: Option<usize>,
    prefetch: PrefetchMode,
    seed: Option<u64>,
    clock: Box<dyn Fn() -> Duration + Send + Sync>,
    handle: PhantomData<fn() -> H>,
}

impl<H: Handle> Builder<H> {
    pub(crate) fn new() -> Self {
        let start = Instant::now();
        Builder {
            memory: 64 * MEBIBYTE,
            negatives: None,
            prefetch: PrefetchMode::default(),
            seed: None,
            clock: Box::new(move || start.elapsed()),
            handle: PhantomData,
        }
    }

    /// Maximum memory in bytes, without entries that users reference. Default 64 MiB, minimum
    /// 64 KiB. An entry takes about 124 bytes.
    pub fn memory(mut self, bytes: usize) -> Self {
        self.memory = bytes.max(crate::core::BUDGET_MIN);
        self
    }

    /// Maximum number of negative entries, at least 1. Default: a quarter of the entries that fit.
    pub fn negatives(mut self, entries: usize) -> Self {
        self.negatives = Some(entries);
        self
    }

    /// Whether walks prefetch.
    pub fn prefetch(mut self, mode: PrefetchMode) -> Self {
        self.prefetch = mode;
        self
    }

    /// Seed of the hash, for tests that need reproducible placement.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// The clock of times to live: time since a fixed point, never decreasing. Default: the
    /// system's monotonic clock.
    pub fn clock(mut self, clock: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        self.clock = Box::new(clock);
        self
    }

    /// Builds the cache. The root directory stays in it.
    pub fn build(self, root: Child<H>) -> Dcache<H> {
        let random = || RandomState::new().hash_one("dcache");
        let config = Config {
            budget: self.memory,
            negatives: self.negatives.unwrap_or(self.memory / TYPICAL_ENTRY / 4),
            prefetch: self.prefetch,
            seed: self.seed.unwrap_or_else(random),
            clock: self.clock,
        };
        Dcache { core: Core::new(config, root) }
    }
}
