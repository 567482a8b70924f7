//! Workloads, rivals, statistics and reports.
//!
//! The lab measures the name cache against its alternatives: the kernel, a chained hash table as
//! kernels build it, and concurrent maps. Everything random has a seed; every walk's result is
//! checked, so that a fast wrong result fails instead of winning.
//!
//! - [`tree`] and [`paths`]: the load of walks;
//! - [`rivals`]: the caches that walk, one file each behind [`rivals::NameCache`];
//! - [`schemes`]: the locking schemes of the study, one file each behind [`schemes::Scheme`];
//! - [`harness`]: all of them in turn, round after round;
//! - [`mod@passes`]: repeated measurements, each on newly built caches;
//! - [`workloads`]: the loads of the schemes, and their throughput;
//! - [`mkfiles`]: creations in large directories, with and without index read-ahead;
//! - [`xattr`]: the benchmark of 2016's cache of shared attribute blocks;
//! - [`replacement`]: replacement policies of a buffer cache, on recorded traces;
//! - [`stats`], [`rows`], [`targets`], [`outcome`] and [`report`]: results, their confidence, and
//!   their targets;
//! - [`walk_bench`], [`find_bench`], [`tools_bench`], [`sources_bench`] and [`mount_bench`]: the
//!   benchmarks.
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
mod shell_race;
pub mod sources_bench;
pub mod stats;
pub mod step_bench;
pub mod targets;
pub mod tools_bench;
pub mod tree;
pub mod unavailable;
pub mod valgrind;
pub mod walk_bench;
mod words;
pub mod workloads;
pub mod xattr;
