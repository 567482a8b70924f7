//! Configuration of a cache.

use crate::core::{BUDGET_MIN, Config, Core};
use crate::{Child, Dcache, Handle, PrefetchMode};
use std::hash::{BuildHasher, RandomState};
use std::marker::PhantomData;

impl<H: Handle> Dcache<H> {
    /// A builder with the default settings.
    pub fn builder() -> Builder<H> {
        let seed = RandomState::new().hash_one("dcache");
        let config = Config { budget: 64 << 20, negatives: None, prefetch: PrefetchMode::default(), seed };
        Builder { config, handle: PhantomData }
    }
}

/// Builder of a [`Dcache`].
pub struct Builder<H> {
    config: Config,
    handle: PhantomData<fn() -> H>,
}

impl<H: Handle> Builder<H> {
    /// Maximum memory in bytes, without entries that users reference. Default 64 MiB, minimum
    /// 64 KiB. An entry takes about 124 bytes.
    pub fn memory(mut self, bytes: usize) -> Self {
        self.config.budget = bytes.max(BUDGET_MIN);
        self
    }

    /// Maximum number of negative entries, at least 1. Default: a quarter of the entries that fit.
    pub fn negatives(mut self, entries: usize) -> Self {
        self.config.negatives = Some(entries);
        self
    }

    /// Whether batches prefetch.
    pub fn prefetch(mut self, mode: PrefetchMode) -> Self {
        self.config.prefetch = mode;
        self
    }

    /// Seed of the hash, for tests that need reproducible placement.
    pub fn seed(mut self, seed: u64) -> Self {
        self.config.seed = seed;
        self
    }

    /// Builds the cache. The root directory stays in it.
    pub fn build(self, root: Child<H>) -> Dcache<H> {
        Dcache { core: Core::new(self.config, root) }
    }
}
