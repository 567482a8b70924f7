pub(crate) mod fill;
pub(crate) mod in_lookup;
pub(crate) mod path_cache;
pub(crate) mod prefetch;
pub(crate) mod reach;
pub(crate) mod step;
pub(crate) mod trials;
pub(crate) mod walk;
