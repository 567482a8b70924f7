//! The tests of `mounts`, with requests over io_uring.

#[path = "mounts/changes.rs"]
mod changes;
#[path = "mounts/common/mod.rs"]
mod common;
#[path = "mounts/direct.rs"]
mod direct;
#[path = "mounts/lives.rs"]
mod lives;
#[path = "mounts/mount.rs"]
mod mount;
#[path = "mounts/operations.rs"]
mod operations;
#[path = "mounts/programs.rs"]
mod programs;
#[path = "mounts/requests.rs"]
mod requests;
