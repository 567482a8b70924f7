//! Replays of journals, checked against other implementations.

mod common;
mod debugfs;
mod kernel;
mod written;
