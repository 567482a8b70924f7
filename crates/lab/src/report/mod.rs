//! The page that `dentree lab all` writes, and the data beside it.
