//! Damaged images: an error that names the place, or a right result.

#[path = "../common/mod.rs"]
mod common;
#[path = "../damage/mod.rs"]
mod damage;
#[path = "../damage/examine.rs"]
mod examine;

mod damaged_blocks;
mod damaged_maps;
mod damaged_salvage;
mod loops;
mod resize_damaged;
mod superblock_fields;
