//! Mounts whose requests come over `/dev/fuse`.

mod changes;
mod common;
mod direct;
mod lives;
mod mount;
mod operations;
mod programs;
mod requests;
