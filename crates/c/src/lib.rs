//! The C interface: images are opened, paths walked to, files and directories read.
//!
//! `include/dentree.h` is made of this crate by cbindgen, and tells a C programmer everything; a
//! test compares the two.
//!
//! # Who protects what
//! A caller owns what `dentree_open` and `dentree_walk` give, until `dentree_close` and
//! `dentree_put`. All state behind them has locks of its own, so that any thread may use any of
//! them. The message of the last failure belongs to its thread.
#![allow(non_camel_case_types)] // they are C's names

mod entries;
mod error;
mod image;
mod node;
mod pointer;
mod stat;
