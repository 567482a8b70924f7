//! For the hostile-image tests and the fuzz targets: small intact images, and a visitor that calls
//! every operation of a file system.

#![allow(dead_code, reason = "each user takes what it needs")]

pub mod images;
pub mod visit;
