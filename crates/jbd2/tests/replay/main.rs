//! Replays of journals that others wrote, and of ours, judged by others.

mod common;
mod debugfs;
mod kernel;
mod written;
