//! Choosing a cache's size and habits.

use crate::core::{Config, Core};
use crate::{Child, Dcache, Handle, PrefetchMode};
use std::hash::{BuildHasher, RandomState};
use std::marker::PhantomData;
use std::time::{Duration, Instant};

const MEBIBYTE: usize = 1 << 20;
/// Bytes per entry that the default quota of negative entries reckons with.
const TYPICAL_ENTRY: usize = 124;

impl<H: Handle> Dcache<H> {
    /// Begins to set up a cache.
    pub fn builder() -> Builder<H> {
        Builder::new()
    }
}

/// Sets up a [`Dcache`].
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

    /// The most bytes that the cache may use beside what users hold; 64 MiB unless set, 64 KiB at
    /// least. An entry takes about 124 bytes.
    pub fn memory(mut self, bytes: usize) -> Self {
        self.memory = bytes.max(crate::core::BUDGET_MIN);
        self
    }

    /// The most negative entries (at least one); a quarter of all that fit unless set.
    pub fn negatives(mut self, entries: usize) -> Self {
        self.negatives = Some(entries);
        self
    }

    /// Whether walks prefetch.
    pub fn prefetch(mut self, mode: PrefetchMode) -> Self {
        self.prefetch = mode;
        self
    }

    /// Fixes what is otherwise random, so that a test finds every entry in the same place again.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// The time that times to live are measured in, since any fixed point; it must not run
    /// backwards. The system's monotonic clock unless set.
    pub fn clock(mut self, clock: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        self.clock = Box::new(clock);
        self
    }

    /// Makes the cache, with the root directory in it for good.
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
