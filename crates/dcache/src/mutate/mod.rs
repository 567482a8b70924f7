pub(crate) mod complete;
pub(crate) mod negative;
pub(crate) mod tree;
