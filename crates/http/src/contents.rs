//! Contents of small files, kept in memory: a request for one of them waits for nothing.
//!
//! A content is kept under what its entity tag is made of. So what comes from here is what clients that have seen the
//! tag believe the file to hold, and a file that changes has another place here.

use crate::conditional::State;
use hyper::body::Bytes;
use quick_cache::sync::Cache;
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};

/// What an entry takes beside the content, in bytes: its key, its place, and the allocations' own.
const OVERHEAD: u64 = 256;
/// Bytes of a file as web sites have them, for the number of entries to make room for.
const TYPICAL: u64 = 8 << 10;

#[derive(Clone)]
struct ByLength;

impl Weighter<State, Bytes> for ByLength {
    fn weight(&self, _: &State, content: &Bytes) -> u64 {
        OVERHEAD + content.len() as u64
    }
}

/// Contents by the state of their file, those asked for of late.
pub(crate) struct Contents(Cache<State, Bytes, ByLength>);

impl Contents {
    /// Keeps up to `budget` bytes.
    pub(crate) fn new(budget: usize) -> Self {
        let budget = budget as u64;
        let options = OptionsBuilder::new()
            .estimated_items_capacity(usize::try_from(budget / TYPICAL).unwrap_or(usize::MAX))
            .weight_capacity(budget)
            .build()
            .expect("both capacities are given");
        Contents(Cache::with_options(options, ByLength, DefaultHashBuilder::default(), Default::default()))
    }

    /// The whole content of a file in this state.
    pub(crate) fn get(&self, state: &State) -> Option<Bytes> {
        self.0.get(state)
    }

    /// Keeps the whole content of a file in this state, if there is room for it.
    pub(crate) fn keep(&self, state: State, content: Bytes) {
        self.0.insert(state, content);
    }
}
