//! Directories: names, links, concurrent listings, growth.

#[path = "../common/mod.rs"]
mod common;

mod directory_times;
mod expected;
mod gone_with_its_name;
mod growing_in_turn;
mod inodes_side_by_side;
mod kinds;
mod large_directories;
mod many_threads;
mod names;
mod one_directory;
mod orphans;
mod positions;
mod tree;
mod whiteouts;
