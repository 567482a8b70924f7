//! Small intact images, and a visitor that calls every operation: for tests of hostile images and
//! fuzz targets.

#![allow(dead_code, reason = "each user takes what it needs")]

pub mod images;
pub mod salvaged;
pub mod visit;
