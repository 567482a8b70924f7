//! Workloads, rivals, statistics and reports.
#![forbid(unsafe_code)]
