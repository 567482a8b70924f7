pub(crate) mod bytes;
pub(crate) mod name;
