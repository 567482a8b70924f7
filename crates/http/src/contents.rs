//! Contents of small files in memory.
//!
//! The key is what the entity tag is made of: a changed file has another entry.

use crate::conditional::State;
use hyper::body::Bytes;
use quick_cache::sync::Cache;
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};

/// Bytes of an entry besides the content: key, entry, allocations.
const OVERHEAD: u64 = 256;
/// Typical file size of web sites, to size the table.
const TYPICAL: u64 = 8 << 10;

#[derive(Clone)]
struct ByLength;

impl Weighter<State, Bytes> for ByLength {
    fn weight(&self, _: &State, content: &Bytes) -> u64 {
        OVERHEAD + content.len() as u64
    }
}

pub(crate) struct Contents(Cache<State, Bytes, ByLength>);

impl Contents {
    /// `budget` in bytes.
    pub(crate) fn new(budget: usize) -> Self {
        let budget = budget as u64;
        let options = OptionsBuilder::new()
            .estimated_items_capacity(usize::try_from(budget / TYPICAL).unwrap_or(usize::MAX))
            .weight_capacity(budget)
            .build()
            .expect("both capacities are given");
        Contents(Cache::with_options(options, ByLength, DefaultHashBuilder::default(), Default::default()))
    }

    pub(crate) fn get(&self, state: &State) -> Option<Bytes> {
        self.0.get(state)
    }

    /// Only if there is room.
    pub(crate) fn keep(&self, state: State, content: Bytes) {
        self.0.insert(state, content);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conditional::tests::state;

    #[test]
    fn a_file_that_changed_has_another_content() {
        let contents = Contents::new(1 << 20);
        contents.keep(state(1, 5), Bytes::from_static(b"first"));
        assert_eq!(contents.get(&state(1, 5)).as_deref(), Some(&b"first"[..]));
        for other in [state(2, 5), state(1, 6)] {
            assert_eq!(contents.get(&other), None);
        }
    }

    #[test]
    fn the_budget_is_kept_and_none_keeps_nothing() {
        const BUDGET: usize = 4 << 20;
        let (contents, none) = (Contents::new(BUDGET), Contents::new(0));
        for number in 0..1000 {
            let content = Bytes::from(vec![0; 64 << 10]);
            none.keep(state(number, 0), content.clone());
            contents.keep(state(number, 0), content);
        }
        let kept =
            (0..1000).filter_map(|number| contents.get(&state(number, 0))).map(|content| content.len());
        let kept: usize = kept.sum();
        assert!(kept > BUDGET / 2 && kept <= BUDGET, "{kept}");
        assert!((0..1000).all(|number| none.get(&state(number, 0)).is_none()));
    }
}
