//! Content: writing, allocation, write-back, times, truncation.

#[path = "../common/mod.rs"]
mod common;

mod bitmaps_ahead;
mod durability;
mod empty_nodes;
mod full;
mod inline_data;
mod large_writes;
mod meeting_write_back;
mod model;
mod reuse;
mod times;
mod trimming;
mod writing_content;
mod writing_faults;
mod writing_space;
