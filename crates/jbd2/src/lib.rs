//! The journal: replay.
#![forbid(unsafe_code)]
