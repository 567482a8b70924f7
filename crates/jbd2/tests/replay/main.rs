//! Replays of journals that others wrote, judged by others.

mod common;
mod debugfs;
mod kernel;
