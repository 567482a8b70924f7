//! Workloads, rivals, statistics and reports.
//!
//! The lab measures the name cache against what it replaces: the kernel, a chained hash table as kernels build it, and the
//! concurrent maps that programs use today. Everything random has a seed; every walk's answer is checked, so that a fast
//! wrong answer fails instead of winning.
//!
//! - [`tree`] and [`paths`]: what is walked;
//! - [`rivals`]: who walks, one file each behind [`rivals::NameCache`];
//! - [`schemes`]: the locking schemes of the study, one file each behind [`schemes::Scheme`];
//! - [`harness`]: all of them in turn, round after round;
//! - [`mod@passes`]: the same work again, each time from nothing;
//! - [`workloads`]: loads that schemes carry, and what they get done;
//! - [`mkfiles`]: files made in large directories, with and without index read-ahead;
//! - [`xattr`]: the benchmark of 2016's cache of shared attribute blocks;
//! - [`replacement`]: which blocks a buffer cache keeps, on recorded traces;
//! - [`stats`], [`rows`], [`targets`], [`outcome`] and [`report`]: what came out, how sure it is, and whether it is enough;
//! - [`walk_bench`], [`find_bench`] and [`mount_bench`]: the benchmarks put together.
#![deny(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod find_bench;
pub mod harness;
mod leftovers;
pub mod mkfiles;
pub mod mount_bench;
pub mod mounts;
pub mod onedir_bench;
pub mod outcome;
pub mod passes;
pub mod paths;
pub mod placement;
pub mod programs;
pub mod replacement;
pub mod report;
pub mod rivals;
pub mod rows;
pub mod schemes;
pub mod stats;
pub mod targets;
pub mod tree;
pub mod unavailable;
pub mod valgrind;
pub mod walk_bench;
mod words;
pub mod workloads;
pub mod xattr;
