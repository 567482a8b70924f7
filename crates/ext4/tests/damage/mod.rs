//! What the hostile-image tests and the fuzz targets share: small intact images, and a visitor that asks a file
//! system everything it can be asked.

#![allow(dead_code, reason = "each user takes what it needs")]

pub mod images;
pub mod visit;
